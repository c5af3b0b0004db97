"""How users' Slurm jobs ended: by their states, or by what Slurm says of one that is not listed."""

from collections.abc import Mapping

from containers.leasing.engine import Refused
from containers.runtime import EventKind
from containers.slurm.commands import Commands
from containers.slurm.declaring import SlurmIdentity
from containers.slurm.history import list_history
from containers.slurm.parsing import SlurmAway
from containers.slurm.queue import HOLDING, WAITING, get_details

ENDS: Mapping[str, tuple[EventKind, str]] = {
    "COMPLETED": (EventKind.FINISHED, ""),
    "CANCELLED": (EventKind.WITHDRAWN, "cancelled in Slurm"),
    "TIMEOUT": (EventKind.FAILED, "reached its time limit in Slurm"),
    "DEADLINE": (EventKind.FAILED, "missed its deadline in Slurm"),
    "OUT_OF_MEMORY": (EventKind.FAILED, "out of memory"),
    "NODE_FAIL": (EventKind.FAILED, "its node failed"),
    "BOOT_FAIL": (EventKind.FAILED, "its node did not boot"),
    "PREEMPTED": (EventKind.FAILED, "preempted by Slurm itself"),
}
"""How jobs end by Slurm's states; in others they end with their exit code."""
GOING_ON = WAITING | HOLDING
"""States of jobs that have not ended."""
UNKNOWN = "Invalid job id"
"""What Slurm says of a job that it does not know."""
FORGOTTEN = "Slurm does not know it any more: cancelled, or forgotten"
"""Why a job ended of which nothing else is known."""


def judge_end(state: str, code: int) -> tuple[EventKind, str]:
    """Return how a job ended, by Slurm's state and its exit code."""
    ended = f"{state.lower().replace('_', ' ')}, exit code {code}"
    return ENDS.get(state, (EventKind.FAILED, ended))


def explain_absence(
    commands: Commands, identity: SlurmIdentity, partition: str, listed: bool
) -> tuple[EventKind, str] | None:
    """Return how a job ended that the queue lacks; None if it may have been so in passing.

    `listed` tells whether the queue of its partition has another job of its id.
    """
    try:
        partitions = get_details(commands, identity.id).partitions
        if not listed:
            if not partitions or partition in partitions:
                return None
            return EventKind.WITHDRAWN, f"was moved to partition {','.join(partitions)}"
    except SlurmAway:
        return None
    except Refused as refused:
        if UNKNOWN not in str(refused):
            return None
    try:
        past = list_history(commands, identity.id, "--allusers", "--duplicates")
    except (SlurmAway, Refused):
        return None
    for job in past:  # ids come again, after the job's own ends
        own = (job.id, job.user) == (identity.id, identity.user)
        if own and job.submitted >= identity.submitted and job.state not in GOING_ON:
            return judge_end(job.state, job.code)
    return EventKind.WITHDRAWN, FORGOTTEN
