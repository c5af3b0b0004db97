"""When the jobs of a run would have ended in the even cluster: a fold over its rounds.

Run times of active jobs are only forecast. So there are two even clusters. `now` is carried
forward with forecasts, and answers questions about the present. `settled` has true run times: it
stands where the first active job was first present, since the run times of all jobs before it are
known. When no active job was ever present it catches up with the clock, and becomes `now`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from predictor.job import JobSpec
from solver.even_cluster import (
    ABSENT,
    UNKNOWN,
    Arrival,
    ClusterChange,
    EvenCluster,
    PresentJob,
    measure_rho,
)

FREED = 1.0
"""Budget of a job that ends while it is kept back, from its end on."""

MOST_PENDING = 4096
"""Most changes that wait for the end of the oldest active job; with more, it counts as unfinished
in the even cluster until it ends. An engineering bound on memory."""


@dataclass(frozen=True, slots=True)
class FairFinish:
    """When a job ends in the even cluster, in seconds on the run's clock."""

    job_id: int
    at_seconds: float


class Ended(NamedTuple):
    """An active job that has ended in the even cluster, by its forecast."""

    at_seconds: float
    gpus: int
    seconds: float


@dataclass(frozen=True, slots=True)
class FairFinishes:
    """The even clusters of a run.

    Attributes:
        now: The even cluster at the run's clock, by forecast.
        ahead: Active jobs that have ended in `now`, by job id.
        budgets: Budgets of the active jobs, `ABSENT` while they are kept back or no GPU in service
            can run them.
        since: When active jobs were first present, by job id.
        settled: The even cluster before the first of these times.
        pending: What changed since then.
        seconds: Isolated run times of the jobs that ended and that `settled` still needs.
        news: Fair finishes that the last round found, by job id: expected ones of jobs that ended
            in it, and final ones.
    """

    now: EvenCluster = field(default_factory=EvenCluster)
    ahead: Mapping[int, Ended] = field(default_factory=dict)
    budgets: Mapping[int, float] = field(default_factory=dict)
    since: Mapping[int, float] = field(default_factory=dict)
    settled: EvenCluster = field(default_factory=EvenCluster)
    pending: tuple[ClusterChange, ...] = ()
    seconds: Mapping[int, float] = field(default_factory=dict)
    news: Mapping[int, float] = field(default_factory=dict)

    def after(
        self,
        clock_seconds: float,
        arrivals: tuple[Arrival, ...],
        budgets: Mapping[int, float],
        gpus: int,
        ended: Mapping[int, float],
        *,
        foreseen: bool = True,
    ) -> "FairFinishes":
        """Return the even clusters after a round.

        Args:
            clock_seconds: The clock at its end.
            arrivals: Jobs that arrived in it.
            budgets: Budgets of the active jobs from now on, `ABSENT` if they cannot run.
            gpus: GPUs in service from now on.
            ended: Isolated run times of the jobs that ended in it, by job id.
            foreseen: Whether active jobs are forecast; else no finish is expected before it is
                exact.
        """
        new = [job.job_id for job in arrivals]
        before = {**self.budgets, **{job.job_id: job.budget for job in arrivals}}
        changed = dict[int, float]()
        if before != budgets:  # compared faster as a whole
            changed = {job: budget for job, budget in budgets.items() if before[job] != budget}
        # What a job has trained by its end counts, even if it was kept back then.
        changed |= {job: FREED for job in ended if before[job] == ABSENT}
        change = ClusterChange(clock_seconds, arrivals, gpus, changed)
        pending = self.pending
        if arrivals or changed or gpus != self.now.gpus:
            pending = (*pending, change)
        since = {job: clock_seconds for job, budget in changed.items() if budget != ABSENT}
        since |= {job.job_id: job.at_seconds for job in arrivals if job.budget != ABSENT}
        since = {**since, **self.since}
        if not since.keys() <= budgets.keys():
            since = {job: at for job, at in since.items() if job in budgets}
        now, ends = self.now.after([change], {**dict.fromkeys(new, UNKNOWN), **ended})
        sharers = self.now.jobs
        ahead = {**self.ahead} | {
            job: Ended(at, sharers[job].gpus, sharers[job].seconds)
            for job, at in ends.items()
            if job in budgets
        }
        news = dict[int, float]()
        if ended and foreseen:
            expected = now.project(ended) | ends
            for job, seconds in ended.items():
                if known := ahead.pop(job, None):
                    expected[job] = known.at_seconds + (seconds - known.seconds)
            news = {job: expected[job] for job in ended if expected[job] < inf}
        kept = replace(
            self,
            now=now,
            ahead=ahead,
            budgets=dict(budgets),
            since=since,
            pending=pending,
            seconds={**self.seconds, **ended},
            news=news,
        )
        return kept._settle()

    def expect(self, seconds: Mapping[int, float]) -> "FairFinishes":
        """Return the even clusters with new forecasts of isolated run times, by job id."""
        clock = self.now.clock_seconds
        jobs, ahead = dict(self.now.jobs), dict(self.ahead)
        for job, known in seconds.items():
            if job in jobs:
                there, served = jobs[job], self.now.measure_service(job)
                jobs[job] = there._replace(seconds=known)
                if known < served:  # it ended before: at full speed so long ago
                    del jobs[job]
                    ahead[job] = Ended(clock - (served - known), there.gpus, known)
            elif job in ahead:  # more work, or less, at full speed from when it was to end
                at, gpus, before = ahead.pop(job)
                if (end := at + (known - before)) <= clock:
                    ahead[job] = Ended(end, gpus, known)
                else:
                    budget = self.budgets[job]
                    began = self.now.clocks.get(budget, 0.0) - (known - (end - clock))
                    jobs[job] = PresentJob(gpus, budget, began, known)
        present = dict.fromkeys([job.budget for job in jobs.values()])
        clocks = {budget: self.now.clocks.get(budget, 0.0) for budget in present}
        return replace(self, now=replace(self.now, clocks=clocks, jobs=jobs), ahead=ahead)

    def is_present(self, job_id: int) -> bool:
        """Return whether an active job can run: only then policies and the even cluster have it."""
        return self.budgets[job_id] != ABSENT

    def measure_rho(
        self,
        finishes: Mapping[int, float],
        arrivals: Mapping[int, float],
        round_seconds: float,
        restart_seconds: float,
    ) -> dict[int, float]:
        """Return ρ of active jobs that can run, by job id, if they end at these times."""
        fair = self.project()
        return {
            job: measure_rho(at, arrivals[job], fair[job], round_seconds, restart_seconds)
            for job, at in finishes.items()
            if fair.get(job, inf) < inf
        }

    def project(self) -> dict[int, float]:
        """Return when each active job is expected to end in the even cluster, by job id.

        Arrivals of the future are left out. Jobs that are kept back never end.
        """
        return self.now.project() | {job: ended.at_seconds for job, ended in self.ahead.items()}

    def foresee(
        self, seconds: Mapping[int, float], arrivals: tuple[Arrival, ...]
    ) -> dict[int, float]:
        """Return when active jobs and jobs that arrive later end, by job id, given run times.

        `seconds` are the isolated run times of all of them. Jobs that are kept back never end.
        """
        last = max((job.at_seconds for job in arrivals), default=self.now.clock_seconds)
        coming = ClusterChange(last, arrivals, self.now.gpus)
        known = {**self.seconds, **seconds}
        cluster, ends = self.settled.after([*self.pending, coming], known)
        return ends | cluster.project()

    def _settle(self) -> "FairFinishes":
        """Carry `settled` forward to when the first active job was first present."""
        oldest = min(self.since.values(), default=inf)
        excess = len(self.pending) - MOST_PENDING
        changes = [
            change
            for number, change in enumerate(self.pending)
            if change.clock_seconds < oldest or number < excess
        ]
        pending = self.pending[len(changes) :]
        if oldest == inf and self.settled.clock_seconds < self.now.clock_seconds:
            changes.append(ClusterChange(self.now.clock_seconds, gpus=self.now.gpus))
        if not changes:
            return self
        # Active jobs in `settled` never were present, or are too old to wait for: none ends there.
        seconds = {**dict.fromkeys((*self.now.jobs, *self.ahead), UNKNOWN), **self.seconds}
        settled, ends = self.settled.after(changes, seconds)
        final = {**self.news, **{job: at for job, at in ends.items() if job in self.seconds}}
        if oldest == inf:
            expected = settled.project()
            final |= {job: expected[job] for job in self.seconds if expected.get(job, inf) < inf}
        coming = {job.job_id for change in pending for job in change.arrivals}
        needed = coming | settled.jobs.keys()
        found = replace(
            self,
            settled=settled,
            pending=pending,
            seconds={job: known for job, known in self.seconds.items() if job in needed},
            news=final,
        )
        if oldest < inf:
            return found
        forecasts = {
            job: self.now.jobs[job].seconds for job in self.budgets if job in self.now.jobs
        }
        forecasts |= {job: ended.seconds for job, ended in self.ahead.items()}
        return replace(found, now=settled, ahead={}).expect(forecasts)


def make_arrivals(
    specs: Iterable[JobSpec], budgets: Mapping[int, float] | None = None
) -> tuple[Arrival, ...]:
    """Return the arrivals of jobs in the even cluster, with their own budgets by default."""
    known = budgets or {}
    return tuple(
        Arrival(
            spec.job_id,
            spec.arrival_seconds,
            spec.demand.size,
            known.get(spec.job_id, spec.budget),
        )
        for spec in specs
    )
