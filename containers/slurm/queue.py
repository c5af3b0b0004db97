"""The jobs of a Slurm partition, as one call of `squeue` lists them."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from containers.slurm.commands import Commands
from containers.slurm.parsing import (
    SlurmAway,
    count_gpus,
    read_gpu_type,
    read_hosts,
    read_number,
    read_status,
    read_table,
)

COLUMNS = {
    "JobID": 16,
    "JobArrayID": 40,
    "SubmitTime": 16,
    "RestartCnt": 8,
    "UserName": 64,
    "Account": 100,
    "QOS": 64,
    "State": 20,
    "Reason": 40,
    "tres-alloc": 300,
    "NodeList": 1000,
    "NumNodes": 12,
    "MaxNodes": 12,
    "ReqNodes": 20,
    "TimeLimit": 20,
    "Dependency": 40,
    "EligibleTime": 20,
    "exit_code": 12,
    "Nice": 16,
}
"""Columns of `squeue`, with their widths; none is free text of users."""

CUT = frozenset({"Reason", "Dependency", "ReqNodes"})
"""Columns of which the beginning is enough."""

WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REQUEUE_FED"})
"""States of jobs that hold nothing and may start."""
HOLDING = frozenset(
    {"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING"}
    | {"STAGE_OUT"}
)
"""States of jobs that hold GPUs; all other states are ends."""
HELD = frozenset(
    {"JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "job requeued in held state"}
    | {"launch failed requeued held"}
)
"""Reasons of jobs that wait until someone releases them: Slurm itself holds some."""
NEVER = frozenset({"", "(null)", "N/A", "NONE", "Unknown", "None"})
"""What a column without a value says."""

_NUMBER = re.compile(r"[0-9]+")
_LIMIT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job, or a task of an array, as Slurm sees it.

    Attributes:
        id: Its id for commands: `12`, or `4_1` for task 1 of array 4.
        submitted: When it was submitted or last requeued, in Unix seconds.
        restarts: How often it was requeued.
        state: Slurm's word, such as `PENDING`.
        reason: Why it waits, in one of Slurm's words; the beginning of a longer text.
        gpus: GPUs that it asks for, or holds.
        gpu_type: Their type; empty if it asks for none.
        nodes: Where it runs or ran.
        least_nodes: Fewest nodes that it runs on.
        most_nodes: Most nodes that it runs on; infinite without a limit.
        names_nodes: Whether it asks for nodes by name, which may be any text.
        limit_seconds: Its time limit; infinite without one.
        waits_for_jobs: Whether other jobs have to end, start or succeed before it may start.
        eligible: When it may start, in Unix seconds; None if that is unknown.
        exit_code: Its exit code, 128 + n after signal n; 0 before its end.
        nice: What its priority is lowered by, its owner's and ours together.
    """

    id: str
    submitted: int
    restarts: int
    user: str
    account: str
    qos: str
    state: str
    reason: str
    gpus: int
    gpu_type: str
    nodes: tuple[str, ...]
    least_nodes: int
    most_nodes: float
    names_nodes: bool
    limit_seconds: float
    waits_for_jobs: bool
    eligible: int | None
    exit_code: int
    nice: int

    @property
    def waits(self) -> bool:
        """Whether it holds nothing and may start."""
        return self.state in WAITING

    @property
    def holds_gpus(self) -> bool:
        """Whether it runs, or is just ending."""
        return self.state in HOLDING

    @property
    def has_ended(self) -> bool:
        """Whether it has ended for good."""
        return not (self.waits or self.holds_gpus)

    @property
    def array(self) -> str:
        """The id of its array; empty outside arrays."""
        array, task, _ = self.id.partition("_")
        return array if task else ""

    @property
    def gpus_by_node(self) -> dict[str, int]:
        """The GPUs that it holds by node, divided evenly: `squeue` lists their sum only."""
        if not (self.holds_gpus and self.nodes):
            return {}
        each, more = divmod(self.gpus, len(self.nodes))
        return {node: each + (place < more) for place, node in enumerate(self.nodes)}

    def may_start(self, now: float) -> bool:
        """Return whether nothing but its QOS and free GPUs keeps a waiting job from starting.

        Slurm delays a requeued job by two minutes, which counts for nothing.
        """
        if not self.waits or self.waits_for_jobs or self.reason in HELD:
            return False
        return bool(self.restarts) or self.eligible is None or self.eligible <= now


def read_queue(text: str) -> tuple[SlurmJob, ...]:
    """Read the jobs that `squeue` printed.

    Raises:
        SlurmAway: The text cannot be read.
    """
    return _to_jobs(read_table("squeue", text, COLUMNS, CUT))


