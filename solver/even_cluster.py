"""The evenly shared cluster: when would each job have ended there?

It is the yardstick of fairness. A fluid gets the arrivals of the run. All jobs present in it train
at once, each at the rate r_j of its isolated speed until it ends there:

    r_j = min(1, B_j θ),  with θ the largest for which Σ_j g_j r_j ≤ G

With equal budgets that is r = min(1, G / Σ g), processor sharing among gangs. A schedule that
ends each job no later than the fluid does exists on one server with known run times (Friedman and
Henderson, Fairness and efficiency in web server protocols, SIGMETRICS 2003), so the yardstick does
not promise more than a cluster has. It depends on the workload and the cluster alone, not on the
policy; and a job's end here depends only on jobs that arrived before that end.

All jobs of a budget train at the same rate. One virtual clock per budget counts the seconds that
each of them has trained, so a job ends when its clock has advanced by its isolated run time. An
event costs the number of different budgets, and the logarithm of the number of jobs.
"""

import heapq
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

ABSENT = 0.0
"""Budget of a job that is kept back: it gets no service and takes none from others."""

UNKNOWN = 1e12
"""Isolated run time of a job that has no forecast yet, in seconds: longer than any job runs, and
finite, because snapshots are JSON."""


class Arrival(NamedTuple):
    """A job that arrives, at a time in seconds on the run's clock."""

    job_id: int
    at_seconds: float
    gpus: int
    budget: float = 1.0


class PresentJob(NamedTuple):
    """A job in the even cluster.

    Attributes:
        gpus: Its gang.
        budget: Its budget relative to others; `ABSENT` while it is kept back.
        began: Reading of its budget's virtual clock from which its service counts.
        seconds: Its isolated run time as far as it is known.
    """

    gpus: int
    budget: float
    began: float
    seconds: float


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """What changed at a time, in the order in which it takes effect.

    Attributes:
        clock_seconds: The time.
        arrivals: Jobs that arrived since the last change, each at its own time.
        gpus: GPUs in service from now on.
        budgets: Budgets from now on, by job id; `ABSENT` for jobs that are kept back. Jobs that
            are not here keep theirs.
    """

    clock_seconds: float
    arrivals: tuple[Arrival, ...] = ()
    gpus: int = 0
    budgets: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EvenCluster:
    """The even cluster at a time.

    Attributes:
        clock_seconds: The time, on the run's clock.
        gpus: GPUs in service since then.
        clocks: Virtual clock of each budget: seconds that a job of that budget has trained.
        jobs: The jobs present, by job id.
    """

    clock_seconds: float = 0.0
    gpus: int = 0
    clocks: Mapping[float, float] = field(default_factory=dict)
    jobs: Mapping[int, PresentJob] = field(default_factory=dict)

    def after(
        self, change: ClusterChange, seconds: Mapping[int, float]
    ) -> tuple["EvenCluster", dict[int, float]]:
        """Return the cluster after a change, and the ends until then by job id.

        `seconds` are isolated run times by job id, of all jobs that arrive, and of others if they
        changed. A job that has already trained for longer ends at once.
        """
        service = _Service(self, seconds)
        for arrival in sorted(change.arrivals, key=lambda job: (job.at_seconds, job.job_id)):
            service.run_until(max(arrival.at_seconds, service.clock))
            job_id, _, gpus, budget = arrival
            service.add(job_id, gpus, budget, seconds[job_id])
        service.run_until(change.clock_seconds)
        for job_id, budget in change.budgets.items():
            service.move(job_id, budget)
        return service.stop(change.gpus), service.ends

    def measure_service(self, job_id: int) -> float:
        """Return for how many seconds a job that is present has trained."""
        job = self.jobs[job_id]
        return self.clocks[job.budget] - job.began

    def project(self) -> dict[int, float]:
        """Return when each job present will end if no other arrives; never if it is kept back."""
        service = _Service(self, {})
        service.run_until(math.inf)
        return dict.fromkeys(self.jobs, math.inf) | service.ends


