"""Explain a recorded decision: why a job runs, waits or was preempted in a round.

The round is solved again from its records.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from containers.runtime import DISPATCHED, ContainerEvent, EventKind, Lease
from flows.explain.answer import Answer, JobForecast, explain, forecast_job
from flows.explain.facts import JobEnd, Step, Unforecast, Wait
from flows.explain.forks import check_own, take_over
from flows.prefect_server.garbage import collect_rarely
from flows.runs.kept_states import find_state
from flows.runs.simulation import prepare
from flows.runs.start import check_recorded
from predictor.errors import InputError, WarehouseError, likely
from predictor.job import JobSpec, find_named
from tasks.record import RoundRecord
from tasks.replay import Comparison, Recording
from tasks.rollouts import Progress, ignore_progress
from tasks.round import Round, solve_round
from tasks.run import Run
from warehouse.analytics.questions import Analytics
from warehouse.store.reader import Reader

MOST_SIMULATED = 256
"""Most active jobs with which `why` simulates the queue of an ended job's round. An engineering
bound on its time: what was expected of a job that has ended is not worth minutes."""


def why(
    job: int | str,
    warehouse: Path,
    name: str | None = None,
    number: int | None = None,
    progress: Progress = ignore_progress,
    most_simulated: int = MOST_SIMULATED,
) -> Answer:
    """Explain the decision about a job in a round.

    Args:
        job: The job's id or name.
        warehouse: The warehouse that holds its run.
        name: The run; by default the newest.
        number: The round. By default the last round in which the job was active; for a finished
            job, the first round of its longest wait.
        progress: Called before each simulation of the queue.
        most_simulated: Most active jobs with which the queue of an ended job's round is simulated.

    Raises:
        InputError: There is no such run, job or round, or the job was not active in it.
        WarehouseError: The records are damaged.
    """
    with collect_rarely():
        return _why(job, warehouse, name, number, progress, most_simulated)


def _why(
    job: int | str,
    warehouse: Path,
    name: str | None,
    number: int | None,
    progress: Progress,
    most_simulated: int,
) -> Answer:
    reader = Reader(warehouse)
    name = name or find_newest_run(warehouse)
    start = reader.start(name)
    header, entries = start.header, [*find_named(str(job), start.workload.specs)]
    if not entries:
        like = likely(str(job), sorted({spec.name for spec in start.workload.specs} - {""}))
        remedy = f"{like}name one of its jobs, or another run with --run"
        raise InputError(f"job {str(job).strip() or repr(job)}", f"is not in run {name!r}", remedy)
    job_id = entries[-1].job_id
    arrived, lived = _read_life(Analytics(warehouse), name, job_id)
    asked = number
    number, longest = _round(name, entries[-1], arrived, lived, number)
    ends = (event for r in lived for event in r.finished if event.ends_job)
    end = next((JobEnd(e.kind.value, e.at_seconds) for e in ends if asked is None), None)
    check_own(name, header, number)
    check_recorded(name, header.settings)
    prepared = prepare(start, recorded=True)
    state = find_state(reader, name, number) or prepared.state
    run = replace(prepared, state=state).on(Recording(()), Comparison(()), name)
    for record, digest in reader.walk(name, state.round, state.last_hash):
        if record.round == number:
            break
        run.follow(record, digest)
    run.runtime, run.state = Recording([record]), take_over(run.state, header.settings)
    this = solve_round(run)
    check_same(name, this, record)
    if end is None or len(this.active) <= most_simulated:
        ahead = forecast_job(run, this, job_id, progress)
    else:
        ahead = JobForecast(None, this.observation.clock_seconds, Unforecast.ENDED)
    answer = explain_round(run, this, job_id, number, lived, ahead)
    return replace(answer, longest=longest, end=end)


@dataclass(frozen=True, slots=True)
class Lived:
    """The fields of a round's record that show jobs' events."""

    round: int
    clock_seconds: float
    finished: tuple[ContainerEvent, ...]
    leases: tuple[Lease, ...]
    events: tuple[ContainerEvent, ...]


_LIFE = (
    "SELECT round, clock_seconds, list_contains(arrivals, {job}) FROM round_facts ORDER BY round",
    "SELECT round, gpus FROM placements WHERE job_id = {job}",
    "SELECT round, kind, at_seconds, gpus, reason FROM events WHERE job_id = {job}",
)


def _read_life(analytics: Analytics, name: str, job_id: int) -> tuple[int | None, list[Lived]]:
    """Return the round in which a job arrived, and all rounds of its run with its own events."""
    asked = [sql.format(job=job_id) for sql in _LIFE]
    rounds, leases, events = [rows for _, rows in analytics.queries(asked, [name])]
    held = {number: (Lease(job_id, tuple(gpus)),) for number, gpus in leases}
    ended: dict[int, list[ContainerEvent]] = {}
    begun: dict[int, list[ContainerEvent]] = {}
    for number, kind, at, gpus, reason in events:
        event = ContainerEvent(job_id, EventKind(kind), at, tuple(gpus), reason)
        of_rounds = begun if event.kind in DISPATCHED else ended
        of_rounds.setdefault(number, []).append(event)
    lived = [
        Lived(
            number,
            clock,
            (*ended.get(number, ()),),
            held.get(number, ()),
            (*begun.get(number, ()),),
        )
        for number, clock, _ in rounds
    ]
    return next((number for number, _, arrived in rounds if arrived), None), lived


def explain_round(
    run: Run,
    this: Round,
    job_id: int,
    number: int,
    rounds: Sequence[Lived],
    ahead: JobForecast,
) -> Answer:
    """Explain the decision about a job in a round that was solved again.

    `rounds` are the rounds of the job's life so far, and the next round if there is one. For other
    arguments, see `explain`.
    """
    known = [record for record in rounds if record.round <= number + 1]
    spec = this.state.beliefs[job_id].spec
    waits = _waits(spec, [r for r in known if r.round <= number])
    history = _history(job_id, known, number)
    return explain(run, this, job_id, number, tuple(waits), tuple(history), ahead)


def find_newest_run(warehouse: Path) -> str:
    """Return the newest run.

    Raises:
        InputError: The warehouse has no runs.
    """
    newest = Analytics(warehouse).newest_run()
    if newest is None:
        raise InputError(str(warehouse), "has no runs", "run shockwave simulate first")
    return newest


def _round(
    name: str, job: JobSpec, arrived: int | None, lived: Sequence[Lived], asked: int | None
) -> tuple[int, Wait | None]:
    """Return the round to explain, and the wait that selected it."""
    job_id = job.job_id
    ends = ((r.round, event.kind) for r in lived for event in r.finished if event.ends_job)
    ended, kind = next(ends, (None, None))
    done = kind is EventKind.FINISHED
    if arrived is None:
        raise InputError(
            f"job {job_id}", f"has not arrived by round {len(lived) - 1}", "try again later"
        )
    last = len(lived) - 1 if ended is None else ended - 1
    if asked is None and not done:
        return last, None
    if asked is None:
        waits = _waits(job, lived[: last + 1])
        begun = [(wait.round, wait) for wait in waits if wait.round is not None]
        return max(begun, key=lambda step: step[1].seconds, default=(last, None))
    if not 0 <= asked < len(lived):
        raise InputError(
            "round", f"run {name!r} has no round {asked}", f"give one below {len(lived)}"
        )
    if not arrived <= asked <= last:
        raise InputError(
            "round",
            f"job {job_id} is not active in round {asked}",
            f"it is active from round {arrived} to {last}",
        )
    return asked, None


def check_same(name: str, this: Round, record: RoundRecord) -> None:
    """Raise `WarehouseError` if a decision differs from the recorded one."""
    leased = {lease.job_id: lease.gpus for lease in record.leases}
    if (dict(this.plan.placement), this.plan.report) != (leased, record.solve):
        raise WarehouseError(
            f"run {name!r}, round {record.round}",
            "the replayed decision differs from the recorded decision",
            f"use the version that recorded it; see shockwave run replay {name}",
        )


def _waits(job: JobSpec, recorded: Sequence[Lived]) -> Iterator[Wait]:
    """Yield the periods without GPUs, from the job's arrival to the last of these rounds."""
    arrival = job.arrival_seconds
    since: float | None = arrival
    without: int | None = None
    for record in recorded:
        clock = record.clock_seconds
        if clock < arrival:
            continue
        held = any(lease.job_id == job.job_id for lease in record.leases)
        if held and since is not None and since < clock:
            yield Wait(since, clock, without)
        since = None if held else clock if since is None else since
        without = None if held else record.round if without is None else without
    if since is not None and since < clock:
        yield Wait(since, clock, without)


def _history(job_id: int, recorded: Sequence[Lived], last: int) -> Iterator[Step]:
    """Yield a job's events up to a round, and its end if the round was its last."""
    for record in recorded:
        for event in (*record.finished, *record.events):
            ends = any(end.job_id == job_id and end.ends_job for end in record.finished)
            if event.job_id == job_id and (record.round <= last or ends):
                yield Step(record.round, event.kind.value, event.gpus, event.reason)
