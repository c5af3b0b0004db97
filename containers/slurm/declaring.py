"""Users' Slurm jobs, declared as jobs of a run."""

import math
import re
from dataclasses import dataclass

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


_ID, _SUBMITTED, _RESTARTS, _USER = (
    *("SLURM_JOB_ID", "SLURM_JOB_SUBMITTED", "SLURM_JOB_RESTARTS"),
    "SLURM_JOB_USER",
)


@dataclass(frozen=True, slots=True)
class SlurmIdentity:
    """Which job of Slurm's a job is: ids alone come again after a controller's crash.

    Attributes:
        submitted: See `SlurmJob`; a requeue changes it.
    """

    id: str
    submitted: int
    restarts: int
    user: str

    @classmethod
    def of(cls, job: SlurmJob) -> "SlurmIdentity":
        """Return the identity of a job of the queue."""
        return cls(job.id, job.submitted, job.restarts, job.user)

    @classmethod
    def read(cls, spec: JobSpec) -> "SlurmIdentity":
        """Return the identity that a job was declared with (`variables`)."""
        found = dict(variable.split("=", 1) for variable in spec.environment)
        return cls(found[_ID], int(found[_SUBMITTED]), int(found[_RESTARTS]), found[_USER])

    @property
    def variables(self) -> tuple[str, ...]:
        """The identity as variables of a job's declaration, which records keep."""
        values = {
            _ID: self.id,
            _SUBMITTED: self.submitted,
            _RESTARTS: self.restarts,
            _USER: self.user,
        }
        return tuple(f"{name}={value}" for name, value in values.items())

    def is_of(self, job: SlurmJob) -> bool:
        """Return whether a job of the queue is this one, perhaps requeued since."""
        if (job.id, job.user) != (self.id, self.user):
            return False
        same = (job.submitted, job.restarts) == (self.submitted, self.restarts)
        return same or (job.restarts > self.restarts and job.submitted >= self.submitted)


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
        _expect_seconds(job),
        0.0,
        tenant=job.account,
        name=f"job-{name}" if name.isdigit() or not name else name,
        environment=SlurmIdentity.of(job).variables,
        consolidate=True,
    )


def _expect_seconds(job: SlurmJob) -> float:
    return min(job.limit_seconds, LONGEST_SECONDS) + SLACK_SECONDS


def is_as_declared(job: SlurmJob, spec: JobSpec, inventory: Inventory) -> bool:
    """Return whether a waiting job still asks for the GPUs and the time of its declaration."""
    try:
        asked = find_demand(job, inventory), _expect_seconds(job)
    except InputError:
        return False
    return asked == (spec.demand, spec.max_seconds)


def find_demand(job: SlurmJob, inventory: Inventory) -> Demand:
    """Return the GPUs that a job takes; a job of several nodes takes them whole.

    How Slurm divides a job's GPUs among several nodes is not known beforehand.

    Raises:
        InputError: No node of the partition can run it.
    """
    # Of a waiting job without a limit, `squeue` prints its fewest nodes as its most.
    sizes = _find_sizes(job, inventory, job.most_nodes) or _find_sizes(job, inventory, math.inf)
    if not sizes:
        kind = f" of type {job.gpu_type}" * bool(job.gpu_type)
        problem = f"asks for {job.gpus} GPUs{kind} on {job.least_nodes} nodes or more"
        raise InputError(f"Slurm job {job.id}", problem, "no node of the partition has them")
    gpus = min(sizes.values())
    types = tuple(kind for kind in inventory.types if sizes.get(kind) == gpus)
    return Demand(gpus, gpus, () if types == inventory.types else types)


def _find_sizes(job: SlurmJob, inventory: Inventory, most_nodes: float) -> dict[str, int]:
    """Return the GPUs that a job takes by GPU type, of the types that can run it."""
    sizes = dict[str, int]()
    for pool in inventory.pools:
        if job.gpu_type in ("", pool.gpu_type):
            nodes = max(job.least_nodes, math.ceil(job.gpus / pool.gpus_per_node))
            if nodes <= min(most_nodes, pool.nodes):
                sizes[pool.gpu_type] = job.gpus if nodes == 1 else nodes * pool.gpus_per_node
    return sizes
