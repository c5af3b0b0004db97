"""What lets Shockwave decide on users' jobs, and how the queue is handed back.

Users may submit to one QOS only, whose jobs never start (`GrpJobs=0`); whoever may set another QOS
starts jobs.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from containers.leasing.engine import Refused
from containers.slurm.accounts import ask_accounting
from containers.slurm.claim import give_up_claims
from containers.slurm.commands import Commands
from containers.slurm.inventory import list_nodes
from containers.slurm.parsing import SlurmAway, read_hosts
from containers.slurm.queue import SlurmJob, get_details, list_queue
from predictor.throughput import UNTYPED

WAIT, RUN = "wait", "run"
"""QOS of users' jobs, which never start by themselves, and of those that Shockwave starts."""
MOST_IDS = 200
"""Most jobs of one command, which bounds its line and its time."""
LEAST_KILL_WAIT = 30
"""Least time from SIGTERM to SIGKILL, in seconds, that is no warning: Slurm's default."""
SETTLE_SECONDS = 3
"""Least time between a job's requeue and its next start: within the same second, its node takes it
for killed, and it fails with exit code 1. Slurm itself waits for two minutes."""
FIRST = 1_000_000_000
"""Taken from the `Nice` of jobs that are started here, so that they are the queue's first: by
default Slurm looks at a hundred jobs at once, and at others each half minute."""
NOWHERE = "shockwave-has-none"
"""A reservation that does not exist: only operators are told so when they delete it."""


@dataclass(frozen=True, slots=True)
class SlurmFinding:
    """The result of a check.

    Attributes:
        result: `ok`, `warning` or `failed`.
        remedy: Remedy; empty if the check passed.
    """

    check: str
    result: str
    found: str
    remedy: str = ""


def check_partition(commands: Commands, partition: str) -> list[SlurmFinding]:
    """Check that nothing but Shockwave starts jobs of a partition."""
    try:
        return list(_check(commands, partition))
    except (SlurmAway, Refused) as error:
        remedy = "run it where Slurm's commands answer: scontrol ping, sacctmgr show cluster"
        return [SlurmFinding("answers", "failed", str(error), remedy)]


def _check(commands: Commands, partition: str) -> Iterator[SlurmFinding]:
    config = read_config(commands.call("scontrol", "show", "config"))
    yield SlurmFinding("answers", "ok", f"Slurm {config.get('SLURM_VERSION', '')}".strip())
    text = commands.call("scontrol", "--oneliner", "show", "partition", "--all")
    partitions = [_read_fields(line) for line in text.splitlines() if line]
    own = next((one for one in partitions if one["PartitionName"] == partition), None)
    if own is None:
        names = ", ".join(sorted(one["PartitionName"] for one in partitions))
        found = f"there is no partition {partition}"
        yield SlurmFinding("partition", "failed", found, f"give one of {names}")
        return
    yield _check_rights(commands)
    yield from _check_qos(commands, own.get("QoS", "N/A"))
    yield _check_leaks(commands, partition, own)
    yield _check_enforcement(config)
    yield _check_tres(commands, partition, config)
    yield from _check_others(partition, own, partitions, config)
    yield from _check_ends(config)


def _check_rights(commands: Commands) -> SlurmFinding:
    try:
        commands.call("scontrol", "delete", f"ReservationName={NOWHERE}")
    except Refused as refused:
        if "reservation is invalid" in str(refused):
            return SlurmFinding("rights", "ok", "we are an operator")
    remedy = "sacctmgr modify user NAME set AdminLevel=Operator"
    return SlurmFinding("rights", "failed", "we are no operator of Slurm", remedy)


def _check_qos(commands: Commands, of_partition: str) -> Iterator[SlurmFinding]:
    rows = ask_accounting(commands, "qos", "Name", "GrpJobs")
    most = {row["Name"]: row["GrpJobs"] for row in rows}
    for name, closed in ((WAIT, True), (RUN, False)):
        check, set_to = f"qos {name}", most.get(name)
        limit = "GrpJobs=0" if closed else "GrpJobs=-1"
        if set_to is None:
            added = f"sacctmgr add qos {name} set {limit}".removesuffix(" set GrpJobs=-1")
            yield SlurmFinding(check, "failed", "does not exist", added)
        elif closed != (set_to == "0"):
            found = f"GrpJobs={set_to or 'unlimited'}: its jobs {'do not' * (not closed)} start"
            remedy = f"sacctmgr modify qos {name} set {limit}"
            yield SlurmFinding(check, "failed", " ".join(found.split()), remedy)
        else:
            found = "its jobs wait" if closed else "its jobs start"
            yield SlurmFinding(check, "ok", found)
    if limit := most.get(of_partition, ""):
        found = f"QOS {of_partition} of the partition has GrpJobs={limit}, which overrides {WAIT}'s"
        remedy = f"sacctmgr modify qos {of_partition} set GrpJobs=-1"
        yield SlurmFinding("partition's qos", "failed", found, remedy)


