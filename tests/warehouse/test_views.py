"""Every metric, worked out by hand for a run of three jobs on two GPUs.

    clock      0        100        200        300     315.0009
    GPU 0   | job 0  | job 1    | job 1    | job 0  |
    GPU 1   | job 0  | idle     | job 2    | job 0  |
    active     0 1       0 1       0 1 2       0        none

Job 0 loses its lease at 100 and is resumed at 300; job 2 arrives at 150, waits for the
boundary at 200 and ends inside the round, at 280.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containers.runtime import ContainerEvent, EventKind, Launch
from containers.virtual import GroundTruth
from predictor.forecast import Forecast
from predictor.job import EpochReport, JobProgress, JobSpec, Mode, Regime
from solver.market import Bid
from solver.plan import SolveReport, Turn
from tests.runs import POLICIES, chained, make, tiny, write
from warehouse.catalog import VIEWS, build, view_sql
from warehouse.record import VERSION, Package, RoundRecord, RunHeader, Settings, record_hash
from warehouse.store import Reader, Writer

KEYS = {
    "headers": ["run"],
    "records": ["run", "round"],
    "runs": ["run"],
    "rounds": ["run", "round"],
    "jobs": ["run", "job_id"],
    "forecasts": ["run", "round", "job_id"],
    "bids": ["run", "round", "job_id"],
    "plans": ["run", "round", "job_id"],
    "solves": ["run", "round"],
    "allocations": ["run", "round", "job_id"],
    "telemetry": ["run", "job_id", "epoch"],
    "events": ["run", "round", "job_id", "kind"],
    "job_outcomes": ["run", "job_id"],
    "run_summary": ["run"],
}
"""What each view's grain means in columns."""

ISOLATED = {0: 200.0, 1: 150.0, 2: 100.0}
END = 315.0009


def spec(job_id: int, gpus: int, arrival_seconds: float, tenant: str) -> JobSpec:
    return JobSpec(
        job_id, "net", 16, 64, gpus, Mode.ACCORDION, 10, 1000, arrival_seconds, tenant, 2.0
    )


HEADER = RunHeader(
    version=VERSION,
    settings=Settings(
        "shockwave", 2, backend="highs", round_seconds=100.0, restart_seconds=20.0, window=5, seed=9
    ),
    source="by hand",
    specs=(spec(0, 2, 0.0, "red"), spec(1, 1, 0.0, "blue"), spec(2, 1, 150.0, "blue")),
    truths=tuple(
        GroundTruth(j, ISOLATED[j], (Regime(16, 10),), (Regime(16, 10),)) for j in ISOLATED
    ),
    profile=(),
)


def expected(job_id: int) -> Forecast:
    return Forecast(job_id, 50.0, 0.0, (0.1, 0.4), (Regime(16, 9.0),))


def event(job_id: int, kind: EventKind, at_seconds: float, *gpus: int) -> ContainerEvent:
    return ContainerEvent(job_id, kind, at_seconds, gpus)


def ran(job_id: int, seconds: float) -> JobProgress:
    return JobProgress(job_id, 3, 0.5, 16, seconds, seconds, 400)


