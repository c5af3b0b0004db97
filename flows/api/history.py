"""A service's run so far, and the expectations that follow from its last round."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from containers.runtime import ResumePoint
from containers.virtual.faithful import FaithfulFactory
from flows.api.rows import QueueRow, describe_status, describe_wait, judge_deadline
from flows.runs.position import Position, kept, reached
from flows.runs.simulation import prepare, terms
from predictor.errors import WarehouseError
from predictor.job import JobSpec
from solver.plan import ActiveJob
from tasks.commands import Command
from tasks.record import RoundRecord, Start
from tasks.replay import Comparison, Recording
from tasks.rollouts import Expected, expected, first_by, gpus_short, room_by
from tasks.round import Round, Run, collect, predict, solve
from tasks.sources import Trace
from tasks.state import RunState
from warehouse.store.folder import round_files, run_folder
from warehouse.store.reader import Reader
from warehouse.wording import counted
from warehouse.workloads.generator import declared_truth


@dataclass(frozen=True)
class ServiceHistory:
    """A service's run so far.

    Attributes:
        start: Its header; the jobs are in the rounds.
        before: Its position before the last round.
        last: The last round; None before the first.
        position: Its position now.
    """

    start: Start
    before: Position
    last: RoundRecord | None
    position: Position

    @property
    def state(self) -> RunState:
        """Its state."""
        return self.position.state

    def after(self, record: RoundRecord, digest: str) -> "ServiceHistory":
        """The history with a further round."""
        header = self.start.header
        return ServiceHistory(
            self.start, self.position, record, self.position.after(header, record, digest)
        )


class HistoryFollower:
    """The history of a run under way, as its records grow; may be used by several threads.

    Args:
        reader: Reads the records.
        run: The run.
        snapshot: File of its snapshot.
    """

    def __init__(self, reader: Reader, run: str, snapshot: Path) -> None:
        self._reader, self._run, self._snapshot = reader, run, snapshot
        self._found: ServiceHistory | None = None
        self._files: list[tuple[Path, int]] = []
        self._one = Lock()

    def now(self) -> ServiceHistory:
        """The history to the last record; the same object until a file is new.

        Raises:
            WarehouseError: The records are damaged.
        """
        with self._one:
            history, files = self._found, self._present()
            if history is None or not files or files != self._files:
                history = self._further()
                self._found, self._files = history, files
            return history

    def _present(self) -> list[tuple[Path, int]]:
        """The files of the rounds, with times of writing; empty if a file vanishes meanwhile."""
        files = round_files(run_folder(self._reader.warehouse, self._run))
        with suppress(OSError):
            return [(path, path.stat().st_mtime_ns) for path in files]
        return []

    def _further(self) -> ServiceHistory:
        if self._found:
            with suppress(WarehouseError):  # the records were replaced: read them anew
                known = self._found.position.known
                return self._with(self._found, self._reader.records(self._run, *known))
        start = self._reader.original_start(self._run)
        position, rounds = reached(self._reader, start, self._run, kept(self._snapshot, self._run))
        return self._with(ServiceHistory(start, position, None, position), rounds)

    @staticmethod
    def _with(history: ServiceHistory, rounds: list[tuple[RoundRecord, str]]) -> ServiceHistory:
        for record, digest in rounds:
            history = history.after(record, digest)
        return history


def solve_last_round(
    name: str,
    history: ServiceHistory,
    jobs: Sequence[JobSpec] = (),
    commands: Sequence[Command] = (),
) -> tuple[Run, Round]:
    """The last round, solved again; without rounds, a round before the first; see `predicted`."""
    run, this = predict_last_round(name, history, jobs, commands)
    solve(run, this)
    return run, this


def predict_last_round(
    name: str,
    history: ServiceHistory,
    jobs: Sequence[JobSpec] = (),
    commands: Sequence[Command] = (),
) -> tuple[Run, Round]:
    """The last round up to its plan, once more; without rounds, a round before the first.

    Args:
        name: The run.
        history: Its history; with a round, or jobs are given.
        jobs: Jobs that it takes in beside its own.
        commands: Commands that it takes in beside its own; their numbers and times do not matter.
    """
    start, last, this = history.start, _ordered_anew(history), Round()
    prepared = replace(prepare(start), state=history.before.state)
    if last is None:
        assert jobs
        header = start.header
        make = partial(declared_truth, profile=header.throughputs, seed=header.settings.seed)
        place = FaithfulFactory([make(job) for job in jobs])
        run = prepared.on(place.open(terms(header), ResumePoint()), Comparison(()), name)
    else:
        run = prepared.on(Recording([last]), Comparison(()), name)
    clock = last.clock_seconds if last else 0.0
    run.source = Trace(
        (
            *(last.arrivals if last else ()),
            *(replace(job, arrival_seconds=clock) for job in jobs),
        ),
        (
            *(last.commands if last else ()),
            *(replace(command, at_seconds=clock) for command in commands),
        ),
        before=history.before.state.source_position,
    )
    for step in (collect, predict):
        step(run, this)
    return run, this


def _ordered_anew(history: ServiceHistory) -> RoundRecord | None:
    """The last round without nodes that orders alone had taken out of service.

    When the round is predicted again, the runtime names its own nodes, and the orders may differ.
    """
    last = history.last
    if last is None:
        return None
    ordered = history.state.orders.out_of_service - {problem.node for problem in last.problems}
    drained = tuple(node for node in last.solve.drained if node not in ordered)
    return replace(last, solve=replace(last.solve, drained=drained))


def estimate_fair_run_time(run: Run, this: Round, job: ActiveJob) -> float:
    """A job's run time with an equal share of the GPUs, the denominator of ρ, in seconds."""
    contention = max(1.0, this.state.arrived / run.header.settings.reference_gpus)
    return contention * (job.belief.run_seconds + job.run_time(job.own).remaining)


