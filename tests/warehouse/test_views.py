"""Every metric, worked out by hand for a run of three jobs on two GPUs.

    clock      0        100        200        300     315.0009
    GPU 0   | job 0  | job 1    | job 1    | job 0  |
    GPU 1   | job 0  | idle     | job 2    | job 0  |
    active     0 1       0 1       0 1 2       0        none

Job 0 loses its lease at 100 and is resumed at 300; job 2 arrives at 150, waits for the
boundary at 200 and ends inside the round, at 280.
"""

import inspect
import re
from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest

from containers.runtime import ContainerEvent, EventKind, Lease
from containers.virtual.truth import GroundTruth
from predictor.allocation import Allocation, Demand
from predictor.job import EpochReport, JobProgress, JobSpec, Mode, Regime
from predictor.throughput import UNTYPED, Profile
from solver.inventory import Pool
from solver.market import Price
from solver.plan import SolveReport, Turn
from tasks.layouts import VERSION
from tasks.record import (
    Estimate,
    Fork,
    Package,
    RoundRecord,
    RunHeader,
    Settings,
    Start,
    one_pool,
)
from tasks.sources import Workload
from tests.runs import POLICIES, chained, ended, make, mixed, previewed, start_of, write
from tests.strategies import certain, gang_bid
from warehouse.analytics import definitions
from warehouse.analytics.catalog import build, create_views
from warehouse.analytics.definitions import MARTS, STAGING, VIEWS, needed, view_sql
from warehouse.analytics.questions import Analytics
from warehouse.store.arrow import to_table
from warehouse.store.files import CELLS, CellRow, CellStatus, write_table
from warehouse.store.writer import Writer

pytestmark = pytest.mark.slow

