"""How long does a round of users' Slurm jobs take, with many jobs in the queue?

    python -m benchmarks.slurm_queue [--jobs 1000] [--moves 16] [--repeats 3]

Starts a Slurm of four nodes with 16 GPUs as root (`harness.slurm`), with Slurm's default
`SchedulerParameters`, fills its queue with jobs that wait in the QOS `wait`, and times in it:
reading the queue; the orders that start one job on each GPU, and how long until all run; moving all
of them to other nodes, as preempted jobs that save.
Medians and the longest, in seconds of wall time.
"""

import argparse
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from containers.clock import RunClock
from containers.runtime import Lease, ResumePoint, Terms
from containers.slurm.brain import SlurmBrain
from containers.slurm.commands import Commands
from containers.slurm.declaring import declare
from containers.slurm.inventory import list_nodes, make_inventory, sort_nodes
from containers.slurm.queue import get_details
from harness.markdown import markdown
from harness.slurm import Slurm, missing, slurm

SBATCH = ("--parsable", "--chdir=/", "--output=/dev/null", "--time=9", "--gpus=1")
SAVES = "--comment=shockwave:checkpointing"
DEFAULTS = {"SchedulerParameters": "bf_interval=30"}
"""The default, which `harness.slurm` replaces by shorter waits."""
POLL_SECONDS = 0.25
"""Interval between looks for jobs that start. A convention."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--moves", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if lacking := missing():
        print(f"left out: {lacking}")
        return
    with slurm(**DEFAULTS) as lab:
        rows = measure(lab, options.jobs, options.moves, options.repeats)
    print(markdown(["Of a round", "median (s)", "longest (s)"], rows), end="")


def measure(lab: Slurm, jobs: int, moves: int, repeats: int) -> list[list[str]]:
    """Fill the queue and time the parts of rounds."""
    commands = Commands(lab.commands("operator"))
    nodes = sort_nodes(list_nodes(commands, "gpu"))
    inventory = make_inventory(nodes)
    terms = Terms("run", 120.0, inventory=inventory)
    names = [node.name for node in nodes]
    brain = SlurmBrain(commands, "gpu", names, RunClock(), terms, ResumePoint(), kill_wait=10.0)
    submit(lab, "bob", jobs - moves)
    ids = submit(lab, "alice", moves, SAVES)
    brain.look()
    by_id = {job.id: job for job in brain.queue}
    specs = [declare(by_id[one], get_details(commands, one), inventory) for one in ids]
    brain.admit([replace(spec, job_id=number) for number, spec in enumerate(specs)])
    taken: dict[str, list[float]] = {}
    order = [*range(moves)]

    def dispatch(what: str) -> None:
        """Launch a lease for each job, and wait until all run."""
        leases = [Lease(number, (gpu,)) for number, gpu in enumerate(order)]
        began = time.perf_counter()
        brain.launch(0, leases)
        taken.setdefault(f"{what}: orders", []).append(time.perf_counter() - began)
        while not running(brain, ids):
            time.sleep(POLL_SECONDS)
            brain.launch(0, leases)  # repeats orders whose effect is not seen yet
        taken.setdefault(f"{what}: until all run", []).append(time.perf_counter() - began)

    for _ in range(repeats):
        began = time.perf_counter()
        brain.look()
        taken.setdefault("reading the queue", []).append(time.perf_counter() - began)
        dispatch(f"{moves} starts")
        order = order[moves // 2 :] + order[: moves // 2]
        dispatch(f"{moves} moves")
        brain.preempt(dict.fromkeys(range(moves), "for the next repetition"))
    return [[what, f"{median(all_):.2f}", f"{max(all_):.2f}"] for what, all_ in taken.items()]


def submit(lab: Slurm, user: str, jobs: int, *more: str) -> list[str]:
    """Submit jobs of a GPU each; returns their ids."""
    line = " ".join(("sbatch", *SBATCH, *more, "--wrap='sleep 900'"))
    path = os.pathsep.join((str(lab.commands(user)), os.environ.get("PATH", os.defpath)))
    script = f"for n in $(seq {jobs}); do {line} || exit 1; done"
    done = subprocess.run(
        ["sh", "-c", script], env=os.environ | {"PATH": path}, check=True, capture_output=True
    )
    return done.stdout.decode().split()


def running(brain: SlurmBrain, ids: Sequence[str]) -> bool:
    """Whether jobs run."""
    brain.look()
    states = {job.id: job.state for job in brain.queue}
    return all(states.get(one) == "RUNNING" for one in ids)


if __name__ == "__main__":
    main()
