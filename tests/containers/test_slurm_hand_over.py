"""What lets Shockwave decide on users' jobs, checked and handed back on a real Slurm."""

import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from containers.slurm.claim import claim_partition, list_claims
from containers.slurm.commands import Commands
from containers.slurm.hand_over import (
    FIRST,
    SETTLE_SECONDS,
    check_partition,
    read_config,
)
from containers.slurm.queue import list_queue, name_nodes
from flows.runs.queue_run import name_owner
from flows.scheduler.options import DATABASE_URL
from harness.slurm import Slurm
from harness.waiting import wait_for
from tests.containers.slurm_scripts import Scripts
from tests.flows.conftest import Command, Ran, assert_refused, here
from tests.runs import tiny, write
from warehouse.inbox.inbox import Inbox
from warehouse.inbox.lease import Leases
from warehouse.store.reader import Reader

__all__ = ["here"]

SILENT = ("--parsable", "--chdir=/", "--output=/dev/null")


@pytest.fixture
def closed(lab: Slurm) -> Iterator[Slurm]:
    """A Slurm whose partition accepts the two QOS alone."""
    lab.run("scontrol", "update", "PartitionName=gpu", "AllowQos=wait,run")
    yield lab
    lab.run("scontrol", "update", "PartitionName=gpu", "AllowQos=ALL")


def _results(lab: Slurm, user: str = "operator", partition: str = "gpu") -> dict[str, str]:
    found = check_partition(Commands(lab.commands(user)), partition)
    return {finding.check: f"{finding.result}: {finding.found}" for finding in found}


def test_a_closed_partition_passes(closed: Slurm) -> None:
    assert _results(closed) == {
        "answers": "ok: Slurm 22.05.8",
        "rights": "ok: we are an operator",
        "qos wait": "ok: its jobs wait",
        "qos run": "ok: its jobs start",
        "users": "ok: all have QOS wait alone",
        "enforcement": "ok: QOS and limits hold",
        "GPUs": "ok: 16 are counted",
        "partition": "ok: no other has its nodes",
        "KillWait": "warning: 10 s to write a checkpoint",
        "ProctrackType": "warning: linuxproc: processes may outlive their job",
    }


def test_a_user_may_wait_in_the_partition_alone(lab: Slurm) -> None:
    where = ("carol", "Account=research", "Partition=gpu")
    lab.run("sacctmgr", "-i", "add", "user", *where, "QOS=wait", "DefaultQOS=wait")
    try:
        assert _results(lab)["users"] == "ok: all have QOS wait alone"
    finally:
        lab.run("sacctmgr", "-i", "delete", "user", *where)
    assert _results(lab)["users"] == "failed: carol has normal"


def test_leaks_are_named(lab: Slurm) -> None:
    assert _results(lab)["users"] == "failed: carol has normal"
    lab.run("sacctmgr", "-i", "modify", "qos", "wait", "set", "GrpJobs=-1")
    lab.run("scontrol", "create", "PartitionName=also", "Nodes=n[2-3]")
    lab.run("sacctmgr", "-i", "add", "qos", "whole", "set", "GrpJobs=9")
    lab.run("scontrol", "update", "PartitionName=gpu", "QoS=whole")
    try:
        found = _results(lab, "alice")
        assert found["qos wait"] == "failed: GrpJobs=unlimited: its jobs start"
        assert found["rights"] == "failed: we are no operator of Slurm"
        assert found["partition"] == "warning: partitions with nodes of it: also"
        assert found["partition's qos"] == (
            "failed: QOS whole of the partition has GrpJobs=9, which overrides wait's"
        )
    finally:
        lab.run("scontrol", "update", "PartitionName=gpu", "QoS=")
        lab.run("sacctmgr", "-i", "delete", "qos", "whole")
        lab.run("sacctmgr", "-i", "modify", "qos", "wait", "set", "GrpJobs=0")
        lab.run("scontrol", "delete", "PartitionName=also")
    assert _results(lab, partition="cpu")["partition"] == ("failed: there is no partition cpu")
    with lab.stopped("slurmctld", signal.SIGTERM):
        (away,) = _results(lab).items()
    assert away[0] == "answers"
    assert away[1].startswith("failed: scontrol: ")


def test_codes_that_requeue_fail() -> None:
    text = "Configuration data as of now\nRequeueExit             = 75,80\nKillWait = 30 sec\n"
    assert read_config(text) == {"RequeueExit": "75,80", "KillWait": "30 sec"}


