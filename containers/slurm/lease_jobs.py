"""The Slurm jobs of leases, as `squeue` lists them: pure functions."""

from collections.abc import Mapping
from dataclasses import dataclass

from containers.slurm.parsing import read_number, read_status
from containers.slurm.rendering import LeaseMark, read_mark

COLUMNS = {
    **{"JobID": 24, "Name": 256, "State": 24, "Reason": 200, "SubmitTime": 24},
    **{"RestartCnt": 12, "exit_code": 12, "Comment": 1600},
}
"""Columns of `squeue`, with their widths."""

CUT = frozenset({"Name", "Reason", "Comment"})
"""Columns of free text; marks of our own jobs are shorter."""

GONE = "GONE"
"""State of jobs that Slurm has forgotten."""

WAITING = "PENDING"
ACTIVE = frozenset(
    {"RUNNING", "CONFIGURING", "COMPLETING", "STAGE_OUT", "SIGNALING", "SUSPENDED", "STOPPED"}
    | {"RESIZING", WAITING}
)
"""States of jobs that hold GPUs or may get some; a job that is completing still holds them."""

REQUEUED = ("REQUEUED", "SPECIAL_EXIT", "REQUEUE_HOLD", "REQUEUE_FED")
"""States of jobs that Slurm would run again, in spite of our options."""

ENDS_BY_SLURM = {
    "TIMEOUT": "it reached the time limit of its Slurm job",
    "DEADLINE": "Slurm ended it at a deadline",
    "NODE_FAIL": "its node failed",
    "BOOT_FAIL": "its node failed to boot",
    "PREEMPTED": "Slurm preempted it",
    "REVOKED": "Slurm revoked it",
    **dict.fromkeys(REQUEUED, "Slurm requeued it"),
}
"""States of jobs that Slurm has ended through no fault of theirs, in words."""


@dataclass(frozen=True, slots=True)
class SeenJob:
    """A lease's job, as Slurm shows it.

    Attributes:
        name: Name of the lease.
        identity: Its id, time of submission and restarts; ids alone come again.
        code: Its exit code, 128 + n after signal n; of an ended job only.
    """

    name: str
    mark: LeaseMark
    identity: tuple[int, int, int]
    state: str
    reason: str = ""
    code: int = 0

    @property
    def active(self) -> bool:
        """Whether it holds GPUs, or waits for its first ones."""
        return self.state in ACTIVE

    @property
    def over(self) -> bool:
        """Whether it has ended for good."""
        return not self.active and self.state not in REQUEUED

    @property
    def id(self) -> str:
        """Its id, as Slurm's commands take it."""
        return str(self.identity[0])


def read_job(row: Mapping[str, str]) -> SeenJob | None:
    """Read a row of `squeue`; None if it is not the job of a lease.

    Raises:
        SlurmAway: It cannot be read.
    """
    mark = read_mark(row["Comment"])
    if mark is None or row["Name"] != mark.job_name:
        return None
    number, submitted, restarts = (
        read_number("squeue", key, row[key]) for key in ("JobID", "SubmitTime", "RestartCnt")
    )
    state = row["State"]
    if restarts and state == WAITING:
        state = "REQUEUED"
    ended = state not in ACTIVE and state not in REQUEUED
    code = read_status(row["exit_code"]) if ended else 0
    identity = number, submitted, restarts
    return SeenJob(mark.lease, mark, identity, state, " ".join(row["Reason"].split()), code)
