"""Views over the parts of a record, worked out by hand."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from containers.runtime import EventKind
from predictor.job import EpochReport
from predictor.throughput import UNTYPED
from solver.market import Price
from solver.plan import SolveReport
from tasks.commands import Command, CommandKind, NewNode
from tasks.layout import VERSION
from tasks.record import Package
from tests.runs import chained, write
from tests.strategies import certain, gang_bid
from tests.warehouse.by_hand import (
    CELL,
    CLEARED,
    END,
    START,
    by_round,
    column,
    event,
    expected,
    records,
    summary,
    warehouse_of,
    write_cells,
)
from warehouse.analytics.questions import Analytics
from warehouse.store.writer import Writer

pytestmark = pytest.mark.slow


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


def test_what_a_record_says_of_its_round_alone(analytics: Analytics) -> None:
    figures = "arrivals, finished, running_jobs, gpus, busy_gpus, shared_gpus, preemptions"
    asked = f"SELECT {figures}, bidders, asked_gpus, hash FROM round_facts ORDER BY round"
    hashes = column(analytics, "rounds", "hash", "round")
    assert analytics.query(asked)[1] == [
        ([0, 1], 0, 1, [0, 1], 2, 0, 0, 1, 1, hashes[0]),
        ([], 0, 1, [0], 1, 0, 1, 0, 0, hashes[1]),
        ([2], 0, 2, [0, 1], 2, 0, 0, 0, 0, hashes[2]),
        ([], 2, 1, [0, 1], 2, 0, 0, 0, 0, hashes[3]),
        ([], 1, 0, [], 0, 0, 0, 0, 0, hashes[4]),
    ]


def test_commands_that_a_service_took_in(tmp_path: Path) -> None:
    start = replace(START, header=replace(START.header, service=True))
    node = NewNode("", "v100", 2, 1.5)
    given = (Command(1, CommandKind.HOLD, 0, 3.0), Command(2, CommandKind.ADD, -1, 4.0, node=node))
    first, second, *_ = records()
    run = write(tmp_path, start, chained(start, [first, replace(second, commands=given)]))
    asked = "SELECT run, round, number, kind, target, node.gpu_type, node.gpus FROM commands"
    assert Analytics(tmp_path).query(f"{asked} ORDER BY number")[1] == [
        (run, 1, 1, "hold", 0, "", 0),
        (run, 1, 2, "add", -1, "v100", 2),
    ]


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
    assert analytics.query("FROM bids")[1] == [(run, 0, 0.0, 1, UNTYPED, 1, 2.5, 0.75)]
    assert analytics.query("FROM usage WHERE round = 1")[1] == [
        (run, 1, 100.0, 0, 80.0, 80.0, 160.0, 1_000, 0.75)
    ]
    assert analytics.query("FROM telemetry")[1] == [(run, 1, 100.0, 0, 0, 2, 16, 60.0)]
    assert analytics.query("FROM forecasts WHERE round = 3")[1] == [
        (run, 3, 300.0, 0, UNTYPED, 2, 0.1, 0.0, 50.0, 50.0, 50.0, [16], [9.0])
    ]
    assert analytics.query("FROM solves WHERE round = 1")[1] == [
        (
            *(run, 1, 100.0, 2, "shockwave", "highs", "asked", "optimal"),
            *(1.0, 1.02, 0.02, 0.5, 0, 0, 0, 2.0),
        )
    ]
    assert analytics.query("FROM jobs WHERE job_id = 2")[1] == [
        (
            *(run, 2, "", "adaptive", "net", 16, 64, 1, 1, [], "accordion", 10, 1000),
            *(150.0, "blue", 2.0, 630, False, None, 100.0, None),
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
    bids = tuple(gang_bid(job, gpus, 1.0) for job, gpus in ((0, 2), (1, 1)))
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
        (SolveReport("shockwave", "none", "every job gets all", "optimal", prices=FREE), True),
        (SolveReport("srtf"), False),
        (SolveReport("gavel", "highs", "shares of time", "optimal"), False),
        (SolveReport("gavel", "none", "shares computed before", "kept"), False),
    ],
)
def test_without_a_market_its_columns_are_null(
    tmp_path: Path, report: SolveReport, known: bool
) -> None:
    analytics = warehouse_of(tmp_path, [replace(records()[0], solve=report), *records()[1:]])
    names = "objective, bound, gap, price, envious, below_share, wanting"
    _, [row] = analytics.query(f"SELECT {names} FROM solves WHERE round = 0")
    if not known:
        assert row == (None,) * 7
        return
    (price,) = report.prices
    assert row == (
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


def test_the_cells_of_campaigns_are_listed(tmp_path: Path) -> None:
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
        "workload": START.header.workload,
        "gpus": 2,
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