class _Service:
    """The even cluster while time passes."""

    def __init__(self, cluster: EvenCluster, seconds: Mapping[int, float]) -> None:
        self.clock, self._gpus = cluster.clock_seconds, cluster.gpus
        self.ends: dict[int, float] = {}
        self._clocks = dict(cluster.clocks)
        self._jobs = dict(cluster.jobs)
        for job_id in seconds.keys() & self._jobs.keys():
            self._jobs[job_id] = self._jobs[job_id]._replace(seconds=seconds[job_id])
        self._gangs: dict[float, int] = {}
        self._queues: dict[float, list[tuple[float, int]]] = {}
        for job_id, job in self._jobs.items():
            self._gangs[job.budget] = self._gangs.get(job.budget, 0) + job.gpus
            queue = self._queues.setdefault(job.budget, [])
            queue.append((job.began + job.seconds, job_id))
        for queue in self._queues.values():
            heapq.heapify(queue)

    def add(
        self, job_id: int, gpus: int, budget: float, seconds: float, served: float = 0.0
    ) -> None:
        """Add a job that has already received some service, in seconds."""
        began = self._clocks.setdefault(budget, 0.0) - served
        self._jobs[job_id] = PresentJob(gpus, budget, began, seconds)
        self._gangs[budget] = self._gangs.get(budget, 0) + gpus
        heapq.heappush(self._queues.setdefault(budget, []), (began + seconds, job_id))

    def remove(self, job_id: int) -> None:
        """Remove a job. If it has an entry in the queue, that is skipped when its turn comes."""
        job = self._jobs.pop(job_id)
        self._gangs[job.budget] -= job.gpus
        if not self._gangs[job.budget]:  # nobody is left: the clock starts anew, exactly
            del self._gangs[job.budget], self._queues[job.budget], self._clocks[job.budget]

    def move(self, job_id: int, budget: float) -> None:
        """Give a job another budget."""
        there = self._jobs.get(job_id)
        if there and there.budget != budget:
            served = self._clocks[there.budget] - there.began
            self.remove(job_id)
            self.add(job_id, there.gpus, budget, there.seconds, served)

    def run_until(self, end: float) -> None:
        """Let time pass; jobs end on the way."""
        while True:
            rates = self._rates()
            ends = [
                (self.clock + max(self._next(budget) - self._clocks[budget], 0.0) / rate, budget)
                for budget, rate in rates.items()
            ]
            at, first = min(ends, default=(math.inf, ABSENT))
            until = min(at, end)
            if until < math.inf:
                for budget, rate in rates.items():
                    self._clocks[budget] += rate * (until - self.clock)
                self.clock = until
            if at > end or at == math.inf:
                return
            due, job_id = heapq.heappop(self._queues[first])
            self._clocks[first] = max(self._clocks[first], due)
            self.ends[job_id] = self.clock
            self.remove(job_id)

    def _next(self, budget: float) -> float:
        """Return the reading of a budget's clock at which its next job ends."""
        queue = self._queues[budget]
        while True:
            due, job_id = queue[0]
            job = self._jobs.get(job_id)
            if job and job.budget == budget and job.began + job.seconds == due:
                return due
            heapq.heappop(queue)

    def _rates(self) -> dict[float, float]:
        """Return the rate of each budget with jobs, largest budget first: r = min(1, B θ)."""
        rates: dict[float, float] = {}
        budgets = sorted(self._gangs.keys() - {ABSENT}, reverse=True)
        gpus, demand = float(self._gpus), sum(self._gangs[b] * b for b in budgets)
        for budget in budgets:
            gang = self._gangs[budget]
            rates[budget] = rate = min(1.0, budget * gpus / demand) if gpus > 0.0 else 0.0
            gpus, demand = max(gpus - gang * rate, 0.0), demand - gang * budget
        return {budget: rate for budget, rate in rates.items() if rate > 0.0}

    def stop(self, gpus: int) -> EvenCluster:
        """Return the cluster now, with these GPUs in service from now on."""
        return EvenCluster(self.clock, gpus, self._clocks, self._jobs)


def find_fair_finishes(
    arrivals: Collection[Arrival], seconds: Mapping[int, float], gpus: int
) -> dict[int, float]:
    """Return when each job of a workload ends in the even cluster, by job id.

    Args:
        arrivals: The jobs.
        seconds: Their isolated run times, by job id.
        gpus: GPUs of the cluster, which stay the same.
    """
    last = max((job.at_seconds for job in arrivals), default=0.0)
    cluster, ends = EvenCluster(gpus=gpus).after(
        ClusterChange(last, tuple(arrivals), gpus), seconds
    )
    return ends | cluster.project()


def measure_rho(
    finish: float, arrival: float, fair_finish: float, round_seconds: float, restart_seconds: float
) -> float:
    """Return ρ: a job's completion time over that in the even cluster.

    The least that a scheduler of rounds costs is added to the latter: a round and a restart.
    """
    return (finish - arrival) / (fair_finish - arrival + round_seconds + restart_seconds)
