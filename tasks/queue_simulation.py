"""A simulation of the queue: jobs of given lengths, scheduled by a policy."""

import heapq
import math
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from predictor.allocation import Allocation
from predictor.arrivals import add_arrivals
from predictor.belief import Belief
from predictor.forecast import RunTime
from predictor.job import JobProgress
from solver.even_cluster import ClusterChange, EvenCluster
from solver.plan import ActiveJob, Plan
from solver.promised import RoundInput
from tasks.eligibility import find_blocked_jobs
from tasks.fairness import make_arrivals
from tasks.tenancy import NO_TENANCY, Tenancy, sum_gpu_seconds

GROWTH = 0.1
"""Rounds between two plans, relative to the rounds simulated so far. An engineering bound."""

LEAST_RATE = 1e-9
"""Least steps per second of a job that shares GPUs; prevents divisions by zero."""

MOST_PLANS = 150
"""Most plans of a simulation; they cover some 10⁶ rounds. An engineering bound."""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A simulated job: the policy's view of it, and what the policy does not see.

    Attributes:
        length: Drawn residual run time on the first allocation of its menu, in seconds.
        cut: Seconds lost per whole round to an unfinished step.
    """

    seen: ActiveJob
    length: float
    cut: float = 0.0

    def after(
        self, ran: float, gpus: tuple[int, ...], lease_rounds: int, held: Allocation | None = None
    ) -> "QueuedJob":
        """Return the job after it trained for `ran` seconds on GPUs.

        Its forecast shrinks in proportion to its residual run time, so relative errors stay. `held`
        is the allocation of these GPUs, on a cluster of several GPU types.
        """
        seen = self.seen
        left = max(self.length - ran / compute_slowdown(seen, held), 0.0)
        belief, time = seen.belief, seen.run_time(seen.menu[0])
        if ran > 0.0:
            share = left / self.length
            belief = Belief(belief.spec, belief.observed, _further(belief, ran), belief.paces)
            time = _times(time, share)
        there = ActiveJob(
            belief, seen.forecast, gpus, lease_rounds, seen.menu, seen.throughput, held=held
        )
        set_run_time(there, time)
        return QueuedJob(there, left, self.cut)

    def held(self, seconds: float, round_seconds: float, late: float = 0.0) -> float:
        """Return the seconds for which it holds GPUs to train for `seconds`, without the restart.

        Training starts `late` seconds after the start of a round.
        """
        rounds = (seconds + late % round_seconds) // (round_seconds - self.cut)
        return seconds + self.cut * rounds

    def trained(self, seconds: float, round_seconds: float, late: float = 0.0) -> float:
        """Return the seconds of training while holding GPUs for `seconds`; inverts `held`."""
        rounds = (seconds + late % round_seconds) // round_seconds
        return max(seconds - self.cut * rounds, 0.0)


def compute_slowdown(job: ActiveJob, held: Allocation | None) -> float:
    """Return a job's run time on an allocation, relative to its menu's first allocation."""
    first = job.menu[0]
    if held is None or held == first:
        return 1.0
    if not job.throughput.can_run(job.spec, job.belief.batch_size, held):
        return 1.0  # on a single GPU type, menus include allocations that a job cannot run on
    return job.rate(first) / job.rate(held)


def set_run_time(job: ActiveJob, time: RunTime) -> None:
    """Set a job's residual run time on the first allocation of its menu.

    On other GPU types, it is scaled by the current rates.
    """
    for allocation in {*job.menu, *filter(None, [job.held])}:
        slower = compute_slowdown(job, allocation)
        job.know(time if slower == 1.0 else _times(time, slower), allocation)


def _times(time: RunTime, factor: float) -> RunTime:
    return RunTime(
        time.remaining * factor,
        time.low * factor,
        time.high * factor,
        tuple([sample * factor for sample in time.samples]),
    )


def _further(belief: Belief, ran: float) -> JobProgress:
    """Return a job's progress after training, in the fields that policies read."""
    spec, was, run_seconds = belief.spec, belief.progress, belief.run_seconds + ran
    if was is None:
        return JobProgress(spec.job_id, 0, 0.0, spec.batch_size, ran, run_seconds, spec.total_steps)
    return JobProgress(
        was.job_id, was.epochs, was.fraction, was.batch_size, ran, run_seconds, was.steps_left
    )


@dataclass(frozen=True, slots=True)
class _Pace:
    """The pace of a job: shared with a partner until the partner ends, then alone.

    Attributes:
        since: Start of the round in which it got its GPUs.
        late: Seconds from `since` until it trains.
        slower: Slowdown while it shares its GPUs; 1 without a partner.
        until: When the partner ends; infinite if the partner outlives this job.
    """

    since: float
    late: float = 0.0
    slower: float = 1.0
    until: float = math.inf

    @property
    def began(self) -> float:
        """The time at which it starts to train."""
        return self.since + self.late

    def worked(self, clock: float) -> float:
        """Return the work done by a time, in seconds of training alone."""
        beside = max(min(clock, self.until) - self.began, 0.0)
        return beside / self.slower + max(clock - max(self.until, self.began), 0.0)

    def end(self, seconds: float) -> float:
        """Return when it has done the work of `seconds` of training alone."""
        beside = max(self.until - self.began, 0.0)
        if seconds * self.slower <= beside:
            return self.began + seconds * self.slower
        return max(self.until, self.began) + seconds - beside / self.slower