def list_queue(commands: Commands, partition: str) -> tuple[SlurmJob, ...]:
    """Return all jobs of a partition, ended ones as long as Slurm remembers them.

    Raises:
        Refused: Slurm refuses to tell.
        SlurmAway: It does not answer.
    """
    asked = ("--array", "--states=all", f"--partition={partition}")
    return _to_jobs(commands.table("squeue", COLUMNS, *asked, cut=CUT))


def sort_jobs(jobs: Iterable[SlurmJob]) -> list[SlurmJob]:
    """Return jobs in the order of their submission; Slurm lists them by priority."""
    return sorted(jobs, key=lambda job: (job.submitted, [*map(int, _NUMBER.findall(job.id))]))


def _to_jobs(rows: Iterable[Mapping[str, str]]) -> tuple[SlurmJob, ...]:
    return tuple(map(_to_job, rows))


def _to_job(row: Mapping[str, str]) -> SlurmJob:
    def number(name: str, text: str | None = None) -> int:
        return read_number("squeue", name, row[name] if text is None else text)

    def hosts(name: str) -> tuple[str, ...]:
        return () if row[name] in NEVER else read_hosts("squeue", row[name])

    nodes, eligible, most = hosts("NodeList"), row["EligibleTime"], number("MaxNodes")
    return SlurmJob(
        id=row["JobArrayID"],
        submitted=number("SubmitTime"),
        restarts=number("RestartCnt"),
        user=row["UserName"],
        account=row["Account"],
        qos=row["QOS"],
        state=row["State"],
        reason=row["Reason"].replace("_", " "),
        gpus=count_gpus("squeue", row["tres-alloc"]),
        gpu_type=read_gpu_type("squeue", row["tres-alloc"]),
        nodes=nodes,
        least_nodes=number("NumNodes"),
        most_nodes=most or math.inf,
        names_nodes=row["ReqNodes"] not in NEVER,
        limit_seconds=read_limit(row["TimeLimit"]),
        waits_for_jobs=row["Dependency"] not in NEVER,
        eligible=None if eligible in NEVER else read_number("squeue", "EligibleTime", eligible),
        exit_code=read_status(row["exit_code"]),
        nice=-number("Nice", row["Nice"][1:]) if row["Nice"][:1] == "-" else number("Nice"),
    )


@dataclass(frozen=True, slots=True)
class JobDetails:
    """What only a job's owner could have written, or what `squeue` does not list.

    Attributes:
        name: Its name, in one line.
        at_once: Most tasks of its array that run at a time; 0 for any number.
        partitions: Those that it was submitted to, or moved to.
        placed: Whether its nodes were named by `name_nodes`.
    """

    name: str
    comment: str
    at_once: int
    partitions: tuple[str, ...] = ()
    placed: bool = False


def name_nodes(names: Sequence[str]) -> str:
    """Return the nodes of a job that is started here, such that its own list is known from it.

    The first stands twice. Slurm keeps a list that an operator sets; `sbatch` drops doubles.
    """
    return ",".join((names[0], *names))


def get_details(commands: Commands, job_id: str) -> JobDetails:
    """Return a job's details; they hold free text, so that each job is asked for alone.

    Raises:
        Refused: Slurm does not know the job.
        SlurmAway: It does not answer.
    """
    return read_details(commands.call("scontrol", "--oneliner", "show", "job", job_id))


def read_details(text: str) -> JobDetails:
    """Read what `scontrol` printed of one job.

    Raises:
        SlurmAway: The text cannot be read.
    """
    name = re.search(r" JobName=(.*?) UserId=", text, re.S)
    comment = re.search(r" Comment=(.*?) +StdErr=", text, re.S)
    most = re.search(r" ArrayTaskThrottle=(\d+) ", text)
    if not name:
        raise SlurmAway(f"scontrol printed {text[:80]!r}, which is no job")
    # After the name, which is free text.
    partitions = re.search(r" Partition=(\S+) AllocNode", text[name.end() :])
    words, said = (" ".join(found[1].split()) if found else "" for found in (name, comment))
    accepting = tuple(partitions[1].split(",")) if partitions else ()
    listed = re.search(r" ReqNodeList=(\S+) ExcNodeList=", text[name.end() :])
    named = listed[1].split(",") if listed else []
    placed = len(named) > 1 and named[0] == named[1]
    return JobDetails(words, said, int(most[1]) if most else 0, accepting, placed)


def read_limit(text: str) -> float:
    """Read a time limit such as `7-00:00:00`, `10:00` or `UNLIMITED`, in seconds.

    Raises:
        SlurmAway: It is not a time limit.
    """
    if text in ("UNLIMITED", "NOT_SET", "Partition_Limit"):
        return math.inf
    if not (text.isascii() and (found := _LIMIT.fullmatch(text))):
        raise SlurmAway(f"squeue printed {text[:80]!r}, which is no time limit")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