def make_queue_rows(run: Run, this: Round, asked: Collection[int] = ()) -> list[QueueRow]:
    """Active jobs of a solved round as rows, with what is expected of them.

    Args:
        run: The run.
        this: The round.
        asked: Their ids; all active jobs if empty.
    """
    asked = asked or this.active
    ahead, room, first = expected(run, this, {*asked}), room_by(run, this), first_by(this)
    rows = (_queue_row(run, this, job_id, ahead.get(job_id)) for job_id in asked)
    return [
        replace(row, room_by_s=room.get(row.job_id), first_by_s=first.get(row.job_id))
        for row in rows
    ]


def _queue_row(run: Run, this: Round, job_id: int, ahead: Expected | None) -> QueueRow:
    """An active job of a solved round as a row, with what is expected of it."""
    job, state, plan = this.active[job_id], this.state, this.plan
    clock, spec = this.observation.clock_seconds, job.spec
    status = "runs" if job_id in plan.placement else describe_status(state, job_id)
    own = job.own.gpu_type
    row = QueueRow(
        place=plan.order.index(job_id) + 1 if job_id in plan.order else None,
        job_id=job_id,
        name=spec.name,
        tenant=spec.tenant,
        gpus=spec.demand.least,
        status="waits" if status == "runs" and job_id not in plan.placement else status,
        price=plan.report.price_of.get(own),
    )
    row = replace(row, waits_for=_waits_for(this, job_id), **_deadline(spec, clock, ahead))
    if ahead is None:
        return row
    return replace(
        row,
        starts_in_s=ahead.start - clock,
        starts_low_s=ahead.start_low - clock,
        starts_high_s=ahead.start_high - clock,
        ends_in_s=ahead.finish - clock,
        ends_low_s=ahead.finish_low - clock,
        ends_high_s=ahead.finish_high - clock,
        ftf=(ahead.finish - spec.arrival_seconds) / estimate_fair_run_time(run, this, job),
    )


def find_gpu_shortages(name: str, history: ServiceHistory) -> dict[int, str]:
    """What active jobs wait for while nodes are out of service or cordoned, in words, by id.

    Args:
        name: The run.
        history: Its history.
    """
    if not history.last or not (history.last.solve.drained or history.state.orders.cordoned):
        return {}
    _, this = predict_last_round(name, history)
    return {job_id: _waits_for(this, job_id) for job_id in this.active}


def _waits_for(this: Round, job_id: int) -> str:
    """What keeps a job from running, in words; see `QueueRow.waits_for`."""
    others, there = describe_wait(this.state, job_id), gpus_short(this, job_id)
    if others or there is None:
        return others
    where = "in service and not cordoned" if this.state.orders.cordoned else "in service"
    return f"{counted(this.active[job_id].spec.demand.least, 'GPU')}, {there} {where}"


def _deadline(spec: JobSpec, clock: float, ahead: Expected | None) -> dict[str, Any]:
    """The deadline of a job, and whether it should meet it."""
    if not spec.options.deadline_seconds:
        return {}
    at = spec.arrival_seconds + spec.options.deadline_seconds
    finishes_in_time = judge_deadline(
        at, clock, (ahead.finish_low, ahead.finish_high) if ahead else None
    )
    return {"deadline_in_s": at - clock, "in_time": finishes_in_time}
