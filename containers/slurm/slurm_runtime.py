"""The runtime of jobs that lease GPUs of a Slurm."""

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

from containers.clock import RunClock
from containers.leasing.lock import lock_storage
from containers.leasing.runtime import LeasedRuntime
from containers.runtime import ResumePoint, RuntimeFactory, Terms
from containers.slurm.cluster import SlurmCluster
from containers.slurm.engine import SlurmEngine
from predictor.errors import WarehouseBusy


class SlurmFactory(RuntimeFactory):
    """A cluster of Slurm's nodes, and the run's clock."""

    live = True

    def __init__(self, cluster: SlurmCluster, clock: RunClock) -> None:
        self._cluster, self._clock = cluster, clock

    def open(self, terms: Terms, resume_point: ResumePoint) -> LeasedRuntime:
        """See `RuntimeFactory.open`; ends the run's Slurm jobs that have no lease."""
        engine = SlurmEngine(
            self._cluster, terms.run, report=lambda line: print(line, file=sys.stderr, flush=True)
        )
        return LeasedRuntime(engine, self._cluster, self._clock, terms, resume_point)


@contextmanager
def lock_slurm(cluster: SlurmCluster, run: str) -> Iterator[None]:
    """Lock a cluster for a run's scheduler process; `run` is empty for a new run.

    Raises:
        InputError: The cluster's storage cannot be written.
        WarehouseBusy: Another scheduler has the lock, or nodes of the cluster have leases of
            another run.
    """
    with lock_storage(cluster.storage):
        with closing(SlurmEngine(cluster, run)) as engine:
            others = engine.other_runs()
        for other in sorted(others):
            remedy = "wait for it; if its scheduler is gone, resume it or scancel its jobs"
            raise WarehouseBusy("slurm", f"runs jobs of run {other}", remedy)
        yield
