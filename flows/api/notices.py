"""Notices to the owners of jobs: a job has started, or has ended."""

import re
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from flows.api.history import ServiceHistory
from flows.api.queries import ServiceQueries
from flows.api.rows import JobRow, censor
from warehouse.wording import counted

TENANT_BLOCKS, USER_BLOCKS = "shockwave-tenant-", "shockwave-user-"
"""Beginnings of the names of Prefect's blocks that tell tenants and users of their jobs."""


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


def name_tenant_block(tenant: str) -> str:
    """Return the name of the block that tells a tenant of its jobs."""
    return TENANT_BLOCKS + _to_block_name(tenant)


def name_user_block(user: str) -> str:
    """Return the name of the block that tells a user of the jobs that they submitted."""
    return USER_BLOCKS + _to_block_name(user)


def _to_block_name(name: str) -> str:
    """Return a name in the letters that Prefect allows for blocks: small ones, digits, dashes.

    A name with other letters gets a part of its hash, so that no two owners share a block.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return plain if plain == name else f"{plain}-{sha256(name.encode()).hexdigest()[:6]}".strip("-")


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
    of_tenant = defaultdict[str, set[int]](set)
    for row in rows.values():
        of_tenant[row.tenant].add(row.job_id)
    new = list[Notice]()
    for job_id, number in ends.items():
        row = rows[job_id]
        # A reason may speak of jobs of others, and of hosts.
        why = censor(row.reason, of_tenant[row.tenant])
        text = f"has ended: {row.status}" + (f": {why}" if why else "")
        new.append(_make(NoticeKind.ENDED, service.run, number, row, text))
    for job_id in sorted(starts):
        text = f"has started on {counted(len(state.leases[job_id]), 'GPU')}"
        new.append(_make(NoticeKind.STARTED, service.run, state.round - 1, rows[job_id], text))
    return new, Told(state.round - 1, (told.started | starts) - ends.keys())


def _make(kind: NoticeKind, run: str, number: int, row: JobRow, text: str) -> Notice:
    name = f"job {row.job_id}" + (f" ({row.name})" if row.name else "")
    return Notice(kind, run, number, row.job_id, row.tenant, row.by, f"{name} {text}")
