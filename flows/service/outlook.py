"""A service's run so far, and what its last round makes one expect."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from containers.runtime import Standing
from containers.virtual.faithful import FaithfulPlace
from flows.runs.prepared import prepare, terms
from flows.service.rows import QueueRow, in_time, status_of, waits_for
from predictor.job import JobSpec
from tasks.record import RoundRecord, Start
from tasks.replay import Comparison, Recording
from tasks.rollouts import Expected
from tasks.round import Round, Run, collect, predict, solve
from tasks.sources import Trace
from tasks.state import RunState
from warehouse.workloads.generator import declared_truth


@dataclass(frozen=True)
class History:
    """A service's run so far.

    Attributes:
        start: Header, and what was taken in.
        rounds: Records and their hashes.
        state: State after the last round.
    """

    start: Start
    rounds: list[tuple[RoundRecord, str]]
    state: RunState

    @property
    def records(self) -> list[RoundRecord]:
        """The records."""
        return [record for record, _ in self.rounds]


def late_rounds(records: list[RoundRecord], round_seconds: float) -> int:
    """Rounds that began late: no round can be skipped, as they are numbered by the record."""
    late = 0
    for before, after in pairwise(records):
        busy = bool(before.leases)
        late += busy and after.clock_seconds - before.clock_seconds > 1.1 * round_seconds
    return late


def solved(name: str, found: History, extra: JobSpec | None = None) -> tuple[Run, Round]:
    """The last round, solved again, or one before the first; with a job more, if one is given."""
    start, this = found.start, Round()
    prepared = prepare(start)
    last = found.records[-1:]
    runtime = Recording(last)
    if not last:
        assert extra
        truth = declared_truth(extra, start.header.throughputs, start.header.settings.seed)
        place = FaithfulPlace([truth])
        run = prepared.on(place.open(terms(start.header), Standing()), Comparison(()), name)
    else:
        run = prepared.on(runtime, Comparison(()), name)
    for record, digest in found.rounds[:-1]:
        run.follow(record, digest)
    if extra:
        trace = start.workload.trace
        clock = last[0].clock_seconds if last else 0.0
        coming = replace(extra, arrival_seconds=clock)
        run.source = Trace((*trace.jobs, coming), trace.commands)
    for step in (collect, predict, solve):
        step(run, this)
    return run, this


def queue_row(run: Run, this: Round, job_id: int, ahead: Expected | None) -> QueueRow:
    """An active job of a solved round as a row, with what is expected of it."""
    job, state, plan = this.active[job_id], this.state, this.plan
    clock, spec = this.observation.clock_seconds, job.spec
    status = "runs" if job_id in plan.placement else status_of(state, job_id)
    own = job.own.gpu_type
    row = QueueRow(
        place=plan.order.index(job_id) + 1 if job_id in plan.order else None,
        job_id=job_id,
        name=spec.name,
        tenant=spec.tenant,
        gpus=spec.demand.least,
        status="waits" if status == "runs" and job_id not in plan.placement else status,
        price=next((row.price for row in plan.report.prices if row.gpu_type == own), None),
    )
    row = replace(row, waits_for=waits_for(state, job_id), **_deadline(spec, clock, ahead))
    if ahead is None:
        return row
    contention = max(1.0, state.arrived / run.header.settings.reference_gpus)
    alone = contention * (job.belief.run_seconds + job.run_time(job.own).remaining)
    return replace(
        row,
        starts_in_s=ahead.start - clock,
        starts_low_s=ahead.start_low - clock,
        starts_high_s=ahead.start_high - clock,
        ends_in_s=ahead.finish - clock,
        ends_low_s=ahead.finish_low - clock,
        ends_high_s=ahead.finish_high - clock,
        ftf=(ahead.finish - spec.arrival_seconds) / alone,
    )


def _deadline(spec: JobSpec, clock: float, ahead: Expected | None) -> dict[str, Any]:
    """When a job is to end, and whether it should."""
    if not spec.options.deadline_seconds:
        return {}
    at = spec.arrival_seconds + spec.options.deadline_seconds
    told = in_time(at, clock, (ahead.finish_low, ahead.finish_high) if ahead else None)
    return {"deadline_in_s": at - clock, "in_time": told}
