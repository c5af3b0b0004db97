"""Every metric, worked out by hand for a run of three jobs on two GPUs.

    clock      0        100        200        300     315.0009
    GPU 0   | job 0  | job 1    | job 1    | job 0  |
    GPU 1   | job 0  | idle     | job 2    | job 0  |
    active     0 1       0 1       0 1 2       0        none

Job 0 loses its lease at 100 and is resumed at 300; job 2 arrives at 150, waits for the
boundary at 200 and ends inside the round, at 280.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from containers.runtime import ContainerEvent, EventKind, Lease
from containers.virtual.truth import GroundTruth
from predictor.allocation import Allocation, Demand
from predictor.job import EpochReport, JobProgress, JobSpec, Mode, Regime
from predictor.options import JobOptions
from predictor.throughput import UNTYPED, Profile
from solver.market import Price
from solver.plan import SolveReport
from tasks.fairness import FairFinish
from tasks.layout import VERSION
from tasks.record import Estimate, RoundRecord, RunHeader, Settings, Start, make_pool
from tasks.sources import Workload
from tests.runs import chained, start_of, write
from tests.strategies import certain, gang_bid
from warehouse.analytics.questions import Analytics
from warehouse.store.arrow import to_table, write_table
from warehouse.store.files import CELLS, CellRow, CellStatus

ISOLATED = {0: 200.0, 1: 150.0, 2: 100.0}
END = 315.0009


def spec(job_id: int, gpus: int, arrival_seconds: float, tenant: str) -> JobSpec:
    demand, mode = Demand.gang(gpus), Mode.ACCORDION
    return JobSpec(job_id, "net", 16, 64, demand, mode, 10, 1000, arrival_seconds, tenant, 2.0)


HEADER = RunHeader(
    version=VERSION,
    settings=Settings(
        "shockwave",
        make_pool(2, gpu_type=UNTYPED),
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
    return Estimate(job_id, own, 0.1, 0.0, 50.0, 50.0, 50.0, 50.0)


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
            bids=(gang_bid(1, 1, 0.75, weight=2.5),),
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
            fair_finishes=(FairFinish(1, 105.0), FairFinish(2, 170.0)),
        ),
        round_record(
            4,
            end,
            (),
            finished=(event(0, kind.FINISHED, end, 0, 1),),
            progress=(ran(0, 95.0),),
            fair_finishes=(FairFinish(0, 180.0), FairFinish(2, 180.0)),
        ),
    ]


def warehouse_of(folder: Path, rounds: list[RoundRecord]) -> Analytics:
    write(folder, START, chained(START, rounds), compact=False)
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


LEASE_FIGURES = "round, job_id, kind, ended, seconds, run_seconds, restart_seconds, idle_seconds"


def lease_figures(analytics: Analytics) -> list[tuple[Any, ...]]:
    _, rows = analytics.query(f"SELECT {LEASE_FIGURES} FROM leases ORDER BY round, job_id")
    return [tuple(round(v, 6) if isinstance(v, float) else v for v in row) for row in rows]


def with_deadlines(*deadlines: float) -> Start:
    """The same run with deadlines, from the arrivals."""
    specs = zip(WORKLOAD.specs, (JobOptions(deadline_seconds=d) for d in deadlines), strict=True)
    due = tuple(replace(declared, options=options) for declared, options in specs)
    return start_of(HEADER, replace(WORKLOAD, specs=due))


def with_budgets(*budgets: float) -> Start:
    """The same run with other budgets."""
    specs = zip(WORKLOAD.specs, budgets, strict=True)
    rich = tuple(replace(declared, budget=budget) for declared, budget in specs)
    return start_of(HEADER, replace(WORKLOAD, specs=rich))


ENVY = "job_id, envious, envied_jobs, most_envied_job_id, envy"


def envies(analytics: Analytics) -> list[tuple[Any, ...]]:
    return analytics.query(f"SELECT {ENVY} FROM envy ORDER BY job_id")[1]


def tenants(analytics: Analytics) -> list[dict[str, Any]]:
    columns, rows = analytics.query("FROM tenant_summary ORDER BY run, tenant")
    return [dict(zip(columns, row, strict=True)) for row in rows]
