"""A service's scheduler: intake, recovery after kills, and replay."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from containers.clock import RunClock
from containers.runtime import EventKind, Terms
from containers.virtual.real_time import RealTimeCluster
from flows.api.commands import ServiceCommands
from flows.explain.replay import replay
from flows.prefect_server.round_deployment import RoundRequest
from flows.scheduler.admission import check_job
from flows.scheduler.intake import InboxSource
from flows.scheduler.options import ServiceOptions
from flows.scheduler.pause import Pause
from flows.scheduler.scheduler import open_run, schedule
from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import JobKind, JobSpec, Mode, make_timed_job
from solver.inventory import MOST_GPUS, Inventory, Pool
from tasks.commands import CommandKind, NewNode, TenantTerms
from tasks.sources import SourcePosition
from warehouse.analytics.questions import Analytics
from warehouse.inbox.inbox import Inbox
from warehouse.store.audit import audit
from warehouse.store.folder import place_of
from warehouse.store.reader import Reader

FAST = ServiceOptions(gpus=4, speed=100_000.0, driver="plain")
JOB = JobSpec(0, "conv-small", 32, 128, Demand.gang(2), Mode.GNS, 20, 40_000, 0.0, "a")


class Hand:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def test_a_pace_waits_and_does_not_catch_up_on_what_it_missed() -> None:
    hand, late = Hand(), list[float]()
    pace = RunClock(100.0, 60.0, hand.now, hand.sleep, lambda: late.append(hand.seconds))
    pace.reach(220.0, 120.0)
    assert (hand.seconds, pace.now()) == (pytest.approx(2.0), pytest.approx(220.0))
    hand.seconds += 0.5
    pace.reach(240.0, 120.0)  # a little late: the clock goes on
    assert pace.now() == pytest.approx(250.0)
    hand.seconds += 100.0
    pace.reach(360.0, 120.0)
    assert pace.now() == pytest.approx(360.0)
    assert late == [pytest.approx(102.5)]  # in the last round only


def test_late_rounds_of_a_virtual_service_are_counted_though_its_clock_is_set_back(
    tmp_path: Path,
) -> None:
    go(tmp_path, 3, jobs=[JOB])  # a round lasts a millisecond here
    with ServiceCommands(tmp_path) as service:
        assert service.get_status().late > 0


def test_an_idle_round_ends_at_an_arrival_or_with_its_length() -> None:
    hand = Hand()
    cluster = RealTimeCluster(lambda spec: pytest.fail("no job"), Terms("", 120.0))
    cluster.pace = RunClock(0.0, 60.0, hand.now, hand.sleep)
    cluster.advance(30.0)
    assert cluster.observe().clock_seconds == pytest.approx(30.0)
    cluster.advance(None)
    assert cluster.observe().clock_seconds == pytest.approx(150.0)
    hand.seconds += 10.0
    cluster.advance(150.0)  # came long ago
    assert cluster.observe().clock_seconds == pytest.approx(750.0)


def go(
    warehouse: Path, rounds: int, options: ServiceOptions = FAST, *, jobs: Iterable[JobSpec] = ()
) -> str:
    """Submit jobs and drive some rounds as a separate process, then leave all as after a kill."""
    with Inbox(warehouse) as inbox:
        for job in jobs:
            inbox.submit(job)
        with open_run(warehouse, inbox, options) as run:
            schedule(run, warehouse, rounds=rounds)
            return run.name


@pytest.mark.slow
def test_a_service_goes_on_from_its_records_and_takes_each_entry_once(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        first = inbox.submit(replace(JOB, name="first"), by="ann")
        name = go(tmp_path, 2)
        assert name.startswith("service-")
        second = inbox.submit(replace(JOB, mode=Mode.STATIC, name="second"))
        third = inbox.submit(replace(JOB, demand=Demand.gang(4), name="third"))
        assert go(tmp_path, 1) == name
        inbox.command(CommandKind.CANCEL, third.number, by="otto")
        big = inbox.submit(replace(JOB, demand=Demand.gang(8)))
        inbox.command(CommandKind.HOLD, second.number)
        go(tmp_path, 2)
        inbox.command(CommandKind.RELEASE, second.number)
        while True:
            go(tmp_path, 5)
            records = [record for record, _ in Reader(tmp_path).records(name)]
            ended = {event.job_id: event.kind for r in records for event in r.finished}
            if len(ended) == 3:
                break
            inbox.command(CommandKind.BUDGET, first.number, value=1.0)  # another round follows
        last = inbox.last()
    assert ended == {
        first.number: EventKind.FINISHED,
        second.number: EventKind.FINISHED,
        third.number: EventKind.WITHDRAWN,
    }
    commands = [command for record in records for command in record.commands]
    jobs = [spec.job_id for record in records for spec in record.arrivals]
    assert sorted([*jobs, *(c.number for c in commands)]) == [*range(1, last + 1)]
    (refused,) = [c for c in commands if c.kind is CommandKind.REFUSED]
    assert refused.number == big.number
    assert "8 are requested, but the cluster has 4" in refused.reason
    with ServiceCommands(tmp_path) as service:
        rows = {row.job_id: row for row in service.list_jobs()}
        submitted = {e.job_id: e.reason for e in service.list_events() if e.kind == "submit"}
        explained = str(service.explain(third.number))
    assert (rows[first.number].by, rows[third.number].by) == ("ann", "")
    assert (submitted[first.number], submitted[third.number]) == ("by ann", "")
    assert (rows[third.number].status, rows[third.number].reason) == ("withdrawn", "by otto")
    assert explained.startswith(f"Job {third.number} (third) has ended: withdrawn at ")
    assert "\nIt waited in its last round, round " in explained
    assert audit(tmp_path, name).findings == ()
    assert replay(name, tmp_path).differences == []
    analytics, asked = Analytics(tmp_path), "SELECT job_id, submitter FROM jobs ORDER BY job_id"
    assert [name for _, name in analytics.query(asked)[1]] == ["ann", None, None]
    asked = "SELECT job_id, finish_seconds IS NULL, rho > 0 FROM job_outcomes ORDER BY job_id"
    assert analytics.query(asked)[1] == [
        (first.number, False, True),
        (second.number, False, True),
        (third.number, True, None),
    ]
    assert Analytics(tmp_path).query("SELECT workload FROM runs")[1] == [(name,)]  # like no other


def test_a_round_that_a_kill_left_without_its_name_is_gone_on_with(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        inbox.submit(JOB)
    folder = place_of(tmp_path, go(tmp_path, 1))
    (written,) = folder.glob("round*.parquet")
    written.rename(folder / f".{written.name}.{'0' * 32}")
    name = go(tmp_path, 1)  # the writer gives it its name
    records = [record for record, _ in Reader(tmp_path).records(name)]
    assert [len(record.arrivals) for record in records] == [1, 0]
    assert audit(tmp_path, name).findings == ()


@pytest.mark.slow
def test_times_of_entries_are_those_of_their_round(tmp_path: Path) -> None:
    slow = replace(FAST, speed=600.0)
    with Inbox(tmp_path) as inbox:
        inbox.submit(JOB)
        name = go(tmp_path, 1, slow)
        inbox.submit(JOB)  # accepted while no scheduler runs: right after the last round
        go(tmp_path, 2, slow)
    records = [record for record, _ in Reader(tmp_path).records(name)]
    (late,) = records[1].arrivals
    assert records[0].clock_seconds < late.arrival_seconds <= records[1].clock_seconds
    assert audit(tmp_path, name).findings == ()


@pytest.mark.slow
def test_a_service_keeps_what_it_began_with(tmp_path: Path) -> None:
    go(tmp_path, 1, jobs=[JOB])
    go(tmp_path, 1, replace(FAST, gpus=8))  # the default: as it began
    with pytest.raises(InputError, match="gpus: differs from the setting of this"):
        go(tmp_path, 1, replace(FAST, gpus=16))
    with pytest.raises(InputError, match="policy: differs"):
        go(tmp_path, 1, replace(FAST, policy="srtf"))


ODD = {
    "an unknown GPU type": replace(JOB, demand=Demand(2, 2, ("v\udcff",))),
    "too many GPUs": replace(JOB, demand=Demand.gang(5)),
    "no end of GPUs": replace(JOB, demand=Demand(1, 10**30)),
    "an unknown model": replace(JOB, model="a\udcff\x1b"),
    "batches of any size": replace(JOB, max_batch_size=10**30),
    "epochs without end": replace(JOB, epochs=10**12, samples_per_epoch=10**15, total_steps=0),
    "a budget beside which others vanish": replace(JOB, budget=1e11),
    "a limit without end": make_timed_job(
        0, JobKind.OPAQUE, Demand.gang(1), 1e300, 0.0, image="a:1"
    ),
}
LONG = {
    "many epochs": replace(JOB, epochs=10**9, total_steps=0),
    "all money": replace(JOB, budget=1e6),
    "hardly any": replace(JOB, budget=1e-6),
    "a long limit": make_timed_job(0, JobKind.OPAQUE, Demand.gang(1), 1e9, 0.0, image="a:1"),
    "a short limit": make_timed_job(
        0, JobKind.CHECKPOINTING, Demand.gang(1), 1e-9, 0.0, image="a:1"
    ),
}
"""Odd jobs: those that are refused, and those that are scheduled."""


@pytest.mark.slow
def test_no_job_that_was_accepted_stops_the_others(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        odd = [inbox.submit(job).number for job in ODD.values()]
        fine = [inbox.submit(job).number for job in [*LONG.values(), JOB]]
    name = go(tmp_path, 3)
    (first, *_), _ = zip(*Reader(tmp_path).records(name), strict=True)
    assert [spec.job_id for spec in first.arrivals] == fine
    assert [c.number for c in first.commands if c.kind is CommandKind.REFUSED] == odd
    assert all(command.reason for command in first.commands)
    assert audit(tmp_path, name).findings == ()
    assert replay(name, tmp_path).differences == []


def test_a_job_whose_check_breaks_is_refused(tmp_path: Path) -> None:
    def broken(spec: JobSpec, terms: TenantTerms | None) -> None:
        raise ZeroDivisionError("division by zero")

    with Inbox(tmp_path) as inbox:
        inbox.submit(JOB)
        source = InboxSource(inbox, lambda: 1.0, 1.0, broken, lambda *_: None)
        taken = source.until(1.0, SourcePosition())
    (refused,) = taken.commands
    assert (taken.jobs, refused.reason) == ((), "ZeroDivisionError('division by zero')")


def test_terms_hold_for_the_jobs_after_them_in_the_same_round(tmp_path: Path) -> None:
    job = make_timed_job(0, JobKind.OPAQUE, Demand.gang(1), 600.0, 0.0, image="new:1", tenant="a")
    with Inbox(tmp_path) as inbox:
        inbox.tenant("a", {"images": ("old:*",)})
        name = go(tmp_path, 1)
        inbox.tenant("a", {"images": ("new:*",)})
        inbox.submit(job)
        inbox.submit(replace(job, image="old:1"))
        go(tmp_path, 1)
    record, _ = Reader(tmp_path).records(name)[-1]
    assert [spec.job_id for spec in record.arrivals] == [3]
    assert [(command.number, command.kind.value) for command in record.commands][1:] == [
        (4, "refused")
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gpus", "refused"),
    [
        ((8, 4, 2, 2), {}),
        ((MOST_GPUS - 10, 4), {3: f"a cluster has {MOST_GPUS} at most"}),
        ((MOST_GPUS - 7, 4), {2: f"a cluster has {MOST_GPUS} at most"}),
    ],
)
def test_each_node_joins_those_that_its_round_added_before_it(
    tmp_path: Path, gpus: tuple[int, ...], refused: dict[int, str]
) -> None:
    options = replace(FAST, gpus=8, gpus_per_node=4)
    with Inbox(tmp_path) as inbox:
        inbox.submit(JOB)
        name = go(tmp_path, 0, options)
        (pool,) = Reader(tmp_path).start(name).header.settings.pools
        for number in gpus:
            inbox.add(NewNode("", pool.gpu_type, number), ("gpus",))
        go(tmp_path, 1, options)
    record, _ = Reader(tmp_path).records(name)[-1]
    kinds = {command.number: command.kind for command in record.commands}
    assert {number for number, kind in kinds.items() if kind is CommandKind.REFUSED} == {*refused}
    assert len(kinds) == len(gpus)
    for command in record.commands:
        assert refused.get(command.number, "") in command.reason
    assert audit(tmp_path, name).findings == ()


def test_a_pause_lasts_while_the_server_is_away_and_the_inbox_has_it(tmp_path: Path) -> None:
    answers: list[RoundRequest | None] = [
        None,  # the server does not answer
        RoundRequest(paused=False, run_once=False),
        RoundRequest(paused=True, run_once=False),
        None,
        RoundRequest(paused=True, run_once=True),
        RoundRequest(paused=False, run_once=False),
    ]
    began, paused = [], []
    with Inbox(tmp_path) as inbox:
        for answer in answers:
            # A new scheduler takes over each time.
            began.append(Pause(inbox, lambda answer=answer: answer).may_begin())  # type: ignore[misc]
            paused.append(inbox.is_paused())
        kinds = [(entry.kind, entry.by) for entry in inbox.entries_after(0)]
    assert began == [True, True, False, False, True, True]
    assert paused == [False, False, True, True, True, False]
    assert kinds == [("pause", "Prefect"), ("resume", "Prefect")]


def test_a_paused_service_runs_no_round_until_it_may(tmp_path: Path) -> None:
    asked = iter([False, False, True, True])
    with Inbox(tmp_path) as inbox:
        inbox.submit(JOB)
        inbox.command(CommandKind.PAUSE, -1, by="Prefect")
        with open_run(tmp_path, inbox, FAST) as run:
            schedule(run, tmp_path, rounds=2, may_begin=lambda: next(asked))
    assert list(asked) == []
    first, *_ = Reader(tmp_path).records(run.name)
    assert [command.kind for command in first[0].commands] == [CommandKind.PAUSE]


def test_a_job_that_fits_no_pool_is_told_of_the_largest() -> None:
    pools = (Pool("v100", 4, 4), Pool("k80", 4, 2), Pool("v100", 3, 3))
    said = {
        (12, ()): "12 are requested, but the cluster has 11",
        (8, ()): "8 are requested in one pool, and the largest pool of the cluster's 11 has 4",
        (5, ("k80",)): "5 are requested of type k80 in one pool, and the largest pool of the "
        "cluster's 11 has 4",
        (1, ("h100",)): "1 are requested of type h100, and the cluster has none of these",
    }
    for (gpus, types), problem in said.items():
        spec = replace(JOB, demand=Demand(gpus, gpus, types))
        with pytest.raises(InputError) as refused:
            check_job(spec, FAST.make_start().header, Inventory(pools))
        assert refused.value.problem == problem
