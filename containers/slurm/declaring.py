"""Users' Slurm jobs, declared as jobs of a run."""

import math
import re

from containers.slurm.brain import SlurmIdentity
from containers.slurm.queue import JobDetails, SlurmJob
from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import JobKind, JobSpec, make_timed_job
from solver.inventory import Inventory

SAVES = "shockwave:checkpointing"
"""Comment of a job that saves on SIGTERM and resumes when it is started again."""
SLACK_SECONDS = 120.0
"""Time for Slurm to end a job that reached its limit, before it counts as given up here."""
LONGEST_SECONDS = 30 * 86_400.0
"""Expected length of a job without a time limit. An engineering bound."""

_ODD = re.compile(r"[^A-Za-z0-9_.-]+")


def declare(job: SlurmJob, details: JobDetails, inventory: Inventory) -> JobSpec:
    """Declare a user's job: its account is the tenant, its time limit its expected length.

    Its id and arrival are those that a service gives it.

    Raises:
        InputError: No node of the partition can run it.
    """
    kind = JobKind.CHECKPOINTING if details.comment == SAVES else JobKind.OPAQUE
    name = _ODD.sub("-", details.name).strip("-.")[:100]
    return make_timed_job(
        0,
        kind,
        find_demand(job, inventory),
        min(job.limit_seconds, LONGEST_SECONDS) + SLACK_SECONDS,
        0.0,
        tenant=job.account,
        name=f"job-{name}" if name.isdigit() or not name else name,
        environment=SlurmIdentity.of(job).variables,
        consolidate=True,
    )


def find_demand(job: SlurmJob, inventory: Inventory) -> Demand:
    """Return the GPUs that a job takes; a job of several nodes takes them whole.

    How Slurm divides a job's GPUs among several nodes is not known beforehand.

    Raises:
        InputError: No node of the partition can run it.
    """
    sizes = dict[str, int]()
    for pool in inventory.pools:
        if job.gpu_type in ("", pool.gpu_type):
            nodes = max(job.least_nodes, math.ceil(job.gpus / pool.gpus_per_node))
            if nodes <= min(job.most_nodes, pool.nodes):
                sizes[pool.gpu_type] = job.gpus if nodes == 1 else nodes * pool.gpus_per_node
    if not sizes:
        kind = f" of type {job.gpu_type}" * bool(job.gpu_type)
        problem = f"asks for {job.gpus} GPUs{kind} on {job.least_nodes} nodes or more"
        raise InputError(f"Slurm job {job.id}", problem, "no node of the partition has them")
    gpus = min(sizes.values())
    types = tuple(kind for kind in inventory.types if sizes.get(kind) == gpus)
    return Demand(gpus, gpus, () if types == inventory.types else types)
