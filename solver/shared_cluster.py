"""An evenly shared cluster of several GPU types, played beside the schedule as a fluid.

Gavel (OSDI '20) measures finish-time fairness against a cluster of which each active job has 1/n of
every GPU type. Its jobs leave as they end, so that the shares of the others grow: by it each job
has a finish time that all jobs can meet. Finish times are projected on every arrival.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import orjson

from solver.market import Floats

STEPS = 256
"""Bound on effort: about how many times shares grow in a projection, e-folds of jobs aside. The
fluid is exact for fewer jobs."""


class Sharer(NamedTuple):
    """A job in the shared cluster.

    Attributes:
        job_id: The job.
        arrival: Clock at its arrival, in seconds.
        left: Work left, in seconds on its fastest allocation.
        pace: Speed on a share of every type, over that on its fastest allocation.
        gpus: GPUs of its gang.
        fair: Clock at its finish there, as projected.
    """

    job_id: int
    arrival: float
    left: float
    pace: float
    gpus: float
    fair: float


@dataclass(frozen=True)
class SharedCluster:
    """An evenly shared cluster at some time.

    Attributes:
        clock_seconds: The time.
        sharers: Its jobs, and those active jobs that have ended here.
    """

    clock_seconds: float = 0.0
    sharers: tuple[Sharer, ...] = ()

    @classmethod
    def read(cls, memory: str) -> "SharedCluster":
        """Decode the JSON of `written`; empty text is an empty cluster."""
        if not memory:
            return cls()
        clock, rows = orjson.loads(memory)
        return cls(clock, tuple(Sharer(*row) for row in rows))

    def written(self) -> str:
        """As JSON: the clock, and a row of numbers per job."""
        return orjson.dumps([self.clock_seconds, [list(job) for job in self.sharers]]).decode()

    def joined(self, arrivals: Sequence[Sharer], active: set[int], gpus: int) -> "SharedCluster":
        """The cluster after arrivals, with finish times projected anew.

        Args:
            arrivals: Jobs that arrived, in any order.
            active: Ids of the active jobs, these included; others are forgotten when they end.
            gpus: C, GPUs in service.
        """
        jobs, clock = list(self.sharers), self.clock_seconds
        for job in sorted(arrivals, key=lambda job: (job.arrival, job.job_id)):
            if job.arrival > clock:
                jobs, clock = _flowed(jobs, clock, gpus, job.arrival), job.arrival
            jobs.append(job)
        ends = _flowed(jobs, clock, gpus)
        return SharedCluster(
            clock,
            tuple(
                job._replace(fair=end.fair)
                for job, end in zip(jobs, ends, strict=True)
                if job.left > 0.0 or job.job_id in active
            ),
        )


def _flowed(jobs: Sequence[Sharer], clock: float, gpus: int, until: float = np.inf) -> list[Sharer]:
    """The jobs at a later time; those that end have no work left, and their finish as `fair`."""
    left, fair = np.array([job.left for job in jobs]), np.array([job.fair for job in jobs])
    pace, gangs = np.array([job.pace for job in jobs]), np.array([job.gpus for job in jobs])
    while clock < until and (running := np.flatnonzero(left > 0.0)).size:
        rate = pace[running] * np.minimum(1.0, gpus / (len(running) * gangs[running]))
        ends: Floats = left[running] / rate
        batch = len(running) // STEPS
        span = min(float(np.partition(ends, batch)[batch]), until - clock)
        done = ends <= span
        fair[running[done]] = clock + ends[done]
        left[running] = np.where(done, 0.0, left[running] - rate * span)
        clock += span
    return [
        job._replace(left=rest, fair=end)
        for job, rest, end in zip(jobs, left.tolist(), fair.tolist(), strict=True)
    ]