def test_the_queue_is_handed_back(
    closed: Slurm, here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(*options: str, user: str = "alice") -> str:
        return closed.run("sbatch", *SILENT, *options, "--wrap=sleep 600", user=user).strip()

    def states() -> dict[str, str]:
        shown = closed.run("squeue", "-r", "-h", "-o", "%i %q %T %r").splitlines()
        return {line.split()[0]: line.split(maxsplit=1)[1] for line in shown}

    monkeypatch.setenv("PATH", str(closed.commands("operator")), prepend=":")
    first, array = submit("--gpus=1"), submit("--array=1-2", "--gpus=1", user="bob")
    later = submit("--gpus=1", "--begin=now+1hour")
    placed, requeued = submit("--gpus=4"), submit("--gpus=1")
    hers = [submit("--gpus=4", "--nodelist=n4"), submit("--gpus=4", "--nodelist=n4")]
    closed.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=a test")
    for job, node in ((requeued, "n2"), (placed, "n1")):
        nodes, nice = f"ReqNodeList={name_nodes([node])}", f"Nice={-FIRST}"
        change = ("QOS=run", nodes, "StartTime=now", nice)
        closed.run("scontrol", "update", f"JobId={job}", *change, user="operator")
    claim_partition(Commands(closed.commands("operator")), "gpu", "gone", "n1")
    wait_for(states, lambda now: now[requeued] == "run RUNNING None")
    closed.run("scontrol", "requeue", requeued, user="operator")

    def hold() -> dict[str, str]:
        """Close its QOS, which Slurm forgets before it has finished the requeue."""
        change = (f"JobId={requeued}", "QOS=wait")
        closed.run("scontrol", "update", *change, user="operator", check=False)
        return states()

    wait_for(hold, lambda now: now.get(requeued) == "wait PENDING BeginTime", every=0.5)

    def has_settled() -> bool:
        queue = list_queue(Commands(closed.commands("operator")), "gpu")
        (again,) = (job for job in queue if job.id == requeued)
        return time.time() > again.submitted + SETTLE_SECONDS + 1

    wait_for(has_settled)

    ran = here("slurm", "release-all", "--partition", "gpu")
    assert ran.code == 0
    assert "All jobs of partition gpu have QOS run." in ran.err
    at_once = {first, f"{array}_1", f"{array}_2", placed, requeued}
    now = wait_for(
        states, lambda now: all(now.get(job) == "run RUNNING None" for job in at_once), 20.0
    )
    assert now[later] == "run PENDING BeginTime"
    commands = Commands(closed.commands("operator"))
    assert list_claims(commands, "gpu") == []
    left = [job for job in list_queue(commands, "gpu") if not job.has_ended]
    assert {job.nice for job in left} == {0}

    (waits,) = (job for job in hers if now[job].startswith("run PENDING"))
    assert here("slurm", "release-all", "--partition", "gpu").code == 0
    assert " ReqNodeList=n4 " in closed.run("scontrol", "-o", "show", "job", waits)

    assert here("slurm", "check", "--partition", "gpu").code == 0
    rows = here("slurm", "check", "--partition", "nope", "--json")
    assert rows.code == 1
    assert [row["result"] for row in rows.rows] == ["ok", "failed"]
    monkeypatch.setenv("PATH", "/nowhere")
    assert_refused(here("slurm", "release-all", "--partition", "gpu"), "see shockwave slurm check")


@pytest.mark.process
def test_a_watchdog_releases_nothing_while_a_scheduler_runs(
    here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")  # so that what is asked of Slurm is refused
    warehouse = tmp_path / "of-the-service"

    def release(minutes: int) -> Ran:
        asked = ("--partition", "gpu", "--if-away", minutes, "--warehouse", warehouse)
        return here("slurm", "release-all", *asked)

    assert_refused(release(0), f"--warehouse: {warehouse} has had no service", DATABASE_URL)
    with closing(Leases(warehouse)) as leases:
        token = leases.take(alone=False)
        assert token
        assert release(0).code == 0
        leases.end(token)
    ran = release(600)
    assert (ran.code, "nothing was released" in ran.err) == (0, True)
    assert_refused(release(0), "see shockwave slurm check")


@pytest.mark.process
def test_a_watchdog_releases_no_queue_of_another_service(
    here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts, warehouse = Scripts(tmp_path), tmp_path / "of-a-service"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    own = write(warehouse, tiny(), [])
    with closing(Leases(warehouse)) as leases, Inbox(warehouse) as inbox:
        token = leases.take(alone=False)
        assert token
        leases.end(token)
        inbox.claim(own)

    def release(owner: str) -> tuple[Ran, list[str]]:
        claim = f"ReservationName=shockwave-{owner} Nodes=n1 PartitionName=gpu Flags=OVERLAP"
        scripts.say(scontrol=claim)
        asked = ("--partition", "gpu", "--if-away", 0, "--warehouse", warehouse)
        ran = here("slurm", "release-all", *asked)
        return ran, [order for order in scripts.orders() if " show " not in order]

    ran, orders = release("another-1")
    assert_refused(ran, "is claimed by another service: shockwave-another-1")
    assert orders == []
    owner = name_owner(Reader(warehouse), own)
    ran, orders = release(owner)
    assert (ran.code, orders) == (0, [f"scontrol delete ReservationName=shockwave-{owner}"])