def _check_leaks(commands: Commands, partition: str, shown: Mapping[str, str]) -> SlurmFinding:
    """Find users who can start jobs: by a QOS that the partition accepts."""
    accounts = _read_list(shown.get("AllowAccounts", "ALL"))
    accepted = _read_list(shown.get("AllowQos", "ALL"))
    staff = {
        row["User"]
        for row in ask_accounting(commands, "user", "User", "AdminLevel")
        if row["AdminLevel"] not in ("", "None")
    }
    leaks = dict[str, set[str]]()
    rows = ask_accounting(commands, "association", "User", "Account", "Partition", "QOS")
    # Slurm takes a user's association of the partition, if there is one, and else the general one.
    own = {(row["User"], row["Account"]) for row in rows if row["Partition"] == partition}
    for row in rows:
        general = row["Partition"] == "" and (row["User"], row["Account"]) not in own
        there = row["Partition"] == partition or general
        there = there and (not accounts or row["Account"] in accounts)
        if not row["User"] or row["User"] in staff or not there:
            continue
        others = set(filter(None, row["QOS"].split(","))) - {WAIT}
        if accepted:
            others &= accepted
        if others:
            leaks.setdefault(row["User"], set()).update(others)
    if not leaks:
        return SlurmFinding("users", "ok", f"all have QOS {WAIT} alone")
    said = [f"{user} has {', '.join(sorted(qos))}" for user, qos in sorted(leaks.items())]
    # Their jobs in other partitions go on to start by themselves.
    added = f"Account=ACCOUNT Partition={partition} QOS={WAIT} DefaultQOS={WAIT}"
    remedy = f"sacctmgr add user NAME {added}"
    return SlurmFinding("users", "failed", "; ".join(said), remedy)


def _check_enforcement(config: Mapping[str, str]) -> SlurmFinding:
    enforced = _read_list(config.get("AccountingStorageEnforce", ""))
    lacking = sorted({"associations", "limits", "qos"} - enforced)
    if not lacking or "all" in enforced:
        return SlurmFinding("enforcement", "ok", "QOS and limits hold")
    remedy = "AccountingStorageEnforce=associations,limits,qos in slurm.conf"
    return SlurmFinding("enforcement", "failed", f"without {', '.join(lacking)}", remedy)


def _check_tres(commands: Commands, partition: str, config: Mapping[str, str]) -> SlurmFinding:
    nodes = list_nodes(commands, partition)
    kinds = dict.fromkeys(node.gpu_type for node in nodes if node.gpu_type != UNTYPED)
    wanted = ["gres/gpu", *(f"gres/gpu:{kind}" for kind in kinds)]
    counted = _read_list(config.get("AccountingStorageTRES", ""))
    lacking = [name for name in wanted if name not in counted]
    if not nodes:
        return SlurmFinding("GPUs", "failed", "no node of the partition has any", "see gres.conf")
    if lacking:
        remedy = f"AccountingStorageTRES={','.join(wanted)} in slurm.conf"
        return SlurmFinding("GPUs", "failed", f"not counted: {', '.join(lacking)}", remedy)
    return SlurmFinding("GPUs", "ok", f"{sum(node.gpus for node in nodes)} are counted")


def _check_others(
    partition: str,
    own: Mapping[str, str],
    partitions: Sequence[Mapping[str, str]],
    config: Mapping[str, str],
) -> Iterator[SlurmFinding]:
    """Find what else starts or stops jobs on the nodes."""
    nodes = _read_nodes(own)
    same = sorted(
        one["PartitionName"]
        for one in partitions
        if one is not own and not nodes.isdisjoint(_read_nodes(one))
    )
    if same:
        found = f"partitions with nodes of it: {', '.join(same)}"
        remedy = "their jobs take GPUs that Shockwave then does without; close them"
        yield SlurmFinding("partition", "warning", found, remedy)
    else:
        yield SlurmFinding("partition", "ok", "no other has its nodes")
    kind = config.get("PreemptType", "preempt/none")
    if kind != "preempt/none":
        remedy = f"PreemptMode=OFF for partition {partition}"
        yield SlurmFinding("preemption", "warning", f"Slurm preempts by itself: {kind}", remedy)
    plugins = config.get("JobSubmitPlugins", "(null)")
    if plugins != "(null)":
        found, remedy = f"{plugins} may change jobs", "see that they leave QOS and nodes alone"
        yield SlurmFinding("submission", "warning", found, remedy)