def round_record(number: int, clock_seconds: float, active: tuple[int, ...], **parts: Any) -> Any:
    record = RoundRecord(
        version=VERSION,
        round=number,
        clock_seconds=clock_seconds,
        arrivals=(),
        finished=(),
        reports=(),
        progress=(),
        forecasts=tuple(map(expected, active)),
        bids=(),
        solve=SolveReport("shockwave"),
        turns=(),
        memory="",
        launches=(),
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
            arrivals=(0, 1),
            bids=(Bid(1, 1, 2.5, (-1.0, 0.0), (50.0, 0.0)),),
            turns=(Turn(0, (0,)), Turn(1, (1, 2))),
            launches=(Launch(0, (0, 1)),),
            events=(event(0, kind.STARTED, 0.0, 0, 1),),
        ),
        round_record(
            1,
            100.0,
            (0, 1),
            reports=(EpochReport(0, 0, 2, 16, 60.0),),
            progress=(ran(0, 80.0),),
            solve=SolveReport("shockwave", "highs", "asked", "optimal", 1.0, 1.02, 0.02, 0.5),
            launches=(Launch(1, (0,)),),
            events=(event(0, kind.PREEMPTED, 100.0, 0, 1), event(1, kind.STARTED, 100.0, 0)),
        ),
        round_record(
            2,
            200.0,
            (0, 1, 2),
            arrivals=(2,),
            progress=(ran(1, 90.0),),
            launches=(Launch(1, (0,)), Launch(2, (1,))),
            events=(event(2, kind.STARTED, 200.0, 1),),
        ),
        round_record(
            3,
            300.0,
            (0,),
            finished=(event(2, kind.FINISHED, 280.0, 1), event(1, kind.FINISHED, 300.0, 0)),
            progress=(ran(1, 180.0), ran(2, 75.0)),
            launches=(Launch(0, (0, 1)),),
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


def warehouse_of(folder: Path, rounds: list[RoundRecord]) -> Reader:
    write(folder, HEADER, chained(HEADER, rounds), compact=False)
    return Reader(folder)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return warehouse_of(tmp_path_factory.mktemp("warehouse"), records())


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    folder = tmp_path_factory.mktemp("simulated")
    for policy in POLICIES:
        made = make(tiny(policy))
        write(folder, made.header, made.rounds, compact=policy != "fifo")
    return Reader(folder)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    folder = tmp_path_factory.mktemp("empty")
    build(folder)
    return Reader(folder)


def column(reader: Reader, view: str, name: str, order: str = "ALL") -> list[Any]:
    _, rows = reader.query(f"SELECT {name} FROM {view} ORDER BY {order}")
    return [row[0] for row in rows]


def by_job(reader: Reader, name: str) -> list[Any]:
    return column(reader, "job_outcomes", name, "job_id")


def by_round(reader: Reader, name: str) -> list[Any]:
    return column(reader, "rounds", name, "round")


def summary(reader: Reader) -> dict[str, Any]:
    columns, (row,) = reader.query("FROM run_summary")
    return dict(zip(columns, row, strict=True))


# The metrics by hand


def test_jct_runs_from_arrival_to_finish(reader: Reader) -> None:
    assert by_job(reader, "finish_seconds") == [END, 300.0, 280.0]
    assert by_job(reader, "jct_seconds") == [END, 300.0, 280.0 - 150.0]
    assert summary(reader)["mean_jct_s"] == pytest.approx((END + 300 + 130) / 3)


def test_makespan_runs_to_the_closing_record(reader: Reader) -> None:
    assert summary(reader)["makespan_s"] == END


def test_queueing_runs_from_arrival_to_the_first_launch(reader: Reader) -> None:
    assert by_job(reader, "admitted_seconds") == [0.0, 0.0, 200.0]
    assert by_job(reader, "start_seconds") == [0.0, 100.0, 200.0]
    assert by_job(reader, "queueing_seconds") == [0.0, 100.0, 50.0]


def test_rho_is_jct_over_isolated_time_times_jobs_per_gpu(reader: Reader) -> None:
    # Three jobs on two GPUs: contention 1.5, so the yardsticks are 300, 225 and 150 s.
    assert by_job(reader, "ftf") == [1.05, 1.33333, 0.86667]
    assert summary(reader)["worst_ftf"] == 1.33333


def test_rho_of_themis_takes_the_mean_number_of_active_jobs(reader: Reader) -> None:
    # Job 0 saw 2, 2, 3, 1 (mean 2); job 1 saw 2, 2, 3 (mean 7/3); job 2 saw 3; over 2 GPUs.
    assert by_job(reader, "ftf_themis") == [
        round(END / (200 * 1), 5),
        round(300 / (150 * 7 / 6), 5),
        round(130 / (100 * 1.5), 5),
    ]
    assert by_job(reader, "ftf_themis") == [1.575, 1.71429, 0.86667]
    assert by_job(reader, "unfair_themis") == [True, True, False]
    assert summary(reader)["unfair_fraction_themis"] == pytest.approx(2 / 3)
    assert summary(reader)["worst_ftf_themis"] == 1.71429


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
    reader = warehouse_of(tmp_path, records(end))
    assert by_job(reader, "ftf")[0] == rho
    assert by_job(reader, "unfair") == [unfair, True, False]
    assert summary(reader)["unfair_fraction"] == pytest.approx((1 + unfair) / 3)


def test_fewer_jobs_than_gpus_do_not_lower_the_contention_below_one(tmp_path: Path) -> None:
    header = replace(HEADER, settings=replace(HEADER.settings, gpus=6))
    write(tmp_path, header, chained(header, records()))
    assert by_job(Reader(tmp_path), "ftf") == [round(END / 200, 5), 2.0, 1.3]
    assert by_job(Reader(tmp_path), "ftf_themis") == [round(END / 200, 5), 2.0, 1.3]


def test_utilization_counts_training_only(reader: Reader) -> None:
    assert by_job(reader, "run_seconds") == [95.0, 180.0, 75.0]
    assert by_job(reader, "gpu_seconds") == [190.0, 180.0, 75.0]
    assert summary(reader)["utilization"] == pytest.approx(445 / (2 * END))


def test_rounds_and_preemptions_are_counted(reader: Reader) -> None:
    assert summary(reader)["rounds"] == 4
    assert summary(reader)["preemptions"] == 1
    assert by_job(reader, "preemptions") == [1, 0, 0]
    assert by_round(reader, "preemptions") == [0, 1, 0, 0, 0]


def test_rounds_in_figures(reader: Reader) -> None:
    assert by_round(reader, "clock_seconds") == [0.0, 100.0, 200.0, 300.0, END]
    seconds = by_round(reader, "seconds")
    assert seconds == [100.0, 100.0, 100.0, pytest.approx(15.0009), None]
    assert by_round(reader, "arrivals") == [2, 0, 1, 0, 0]
    assert by_round(reader, "finished") == [0, 0, 0, 2, 1]
    assert by_round(reader, "active_jobs") == [2, 2, 3, 1, 0]
    assert by_round(reader, "running_jobs") == [1, 1, 2, 1, 0]
    assert by_round(reader, "busy_gpus") == [2, 1, 2, 2, 0]
    assert by_round(reader, "idle_gpus") == [0, 1, 0, 0, 2]


def test_solve_times_are_of_rounds_with_active_jobs(reader: Reader) -> None:
    figures = summary(reader)  # 1, 2, 3 and 4 ms; the closing record's 5 ms do not count
    assert column(reader, "solves", "solve_ms") == [1.0, 2.0, 3.0, 4.0]
    assert (figures["solve_ms_p50"], figures["solve_ms_max"]) == (2.5, 4.0)
    assert figures["solve_ms_p95"] == pytest.approx(3.85)
    assert figures["max_gap"] == 0.02


def test_the_parts_of_a_record_have_views(reader: Reader) -> None:
    (run,) = column(reader, "runs", "run")
    assert reader.query("FROM allocations ORDER BY round, job_id")[1] == [
        (run, 0, 0.0, 0, [0, 1], 2, "started"),
        (run, 1, 100.0, 1, [0], 1, "started"),
        (run, 2, 200.0, 1, [0], 1, "renewed"),
        (run, 2, 200.0, 2, [1], 1, "started"),
        (run, 3, 300.0, 0, [0, 1], 2, "resumed"),
    ]
    assert reader.query("FROM plans ORDER BY job_id")[1] == [
        (run, 0, 0.0, 0, [0], 1),
        (run, 0, 0.0, 1, [1, 2], 2),
    ]
    assert reader.query("FROM bids")[1] == [(run, 0, 0.0, 1, 1, 2.5, [-1.0, 0.0], [50.0, 0.0])]
    assert reader.query("FROM telemetry")[1] == [(run, 1, 100.0, 0, 0, 2, 16, 60.0)]
    assert reader.query("FROM forecasts WHERE round = 3")[1] == [
        (run, 3, 300.0, 0, 50.0, 0.0, [0.1, 0.4], [{"batch_size": 16, "epochs": 9.0}])
    ]
    assert reader.query("FROM solves WHERE round = 1")[1] == [
        (run, 1, 100.0, 2, "shockwave", "highs", "asked", "optimal", 1.0, 1.02, 0.02, 0.5, 2.0)
    ]
    assert reader.query("FROM jobs WHERE job_id = 2")[1] == [
        (run, 2, "net", 16, 64, 1, "accordion", 10, 1000, 150.0, "blue", 2.0, 630, False, 100.0)
    ]
    assert column(reader, "events WHERE job_id = 0", "kind", "at_seconds") == [
        "started",
        "preempted",
        "resumed",
        "finished",
    ]


def test_runs_tell_what_was_asked(tmp_path: Path) -> None:
    packages = (Package("python", "3.11"),)
    with Writer(tmp_path, HEADER, packages=packages) as writer:
        for record, digest, timings in chained(HEADER, records()):
            writer.append(record, digest, timings)
    columns, (row,) = Reader(tmp_path).query("FROM runs")
    asked = dict(zip(columns, row, strict=True))
    assert asked.pop("created_at").tzinfo is not None
    assert asked == {
        "run": writer.run,
        "policy": "shockwave",
        "asked_backend": "highs",
        "fidelity": "fair",
        "parameters": [],
        "gpus_per_node": 1,
        "trace": "by hand",
        "gpus": 2,
        "jobs": 3,
        "round_seconds": 100.0,
        "restart_seconds": 20.0,
        "window_rounds": 5,
        "seed": 9,
        "complete": True,
        "first_hash": record_hash(HEADER),
        "last_hash": digest,
        "packages": [{"name": "python", "version": "3.11"}],
    }


# Runs that are not complete


def test_a_run_under_way_has_nulls_for_what_is_not_known(tmp_path: Path) -> None:
    reader = warehouse_of(tmp_path, records()[:2])
    assert column(reader, "runs", "complete") == [False]
    for name in ("finish_seconds", "jct_seconds", "ftf", "ftf_themis", "unfair", "unfair_themis"):
        assert by_job(reader, name) == [None, None, None]
    assert by_job(reader, "start_seconds") == [0.0, 100.0, None]
    assert by_job(reader, "admitted_seconds") == [0.0, 0.0, None]
    assert by_job(reader, "run_seconds") == [80.0, 0.0, 0.0]
    figures = summary(reader)
    assert (figures["makespan_s"], figures["rounds"]) == (100.0, 2)
    assert figures["utilization"] == pytest.approx(160 / 200)
    assert figures["mean_jct_s"] is None
    assert figures["worst_ftf"] is None
    assert figures["unfair_fraction"] is None


def test_a_run_is_complete_with_its_closing_record(tmp_path: Path) -> None:
    reader = warehouse_of(tmp_path, records()[:4])
    assert column(reader, "runs", "complete") == [False]
    assert by_job(reader, "unfair") == [None, True, False]
    assert summary(reader)["unfair_fraction"] == 0.5  # of the jobs that have finished


def test_a_run_without_a_round_has_a_summary_of_nulls(tmp_path: Path) -> None:
    figures = summary(warehouse_of(tmp_path, []))
    assert figures["complete"] is False
    for name in ("makespan_s", "mean_jct_s", "utilization", "rounds", "max_gap", "last_hash"):
        assert figures[name] is None


@pytest.mark.parametrize("rounds", [0, 1, 2, 5])
def test_every_view_works_however_far_a_run_is(tmp_path: Path, rounds: int) -> None:
    reader = warehouse_of(tmp_path, records()[:rounds])
    for view in VIEWS:
        reader.query(f"FROM {view}")


# What holds for every view


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_works_on_an_empty_warehouse(empty: Reader, view: str) -> None:
    columns, rows = empty.query(f"FROM {view}")
    assert columns
    assert rows == []


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_says_what_it_is_and_what_a_row_is(view: str) -> None:
    first, *others = view_sql(view).splitlines()
    assert re.fullmatch(r"-- [A-Z].*\.", first)
    assert any(line.startswith("-- grain: one row per run") for line in others)


def test_every_view_is_listed_and_has_a_key() -> None:
    folder = Path(view_sql.__code__.co_filename).parent / "views"
    assert {path.stem for path in folder.glob("*.sql")} == set(VIEWS) == set(KEYS)


@pytest.mark.parametrize("view", VIEWS)
def test_the_grain_of_a_view_is_unique(simulated: Reader, view: str) -> None:
    keys = ", ".join(KEYS[view])
    missing = " OR ".join(f"{key} IS NULL" for key in KEYS[view])
    _, [(rows, distinct, nulls)] = simulated.query(
        f"SELECT count(*), count(DISTINCT ({keys})), count(*) FILTER ({missing}) FROM {view}"
    )
    assert rows == distinct > 0
    assert nulls == 0
