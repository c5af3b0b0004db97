"""Rows that a service's API returns: jobs, queue, events, nodes and status."""

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from containers.runtime import ContainerEvent
from predictor.job import JobSpec
from tasks.commands import Command
from tasks.eligibility import BlockReason
from tasks.fairness import FairFinish
from tasks.state import RunState

SHOWN = 6
"""Most jobs listed in a sentence. A choice of layout."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A job or command that is durable in the inbox.

    Attributes:
        entry: Its number in the inbox.
        kind: `submit`, or the kind of command.
        job_id: The job; None for nodes.
        jobs: Number of jobs; an array's tasks have consecutive ids and numbers.
    """

    entry: int
    kind: str
    job_id: int | None
    jobs: int = 1


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job of a service.

    Attributes:
        job_id: Number of its inbox entry.
        gpus: GPUs requested.
        status: accepted, refused, waits, runs, held, cancelled, or how it ended.
        held_gpus: Indices of the GPUs that it holds.
        done: Completed share in [0, 1]: of its epochs; for a timed job, as it reports, else of its
            limit. None if it ended early.
        arrival_s: Arrival on the run's clock in seconds; None before a round takes it in.
        reason: Why it failed or was refused, or what keeps it from running (see
            `QueueRow.waits_for`).
        by: Who submitted it.
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
    by: str = ""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """An active job with its forecast.

    Seconds count from the start of the last round; bounds are of 80 % intervals. Fields are
    None if the policy or the forecasts do not give them.

    Attributes:
        place: Place in the queue of the last round; None if it had none.
        gpus: GPUs that it holds; if it waits, those requested.
        status: runs, waits, held or cancelled; accepted before a round takes it in.
        starts_in_s: Expected start; 0 if it is running.
        ends_in_s: Expected end.
        rho: Expected finish-time fairness ρ.
        price: Market price of a GPU-round of its type.
        waits_for: What keeps it from running: other jobs, its tenant's quota, or too few GPUs in
            service and not cordoned; empty if nothing does.
        deadline_in_s: Deadline; None if it has none.
        in_time: Whether it should meet the deadline: `yes` or `no` if the whole interval agrees,
            else `maybe`; `missed` if it has passed; empty without a deadline or a forecast.
        room_by_s: Latest time at which non-preemptible jobs free GPUs for it, whatever arrives;
            None if it waits for no such job.
        first_by_s: When it becomes overdue at the present load; 0 if it is. From then on it waits
            only for jobs that were overdue before it or keep their GPUs. None if it is running, or
            the policy does not bound waits.
        forecast_age_s: Age of the forecast: 0 if it is of the last round; None without one.
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
    rho: float | None = None
    rho_low: float | None = None
    rho_high: float | None = None
    price: float | None = None
    waits_for: str = ""
    deadline_in_s: float | None = None
    in_time: str = ""
    room_by_s: float | None = None
    first_by_s: float | None = None
    forecast_age_s: float | None = None


@dataclass(frozen=True, slots=True)
class SizeRow:
    """GPUs of one type on which a job should meet its deadline.

    Attributes:
        gpu_type: Their type; empty if the cluster has only one.
        ends_in_s: Expected end.
        gpu_hours: Expected GPU time of the job.
    """

    gpu_type: str
    gpus: int
    ends_in_s: float
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class DryRun(QueueRow):
    """The forecast of a job that was not submitted.

    Attributes:
        size: If it is elastic and has a deadline, those of at most eight sizes, spread over the
            range, that meet it (`in_time` is `yes`) in the least GPU time; else None, or if none
            do.
    """

    size: SizeRow | None = None


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event of a job or node, or a command about it.

    Attributes:
        at_s: Time on the run's clock in seconds.
        kind: Kind of a container's event or of a command; `submit` for an arrival.
        job_id: The job; None for nodes.
        gpus: GPUs that the job got or returned.
        reason: Reason of an event; content of a command; who submitted a job.
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
        name: Its name in the cluster file; empty on a virtual cluster.
        gpu_type: Type of its GPUs; empty if the cluster has only one.
        gpus: Number of its GPUs.
        gpu_indices: Their indices in the cluster.
        held_gpus: Indices of held GPUs.
        jobs: Ids of the jobs that hold them.
        drained: Whether it is out of service.
        problem: Failure that keeps it out of service; empty if an order does, or nothing.
        window: Its open window, in words; empty without one.
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
    window: str = ""


@dataclass(frozen=True, slots=True)
class WindowRow:
    """A time for which a node is set aside.

    Attributes:
        window: Its number.
        kind: `maintain` or `reserve`.
        tenant: Whose jobs may start there; empty for maintenance, and in the view of other tenants.
        begins_in_s: Its start on the run's clock, in seconds from the last round; 0 if it is open.
        ends_in_s: Its end, likewise.
        start: The start that was asked for, as an ISO time; empty once its end is accepted.
    """

    window: int
    node: int
    kind: str
    tenant: str
    begins_in_s: float
    ends_in_s: float
    start: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a service.

    Attributes:
        rounds: Rounds recorded.
        clock_s: The run's clock at the last round, in seconds.
        drained: Nodes out of service.
        running: Jobs that hold GPUs.
        waiting: Other active jobs, except those on hold.
        inbox: Entries accepted.
        pending: Entries that no round has taken in.
        late: Rounds that started late by a tenth of a round or more.
        paused: Whether rounds are paused; running jobs continue.
        forecast_age_s: Time from the round of the latest forecasts to the last round, in seconds of
            the run's clock; it grows if no process makes them. None without forecasts.
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
    paused: bool
    forecast_age_s: float | None = None


def make_job_row(
    spec: JobSpec,
    status: str,
    held_gpus: tuple[int, ...] = (),
    done: float | None = 0.0,
    arrival_s: float | None = None,
    ended_s: float | None = None,
    reason: str = "",
) -> JobRow:
    """Return the row of a job."""
    about = spec.job_id, spec.name, spec.tenant, spec.model, spec.demand.size
    return JobRow(*about, status, held_gpus, done, arrival_s, ended_s, reason)


def describe_status(state: RunState, job_id: int) -> str:
    """Describe the status of an active job after a round."""
    if job_id in state.orders.cancelled:
        return "cancelled"
    if job_id in state.orders.held:
        return "held"
    return "runs" if job_id in state.leases else "waits"


def describe_wait(state: RunState, job_id: int) -> str:
    """Describe the jobs or the quota that keep a job from running; empty if nothing does."""
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
    """List the first few jobs; count the others."""
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
    """Remove from a reason what a caller who sees only some jobs may not know.

    That is ids of other jobs, and messages of nodes' daemons, which may name hosts.
    """

    def shown(match: re.Match[str]) -> str:
        ids = map(int, match[1].split(", "))
        return match[0] if all(job in seen for job in ids) else "other jobs"

    return _JOBS.sub(shown, _SILENT.sub(r"\1", text))


@dataclass(frozen=True, slots=True)
class RoundChanges:
    """Arrivals, ends, commands and fair finishes of a round: fields of its record."""

    round: int
    arrivals: tuple[JobSpec, ...]
    finished: tuple[ContainerEvent, ...]
    commands: tuple[Command, ...]
    fair_finishes: tuple[FairFinish, ...]


@dataclass(frozen=True, slots=True)
class RoundEvents(RoundChanges):
    """The changes and events of a round: fields of its record."""

    events: tuple[ContainerEvent, ...]


def make_event_rows(
    record: RoundEvents, names: Mapping[int, str], submitters: Mapping[int, str]
) -> Iterator[EventRow]:
    """Yield the rows of a round's events; names and submitters are by job id."""

    def make_row(event: ContainerEvent) -> EventRow:
        about = event.job_id, names.get(event.job_id, ""), event.gpus, event.reason
        return EventRow(record.round, event.at_seconds, event.kind.value, *about)

    yield from map(make_row, record.finished)
    for spec in record.arrivals:
        by = submitters.get(spec.job_id, "")
        about = spec.job_id, spec.name, (), f"by {by}" if by else ""
        yield EventRow(record.round, spec.arrival_seconds, "submit", *about)
    for command in record.commands:
        yield EventRow(
            *(record.round, command.at_seconds, command.kind.value, command.job),
            *(names.get(command.job or 0, ""), (), command.words),
        )
    yield from map(make_row, record.events)
