"""Advice on the queue of a partition that Slurm itself schedules."""

import pytest

from harness.slurm import Slurm
from harness.waiting import wait_for
from tests.flows.conftest import Command, assert_refused, here

__all__ = ["here"]

SILENT = ("--parsable", "--chdir=/", "--output=/dev/null", "--wrap=sleep 600")


def test_a_policy_orders_a_queue_by_nice(
    lab: Slurm, here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(*options: str) -> str:
        return lab.run("sbatch", *SILENT, *options, user="carol").strip()

    def states() -> list[str]:
        return lab.run("squeue", "-h", "-o", "%T").split()

    monkeypatch.setenv("PATH", str(lab.commands("carol")), prepend=":")
    run = [submit("--gpus=4", f"--time={30 + n}") for n in range(4)]
    saves = submit("--gpus=4", "--time=5", "--comment=shockwave:checkpointing")
    wait_for(states, lambda found: found.count("RUNNING") == len(run))
    waiting = [submit("--gpus=4", f"--time={minutes}") for minutes in (20, 3, 10)]
    submit("--gpus=1", "--begin=now+1hour")
    submit("--gpus=1", "--nodelist=n1")
    asked = ("slurm", "advise", "--partition", "gpu", "--policy", "srtf")
    told = here(*asked, "--json")
    assert told.code == 0
    short, middle, long = waiting[1], waiting[2], waiting[0]
    due = [short, saves, middle, long]
    assert [row["job"] for row in told.rows] == due
    assert [row["shockwave"] for row in told.rows] == [1, 2, 3, 4]
    assert [row["slurm"] for row in told.rows] == [3, 1, 4, 2]
    assert "srtf has another place for" in told.err
    refused = here(*asked, "--apply")
    assert refused.code == 1
    assert f"job {short}: scontrol: " in refused.err

    monkeypatch.setenv("PATH", str(lab.commands("operator")), prepend=":")
    assert here(*asked, "--apply").code == 0
    shown = lab.run("squeue", "-h", "--states=PENDING", "-O", "JobID:20,PriorityLong:20")
    priorities = dict(map(str.split, shown.splitlines()))
    of = [int(priorities[job]) for job in due]
    assert of == sorted(of, reverse=True)
    assert len({*of}) == len(of)
    again = here(*asked, "--json")
    assert [(row["slurm"], row["nice"]) for row in again.rows] == [
        (place, row["nice"]) for place, row in enumerate(again.rows, 1)
    ]
    assert "another place for 0 of 4 jobs" in again.err
    monkeypatch.setenv("PATH", "/nowhere")
    assert_refused(here(*asked), "see shockwave slurm check --partition gpu")
