"""Rows of a service's answers: its jobs, queue, events, nodes and status."""

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from containers.runtime import ContainerEvent
from predictor.job import JobSpec
from tasks.commands import Command
from tasks.eligibility import BlockReason
from tasks.state import RunState

SHOWN = 6
"""Most jobs that are listed in a sentence. A choice of layout."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A job or a command that is on disk.

    Attributes:
        entry: Its number in the inbox.
        kind: `submit`, or the command's kind.
        job_id: The job; None for nodes.
        jobs: Number of jobs: of an array its tasks, whose ids, and numbers, are consecutive.
    """

    entry: int
    kind: str
    job_id: int | None
    jobs: int = 1


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job of a service.

    Attributes:
        job_id: Its id, the number of its entry.
        name: Its name; empty if it has none.
        tenant: Its tenant.
        model: Its model; empty if it has none.
        gpus: GPUs that it asks for.
        status: accepted, refused, waits, runs, held, cancelled, or how it ended.
        held_gpus: GPUs that it has.
        done: Completed share of its epochs, in [0, 1]; of a timed job as it reports, else of its
            limit; None if it ended before its last.
        arrival_s: When it came, on the run's clock in seconds; None before it is taken in.
        ended_s: When it ended.
        reason: Why it failed or was refused, or what keeps it from running (see `waits_for` of
            `QueueRow`), in words.
    """

    job_id: int
    name: str
    tenant: str
    model: str
    gpus: int
    status: str
    held_gpus: tuple[int, ...]
    done: float | None
    arrival_s: float | None
    ended_s: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class QueueRow:
    """An active job and what is expected of it.

    Seconds are from the beginning of the last round on; each comes with an interval of 80 %. They
    are None where the policy or the forecasts give none.

    Attributes:
        place: Its place in the line of the last round; None if it was in none.
        job_id: Its id.
        name: Its name.
        tenant: Its tenant.
        gpus: GPUs that it asks for.
        status: runs, waits, held or cancelled; accepted if no round has taken it in.
        starts_in_s: When it starts; 0 if it runs.
        starts_low_s: Lower end.
        starts_high_s: Upper end.
        ends_in_s: When it ends.
        ends_low_s: Lower end.
        ends_high_s: Upper end.
        ftf: Its finish-time fairness ρ, if it ends then.
        price: What a GPU-round of its type costs in the market.
        waits_for: What keeps it from running, in words: other jobs, its tenant's quota, or too few
            GPUs in service and not cordoned; empty if nothing does.
        deadline_in_s: When it is to end; None if it has no deadline.
        in_time: Whether it should end by then: yes or no if all of the interval does, maybe, or
            missed; empty without a deadline or an expectation.
        room_by_s: Latest time at which jobs that are not preempted give it their GPUs, whatever
            arrives; None if it waits for no such job.
        first_by_s: When it becomes overdue at the present load and goes before all others, 0 if it
            is: it then waits only for jobs that were overdue before it, and for those that keep
            their GPUs. None if it runs, or its policy bounds no postponement.
    """

    place: int | None
    job_id: int
    name: str
    tenant: str
    gpus: int
    status: str
    starts_in_s: float | None = None
    starts_low_s: float | None = None
    starts_high_s: float | None = None
    ends_in_s: float | None = None
    ends_low_s: float | None = None
    ends_high_s: float | None = None
    ftf: float | None = None
    price: float | None = None
    waits_for: str = ""
    deadline_in_s: float | None = None
    in_time: str = ""
    room_by_s: float | None = None
    first_by_s: float | None = None


@dataclass(frozen=True, slots=True)
class EventRow:
    """What happened to a job or node in a round, or was asked of it.

    Attributes:
        round: The round that recorded it.
        at_s: When, on the run's clock in seconds.
        kind: A kind of event of a container, or of a command; `submit` for a job taken in.
        job_id: The job; None for nodes.
        name: Its name.
        gpus: GPUs that it got or gave back.
        reason: Why, in words; of commands, their content.
    """

    round: int
    at_s: float
    kind: str
    job_id: int | None
    name: str
    gpus: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node of a service.

    Attributes:
        node: Its index, from 0.
        name: Its name in the cluster file, on Docker hosts; empty on a virtual cluster.
        gpu_type: Type of its GPUs; empty for the only type of a cluster.
        gpus: How many GPUs it has.
        gpu_indices: Their indices in the cluster.
        held_gpus: Those of them that are held.
        jobs: Jobs that hold them, by id.
        drained: Whether it is out of service.
        cordoned: Whether no job starts there.
        problem: What keeps it out of service, in words; empty if an order does, or nothing.
    """

    node: int
    name: str
    gpu_type: str
    gpus: int
    gpu_indices: tuple[int, ...]
    held_gpus: tuple[int, ...]
    jobs: tuple[int, ...]
    drained: bool
    cordoned: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """Where a service stands.

    Attributes:
        run: Its run.
        policy: Its policy.
        rounds: Rounds recorded.
        clock_s: The run's clock at the last round, in seconds.
        gpus: GPUs of its cluster.
        busy_gpus: GPUs that are held.
        drained: Nodes that are out of service.
        running: Jobs that hold GPUs.
        waiting: Other active jobs that are not on hold.
        held: Jobs on hold.
        ended: Jobs that ended.
        inbox: Entries accepted.
        pending: Entries that no round has taken in yet.
        late: Rounds that began a tenth of a round or more after their time.
    """

    run: str
    policy: str
    rounds: int
    clock_s: float
    gpus: int
    busy_gpus: int
    drained: tuple[int, ...]
    running: int
    waiting: int
    held: int
    ended: int
    inbox: int
    pending: int
    late: int


