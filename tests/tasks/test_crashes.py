"""Jobs that crash or are lost, and nodes out of service."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, repeat
from pathlib import Path

import numpy as np
import pytest

from containers.runtime import (
    BY_ITS_OWNER,
    ContainerEvent,
    EventKind,
    Lease,
    Observation,
    ResumePoint,
    Runtime,
)
from flows.explain.sentences import describe_answer
from flows.explain.why import why
from flows.runs.simulation import make_terms, prepare
from flows.runs.start import make_start
from predictor.job import JobProgress, JobSpec
from predictor.parts import Mapper
from tasks.backoff import PATIENCE
from tasks.record import RuntimeKind, Settings, Start, make_pool
from tasks.round import run_round
from tests.runs import Made, Memory, chained, check_sound, check_stored, write
from warehouse.store.audit import audit
from warehouse.workloads.generator import generate_workload

ROUND_SECONDS = 600.0
LIVES = -1
"""The fate of a container that ends with its job."""

Drained = Callable[[int], tuple[int, ...]]


@dataclass
class Troubled:
    """A virtual cluster on which containers crash and nodes go out of service.

    Attributes:
        inner: The cluster.
        gpus_per_node: GPUs that are out of service together.
        fates: Rounds after which the containers of a job crash, one after the other; with 0,
            they do not start.
        drained: Nodes out of service at the end of a round.
        stood: Where each job stood last; containers that did not start tell of that.
    """

    inner: Runtime
    gpus_per_node: int
    fates: Mapping[int, Iterator[int]]
    drained: Drained
    stood: dict[int, JobProgress]
    clock: float = 0.0
    number: int = 0
    leases: dict[int, tuple[int, ...]] = field(default_factory=dict)
    left: dict[int, int] = field(default_factory=dict)
    unstarted: dict[int, tuple[int, ...]] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)

    def admit(self, jobs: Sequence[JobSpec]) -> None:
        self.inner.admit(jobs)

    def withdraw(self, job_id: int, reason: str = BY_ITS_OWNER) -> None:
        self.inner.withdraw(job_id, reason)

    def close(self) -> None:
        self.inner.close()

    def preempt(
        self, reasons: Mapping[int, str], each: Mapper | None = None
    ) -> tuple[ContainerEvent, ...]:
        for job_id in reasons:
            del self.leases[job_id]
        return self.inner.preempt(reasons)

    def launch(
        self, number: int, leases: Sequence[Lease], each: Mapper | None = None
    ) -> tuple[ContainerEvent, ...]:
        self.number, events = number, []
        for lease in leases:
            job_id = lease.job_id
            self.left[job_id] = next(self.fates.get(job_id, repeat(LIVES)))
            if self.left[job_id]:
                self.leases[job_id] = lease.gpus
                (event,) = self.inner.launch(number, [lease])
            else:
                self.unstarted[job_id] = lease.gpus
                event = ContainerEvent(job_id, EventKind.STARTED, self.clock, lease.gpus)
            again = EventKind.RESUMED if job_id in self.tried else EventKind.STARTED
            self.tried.add(job_id)
            events.append(replace(event, kind=again))
        return tuple(events)

    def advance(self, idle_until: float | None) -> None:
        round_over = self.clock + ROUND_SECONDS
        self.inner.advance(min(round_over, idle_until or round_over))

    def observe(self, each: Mapper | None = None) -> Observation:
        seen = self.inner.observe()
        gone, ends = self.drained(self.number), [*seen.finished]
        for job_id, gpus in self.unstarted.items():
            ends.append(
                ContainerEvent(job_id, EventKind.CRASHED, self.clock, gpus, "no such image")
            )
        unmoved = [replace(self.stood[job_id], seconds=0.0) for job_id in self.unstarted]
        self.stood |= {entry.job_id: entry for entry in seen.progress}
        seen = replace(seen, progress=(*seen.progress, *unmoved))
        self.unstarted.clear()
        self.clock = seen.clock_seconds
        for event in seen.finished:
            self.leases.pop(event.job_id, None)
        for job_id, gpus in list(self.leases.items()):
            self.left[job_id] -= 1
            lost = any(gpu // self.gpus_per_node in gone for gpu in gpus)
            if lost or not self.left[job_id]:
                reason = "node n0 does not answer" if lost else "exited with code 1"
                kind = EventKind.LOST if lost else EventKind.CRASHED
                (event,) = self.preempt({job_id: reason})
                ends.append(replace(event, kind=kind))
        return replace(seen, finished=tuple(ends), drained=gone)

    def reap(self, job_ids: Sequence[int]) -> None:
        self.inner.reap(job_ids)


def start(jobs: int, gpus_per_node: int = 4) -> Start:
    workload = generate_workload(jobs, rng=np.random.default_rng(7), mean_interarrival_seconds=90.0)
    settings = Settings(
        "fifo",
        make_pool(8, gpus_per_node),
        round_seconds=ROUND_SECONDS,
        runtime=RuntimeKind.FAITHFUL,
    )
    return make_start(workload, settings)


def make(
    jobs: int,
    fates: Mapping[int, Sequence[int]] | None = None,
    drained: Drained = lambda number: (),
) -> Made:
    """A run to its end; containers of a job beyond its fates live."""
    given = start(jobs)
    sink = Memory()
    inner = prepare(given).place.open(make_terms(given.header), ResumePoint())

    def fate(rounds: Sequence[int]) -> Iterator[int]:
        yield from rounds
        yield from repeat(LIVES)

    by_job = {job_id: fate(rounds) for job_id, rounds in (fates or {}).items()}
    stood = {
        spec.job_id: JobProgress(spec.job_id, 0, 0.0, spec.batch_size, 0.0, 0.0, spec.total_steps)
        for spec in given.workload.specs
    }
    per_node = given.header.settings.inventory.pools[0].gpus_per_node
    runtime = Troubled(inner, per_node, by_job, drained, stood)
    run = prepare(given).on(runtime, sink)
    states = [run.state]
    while not run.finished:
        assert len(sink.rounds) < 500
        run_round(run)
        states.append(run.state)
    return Made(given, run, sink.rounds, states)


def launched(made: Made, job_id: int) -> list[int]:
    """Rounds in which a job was launched, its lease not just renewed."""
    return [
        record.round
        for record in made.records
        for event in record.events
        if event.job_id == job_id and event.kind is not EventKind.PREEMPTED
    ]


def check(tmp_path: Path, made: Made) -> None:
    """It is audited, folded and replayed like any other run."""
    check_sound(made)
    check_stored(tmp_path, made)


def ends(made: Made, job_id: int) -> list[ContainerEvent]:
    return [event for record in made.records for event in record.finished if event.job_id == job_id]


def test_a_job_that_crashes_again_and_again_waits_longer_and_is_given_up(tmp_path: Path) -> None:
    made = make(1, {0: [0] * 10})
    tries = launched(made, 0)
    waited = [after - before - 1 for before, after in pairwise(tries)]
    assert waited == [0, 1, 3, 7]
    most = PATIENCE[EventKind.CRASHED].tries
    assert len(tries) == most == 5
    *crashes, failed = ends(made, 0)
    assert [event.kind for event in crashes] == [EventKind.CRASHED] * 5
    assert failed.kind is EventKind.FAILED
    assert failed.reason == "crashed 5 times in a row, the last time: no such image"
    assert failed.gpus == ()
    assert made.run.state.learning.finished == ()  # nothing is learned from it
    check(tmp_path, made)


def test_a_completed_epoch_makes_up_for_crashes(tmp_path: Path) -> None:
    made = make(1, {0: [0, 0, 0, 0, 1, 0, 0, 0]})
    kinds = [event.kind for event in ends(made, 0)]
    assert kinds == [EventKind.CRASHED] * 8 + [EventKind.FINISHED]
    tries = launched(made, 0)
    waited = [after - before - 1 for before, after in pairwise(tries)]
    assert waited == [0, 1, 3, 7] * 2
    reports = [r for record in made.records for r in record.reports if r.job_id == 0]
    assert sum(report.epochs for report in reports) == made.specs[0].epochs
    check(tmp_path, made)


def test_others_run_while_a_job_waits_to_be_tried_again() -> None:
    made = make(3, {0: [0] * 10})
    busy = {launch.job_id for record in made.records for launch in record.leases}
    assert busy == {0, 1, 2}
    failed = next(r.round for r in made.records for e in r.finished if e.kind is EventKind.FAILED)
    between = made.records[: failed + 1]
    assert all({lease.job_id for lease in record.leases} - {0} for record in between[1:10])


def test_a_node_out_of_service_gets_nothing_and_its_jobs_go_on_elsewhere(tmp_path: Path) -> None:
    made = make(4, drained=lambda number: (0,) if 2 <= number < 9 else ())
    drained = [record for record in made.records if record.solve.drained]
    assert len(drained) == 7
    for record in drained:
        assert record.solve.drained == (0,)
        assert all(gpu >= 4 for launch in record.leases for gpu in launch.gpus)
    lost = [event for record in made.records for event in record.finished if not event.ends_job]
    assert {event.kind for event in lost} == {EventKind.LOST}
    assert all(event.gpus[0] < 4 for event in lost)
    for spec in made.specs:
        assert ends(made, spec.job_id)[-1].kind is EventKind.FINISHED
    before, after = made.records[: drained[0].round], made.records[drained[-1].round + 1 :]
    for records in (before, after):
        assert any(gpu < 4 for r in records for launch in r.leases for gpu in launch.gpus)
    assert made.run.state.backoff.failures == {}
    check(tmp_path, made)


def test_with_no_node_in_service_nobody_runs_and_nobody_is_given_up(tmp_path: Path) -> None:
    made = make(3, drained=lambda number: (0, 1) if 2 <= number < 6 else ())
    idle = [record for record in made.records if record.solve.drained == (0, 1)]
    assert len(idle) == 4
    for record in idle:
        assert record.leases == ()
        assert record.solve.reason == "no node is in service"
    for spec in made.specs:
        assert ends(made, spec.job_id)[-1].kind is EventKind.FINISHED
    check(tmp_path, made)


@pytest.fixture(scope="module")
def drained_run() -> Made:
    return make(3, {1: [0, 0]}, drained=lambda number: (1,) if 1 <= number < 6 else ())


def findings(tmp_path: Path, made: Made, number: int, **fields: object) -> list[str]:
    """What an audit finds if the record of a round is changed."""
    records = made.records
    records[number] = replace(records[number], **fields)  # type: ignore[arg-type]
    name = write(tmp_path, made.start, chained(made.start, records))
    return [
        finding.problem for finding in audit(tmp_path, name).findings if finding.round == number
    ]


def test_an_audit_finds_a_gpu_of_a_drained_node_given_away(
    tmp_path: Path, drained_run: Made
) -> None:
    busy = next(r for r in drained_run.records if r.solve.drained and r.leases)
    lease = busy.leases[0]
    gpus = tuple(range(4, 4 + len(lease.gpus)))
    leases = (replace(lease, gpus=gpus), *busy.leases[1:])
    found = findings(tmp_path, drained_run, busy.round, leases=leases)
    assert "GPU 4 is given away, and its node is out of service" in " | ".join(found)


@pytest.mark.slow
def test_an_audit_finds_a_crash_without_a_reason_or_with_other_gpus(
    tmp_path: Path, drained_run: Made
) -> None:
    crash = next(
        record
        for record in drained_run.records
        if any(event.kind is EventKind.CRASHED for event in record.finished)
    )
    (event,) = [e for e in crash.finished if e.kind is EventKind.CRASHED]
    others = tuple(e for e in crash.finished if e is not event)
    for changed, problem in (
        (replace(event, reason=""), "is crashed for no reason"),
        (replace(event, gpus=(7,)), "gives back GPUs [7] that it did not hold"),
        (replace(event, kind=EventKind.RENEWED), "ends by being renewed"),
        (replace(event, at_seconds=-1.0), "outside the round"),
    ):
        folder = tmp_path / problem[:5].strip()
        folder.mkdir()
        found = findings(folder, drained_run, crash.round, finished=(changed, *others))
        assert problem in " | ".join(found)


@pytest.mark.slow
def test_why_a_job_that_crashed_waits(tmp_path: Path) -> None:
    made = make(3, {0: [0, 0, 0]})
    name = write(tmp_path, made.start, made.rounds)
    tried = {}
    for record in made.records[1:]:
        if 0 in record.ended:
            break
        if 0 not in {lease.job_id for lease in record.leases}:
            answer = why(0, tmp_path, name, record.round)
            tried[record.round] = answer.obstacles.retry_seconds
            assert f"tried again at {answer.obstacles.retry_seconds:,.0f} s" in "\n".join(
                describe_answer(answer)
            )
    assert len(tried) == 1 + 3
    assert sum(one == two for one, two in pairwise(tried.values())) == 2