def _check_ends(config: Mapping[str, str]) -> Iterator[SlurmFinding]:
    for name in ("RequeueExit", "RequeueExitHold"):
        codes = config.get(name, "(null)")
        if codes != "(null)":
            found = f"Slurm itself starts jobs again after exit codes {codes}"
            yield SlurmFinding(name, "failed", found, f"remove {name} from slurm.conf")
    seconds = read_kill_wait(config)
    if seconds < LEAST_KILL_WAIT:
        remedy = f"KillWait={LEAST_KILL_WAIT} or more in slurm.conf"
        said = f"{seconds} s to write a checkpoint"
        yield SlurmFinding("KillWait", "warning", said, remedy)
    else:
        yield SlurmFinding("KillWait", "ok", f"{seconds} s to write a checkpoint")
    if config.get("ProctrackType") == "proctrack/linuxproc":
        remedy = "ProctrackType=proctrack/cgroup in slurm.conf"
        said = "linuxproc: processes may outlive their job"
        yield SlurmFinding("ProctrackType", "warning", said, remedy)


def read_config(text: str) -> dict[str, str]:
    """Read what `scontrol show config` printed."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def read_kill_wait(config: Mapping[str, str]) -> int:
    """Return the time from SIGTERM to SIGKILL of a configuration, in seconds."""
    number = re.match(r"\d+", config.get("KillWait", ""))
    return int(number[0]) if number else 0


def _read_fields(line: str) -> dict[str, str]:
    """Read a line of `NAME=VALUE` words."""
    return {word.partition("=")[0]: word.partition("=")[2] for word in line.split()}


def _read_nodes(shown: Mapping[str, str]) -> set[str]:
    text = shown.get("Nodes", "(null)")
    return set() if text == "(null)" else {*read_hosts("scontrol", text)}


def _read_list(text: str) -> set[str]:
    """Read names separated by commas; none of `ALL`."""
    return set() if text == "ALL" else {part.strip() for part in text.split(",") if part.strip()}


def release_all(commands: Commands, partition: str, now: float) -> list[SlurmJob]:
    """Let all waiting jobs of a partition start as Slurm finds it right; gives up claims to it.

    Returns the jobs that still wait in the closed QOS, with Slurm's reasons.

    Raises:
        Refused: Slurm refuses to list the jobs.
        SlurmAway: It does not answer.
    """
    queue = list_queue(commands, partition)
    waiting = [job for job in queue if job.waits]
    closed = [job for job in waiting if job.qos == WAIT]
    # Slurm delays requeued jobs; jobs that asked for a later start keep it.
    later = {
        job.id
        for job in closed
        if (job.submitted + SETTLE_SECONDS if job.restarts else job.eligible or 0) > now
    }
    at_once = [job.id for job in closed if job.id not in later]
    placed = (job for job in waiting if job.qos == RUN and job.names_nodes)
    ours = [job.id for job in placed if _is_placed(commands, job.id)]
    first = [job for job in queue if job.nice != find_nice(job) and not job.has_ended]
    refusals = dict[str, str]()
    for ids, changes in (
        *group_by_nice(first),  # before they start
        (at_once, (f"QOS={RUN}", "StartTime=now")),
        (sorted(later), (f"QOS={RUN}",)),
        (ours, ("ReqNodeList=",)),
    ):
        for some in (ids[at : at + MOST_IDS] for at in range(0, len(ids), MOST_IDS)):
            refusals |= update_jobs(commands, some, changes)
    give_up_claims(commands, partition)
    left = [job for job in list_queue(commands, partition) if job.waits]
    return [
        replace(job, reason=refusals.get(job.id, job.reason)) for job in left if job.qos == WAIT
    ]


def find_nice(job: SlurmJob) -> int:
    """Return the `Nice` that a job's owner gave it."""
    return job.nice + FIRST if job.nice <= -FIRST // 2 else job.nice


def find_first_nice(job: SlurmJob) -> int:
    """Return the `Nice` that makes a job the queue's first.

    More than 499,999,999 of its owner's would not be told from a `Nice` of hers alone.
    """
    return min(find_nice(job), FIRST // 2 - 1) - FIRST


def group_by_nice(jobs: Iterable[SlurmJob]) -> list[tuple[list[str], tuple[str]]]:
    """Return the ids of jobs, and the change that gives them their owners' `Nice` back."""
    found: dict[int, list[str]] = {}
    for job in jobs:
        found.setdefault(find_nice(job), []).append(job.id)
    return [(ids, (f"Nice={nice}",)) for nice, ids in found.items()]


def _is_placed(commands: Commands, job_id: str) -> bool:
    """Return whether a waiting job's nodes were named here, and not by its owner."""
    try:
        return get_details(commands, job_id).placed
    except Refused:  # it has just ended
        return False


def update_jobs(commands: Commands, ids: Iterable[str], changes: Sequence[str]) -> dict[str, str]:
    """Change jobs, one by one where Slurm refuses one of them; return refusals by job.

    Raises:
        SlurmAway: Slurm does not answer; some may have been changed.
    """
    some = list(ids)
    try:
        commands.call("scontrol", "update", f"JobId={','.join(some)}", *changes)
    except Refused as refused:
        if len(some) == 1:
            return {some[0]: str(refused)}
        return {
            job_id: said
            for one in some
            for job_id, said in update_jobs(commands, [one], changes).items()
        }
    return {}
