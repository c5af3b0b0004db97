"""The jobs of a log whose schedule is known, as arrays."""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from predictor.errors import InputError
from solver.even_cluster import Arrival, find_fair_finishes
from tasks.record import Settings
from tasks.sources import Workload
from warehouse.workloads.logs.log import WAITS, ClusterLog, TableJob

Array = NDArray[np.float64]

NO_START = "without a start"


def select_jobs(log: ClusterLog) -> ClusterLog:
    """Return the log with the jobs that it says the start of, each arriving once it could start.

    A job that waited for another job, for a date, or for the limit of its array arrives when that
    was over, since no policy could have started it before.

    Raises:
        InputError: It says of no job when it started, or of none when it was submitted.
    """
    jobs = tuple(replace(job, arrival_seconds=_find_arrival(job)) for job in log.jobs if job.held)
    if not jobs:
        problem = "says of no job when it started, so its waits are unknown"
        remedy = "give a log with starts and ends; shockwave compare runs policies without them"
        raise InputError(log.source, problem, remedy)
    no_waits = any(item.startswith(WAITS) for item in log.unknown)
    if no_waits and all(job.held[0][0] == job.arrival_seconds for job in jobs):
        problem = "says of no job when it was submitted, so its waits are unknown"
        remedy = "give a log with submissions; PAI's are in pai_job_table, beside the tasks"
        raise InputError(log.source, problem, remedy)
    left_out = Counter(log.left_out)
    if len(jobs) < len(log.jobs):
        left_out[NO_START] += len(log.jobs) - len(jobs)
    return replace(log, jobs=jobs, left_out=dict(left_out.most_common()))


def _find_arrival(job: TableJob) -> float:
    eligible, (start, _) = job.eligible_seconds, job.held[0]
    if eligible is None or not job.arrival_seconds < eligible <= start:
        return job.arrival_seconds
    return eligible


@dataclass(frozen=True)
class LoggedJobs:
    """The jobs of a log on a cluster; arrays are by job id, the place of a job in the log.

    Attributes:
        log: The log.
        workload: Its jobs, as policies run them.
        settings: The cluster, and how long a round and a restart take.
    """

    log: ClusterLog
    workload: Workload
    settings: Settings

    @cached_property
    def begin(self) -> float:
        """The first arrival, on the log's clock. All other times count from it."""
        return min(job.arrival_seconds for job in self.log.jobs)

    @cached_property
    def arrivals(self) -> Array:
        """Arrivals, in seconds."""
        return np.array([job.arrival_seconds for job in self.log.jobs]) - self.begin

    @cached_property
    def gpus(self) -> Array:
        """GPUs that each job holds; shares of GPUs are fractions."""
        return np.array([job.gpus for job in self.log.jobs])

    @cached_property
    def work(self) -> Array:
        """GPU-seconds that each job ran."""
        work: Array = self.gpus * np.array([job.seconds for job in self.log.jobs])
        return work

    @property
    def capacity(self) -> float:
        """GPUs of the cluster."""
        return self.settings.gpus / self.workload.slots

    @cached_property
    def fair_seconds(self) -> Array:
        """Completion time in the even cluster, with a round and a restart (docs/market.md)."""
        specs = self.workload.specs
        ends = find_fair_finishes(
            [Arrival(spec.job_id, spec.arrival_seconds, spec.demand.least) for spec in specs],
            {truth.job_id: truth.isolated_seconds for truth in self.workload.truths},
            self.settings.gpus,
        )
        there = np.array([ends[job_id] for job_id in range(len(specs))]) - self.arrivals
        return there + self.settings.round_seconds + self.settings.restart_seconds

    def measure_rhos(self, ends: Array) -> Array:
        """Return ρ of jobs that end at these times, in seconds; rounded as in `job_outcomes`."""
        rhos: Array = np.round((ends - self.arrivals) / self.fair_seconds, 5)
        return rhos
