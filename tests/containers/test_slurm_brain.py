"""The runtime of users' own Slurm jobs, where Slurm, its nodes or other users interfere."""

import signal
from dataclasses import replace

import pytest

from containers.clock import RunClock
from containers.runtime import EventKind, Lease, ResumePoint, Terms
from containers.slurm.brain import SlurmBrain
from containers.slurm.commands import Commands
from containers.slurm.declaring import declare
from containers.slurm.inventory import list_nodes, make_inventory, sort_nodes
from containers.slurm.queue import SlurmJob, get_details
from harness.slurm import Slurm
from harness.slurm_files import NODES
from harness.waiting import wait_for

SILENT = ("--parsable", "--chdir=/", "--output=/dev/null", "--time=9")
SAVES = "--comment=shockwave:checkpointing"
ROUND_SECONDS = 3.0


class Brain:
    """A runtime of the partition `gpu`, and its jobs in the order of their submission."""

    def __init__(self, lab: Slurm) -> None:
        self.lab, self.commands = lab, Commands(lab.commands("operator"), seconds=5.0)
        self.inventory = make_inventory(sort_nodes(list_nodes(self.commands, "gpu")))
        terms = Terms("run", ROUND_SECONDS, inventory=self.inventory)
        self.runtime = SlurmBrain(
            self.commands, "gpu", NODES, RunClock(), terms, ResumePoint(), kill_wait=10.0
        )
        self._jobs = 0

    def take(self, *options: str) -> tuple[int, str]:
        """Submit a job as alice and admit it; returns its id in the run, and Slurm's."""
        asked = (*SILENT, *options, "--wrap=sleep 600")
        slurm_id = self.lab.run("sbatch", *asked, user="alice").strip()
        row = wait_for(lambda: self.row(slurm_id))
        assert row
        self._jobs += 1
        spec = declare(row, get_details(self.commands, slurm_id), self.inventory)
        self.runtime.admit([replace(spec, job_id=self._jobs)])
        return self._jobs, slurm_id

    def row(self, slurm_id: str) -> SlurmJob | None:
        """A job of the queue, read anew."""
        self.runtime.look()
        return next((job for job in self.runtime.queue if job.id == slurm_id), None)

    def until(self, slurm_id: str, state: str) -> None:
        """Wait for a state of a job in Slurm."""
        wait_for(lambda: self.row(slurm_id), lambda row: row is not None and row.state == state)

    def ends(self) -> list[tuple[int, EventKind, str]]:
        """What a round reports of ended leases."""
        return [(e.job_id, e.kind, e.reason) for e in self.runtime.observe().finished]


@pytest.fixture
def brain(lab: Slurm) -> Brain:
    return Brain(lab)


@pytest.mark.slow
def test_nothing_happens_while_slurm_is_away(brain: Brain) -> None:
    opaque, first = brain.take("--gpus=2")
    saver, second = brain.take("--gpus=2", SAVES)
    brain.runtime.launch(0, [Lease(opaque, (0, 1)), Lease(saver, (4, 5))])
    brain.until(first, "RUNNING")
    brain.until(second, "RUNNING")
    brain.lab.saved()
    with brain.lab.stopped("slurmctld", signal.SIGTERM):
        seen = brain.runtime.observe()
        assert (seen.finished, seen.drained) == ((), ())
        assert [stands.job_id for stands in seen.progress] == [opaque, saver]
        (event,) = brain.runtime.preempt({saver: "for a test"})
        assert event.reason.startswith("for a test; ")
    # The order is repeated, and jobs of owners who did not say that they save run on.
    brain.runtime.observe()
    wait_for(lambda: brain.row(second), lambda row: row is not None and row.qos == "wait")
    left = {job.id: (job.state, job.restarts) for job in brain.runtime.queue}
    assert left[first] == ("RUNNING", 0)
    assert left[second][1] == 1


def test_nodes_of_others_get_no_jobs(brain: Brain) -> None:
    asked = ("--gpus=3", "--nodelist=n1", "--wrap=sleep 600")
    foreign = brain.lab.run("sbatch", *SILENT, *asked, user="carol").strip()
    brain.until(foreign, "RUNNING")
    brain.lab.run("scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=a fan")
    job, _ = brain.take("--gpus=4")
    seen = brain.runtime.observe()
    assert {problem.node: problem.problem for problem in seen.problems} == {
        0: "others hold 3 of its GPUs",
        2: "Slurm says drain: a fan",
    }
    brain.runtime.launch(0, [Lease(job, (0, 1, 2, 3))])
    brain.runtime.advance(None)
    assert brain.ends() == [(job, EventKind.LOST, "node n1: others hold 3 of its GPUs")]


def test_a_job_that_does_not_start_in_its_round_waits_again(brain: Brain) -> None:
    job, slurm_id = brain.take("--gpus=2", "--constraint=v100")
    brain.runtime.launch(0, [Lease(job, (0, 1))])
    brain.runtime.advance(None)
    ((number, kind, reason),) = brain.ends()
    assert (number, kind) == (job, EventKind.LOST)
    assert reason.startswith("did not start: ")
    row = brain.row(slurm_id)
    assert row
    assert (row.qos, row.names_nodes) == ("wait", False)
    brain.lab.run("scancel", slurm_id, user="alice")
    assert brain.ends() == [(job, EventKind.WITHDRAWN, "cancelled in Slurm")]


@pytest.mark.slow
def test_a_job_of_a_dead_node_waits_until_the_node_is_back(brain: Brain) -> None:
    job, slurm_id = brain.take("--gpus=2")
    brain.runtime.launch(0, [Lease(job, (8, 9))])
    brain.until(slurm_id, "RUNNING")
    brain.runtime.observe()
    with brain.lab.stopped("n3"):
        brain.until(slurm_id, "PENDING")
        assert brain.ends() == [(job, EventKind.LOST, "Slurm requeued it")]

        def launch() -> list[tuple[int, EventKind, str]]:
            brain.runtime.launch(1, [Lease(job, (0, 1))])
            return brain.ends()

        reason = "it may still run on node n3, which does not answer"
        wait_for(launch, lambda ends: ends == [(job, EventKind.LOST, reason)], every=1.0)
    wait_for(lambda: brain.runtime.observe().drained, lambda drained: not drained, every=1.0)
    brain.runtime.launch(2, [Lease(job, (0, 1))])
    brain.runtime.advance(None)
    brain.until(slurm_id, "RUNNING")
