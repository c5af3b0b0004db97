"""The machines of a cluster file: locked for a run, and opened as its runtime."""

from collections.abc import Collection
from contextlib import AbstractContextManager

from containers.clock import RunClock
from containers.docker.docker_runtime import DockerFactory
from containers.docker.fleet import lock_cluster
from containers.leasing.runtime import LeasedRuntime
from containers.runtime import ResumePoint, Terms
from containers.slurm.cluster import SlurmCluster
from containers.slurm.slurm_runtime import SlurmFactory, lock_slurm
from flows.runs.cluster_file import AnyCluster


def lock_machines(
    nodes: AnyCluster, run: str, removed: Collection[int] = ()
) -> AbstractContextManager[None]:
    """Lock a cluster for a run's scheduler process; `run` is empty for a new run.

    Other clusters may use the `removed` nodes.

    Raises:
        InputError: The cluster's storage cannot be written.
        WarehouseBusy: Another scheduler has the lock, or the nodes run jobs of another run.
    """
    if isinstance(nodes, SlurmCluster):
        return lock_slurm(nodes, run)
    return lock_cluster(nodes, run, removed)


def open_machines(
    nodes: AnyCluster, clock: RunClock, terms: Terms, resume_point: ResumePoint
) -> LeasedRuntime:
    """Open the runtime of a run; ends its jobs that have no lease."""
    if isinstance(nodes, SlurmCluster):
        return SlurmFactory(nodes, clock).open(terms, resume_point)
    return DockerFactory(nodes, clock).open(terms, resume_point)
