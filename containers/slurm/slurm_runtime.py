"""The runtime of jobs that lease GPUs of a Slurm."""

import sys

from containers.clock import RunClock
from containers.leasing.runtime import LeasedRuntime
from containers.runtime import ResumePoint, RuntimeFactory, Terms
from containers.slurm.cluster import SlurmCluster
from containers.slurm.engine import SlurmEngine


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
