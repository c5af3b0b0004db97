"""Slurm's commands, on a real Slurm."""

import signal
from pathlib import Path

import pytest

from containers.leasing.engine import Refused
from containers.slurm.commands import Commands
from containers.slurm.inventory import find_foreign, list_nodes, make_inventory, sort_nodes
from containers.slurm.parsing import SlurmAway
from containers.slurm.queue import JobDetails, get_details, list_queue
from harness.slurm import Slurm
from harness.slurm_files import GPUS, TYPES
from harness.waiting import wait_for
from solver.inventory import Pool

SILENT = ("--parsable", "--chdir=/", "--output=/dev/null")


def test_nodes_are_what_slurm_says(lab: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINFO_FORMAT", "%N")  # its user's own
    commands = Commands(lab.commands())
    nodes = list_nodes(commands, "gpu")
    assert {node.name: node.gpu_type for node in nodes} == TYPES
    assert make_inventory(sort_nodes(nodes)).pools == (
        Pool("a100", 2 * GPUS, GPUS),
        Pool("v100", 2 * GPUS, GPUS),
    )
    lab.run("sbatch", *SILENT, "--gpus=3", "--nodelist=n2", "--wrap=sleep 600", user="carol")
    now = wait_for(lambda: list_nodes(commands), lambda found: found[1].allocated == 3)
    assert find_foreign(now, {"n2": 1}) == {"n2": 2}


def test_nodes_out_of_service_say_why(lab: Slurm) -> None:
    commands = Commands(lab.commands())
    lab.run("scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=a fan is broken")
    lab.run("scontrol", "update", "NodeName=n4", "State=FAIL", "Reason=replaced")
    assert [node.problem for node in list_nodes(commands)] == [
        "",
        "",
        "Slurm says drain: a fan is broken",
        "Slurm says fail: replaced",
    ]


def test_a_refusal_says_why(lab: Slurm) -> None:
    commands = Commands(lab.commands())
    with pytest.raises(Refused, match="sbatch: Batch job submission failed: Invalid node name"):
        commands.call("sbatch", "--nodelist=n9", text="#!/bin/sh\n")


def test_daemons_that_are_away_are_no_refusal(lab: Slurm) -> None:
    commands, short = Commands(lab.commands()), Commands(lab.commands(), seconds=1.0)
    with lab.stopped("munged"), pytest.raises(SlurmAway, match="squeue"):
        commands.call("squeue")
    with lab.stopped("slurmctld"), pytest.raises(SlurmAway, match="sinfo"):
        list_nodes(commands)
    lab.send("slurmctld", signal.SIGSTOP)
    try:
        with pytest.raises(SlurmAway, match="squeue did not end within 1 s"):
            short.call("squeue")
    finally:
        lab.send("slurmctld", signal.SIGCONT)
    with pytest.raises(SlurmAway, match="cannot be run: No such file"):
        Commands(Path("/nowhere")).call("squeue")


def test_the_queue_is_what_users_asked_for(lab: Slurm) -> None:
    def submit(*options: str, user: str = "alice") -> str:
        return lab.run("sbatch", *SILENT, *options, "--wrap=sleep 600", user=user).strip()

    commands = Commands(lab.commands("operator"))
    first = submit("--gpus=a100:2", "--time=10", "--comment=shockwave:checkpointing")
    spoof = "x\nJobId=1 Comment=shockwave:checkpointing"
    array = submit("--array=1-3%2", "--gpus=1", "--job-name", spoof)
    gang = submit("-N2", "--gpus-per-node=4", "--nodelist=n[3-4]", f"--dependency=afterok:{first}")
    later = submit("--gpus-per-task=2", "--ntasks=2", "--begin=now+1hour", user="bob")
    runs = submit("--gpus=3", "--nodelist=n2", user="carol")
    wide = submit("--gpus=8")
    found = wait_for(
        lambda: {job.id: job for job in list_queue(commands, "gpu")},
        lambda jobs: jobs[runs].holds_gpus and jobs[first].reason == "QOSGrpJobsLimit",
    )
    tasks = [f"{array}_{task}" for task in (1, 2, 3)]
    assert {first, *tasks, gang, later, runs} <= found.keys()
    assert (found[first].gpus, found[first].gpu_type) == (2, "a100")
    assert (found[first].user, found[first].account, found[first].qos) == (
        "alice",
        "research",
        "wait",
    )
    assert found[first].limit_seconds == 600
    assert [found[task].gpus for task in tasks] == [1, 1, 1]
    assert (found[gang].gpus, found[gang].least_nodes) == (8, 2)
    assert found[gang].names_nodes
    # Slurm would divide it among two nodes, and prints a limit that nobody set.
    assert (found[wide].gpus, found[wide].least_nodes, found[wide].most_nodes) == (8, 1, 1)
    assert (found[later].user, found[later].gpus) == ("bob", 4)
    assert found[runs].gpus_by_node == {"n2": 3}
    now = float(found[first].submitted)
    assert {job for job in found if found[job].may_start(now + 60)} >= {first, *tasks}
    assert not {gang, later, runs} & {job for job in found if found[job].may_start(now + 60)}
    assert get_details(commands, first) == JobDetails(
        "wrap", "shockwave:checkpointing", 0, ("gpu",)
    )
    # What a user writes into a name is seen as a job's own words only.
    assert get_details(commands, tasks[2]).at_once == 2
    lab.run("scancel", runs, user="carol")
    ended = wait_for(
        lambda: {job.id: job for job in list_queue(commands, "gpu")}[runs],
        lambda job: not job.holds_gpus,
    )
    assert (ended.state, ended.exit_code) == ("CANCELLED", 143)