KEYS = {
    "headers": ["run"],
    "inventories": ["run"],
    "records": ["run", "round"],
    "campaign_cells": ["campaign", "cell"],
    "runs": ["run"],
    "rounds": ["run", "round"],
    "jobs": ["run", "job_id"],
    "forecasts": ["run", "round", "job_id"],
    "bids": ["run", "round", "job_id", "gpu_type", "scale_factor"],
    "plans": ["run", "round", "job_id"],
    "solves": ["run", "round"],
    "placements": ["run", "round", "job_id"],
    "sharing": ["run", "round", "job_id"],
    "telemetry": ["run", "job_id", "epoch"],
    "usage": ["run", "round", "job_id"],
    "events": ["run", "round", "job_id", "kind"],
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

ISOLATED = {0: 200.0, 1: 150.0, 2: 100.0}
END = 315.0009


def spec(job_id: int, gpus: int, arrival_seconds: float, tenant: str) -> JobSpec:
    demand, mode = Demand.gang(gpus), Mode.ACCORDION
    return JobSpec(job_id, "net", 16, 64, demand, mode, 10, 1000, arrival_seconds, tenant, 2.0)


HEADER = RunHeader(
    version=VERSION,
    settings=Settings(
        "shockwave",
        one_pool(2, gpu_type=UNTYPED),
        backend="highs",
        round_seconds=100.0,
        restart_seconds=20.0,
        window=5,
        seed=9,
    ),
    source="by hand",
    workload="",
    profile=(),
)
WORKLOAD = Workload(
    source="by hand",
    specs=(spec(0, 2, 0.0, "red"), spec(1, 1, 0.0, "blue"), spec(2, 1, 150.0, "blue")),
    truths=tuple(
        GroundTruth(j, ISOLATED[j], (Regime(16, 10),), (Regime(16, 10),)) for j in ISOLATED
    ),
    profile=Profile({}),
)
START = start_of(HEADER, WORKLOAD)


def with_settings(**settings: Any) -> Start:
    """The same run, asked otherwise."""
    return start_of(replace(HEADER, settings=replace(HEADER.settings, **settings)), WORKLOAD)


CELL = CellRow(
    campaign="august",
    cell="fifo/small/7",
    run="fifo-3fa8c1-1",
    policy="fifo",
    workload="small",
    cluster="eight",
    options="default",
    seed=7,
    status=CellStatus.FINISHED,
    hash="0a1b",
    seconds=2.5,
    key="c0de",
    reason="",
)


def write_cells(warehouse: Path, cell: CellRow) -> None:
    """A campaign of one cell."""
    folder = warehouse / "campaigns" / cell.campaign
    folder.mkdir(parents=True)
    write_table(folder / "cells.parquet", to_table(CELLS, cell))


def expected(job_id: int) -> Estimate:
    own = Allocation(UNTYPED, WORKLOAD.specs[job_id].demand.least)
    return Estimate(job_id, own, 0.1, 0.0, 50.0, 50.0, 50.0)


CLEARED = SolveReport(
    "shockwave", "highs", "asked", "optimal", 1.0, 1.02, 0.02, (Price(UNTYPED, 0.5),)
)


def event(job_id: int, kind: EventKind, at_seconds: float, *gpus: int) -> ContainerEvent:
    return ContainerEvent(job_id, kind, at_seconds, gpus)


def ran(job_id: int, seconds: float) -> JobProgress:
    return JobProgress(job_id, 3, 0.5, 16, seconds, seconds, 400, 2 * seconds, 1_000, 0.75)


def round_record(number: int, clock_seconds: float, active: tuple[int, ...], **parts: Any) -> Any:
    record = RoundRecord(
        version=VERSION,
        round=number,
        clock_seconds=clock_seconds,
        arrivals=(),
        finished=(),
        reports=(),
        progress=(),
        forecasts=tuple(certain(job_id, 9.0) for job_id in active),
        estimates=tuple(map(expected, active)),
        bids=(),
        solve=SolveReport("shockwave"),
        turns=(),
        memory="",
        leases=(),
        events=(),
        previous_hash="",
    )
    return replace(record, **parts)


def records(end: float = END) -> list[RoundRecord]:
    """The run, with the end of job 0 and so of the run as a parameter."""
    kind = EventKind
    return [
        round_record(
            0,
            0.0,
            (0, 1),
            arrivals=WORKLOAD.specs[:2],
            bids=(gang_bid(1, 1, (-1.0, 0.0), (50.0, 0.0), weight=2.5),),
            turns=(Turn(0, (0,)), Turn(1, (1, 2))),
            leases=(Lease(0, (0, 1)),),
            events=(event(0, kind.STARTED, 0.0, 0, 1),),
        ),
        round_record(
            1,
            100.0,
            (0, 1),
            reports=(EpochReport(0, 0, 2, 16, 60.0),),
            progress=(ran(0, 80.0),),
            solve=CLEARED,
            leases=(Lease(1, (0,)),),
            events=(event(0, kind.PREEMPTED, 100.0, 0, 1), event(1, kind.STARTED, 100.0, 0)),
        ),
        round_record(
            2,
            200.0,
            (0, 1, 2),
            arrivals=WORKLOAD.specs[2:],
            progress=(ran(1, 90.0),),
            leases=(Lease(1, (0,)), Lease(2, (1,))),
            events=(event(2, kind.STARTED, 200.0, 1),),
        ),
        round_record(
            3,
            300.0,
            (0,),
            finished=(event(2, kind.FINISHED, 280.0, 1), event(1, kind.FINISHED, 300.0, 0)),
            progress=(ran(1, 180.0), ran(2, 75.0)),
            leases=(Lease(0, (0, 1)),),
            events=(event(0, kind.RESUMED, 300.0, 0, 1),),
        ),
        round_record(
            4,
            end,
            (),
            finished=(event(0, kind.FINISHED, end, 0, 1),),
            progress=(ran(0, 95.0),),
        ),
    ]


def warehouse_of(folder: Path, rounds: list[RoundRecord]) -> Analytics:
    write(folder, START, chained(START, rounds), compact=False)
    return Analytics(folder)


@pytest.fixture(scope="module")
def analytics(tmp_path_factory: pytest.TempPathFactory) -> Analytics:
    return warehouse_of(tmp_path_factory.mktemp("warehouse"), records())


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Analytics:
    folder = tmp_path_factory.mktemp("simulated")
    for policy in POLICIES:
        made = previewed(ended(policy)) if policy == "shockwave" else ended(policy)
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


def column(analytics: Analytics, view: str, name: str, order: str = "ALL") -> list[Any]:
    _, rows = analytics.query(f"SELECT {name} FROM {view} ORDER BY {order}")
    return [row[0] for row in rows]


@cache
def table(analytics: Analytics, view: str, order: str = "ALL") -> list[dict[str, Any]]:
    """A view's rows, asked for once; of a warehouse to which nothing is written any more."""
    columns, rows = analytics.query(f"FROM {view} ORDER BY {order}")
    return [dict(zip(columns, row, strict=True)) for row in rows]


def by_job(analytics: Analytics, name: str) -> list[Any]:
    return [row[name] for row in table(analytics, "job_outcomes", "job_id")]


def by_round(analytics: Analytics, name: str) -> list[Any]:
    return [row[name] for row in table(analytics, "rounds", "round")]


def summary(analytics: Analytics) -> dict[str, Any]:
    (row,) = table(analytics, "run_summary")
    return row


# The metrics by hand


def test_jct_runs_from_arrival_to_finish(analytics: Analytics) -> None:
    assert by_job(analytics, "finish_seconds") == [END, 300.0, 280.0]
    assert by_job(analytics, "jct_seconds") == [END, 300.0, 280.0 - 150.0]
    assert summary(analytics)["mean_jct_s"] == pytest.approx((END + 300 + 130) / 3)


def test_makespan_runs_to_the_closing_record(analytics: Analytics) -> None:
    assert summary(analytics)["makespan_s"] == END


def test_no_schedule_ends_before_the_work_that_arrives_is_done(analytics: Analytics) -> None:
    # From 0 on 2 × 200 + 150 + 100 GPU-seconds arrive for two GPUs, from 150 on only 100.
    assert summary(analytics)["makespan_bound_s"] == 325.0


def test_no_schedule_ends_before_the_last_job_could_alone(tmp_path: Path) -> None:
    start = with_settings(pools=one_pool(8))
    write(tmp_path, start, chained(start, records()))
    assert summary(Analytics(tmp_path))["makespan_bound_s"] == 250.0


def test_queueing_runs_from_arrival_to_the_first_launch(analytics: Analytics) -> None:
    assert by_job(analytics, "admitted_seconds") == [0.0, 0.0, 200.0]
    assert by_job(analytics, "start_seconds") == [0.0, 100.0, 200.0]
    assert by_job(analytics, "queueing_seconds") == [0.0, 100.0, 50.0]


def test_rho_is_jct_over_isolated_time_times_jobs_per_gpu(analytics: Analytics) -> None:
    # Three jobs on two GPUs: contention 1.5, so the yardsticks are 300, 225 and 150 s.
    assert by_job(analytics, "ftf") == [1.05, 1.33333, 0.86667]
    assert summary(analytics)["worst_ftf"] == 1.33333


def test_rho_of_themis_takes_the_mean_number_of_active_jobs(analytics: Analytics) -> None:
    # Job 0 saw 2, 2, 3, 1 (mean 2); job 1 saw 2, 2, 3 (mean 7/3); job 2 saw 3; over 2 GPUs.
    assert by_job(analytics, "ftf_themis") == [
        round(END / (200 * 1), 5),
        round(300 / (150 * 7 / 6), 5),
        round(130 / (100 * 1.5), 5),
    ]
    assert by_job(analytics, "ftf_themis") == [1.575, 1.71429, 0.86667]
    assert by_job(analytics, "unfair_themis") == [True, True, False]
    assert summary(analytics)["unfair_fraction_themis"] == pytest.approx(2 / 3)
    assert summary(analytics)["worst_ftf_themis"] == 1.71429


@pytest.mark.parametrize(
    ("end", "rho", "unfair"),
    [
        (315.0, 1.05, False),
        (315.0009, 1.05, False),  # 1.050003: above, but not after rounding
        (315.0021, 1.05001, True),  # 1.050007
    ],
)
def test_unfair_is_above_1_05_after_rounding_to_five_decimals(
    tmp_path: Path, end: float, rho: float, unfair: bool
) -> None:
    analytics = warehouse_of(tmp_path, records(end))
    assert by_job(analytics, "ftf")[0] == rho
    assert by_job(analytics, "unfair") == [unfair, True, False]
    assert summary(analytics)["unfair_fraction"] == pytest.approx((1 + unfair) / 3)


def test_fewer_jobs_than_gpus_do_not_lower_the_contention_below_one(tmp_path: Path) -> None:
    start = with_settings(pools=one_pool(6, gpu_type=UNTYPED))
    write(tmp_path, start, chained(start, records()))
    assert by_job(Analytics(tmp_path), "ftf") == [round(END / 200, 5), 2.0, 1.3]
    assert by_job(Analytics(tmp_path), "ftf_themis") == [round(END / 200, 5), 2.0, 1.3]


def test_utilization_counts_training_only(analytics: Analytics) -> None:
    assert by_job(analytics, "run_seconds") == [95.0, 180.0, 75.0]
    assert by_job(analytics, "gpu_seconds") == [190.0, 180.0, 75.0]
    assert summary(analytics)["utilization"] == pytest.approx(445 / (2 * END))


def test_jct_has_quantiles(analytics: Analytics) -> None:
    # 130, 300 and 315.0009 s: the quantiles lie at positions 1, 1.9 and 1.98.
    figures = summary(analytics)
    assert figures["jct_p50_s"] == 300.0
    assert figures["jct_p95_s"] == pytest.approx(300 + 0.9 * 15.0009)
    assert figures["jct_p99_s"] == pytest.approx(300 + 0.98 * 15.0009)


def test_rho_has_quantiles(analytics: Analytics) -> None:
    # 0.86667, 1.05 and 1.33333; of Themis 0.86667, 1.575 and 1.71429.
    figures = summary(analytics)
    assert figures["ftf_p50"] == 1.05
    assert figures["ftf_p90"] == pytest.approx(1.05 + 0.8 * (1.33333 - 1.05))
    assert figures["ftf_p99"] == pytest.approx(1.05 + 0.98 * (1.33333 - 1.05))
    assert figures["ftf_themis_p50"] == 1.575
    assert figures["ftf_themis_p90"] == pytest.approx(1.575 + 0.8 * (1.71429 - 1.575))
    assert figures["ftf_themis_p99"] == pytest.approx(1.575 + 0.98 * (1.71429 - 1.575))


def test_distributions_tell_the_share_of_jobs_up_to_a_value(analytics: Analytics) -> None:
    def points(metric: str) -> list[Any]:
        return column(
            analytics, f"distributions WHERE metric = '{metric}'", "(value, share)", "share"
        )

    assert points("ftf") == [(0.86667, 1 / 3), (1.05, 2 / 3), (1.33333, 1.0)]
    assert points("ftf_themis") == [(0.86667, 1 / 3), (1.575, 2 / 3), (1.71429, 1.0)]
    assert points("jct_seconds") == [(130.0, 1 / 3), (300.0, 2 / 3), (END, 1.0)]
    assert points("queueing_seconds") == [(0.0, 1 / 3), (50.0, 2 / 3), (100.0, 1.0)]


def test_waiting_is_all_time_without_a_lease(analytics: Analytics) -> None:
    assert by_job(analytics, "held_seconds") == pytest.approx([115.0009, 200.0, 80.0])
    assert by_job(analytics, "waiting_seconds") == pytest.approx([200.0, 100.0, 50.0])
    figures = summary(analytics)
    assert figures["mean_queueing_s"] == 50.0
    assert figures["mean_waiting_s"] == pytest.approx(350 / 3)


def test_gpu_hours_are_leased_or_trained(analytics: Analytics) -> None:
    figures = summary(analytics)
    assert figures["gpu_hours"] == pytest.approx((2 * 115.0009 + 200 + 80) / 3600)
    assert figures["gpu_hours_trained"] == pytest.approx((2 * 95 + 180 + 75) / 3600)


LEASE_FIGURES = "round, job_id, kind, ended, seconds, run_seconds, restart_seconds, idle_seconds"


def lease_figures(analytics: Analytics) -> list[tuple[Any, ...]]:
    _, rows = analytics.query(f"SELECT {LEASE_FIGURES} FROM leases ORDER BY round, job_id")
    return [tuple(round(v, 6) if isinstance(v, float) else v for v in row) for row in rows]


def test_a_lease_was_trained_restarted_or_idled_away(analytics: Analytics) -> None:
    # Job 1 trains 90 s in each of its rounds: the first loses 10 s to the start, the other idles.
    assert lease_figures(analytics) == [
        (0, 0, "started", "preempted", 100.0, 80.0, 20.0, 0.0),
        (1, 1, "started", "finished", 200.0, 180.0, 10.0, 10.0),
        (2, 2, "started", "finished", 80.0, 75.0, 5.0, 0.0),
        (3, 0, "resumed", "finished", 15.0009, 15.0, 0.0009, 0.0),
    ]
    assert by_job(analytics, "restart_seconds") == pytest.approx([20.0009, 10.0, 5.0])
    assert by_job(analytics, "idle_seconds") == pytest.approx([0.0, 10.0, 0.0])
    assert by_job(analytics, "launches") == [2, 1, 1]
    figures = summary(analytics)
    assert figures["restart_s"] == pytest.approx(35.0009)
    assert figures["idle_s"] == pytest.approx(10.0)
    assert figures["launches"] == 4
    assert figures["restart_share"] == pytest.approx((2 * 20.0009 + 10 + 5) / 510.0018)


def test_a_restart_costs_no_more_than_the_run_charges(tmp_path: Path) -> None:
    start = with_settings(restart_seconds=8.0)
    write(tmp_path, start, chained(start, records()))
    assert by_job(Analytics(tmp_path), "restart_seconds") == pytest.approx([8.0009, 8.0, 5.0])
    assert by_job(Analytics(tmp_path), "idle_seconds") == pytest.approx([12.0, 12.0, 0.0])


def test_a_lease_that_is_moved_begins_anew_without_a_restart(tmp_path: Path) -> None:
    rounds = records()
    moved = event(1, EventKind.RENEWED, 200.0, 1)
    rounds[2] = replace(
        rounds[2],
        leases=(Lease(1, (1,)), Lease(2, (0,))),
        events=(moved, event(2, EventKind.STARTED, 200.0, 0)),
    )
    analytics = warehouse_of(tmp_path, rounds)
    assert [row for row in lease_figures(analytics) if row[1] == 1] == [
        (1, 1, "started", "moved", 100.0, 90.0, 10.0, 0.0),
        (2, 1, "renewed", "finished", 100.0, 90.0, 0.0, 10.0),
    ]
    assert by_job(analytics, "launches") == [2, 1, 1]
    assert by_job(analytics, "run_seconds") == [95.0, 180.0, 75.0]


def test_a_lease_under_way_lasts_up_to_the_last_round_recorded(tmp_path: Path) -> None:
    assert lease_figures(warehouse_of(tmp_path, records()[:3])) == [
        (0, 0, "started", "preempted", 100.0, 80.0, 20.0, 0.0),
        (1, 1, "started", None, 100.0, 90.0, 10.0, 0.0),
        (2, 2, "started", None, 0.0, 0.0, 0.0, 0.0),
    ]


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


def with_budgets(*budgets: float) -> Start:
    """The same run with other budgets."""
    specs = zip(WORKLOAD.specs, budgets, strict=True)
    rich = tuple(replace(declared, budget=budget) for declared, budget in specs)
    return start_of(HEADER, replace(WORKLOAD, specs=rich))


def test_nash_welfare_is_the_mean_utility_geometric_and_by_budget(
    analytics: Analytics, tmp_path: Path
) -> None:
    assert by_job(analytics, "utility") == [1 / 1.05, 1 / 1.33333, 1 / 0.86667]
    even = (1.05 * 1.33333 * 0.86667) ** (-1 / 3)
    assert summary(analytics)["nash_welfare"] == pytest.approx(even)
    start = with_budgets(1.0, 1.0, 3.0)
    write(tmp_path, start, chained(start, records()))
    weighted = (1.05 * 1.33333 * 0.86667**3) ** (-1 / 5)
    assert summary(Analytics(tmp_path))["nash_welfare"] == pytest.approx(weighted)


def test_nash_welfare_is_of_the_jobs_that_have_ended(tmp_path: Path) -> None:
    analytics = warehouse_of(tmp_path, records()[:4])
    assert summary(analytics)["nash_welfare"] == pytest.approx((1.33333 * 0.86667) ** (-1 / 2))


def test_a_job_is_proportional_up_to_a_rho_of_one(analytics: Analytics, tmp_path: Path) -> None:
    assert by_job(analytics, "proportional") == [False, False, True]
    assert summary(analytics)["proportionality_violations"] == 2
    exact = warehouse_of(tmp_path, records(300.0))
    assert by_job(exact, "ftf")[0] == 1.0
    assert summary(exact)["proportionality_violations"] == 1


ENVY = "job_id, envious, envied_jobs, most_envied_job_id, envy"


def envies(analytics: Analytics) -> list[tuple[Any, ...]]:
    return analytics.query(f"SELECT {ENVY} FROM envy ORDER BY job_id")[1]


def test_nobody_envies_who_could_use_less_of_what_others_got(analytics: Analytics) -> None:
    # Job 0 held both GPUs for 115 s; job 1 held one for 200 s, worth 100 s of two.
    # Job 1 held one for 200 s; job 0 one that it could use for 100 s while both were there.
    assert envies(analytics) == [(job, False, 0, None, None) for job in (0, 1, 2)]
    figures = summary(analytics)
    assert (figures["envy_violations"], figures["worst_envy"]) == (0, None)


def test_who_pays_more_is_offered_more(tmp_path: Path) -> None:
    # With twice the money of job 1, job 0 could have bought both GPUs in its 200 s.
    start = with_budgets(4.0, 2.0, 2.0)
    write(tmp_path, start, chained(start, records()))
    analytics = Analytics(tmp_path)
    assert envies(analytics)[0] == (0, True, 1, 1, round(200 / 115.0009, 5))
    figures = summary(analytics)
    assert (figures["envy_violations"], figures["worst_envy"]) == (1, round(200 / 115.0009, 5))


def queue(gap_seconds: float) -> list[RoundRecord]:
    """Job 1 waits until job 0 ends after 200 s, and so does job 2 after both."""
    kind, end = EventKind, 200.0 + gap_seconds
    return [
        round_record(
            0,
            0.0,
            (0, 1),
            arrivals=WORKLOAD.specs[:2],
            leases=(Lease(0, (0, 1)),),
            events=(event(0, kind.STARTED, 0.0, 0, 1),),
        ),
        round_record(
            1,
            200.0,
            (1, 2),
            arrivals=WORKLOAD.specs[2:],
            finished=(event(0, kind.FINISHED, 200.0, 0, 1),),
            progress=(ran(0, 200.0),),
            leases=(Lease(1, (0,)),),
            events=(event(1, kind.STARTED, 200.0, 0),),
        ),
        round_record(
            2,
            end,
            (2,),
            finished=(event(1, kind.FINISHED, end, 0),),
            progress=(ran(1, gap_seconds),),
            leases=(Lease(2, (1,)),),
            events=(event(2, kind.STARTED, end, 1),),
        ),
        round_record(
            3,
            end + 10.0,
            (),
            finished=(event(2, kind.FINISHED, end + 10.0, 1),),
            progress=(ran(2, 10.0),),
        ),
    ]


@pytest.mark.parametrize(
    ("seconds", "envied"),
    [
        (50.0, 200.0 / 50.0),
        (190.0, 200.0 / 190.0),
        (191.0, None),  # 1.04712: within the margin
        (250.0, None),  # it waited for a shorter job than itself
    ],
)
def test_a_job_envies_who_ran_for_longer_while_it_waited(
    tmp_path: Path, seconds: float, envied: float | None
) -> None:
    first, second, third = envies(warehouse_of(tmp_path, queue(seconds)))
    assert first == (0, False, 0, None, None)
    expected = (0, None, None) if envied is None else (1, 0, round(envied, 5))
    assert second == (1, envied is not None, *expected)
    # Job 2 needed 10 s, came at 200 and envies job 1 alone: job 0 had gone.
    assert third == (2, True, 1, 1, seconds / 10)


def test_a_job_under_way_is_envied_but_does_not_envy(tmp_path: Path) -> None:
    analytics = warehouse_of(tmp_path, queue(50.0)[:3])
    assert envies(analytics) == [(0, False, 0, None, None), (1, True, 1, 0, 4.0)]
    assert summary(analytics)["envy_violations"] == 1


@pytest.mark.parametrize(("jobs", "violations"), [(5000, 2), (5001, None)])
def test_envy_is_left_out_in_runs_too_large_for_pairs(
    tmp_path: Path, jobs: int, violations: int | None
) -> None:
    later = tuple(spec(job_id, 1, 1e6, "blue") for job_id in range(3, jobs))
    truth = WORKLOAD.truths[0]
    workload = replace(
        WORKLOAD,
        specs=WORKLOAD.specs + later,
        truths=WORKLOAD.truths + tuple(replace(truth, job_id=job.job_id) for job in later),
    )
    start = start_of(HEADER, workload)
    write(tmp_path, start, chained(start, queue(50.0)))
    figures = summary(Analytics(tmp_path))
    assert (figures["envy_violations"], figures["proportionality_violations"]) == (violations, 0)


def test_envy_is_unknown_where_nothing_ended(tmp_path: Path) -> None:
    figures = summary(warehouse_of(tmp_path, records()[:2]))
    for name in ("envy_violations", "proportionality_violations", "nash_welfare", "worst_envy"):
        assert figures[name] is None


def test_placement_by_node(tmp_path: Path) -> None:
    # The same run on GPUs 1 and 2 of two nodes with two each: job 0 spans both nodes.
    def moved(gpus: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(gpu + 1 for gpu in gpus)

    rounds = [
        replace(
            record,
            leases=tuple(replace(part, gpus=moved(part.gpus)) for part in record.leases),
            events=tuple(replace(part, gpus=moved(part.gpus)) for part in record.events),
        )
        for record in records()
    ]
    start = with_settings(pools=one_pool(4, 2, UNTYPED))
    write(tmp_path, start, chained(start, rounds))
    analytics = Analytics(tmp_path)
    figures = "(job_id, gpus, nodes, fewest_nodes, spread)"
    assert column(analytics, "leases", figures, "round, job_id") == [
        (0, [1, 2], 2, 1, True),
        (1, [1], 1, 1, False),
        (2, [2], 1, 1, False),
        (0, [1, 2], 2, 1, True),
    ]
    assert by_job(analytics, "spread_seconds") == pytest.approx([115.0009, 0.0, 0.0])
    assert by_round(analytics, "stranded_gpus") == [2, 1, 2, 2, 0]
    total = summary(analytics)
    assert total["spread_share"] == pytest.approx(230.0018 / 510.0018)
    assert total["stranded_share"] == pytest.approx((200 + 100 + 200 + 30.0018) / (4 * END))


def test_inventories_number_gpus_and_nodes_through(tmp_path: Path) -> None:
    pools = (Pool("v100", 2, 1, 2.48), Pool("a100", 4, 2))
    smaller = Fork("other-1", "", 1, (Pool("v100", 1, 1),), "fifo", ())
    run = write(tmp_path, with_settings(pools=pools, forked=(smaller,)), [])
    assert Analytics(tmp_path).query("FROM inventories")[1] == [
        (
            run,
            6,
            [0, 1, 2, 2, 3, 3],
            [1, 1, 2, 2],
            ["v100", "v100", "a100", "a100"],
            [2.48, 2.48, 0.0, 0.0],
            [],
        )
    ]


def test_a_lease_costs_its_gpu_hours_at_the_price_of_its_pool(tmp_path: Path) -> None:
    pools = (Pool("v100", 2, 1, 36.0), Pool("k80", 2, 1, 3.6))
    away = {0: 2, 1: 3}

    def moved(parts: Iterable[Any]) -> tuple[Any, ...]:
        """Job 1 on K80s."""
        return tuple(
            replace(part, gpus=tuple(away[gpu] for gpu in part.gpus)) if part.job_id == 1 else part
            for part in parts
        )

    rounds = [
        replace(
            record,
            leases=moved(record.leases),
            events=moved(record.events),
            finished=moved(record.finished),
        )
        for record in records()
    ]
    start = with_settings(pools=pools)
    write(tmp_path, start, chained(start, rounds))
    asked = "(job_id, gpu_type, scale_factor, seconds, cost)"
    found = column(Analytics(tmp_path), "leases", asked, "round, job_id")
    assert {(job_id, kind) for job_id, kind, *_ in found} == {(0, "v100"), (1, "k80"), (2, "v100")}
    for _, kind, gpus, seconds, cost in found:
        assert cost == pytest.approx(gpus * seconds * {"v100": 0.01, "k80": 0.001}[kind])


def test_with_a_gpu_a_node_placement_changes_nothing(analytics: Analytics) -> None:
    assert column(analytics, "leases", "(nodes, spread)", "round, job_id") == [
        (2, False),
        (1, False),
        (1, False),
        (2, False),
    ]
    assert by_round(analytics, "stranded_gpus") == [0, 0, 0, 0, 0]
    assert (summary(analytics)["spread_share"], summary(analytics)["stranded_share"]) == (0.0, 0.0)


def tenants(analytics: Analytics) -> list[dict[str, Any]]:
    columns, rows = analytics.query("FROM tenant_summary ORDER BY run, tenant")
    return [dict(zip(columns, row, strict=True)) for row in rows]


def test_tenants_have_their_own_figures(analytics: Analytics) -> None:
    blue, red = tenants(analytics)
    assert (blue["tenant"], blue["jobs"], blue["finished"]) == ("blue", 2, 2)
    assert (blue["mean_jct_s"], blue["jct_p50_s"], blue["mean_queueing_s"]) == (215.0, 215.0, 75.0)
    assert (blue["worst_ftf"], blue["unfair_fraction"]) == (1.33333, 0.5)
    assert blue["nash_welfare"] == pytest.approx((1.33333 * 0.86667) ** (-1 / 2))
    assert (blue["proportionality_violations"], red["proportionality_violations"]) == (1, 1)
    assert (blue["preemptions"], red["preemptions"]) == (0, 1)
    assert (blue["restart_s"], red["restart_s"]) == pytest.approx((15.0, 20.0009))
    assert blue["gpu_share"] == pytest.approx(280 / 510.0018)
    assert red["gpu_share"] == pytest.approx(230.0018 / 510.0018)
    assert (blue["budget_share"], red["budget_share"]) == pytest.approx((2 / 3, 1 / 3))


def test_budget_shares_weigh_jobs_by_their_money(tmp_path: Path) -> None:
    start = with_budgets(6.0, 1.0, 1.0)
    write(tmp_path, start, chained(start, records()))
    assert [row["budget_share"] for row in tenants(Analytics(tmp_path))] == [0.25, 0.75]


def test_a_tenant_who_owns_all_jobs_has_the_figures_of_the_run(simulated: Analytics) -> None:
    columns, rows = simulated.query("FROM run_summary ORDER BY run")
    runs = [dict(zip(columns, row, strict=True)) for row in rows]
    assert len(tenants(simulated)) == len(runs) == len(POLICIES) + 1
    for run, tenant in zip(runs, tenants(simulated), strict=True):
        assert tenant.pop("tenant") == "default"
        assert (tenant.pop("finished"), tenant.pop("gpu_share")) == (run["jobs"], 1.0)
        assert tenant.pop("budget_share") == 1.0
        for name, value in tenant.items():
            assert value == (pytest.approx(run[name]) if isinstance(value, float) else run[name])


def test_rounds_and_preemptions_are_counted(analytics: Analytics) -> None:
    assert summary(analytics)["rounds"] == 5
    assert summary(analytics)["preemptions"] == 1
    assert by_job(analytics, "preemptions") == [1, 0, 0]
    assert by_round(analytics, "preemptions") == [0, 1, 0, 0, 0]


def test_rounds_in_figures(analytics: Analytics) -> None:
    assert by_round(analytics, "clock_seconds") == [0.0, 100.0, 200.0, 300.0, END]
    seconds = by_round(analytics, "seconds")
    assert seconds == [100.0, 100.0, 100.0, pytest.approx(15.0009), None]
    assert by_round(analytics, "arrivals") == [2, 0, 1, 0, 0]
    assert by_round(analytics, "finished") == [0, 0, 0, 2, 1]
    assert by_round(analytics, "active_jobs") == [2, 2, 3, 1, 0]
    assert by_round(analytics, "running_jobs") == [1, 1, 2, 1, 0]
    assert by_round(analytics, "busy_gpus") == [2, 1, 2, 2, 0]
    assert by_round(analytics, "idle_gpus") == [0, 1, 0, 0, 2]


def test_solve_times_are_of_rounds_with_active_jobs(analytics: Analytics) -> None:
    figures = summary(analytics)  # 1, 2, 3 and 4 ms; the closing record's 5 ms do not count
    assert column(analytics, "solves", "solve_ms") == [1.0, 2.0, 3.0, 4.0]
    assert (figures["solve_ms_p50"], figures["solve_ms_max"]) == (2.5, 4.0)
    assert figures["solve_ms_p95"] == pytest.approx(3.85)
    assert figures["max_gap"] == 0.02


def test_the_parts_of_a_record_have_views(analytics: Analytics) -> None:
    (run,) = column(analytics, "runs", "run")
    assert analytics.query("FROM placements ORDER BY round, job_id")[1] == [
        (run, 0, 0.0, 0, [0, 1], 2, "started"),
        (run, 1, 100.0, 1, [0], 1, "started"),
        (run, 2, 200.0, 1, [0], 1, "renewed"),
        (run, 2, 200.0, 2, [1], 1, "started"),
        (run, 3, 300.0, 0, [0, 1], 2, "resumed"),
    ]
    assert analytics.query("FROM plans ORDER BY job_id")[1] == [
        (run, 0, 0.0, 0, [0], 1),
        (run, 0, 0.0, 1, [1, 2], 2),
    ]
    assert analytics.query("FROM bids")[1] == [
        (run, 0, 0.0, 1, UNTYPED, 1, 2.5, [-1.0, 0.0], [50.0, 0.0])
    ]
    assert analytics.query("FROM usage WHERE round = 1")[1] == [
        (run, 1, 100.0, 0, 80.0, 160.0, 1_000, 0.75)
    ]
    assert analytics.query("FROM telemetry")[1] == [(run, 1, 100.0, 0, 0, 2, 16, 60.0)]
    assert analytics.query("FROM forecasts WHERE round = 3")[1] == [
        (run, 3, 300.0, 0, UNTYPED, 2, 0.1, 0.0, 50.0, 50.0, 50.0, [16], [9.0])
    ]
    assert analytics.query("FROM solves WHERE round = 1")[1] == [
        (
            run,
            1,
            100.0,
            2,
            "shockwave",
            "highs",
            "asked",
            "optimal",
            1.0,
            1.02,
            0.02,
            0.5,
            0,
            0,
            0,
            2.0,
        )
    ]
    assert analytics.query("FROM jobs WHERE job_id = 2")[1] == [
        (
            run,
            2,
            "",
            "adaptive",
            "net",
            16,
            64,
            1,
            1,
            [],
            "accordion",
            10,
            1000,
            *(150.0, "blue", 2.0, 630, False, 100.0),
        )
    ]
    assert column(analytics, "events WHERE job_id = 0", "kind", "at_seconds") == [
        "started",
        "preempted",
        "resumed",
        "finished",
    ]


def test_what_is_stored_can_be_asked_for_as_it_is(analytics: Analytics) -> None:
    figures = "(version, source, workload, settings.pools)"
    pool = {"gpu_type": UNTYPED, "gpus": 2, "gpus_per_node": 1, "price": 0.0}
    assert column(analytics, "headers", figures) == [
        (VERSION, "by hand", START.header.workload, [pool])
    ]
    stored = column(analytics, "records", "(round, clock_seconds, len(leases))", "round")
    assert stored == [(0, 0.0, 1), (1, 100.0, 1), (2, 200.0, 2), (3, 300.0, 1), (4, END, 0)]


def test_a_preemption_tells_who_got_the_gpus_and_for_how_long(
    analytics: Analytics, tmp_path: Path
) -> None:
    # Job 1 starts on one of the two GPUs that job 0 loses at 100 and gets back at 300.
    (run,) = column(analytics, "runs", "run")
    known = (run, 1, 100.0, 0, "red", [0, 1], 2, [1], 1)
    assert analytics.query("FROM preemptions")[1] == [(*known, 300.0, 200.0)]
    under_way = warehouse_of(tmp_path, records()[:3])
    assert under_way.query("FROM preemptions")[1] == [(*known, None, None)]


def test_gpus_that_are_left_idle_are_taken_by_nobody(tmp_path: Path) -> None:
    rounds = records()[:2]
    rounds[1] = replace(rounds[1], leases=(), events=(event(0, EventKind.PREEMPTED, 100.0, 0, 1),))
    analytics = warehouse_of(tmp_path, rounds)
    assert column(analytics, "preemptions", "(preemptors, taken_gpus)") == [([], 0)]


MARKET = replace(CLEARED, envious=1, below_share=0, wanting=2)


def test_prices_tell_what_was_asked_for(tmp_path: Path) -> None:
    bids = tuple(gang_bid(job, gpus, (-1.0, 0.0), (50.0, 0.0)) for job, gpus in ((0, 2), (1, 1)))
    rounds = records()
    rounds[0] = replace(rounds[0], bids=bids, solve=MARKET)
    rounds[1] = replace(
        rounds[1], bids=bids[1:], solve=replace(MARKET, prices=(Price(UNTYPED, 0.75),))
    )
    analytics = warehouse_of(tmp_path, rounds)
    (run,) = column(analytics, "runs", "run")
    assert analytics.query("FROM prices ORDER BY round")[1] == [
        (run, 0, 0.0, UNTYPED, 0.5, None, 2, 3, 2, 1.5, 1, 0, 2),
        (run, 1, 100.0, UNTYPED, 0.75, 0.25, 1, 1, 2, 0.5, 1, 0, 2),
    ]


FREE = (Price(UNTYPED, 0.0),)


@pytest.mark.parametrize(
    ("report", "known"),
    [
        (MARKET, True),
        (
            SolveReport("shockwave", "none", "every job gets all", "optimal", prices=FREE),
            True,
        ),
        (SolveReport("srtf"), False),
        (SolveReport("gavel", "highs", "shares of time", "optimal"), False),
        (SolveReport("gavel", "none", "shares computed before", "kept"), False),
    ],
)
def test_without_a_market_nothing_is_told_of_one(
    tmp_path: Path, report: SolveReport, known: bool
) -> None:
    analytics = warehouse_of(tmp_path, [replace(records()[0], solve=report), *records()[1:]])
    names = "objective, bound, gap, price, envious, below_share, wanting"
    _, [told] = analytics.query(f"SELECT {names} FROM solves WHERE round = 0")
    if not known:
        assert told == (None,) * 7
        return
    (price,) = report.prices
    assert told == (
        *(report.objective, report.bound, report.gap, price.price),
        *(report.envious, report.below_share, report.wanting),
    )


def test_forecasts_are_held_against_what_came(analytics: Analytics) -> None:
    # All expect 50 s of run time, a tenth of the epochs done; it was 95, 180 and 75 s.
    errors = analytics.query("SELECT * EXCLUDE (run) FROM forecast_errors ORDER BY job_id")[1]
    kind = ("net", "accordion")
    assert errors == [
        (0, *kind, 1, 4, pytest.approx(45 / 95), pytest.approx(-45 / 95), 0.0),
        (1, *kind, 1, 3, pytest.approx(130 / 180), pytest.approx(-130 / 180), 0.0),
        (2, *kind, 1, 1, pytest.approx(25 / 75), pytest.approx(-25 / 75), 0.0),
    ]


def test_a_truth_inside_the_interval_is_covered(tmp_path: Path) -> None:
    rounds = records()
    wide = replace(expected(2), low_seconds=75.0, high_seconds=75.0)
    rounds[2] = replace(rounds[2], forecasts=(certain(2, 9.0),), estimates=(wide,))
    analytics = warehouse_of(tmp_path, rounds)
    assert column(analytics, "forecast_errors WHERE job_id = 2", "covered") == [1.0]


def test_changes_of_batch_size_are_counted(tmp_path: Path) -> None:
    rounds = records()
    rounds[3] = replace(
        rounds[3],
        reports=(
            EpochReport(1, 0, 3, 16, 90.0),
            EpochReport(1, 3, 2, 64, 30.0),
            EpochReport(1, 5, 1, 64, 15.0),
            EpochReport(1, 6, 4, 32, 45.0),
        ),
    )
    analytics = warehouse_of(tmp_path, rounds)
    assert analytics.query("SELECT * EXCLUDE (run) FROM adaptations ORDER BY job_id")[1] == [
        (0, "net", "accordion", 2, 0, 16, 16, 1.0),
        (1, "net", "accordion", 10, 2, 16, 64, 4.0),
    ]


def test_the_cells_of_campaigns_are_told(tmp_path: Path) -> None:
    analytics = warehouse_of(tmp_path, records())
    assert analytics.query("FROM campaign_cells")[1] == []
    write_cells(tmp_path, CELL)
    names, [row] = analytics.query("FROM campaign_cells")
    assert dict(zip(names, row, strict=True)) == asdict(CELL)


def test_runs_tell_what_was_asked(tmp_path: Path) -> None:
    packages = (Package("python", "3.11"),)
    with Writer(tmp_path, START, packages=packages) as writer:
        for record, digest, timings in chained(START, records()):
            writer.append(record, digest, timings)
    columns, (row,) = Analytics(tmp_path).query("FROM runs")
    asked = dict(zip(columns, row, strict=True))
    assert asked.pop("created_at").tzinfo is not None
    assert asked == {
        "run": writer.run,
        "policy": "shockwave",
        "asked_backend": "highs",
        "fidelity": "fair",
        "parameters": [],
        "gpus_per_node": 1,
        "pools": [{"gpu_type": UNTYPED, "gpus": 2, "gpus_per_node": 1, "price": 0.0}],
        "trace": "by hand",
        "gpus": 2,
        "reference_gpus": 2,
        "jobs": 3,
        "round_seconds": 100.0,
        "restart_seconds": 20.0,
        "window_rounds": 5,
        "forecasts": "posterior",
        "history_jobs": 0,
        "seed": 9,
        "complete": True,
        "first_hash": START.digest,
        "last_hash": digest,
        "packages": [{"name": "python", "version": "3.11"}],
    }


# Runs that are not complete


def test_a_run_under_way_has_nulls_for_what_is_not_known(tmp_path: Path) -> None:
    analytics = warehouse_of(tmp_path, records()[:2])
    assert column(analytics, "runs", "complete") == [False]
    for name in ("finish_seconds", "jct_seconds", "ftf", "ftf_themis", "unfair", "unfair_themis"):
        assert by_job(analytics, name) == [None, None, None]
    assert by_job(analytics, "start_seconds") == [0.0, 100.0, None]
    assert by_job(analytics, "admitted_seconds") == [0.0, 0.0, None]
    assert by_job(analytics, "run_seconds") == [80.0, 0.0, 0.0]
    figures = summary(analytics)
    assert (figures["makespan_s"], figures["rounds"]) == (100.0, 2)
    assert figures["utilization"] == pytest.approx(160 / 200)
    assert figures["mean_jct_s"] is None
    assert figures["worst_ftf"] is None
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


# What holds for every view


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_works_on_an_empty_warehouse(empty: Analytics, view: str) -> None:
    columns, rows = empty.query(f"FROM {view}")
    assert columns
    assert rows == []


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_says_what_it_is_and_what_a_row_is(view: str) -> None:
    first, *others = view_sql(view).splitlines()
    assert re.fullmatch(r"-- [A-Z].*\.", first)
    assert any(re.match("-- grain: one row per (run|campaign)", line) for line in others)


def test_every_view_is_listed_and_has_a_key() -> None:
    folder = Path(definitions.__file__).parent / "views"
    for layer, views in (("staging", STAGING), ("marts", MARTS)):
        assert sorted(path.stem for path in (folder / layer).glob("*.sql")) == sorted(views)
    stored = sorted(path.stem for path in (folder / "layout5").glob("*.sql"))
    assert stored == ["headers", "rounds", "workloads"]
    services = sorted(path.stem for path in (folder / "services").glob("*.sql"))
    assert services == ["commands", "workloads"]
    assert len(list(folder.rglob("*.sql"))) - len(stored) - len(services) == len(VIEWS) == len(KEYS)
    assert set(VIEWS) == set(KEYS)


@pytest.mark.parametrize("view", VIEWS)
def test_views_read_files_in_one_layer_only_and_none_that_come_after(view: str) -> None:
    files = re.findall(r"FROM {(\w+)}", view_sql(view))
    assert files == {
        "headers": ["headers"],
        "records": ["rounds"],
        "jobs": ["workloads"],
        "campaign_cells": ["cells"],
    }.get(view, [])
    reads = set(needed(f"FROM {view}")) - {view}
    assert reads <= set(VIEWS[: VIEWS.index(view)])
    if view in STAGING:
        assert reads <= {"headers", "records"}


def named_by(test: Any) -> set[str]:
    """The words that a test has in its text, and in that of the helpers that it calls."""
    names, todo = set(), [test]
    while todo:
        function = todo.pop()
        names |= set(re.findall(r"\w+", inspect.getsource(function)))
        helpers = {summary, by_job, by_round, envies, tenants, lease_figures}
        todo += [helper for helper in helpers if helper.__name__ in names - {function.__name__}]
        names -= {helper.__name__ for helper in helpers}
    return names


def test_a_gpu_that_two_jobs_share_counts_once(tmp_path: Path) -> None:
    # Job 1 holds GPU 0 for 200 s; in the second hundred job 2 is on it too, for 80 s.
    rounds = records()
    alone = rounds[2].leases[0]
    shared = replace(rounds[2].events[0], gpus=alone.gpus)
    rounds[2] = replace(
        rounds[2], leases=(alone, Lease(2, alone.gpus)), events=(shared,), pairs=((1, 2),)
    )
    ended_there = replace(rounds[3].finished[0], gpus=alone.gpus)
    rounds[3] = replace(rounds[3], finished=(ended_there, *rounds[3].finished[1:]))
    start = with_settings(pools=(Pool(UNTYPED, 2, 1, 36.0),))
    write(tmp_path, start, chained(start, rounds), compact=False)
    analytics = Analytics(tmp_path)
    assert analytics.query("SELECT round, job_id, shared_with, seconds FROM sharing ORDER BY ALL")[
        1
    ] == [(2, 1, 2, 80.0), (2, 2, 1, 80.0)]
    asked = "SELECT job_id, shared_seconds, round(cost, 6) FROM leases WHERE round < 3 ORDER BY ALL"
    assert analytics.query(asked)[1] == [(0, 0.0, 2.0), (1, 80.0, 1.6), (2, 80.0, 0.4)]
    asked = "SELECT held_gpu_seconds, gpu_seconds FROM job_outcomes WHERE job_id > 0 ORDER BY ALL"
    assert analytics.query(asked)[1] == [(40.0, 37.5), (160.0, 144.0)]
    assert column(analytics, "rounds", "busy_gpus", "round")[2] == 1


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_has_a_test_with_a_run_laid_out_by_hand(view: str) -> None:
    tests = [
        test
        for name, test in globals().items()
        if name.startswith("test_")
        and not {"view", "simulated", "empty"} & inspect.signature(test).parameters.keys()
    ]
    assert any(view in named_by(test) for test in tests)


@pytest.mark.parametrize("view", VIEWS)
def test_the_grain_of_a_view_is_unique(simulated: Analytics, view: str) -> None:
    keys = ", ".join(KEYS[view])
    missing = " OR ".join(f"{key} IS NULL" for key in KEYS[view])
    _, [(rows, distinct, nulls)] = simulated.query(
        f"SELECT count(*), count(DISTINCT ({keys})), count(*) FILTER ({missing}) FROM {view}"
    )
    assert rows == distinct > 0
    assert nulls == 0
