"""Invariants of every view, at any progress of a run."""

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.runs import POLICIES, ended, make, mixed, write
from tests.warehouse.by_hand import (
    CELL,
    by_job,
    column,
    records,
    summary,
    tenants,
    warehouse_of,
    write_cells,
)
from warehouse.analytics import definitions
from warehouse.analytics.catalog import build, create_views
from warehouse.analytics.definitions import MARTS, STAGING, VIEWS, find_needed, view_sql
from warehouse.analytics.questions import Analytics

pytestmark = pytest.mark.slow

KEYS = {
    "headers": ["run"],
    "commands": ["run", "number"],
    "inventories": ["run"],
    "records": ["run", "round"],
    "round_facts": ["run", "round"],
    "campaign_cells": ["campaign", "cell"],
    "runs": ["run"],
    "rounds": ["run", "round"],
    "jobs": ["run", "job_id"],
    "forecasts": ["run", "round", "job_id"],
    "bids": ["run", "round", "job_id", "gpu_type", "scale_factor"],
    "solves": ["run", "round"],
    "placements": ["run", "round", "job_id"],
    "sharing": ["run", "round", "job_id"],
    "telemetry": ["run", "job_id", "epoch"],
    "usage": ["run", "round", "job_id"],
    "events": ["run", "round", "job_id", "kind"],
    "fair_finishes": ["run", "round", "job_id"],
    "prices": ["run", "round", "gpu_type"],
    "leases": ["run", "round", "job_id"],
    "preemptions": ["run", "round", "job_id"],
    "job_outcomes": ["run", "job_id"],
    "forecast_errors": ["run", "job_id", "tenth"],
    "adaptations": ["run", "job_id"],
    "envy": ["run", "job_id"],
    "distributions": ["run", "metric", "job_id"],
    "run_summary": ["run"],
    "tenant_summary": ["run", "tenant"],
}
"""What each view's grain means in columns."""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Analytics:
    folder = tmp_path_factory.mktemp("simulated")
    for policy in POLICIES:
        made = ended(policy)
        write(folder, made.start, made.rounds, compact=policy != "fifo")
    shared = make(mixed("gandiva", jobs=14, together=0.8))
    write(folder, shared.start, shared.rounds)
    write_cells(folder, CELL)
    return Analytics(folder)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Analytics:
    folder = tmp_path_factory.mktemp("empty")
    build(folder)
    return Analytics(folder)


def test_a_real_restart_costs_what_the_virtual_cluster_charges(simulated: Analytics) -> None:
    # A launch in a run's first round is free, and so is one that ends within its first round.
    costs = column(simulated, "leases WHERE round > 0", "restart_seconds")
    charged = [seconds for seconds in costs if seconds > 1e-6]
    assert len(charged) > 0.8 * len(costs) > 0
    assert charged == pytest.approx([20.0] * len(charged))
    _, [(held, parts, idle)] = simulated.query(
        "SELECT sum(seconds), sum(run_seconds + restart_seconds + idle_seconds), "
        "sum(idle_seconds) FROM leases"
    )
    assert held == pytest.approx(parts)
    assert idle < 0.01 * held


def test_nobody_waits_less_than_nothing(simulated: Analytics) -> None:
    waited = column(simulated, "job_outcomes", "waiting_seconds")
    assert min(waited) == 0.0  # who never waited, whatever the sums of his leases round to
    assert max(waited) > 600


def test_a_tenant_who_owns_all_jobs_has_the_figures_of_the_run(simulated: Analytics) -> None:
    columns, rows = simulated.query("FROM run_summary ORDER BY run")
    runs = [dict(zip(columns, row, strict=True)) for row in rows]
    assert len(tenants(simulated)) == len(runs) == len(POLICIES) + 1
    for run, tenant in zip(runs, tenants(simulated), strict=True):
        assert tenant.pop("tenant") == "default"
        assert (tenant.pop("finished"), tenant.pop("gpu_share")) == (run["jobs"], 1.0)
        costs = "leases WHERE run = '" + run["run"] + "'", "(sum(cost), sum(market_cost))"
        (whole,) = column(simulated, *costs)
        assert (tenant["cost"], tenant["market_cost"]) == pytest.approx(whole)
        assert tenant.pop("budget_share") == 1.0
        for name, value in tenant.items():
            assert value == (pytest.approx(run[name]) if isinstance(value, float) else run[name])


