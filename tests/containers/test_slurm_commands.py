"""Slurm's commands, on a real Slurm."""

import signal
from pathlib import Path

import pytest

from containers.leasing.engine import Refused
from containers.slurm.commands import Commands
from containers.slurm.inventory import find_foreign, list_nodes, make_inventory, sort_nodes
from containers.slurm.parsing import SlurmAway
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