@dataclass
class QueueSimulation:
    """A simulation of the queue.

    Attributes:
        now: Policy input of the next plan.
        coming: Future jobs, by arrival.
        even: The even cluster at the time of `now`, by forecast.
        isolated: Isolated run times of the future jobs, in seconds, by job id.
        starts: Start of each job that has run, by job id.
        ends: End of each job that has ended, by job id.
    """

    plan: Callable[[RoundInput], Plan]
    now: RoundInput
    jobs: dict[int, QueuedJob]
    coming: deque[QueuedJob]
    rng: np.random.Generator
    tenancy: Tenancy = NO_TENANCY
    even: EvenCluster = field(default_factory=EvenCluster)
    isolated: Mapping[int, float] = field(default_factory=dict)
    starts: dict[int, float] = field(default_factory=dict)
    ends: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        options = [job.seen.spec.options for job in self.jobs.values()]
        self._may_block = bool(self.tenancy.usage)
        self._may_block |= any(given.after or given.task.at_once for given in options)

    def run(self, plan: Plan, asked: Set[int]) -> None:
        """Simulate from a first plan until the given jobs end, at infinity after `MOST_PLANS`."""
        rounds, step, changed = 0, 0, False
        for _ in range(MOST_PLANS):
            most = self._rounds_to_change()
            # What a window has held back starts once that ends, not in the rounds before.
            before, step = 0 if changed else step, min(max(1, int(rounds * GROWTH)), most)
            changed = step == most
            rounds += step
            self._begin(plan, before)
            self._carry_out(plan, step)
            if asked <= self.ends.keys():
                return
            plan = self.plan(self.now)
        for job_id in asked - self.ends.keys():
            self.starts.setdefault(job_id, math.inf)
            self.ends[job_id] = math.inf

    def _rounds_to_change(self) -> int:
        """Return the rounds until the next window begins or ends."""
        now = self.now
        changes = (at for w in now.windows for at in (w.begin_seconds, w.end_seconds))
        wait = min((at - now.clock_seconds for at in changes if at > now.clock_seconds), default=0)
        return math.ceil(wait / now.round_seconds) if wait else sys.maxsize

    def _begin(self, plan: Plan, before: int) -> None:
        """Draw the first starts of a plan's jobs from the rounds since the previous plan."""
        now = self.now
        for job_id in plan.placement:
            if job_id not in self.starts:
                early = int(self.rng.integers(before)) if before else 0
                self.starts[job_id] = now.clock_seconds - early * now.round_seconds

    def _carry_out(self, plan: Plan, rounds: int) -> None:
        """Carry out a plan for some rounds.

        At the round after a job ends, its GPUs go to the next jobs in line.
        """
        clock, round_seconds = self.now.clock_seconds, self.now.round_seconds
        until = clock + rounds * round_seconds
        paces: dict[int, _Pace] = {}
        held: dict[int, tuple[int, ...]] = {}
        used: list[tuple[str, float]] = []
        ending: list[tuple[float, int]] = []

        def launch(job_id: int, gpus: tuple[int, ...], at: float) -> None:
            self.starts.setdefault(job_id, at)
            seen, there = self.jobs[job_id].seen, self.now.inventory.allocation(gpus)
            restart = seen.throughput.restart(there, self.now.restart_seconds)
            paces[job_id] = _Pace(at, 0.0 if seen.gpus == gpus else restart)
            held[job_id] = gpus

        def ends(job_id: int) -> None:
            heapq.heappush(ending, (self._end(job_id, held[job_id], paces[job_id]), job_id))

        for job_id, gpus in plan.placement.items():
            launch(job_id, gpus, clock)
        other = {job_id: pair[1 - n] for pair in plan.pairs for n, job_id in enumerate(pair)}
        for first, second in plan.pairs:
            self._pair(first, second, held[first], paces)
        for job_id in plan.placement:
            ends(job_id)
        line = {job: self.jobs[job].seen for job in plan.order if job not in held}
        taken = set(chain.from_iterable(held.values()))
        closed = self.now.closed.union(*self.now.reserved.values())
        free = [g for g in range(self.now.inventory.gpus) if g not in taken and g not in closed]
        ended: list[ActiveJob] = []
        while ending and ending[0][0] <= until:
            end, job_id = heapq.heappop(ending)
            self.ends[job_id] = end
            gpus, seen = held.pop(job_id), self.jobs.pop(job_id).seen
            if other.get(job_id) not in held:
                free += (gpu for gpu in gpus if gpu not in closed)
            used.append((seen.spec.tenant, len(gpus) * (end - paces[job_id].since)))
            ended.append(seen)
            boundary = clock + math.ceil((end - clock) / round_seconds) * round_seconds
            if boundary >= until or (ending and ending[0][0] <= boundary):
                continue
            for waiting, job in list(line.items()):
                taken = set(self._fit(job, free))
                if taken:
                    del line[waiting]
                    launch(waiting, tuple(sorted(taken)), boundary)
                    ends(waiting)
                    free = [gpu for gpu in free if gpu not in taken]
        used += (
            (self.jobs[job_id].seen.spec.tenant, len(gpus) * (until - paces[job_id].since))
            for job_id, gpus in held.items()
        )
        quotas = self.tenancy.usage
        self.tenancy = self.tenancy.after(until, sum_gpu_seconds(used, quotas), ())
        self._observe(until, rounds, paces, held, ended)
        self.now = replace(self.now, memory=plan.memory or self.now.memory)

    def _end(self, job_id: int, gpus: Sequence[int], pace: _Pace) -> float:
        job = self.jobs[job_id]
        there = self._held(job.seen, gpus)
        seconds = job.length * compute_slowdown(job.seen, there)
        return pace.end(job.held(seconds, self.now.round_seconds, pace.late))

    def _held(self, job: ActiveJob, gpus: Sequence[int]) -> Allocation | None:
        """Return the allocation that a job holds; None without GPUs.

        Jobs in line take any free GPUs. If a job cannot run on as many nodes as its GPUs span, it
        is simulated on the same number of GPUs on the fewest nodes.
        """
        if not gpus:
            return None
        found = self.now.inventory.allocation(gpus)
        if job.throughput.can_run(job.spec, job.belief.batch_size, found):
            return found
        return job.on_fewest_nodes(found)

    def _pair(self, first: int, second: int, gpus: Sequence[int], paces: dict[int, _Pace]) -> None:
        """Slow down two jobs on the same GPUs until the first of them ends."""
        for job_id, beside_id in ((first, second), (second, first)):
            job, beside = self.jobs[job_id].seen, self.jobs[beside_id].seen
            there = self._held(job, gpus) or job.own
            slower = job.rate(there) / max(job.shared_rate(beside, there), LEAST_RATE)
            paces[job_id] = replace(paces[job_id], slower=slower)
        end, sooner = min((self._end(job, gpus, paces[job]), job) for job in (first, second))
        later = second if sooner == first else first
        paces[later] = replace(paces[later], until=end)

    def _fit(self, job: ActiveJob, free: Sequence[int]) -> Sequence[int]:
        """Return the first free GPUs that fit a job; none if too few are free."""
        inventory = self.now.inventory
        if len(inventory.pools) == 1:
            return free[: job.gang] if job.gang <= len(free) else ()
        for allocation in job.choices:
            for number in inventory.pools_of.get(allocation.gpu_type, ()):
                there = [gpu for gpu in free if inventory.pool(gpu) == number]
                if allocation.gpus <= len(there):
                    return there[: allocation.gpus]
        return ()

    def _observe(
        self,
        clock: float,
        rounds: int,
        paces: Mapping[int, _Pace],
        held: Mapping[int, tuple[int, ...]],
        ended: Sequence[ActiveJob],
    ) -> None:
        """Update jobs and policy input after some rounds."""
        now = self.now
        for job_id, job in self.jobs.items():
            gpus = held.get(job_id, ())
            if gpus:
                whole = rounds + (job.seen.lease_rounds if job.seen.gpus == gpus else 0)
                there = self._held(job.seen, gpus)
                pace = paces[job_id]
                ran = job.trained(pace.worked(clock), now.round_seconds, pace.late)
                ran = min(ran, job.length * compute_slowdown(job.seen, there))
                self.jobs[job_id] = job.after(ran, gpus, whole, there)
            elif job.seen.gpus:
                self.jobs[job_id] = job.after(0.0, (), 0)
        arrived = []
        while self.coming and self.coming[0].seen.spec.arrival_seconds <= clock:
            job = self.coming.popleft()
            arrived.append(job.seen.spec)
            self.jobs[job.seen.job_id] = job
        coming = ClusterChange(clock, make_arrivals(arrived), self.even.gpus)
        known = {spec.job_id: self.isolated[spec.job_id] for spec in arrived}
        self.even, even_ends = self.even.after([coming], known)
        self.now = replace(
            now,
            clock_seconds=clock,
            jobs=tuple(self._eligible_jobs()),
            fair_finishes={**now.fair_finishes, **even_ends, **self.even.project()},
            arrivals=add_arrivals(now.arrivals, arrived),
            ended_gpu_seconds=(
                *now.ended_gpu_seconds,
                *(job.belief.run_seconds * job.gang for job in ended),
            ),
        )

    def _eligible_jobs(self) -> Iterator[ActiveJob]:
        """Return the jobs that neither another job nor a quota blocks."""
        seen = {job_id: job.seen for job_id, job in self.jobs.items()}
        waits: Collection[int] = ()
        if self._may_block:
            holding = {job_id for job_id, job in seen.items() if job.gpus}
            beliefs = {job_id: job.belief for job_id, job in seen.items()}
            waits = find_blocked_jobs(beliefs, holding, (), self.tenancy)
        return (job for job_id, job in seen.items() if job_id not in waits)