def test_a_run_under_way_has_nulls_for_what_is_not_known(tmp_path: Path) -> None:
    analytics = warehouse_of(tmp_path, records()[:2])
    assert column(analytics, "runs", "complete") == [False]
    judged = ("rho", "unfair", "ftf_published")
    for name in ("finish_seconds", "jct_seconds", "waiting_seconds", *judged):
        assert by_job(analytics, name) == [None, None, None]
    assert by_job(analytics, "start_seconds") == [0.0, 100.0, None]
    assert by_job(analytics, "admitted_seconds") == [0.0, 0.0, None]
    assert by_job(analytics, "run_seconds") == [80.0, 0.0, 0.0]
    figures = summary(analytics)
    assert (figures["makespan_s"], figures["rounds"]) == (100.0, 2)
    assert figures["utilization"] == pytest.approx(160 / 200)
    assert figures["mean_jct_s"] is None
    assert figures["worst_rho"] is None
    assert figures["unfair_fraction"] is None


def test_a_run_is_complete_with_its_closing_record(tmp_path: Path) -> None:
    analytics = warehouse_of(tmp_path, records()[:4])
    assert column(analytics, "runs", "complete") == [False]
    assert by_job(analytics, "unfair") == [None, True, False]
    assert summary(analytics)["unfair_fraction"] == 0.5  # of the jobs that have finished


def test_a_run_without_a_round_has_a_summary_of_nulls(tmp_path: Path) -> None:
    figures = summary(warehouse_of(tmp_path, []))
    assert figures["complete"] is False
    for name in ("makespan_s", "mean_jct_s", "utilization", "rounds", "max_gap", "last_hash"):
        assert figures[name] is None


@pytest.mark.parametrize("rounds", [0, 1, 2, 5])
def test_every_view_works_however_far_a_run_is(tmp_path: Path, rounds: int) -> None:
    warehouse_of(tmp_path, records()[:rounds])
    with duckdb.connect() as connection:
        create_views(connection, tmp_path, tables=MARTS)
        for view in VIEWS:
            connection.execute(f"FROM {view}").fetchall()


@pytest.fixture(scope="module")
def of_nothing(empty: Analytics) -> dict[str, Any]:
    """Columns and rows of each view of an empty warehouse."""
    return dict(zip(VIEWS, empty.queries([f"FROM {view}" for view in VIEWS]), strict=True))


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_works_on_an_empty_warehouse(of_nothing: dict[str, Any], view: str) -> None:
    columns, rows = of_nothing[view]
    assert columns
    assert rows == []


def test_every_view_is_listed_and_has_a_key() -> None:
    folder = Path(definitions.__file__).parent / "views"
    for layer, views in (("staging", STAGING), ("marts", MARTS)):
        assert sorted(path.stem for path in (folder / layer).glob("*.sql")) == sorted(views)
    services = sorted(path.stem for path in (folder / "services").glob("*.sql"))
    assert services == ["commands", "workloads"]
    assert len(list(folder.rglob("*.sql"))) - len(services) == len(VIEWS) == len(KEYS)
    assert set(VIEWS) == set(KEYS)


@pytest.mark.parametrize("view", VIEWS)
def test_views_read_files_in_one_layer_only_and_none_that_come_after(view: str) -> None:
    files = re.findall(r"FROM {(\w+)}", view_sql(view))
    assert files == {
        "headers": ["headers"],
        "commands": ["commands"],
        "records": ["rounds"],
        "jobs": ["workloads"],
        "campaign_cells": ["cells"],
    }.get(view, [])
    reads = set(find_needed((view,))) - {view}
    assert reads <= set(VIEWS[: VIEWS.index(view)])
    if view in STAGING:
        assert reads <= {"headers", "commands", "records"}


@pytest.fixture(scope="module")
def counted(simulated: Analytics) -> dict[str, Any]:
    """Rows of each view, different keys among them, and rows with a key that is missing."""

    def count(view: str) -> str:
        keys = ", ".join(KEYS[view])
        missing = " OR ".join(f"{key} IS NULL" for key in KEYS[view])
        return f"SELECT count(*), count(DISTINCT ({keys})), count(*) FILTER ({missing}) FROM {view}"

    answers = simulated.queries([count(view) for view in VIEWS])
    return {view: rows for view, (_, (rows,)) in zip(VIEWS, answers, strict=True)}


@pytest.mark.parametrize("view", VIEWS)
def test_the_grain_of_a_view_is_unique(counted: dict[str, Any], view: str) -> None:
    rows, distinct, nulls = counted[view]
    assert rows == distinct
    assert rows or view == "commands"  # of services, which are asked by hand
    assert nulls == 0
