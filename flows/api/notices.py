"""Notices to the owners of jobs: a job has started, or has ended."""

from dataclasses import dataclass
from enum import StrEnum

from flows.api.history import ServiceHistory
from flows.api.queries import ServiceQueries
from flows.api.rows import JobRow
from warehouse.wording import counted


class NoticeKind(StrEnum):
    """What happened to a job."""

    STARTED = "job.started"
    ENDED = "job.ended"


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice about a job.

    Attributes:
        round: The round in which it was recorded.
        tenant: The job's tenant.
        user: Who submitted it; empty if that is unknown.
    """

    kind: NoticeKind
    run: str
    round: int
    job: int
    tenant: str
    user: str
    text: str


@dataclass(frozen=True, slots=True)
class Told:
    """What owners have been told.

    Attributes:
        round: The last round whose ends they were told; -1 for none.
        started: Active jobs whose start they were told.
    """

    round: int = -1
    started: frozenset[int] = frozenset()


def tell_all(history: ServiceHistory) -> Told:
    """Return that owners need not be told of anything in a history."""
    return Told(history.state.round - 1, frozenset(history.state.leases))


def list_notices(service: ServiceQueries, told: Told) -> tuple[list[Notice], Told]:
    """Return the notices that are new since `told`, oldest first, and what is told with them.

    Raises:
        ShockwaveError: The service cannot be read.
    """
    history = service.read_history()
    state = history.state
    ends = service.list_ends(history, told.round)
    starts = frozenset(state.leases) - told.started
    if not (ends or starts):
        return [], Told(state.round - 1, told.started)
    rows = {row.job_id: row for row in service.list_jobs()}
    new = [_ended(service.run, number, rows[job_id]) for job_id, number in ends.items()]
    for job_id in sorted(starts):
        text = f"has started on {counted(len(state.leases[job_id]), 'GPU')}"
        new.append(_make(NoticeKind.STARTED, service.run, state.round - 1, rows[job_id], text))
    return new, Told(state.round - 1, (told.started | starts) - ends.keys())


def _ended(run: str, number: int, row: JobRow) -> Notice:
    why = f": {row.reason}" if row.reason else ""
    return _make(NoticeKind.ENDED, run, number, row, f"has ended: {row.status}{why}")


def _make(kind: NoticeKind, run: str, number: int, row: JobRow, text: str) -> Notice:
    name = f"job {row.job_id}" + (f" ({row.name})" if row.name else "")
    return Notice(kind, run, number, row.job_id, row.tenant, row.by, f"{name} {text}")