def make_job_row(
    spec: JobSpec,
    status: str,
    *,
    held_gpus: tuple[int, ...] = (),
    done: float | None = 0.0,
    arrival_s: float | None = None,
    ended_s: float | None = None,
    reason: str = "",
) -> JobRow:
    """A job as a row."""
    about = spec.job_id, spec.name, spec.tenant, spec.model, spec.demand.least
    return JobRow(*about, status, held_gpus, done, arrival_s, ended_s, reason)


def describe_status(state: RunState, job_id: int) -> str:
    """The status of an active job after a round."""
    if job_id in state.orders.cancelled:
        return "cancelled"
    if job_id in state.orders.held:
        return "held"
    return "runs" if job_id in state.leases else "waits"


def describe_wait(state: RunState, job_id: int) -> str:
    """The other jobs, or the quota, that keep a job from running, in words; empty if none does."""
    reason = state.blocked.get(job_id)
    if reason is None:
        return ""
    if reason.reason is BlockReason.QUOTA:
        return f"the quota of its tenant, until {reason.until_seconds:,.0f} s"
    shown = format_jobs(reason.jobs)
    return (
        f"the end of {shown}"
        if reason.reason is BlockReason.AFTER
        else f"a place in its array: {shown}"
    )


def format_jobs(jobs: Sequence[int]) -> str:
    """Some jobs in words: the first of them, and how many more there are."""
    shown = ", ".join(map(str, jobs[:SHOWN]))
    more = f" and {len(jobs) - SHOWN} more" if len(jobs) > SHOWN else ""
    return f"job{'s' * (len(jobs) > 1)} {shown}{more}"


_SILENT = re.compile(
    r"(^(?:(?:node \d+ is out of service: )?it|its node|node \S+) does not answer"
    r"|\bits container could not be ended): .*",
    re.DOTALL,
)
_JOBS = re.compile(r"\bjobs? (\d+(?:, \d+)*)( and \d+ more)?")


def censor(text: str, seen: Container[int]) -> str:
    """A reason, censored for a caller who sees some jobs only.

    It has no ids of other jobs, and no messages of nodes' daemons, which may name hosts.

    Args:
        text: The reason.
        seen: Ids of the jobs that the caller sees.
    """

    def shown(match: re.Match[str]) -> str:
        ids = map(int, match[1].split(", "))
        return match[0] if all(job in seen for job in ids) else "other jobs"

    return _JOBS.sub(shown, _SILENT.sub(r"\1", text))


@dataclass(frozen=True, slots=True)
class RoundEvents:
    """What happened in a round: fields of its record."""

    round: int
    arrivals: tuple[JobSpec, ...]
    finished: tuple[ContainerEvent, ...]
    commands: tuple[Command, ...]
    events: tuple[ContainerEvent, ...]


def make_event_rows(record: RoundEvents, names: dict[int, str]) -> Iterator[EventRow]:
    """What happened in a round, as rows.

    Args:
        record: The round.
        names: Names of jobs by id.
    """
    for event in record.finished:
        yield EventRow(
            *(record.round, event.at_seconds, event.kind.value, event.job_id),
            *(names.get(event.job_id, ""), event.gpus, event.reason),
        )
    for spec in record.arrivals:
        yield EventRow(record.round, spec.arrival_seconds, "submit", spec.job_id, spec.name, (), "")
    for command in record.commands:
        yield EventRow(
            *(record.round, command.at_seconds, command.kind.value, command.job),
            *(names.get(command.job or 0, ""), (), command.words),
        )
    for event in record.events:
        yield EventRow(
            *(record.round, event.at_seconds, event.kind.value, event.job_id),
            *(names.get(event.job_id, ""), event.gpus, event.reason),
        )
