"""The evenly shared cluster: when would each job have ended there?

It is the yardstick of fairness. A fluid gets the arrivals of the run. All jobs present in it train
at once, each at the rate r_j of its isolated speed until it ends there:

    r_j = min(1, B_j θ),  with θ the largest for which Σ_j g_j r_j ≤ G

With equal budgets that is r = min(1, G / Σ g), processor sharing among gangs. A schedule that
ends each job no later than the fluid does exists on one server with known run times (Friedman and
Henderson, Fairness and efficiency in web server protocols, SIGMETRICS 2003), so the yardstick does
not promise more than a cluster has. It depends on the workload and the cluster alone, not on the
policy; and a job's end here depends only on jobs that arrived before that end.

All jobs of a budget train at the same rate, so they end in the order of their run times left. The
budgets of at least 1 / θ train at full speed and the others in proportion to their budgets, so one
clock of seconds at full speed and one virtual clock, which advances by θ per second, say when each
budget's next job ends. An event changes θ, and moves the budgets that 1 / θ passes from one clock
to the other. It costs O(log n), and as much for each budget that moves. Few move, as a gang of g
GPUs changes θ by g / G of it, unless the gang is a large part of the cluster.
"""

import heapq
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

ABSENT = 0.0
"""Budget of a job that is kept back: it gets no service and takes none from others."""

UNKNOWN = 1e12
"""Isolated run time of a job that has no forecast yet, in seconds: longer than any job runs, and
finite, because snapshots are JSON."""

UNITS = 2.0**200
"""Units of a budget in which gangs × budgets are added up as whole numbers. Such sums are exact, so
no error is left behind by a large budget that goes."""


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
        self, changes: Iterable[ClusterChange], seconds: Mapping[int, float]
    ) -> tuple["EvenCluster", dict[int, float]]:
        """Return the cluster after changes, and the ends until then by job id.

        `seconds` are isolated run times by job id, of all jobs that arrive, and of others if they
        changed. A job that has already trained for longer ends at once.
        """
        service = _Service(self, seconds)
        for change in changes:
            service.carry_out(change, seconds)
        return service.stop(), service.ends

    def measure_service(self, job_id: int) -> float:
        """Return for how many seconds a job that is present has trained."""
        job = self.jobs[job_id]
        return self.clocks[job.budget] - job.began

    def project(self, asked: Iterable[int] | None = None) -> dict[int, float]:
        """Return when each job present will end if no other arrives; never if it is kept back.

        Jobs that end after all of `asked` may be infinite.
        """
        awaited = None if asked is None else {*asked} & self.jobs.keys()
        found = dict.fromkeys(self.jobs, math.inf)
        if awaited != set():
            service = _Service(self, {})
            service.run_until(math.inf, awaited)
            found |= service.ends
        return found


@dataclass(slots=True)
class _Side:
    """The budgets that train at full speed, or those that share what these leave.

    Attributes:
        rate: Advance of its clock per second: 1, or θ.
        clock: Seconds of training at full speed, or per unit of budget.
        ends: Heap of readings of the clock: of each budget, that at which its next job ends, with
            the budget and the number of the entry. Entries may be outdated.
        edge: Heap of its budgets, the closest to the other side first, so negative if they share.
            Budgets may have left.
    """

    shares: bool
    rate: float = 1.0
    clock: float = 0.0
    ends: list[tuple[float, float, int]] = field(default_factory=list)
    edge: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Peers:
    """The jobs of a budget, which all train at the same rate.

    Attributes:
        side: The side whose clock drives theirs.
        lag: Reading of their clock when that of the side is 0.
        gang: GPUs of all of them.
        queue: Heap of the readings of their clock at which they end, with their ids. Entries may
            be outdated.
        entry: Number of their valid entry among the ends of their side.
    """

    budget: float
    side: _Side
    lag: float
    gang: int = 0
    queue: list[tuple[float, int]] = field(default_factory=list)
    entry: int = -1

    @property
    def pace(self) -> float:
        """Advance of their clock relative to that of their side."""
        return self.budget if self.side.shares else 1.0

    @property
    def reading(self) -> float:
        """Their clock: the seconds that each of them has trained."""
        return self.lag + self.pace * self.side.clock


class _Service:
    """The even cluster while time passes."""

    def __init__(self, cluster: EvenCluster, seconds: Mapping[int, float]) -> None:
        self.clock, self._gpus = cluster.clock_seconds, cluster.gpus
        self.ends: dict[int, float] = {}
        self._jobs = dict(cluster.jobs)
        self._peers: dict[float, _Peers] = {}
        self._full, self._sharing = _Side(shares=False), _Side(shares=True)
        self._taken, self._demand = 0, 0
        self._entries = count()
        for job_id in seconds.keys() & self._jobs.keys():
            self._jobs[job_id] = self._jobs[job_id]._replace(seconds=seconds[job_id])
        for job_id, job in self._jobs.items():
            peers = self._peers.get(job.budget) or self._find_peers(
                job.budget, cluster.clocks[job.budget]
            )
            peers.gang += job.gpus
            peers.queue.append((job.began + job.seconds, job_id))
        for peers in self._peers.values():
            gang, peers.gang = peers.gang, 0
            self._count(peers, gang)
            heapq.heapify(peers.queue)
            self._schedule(peers)

    def carry_out(self, change: ClusterChange, seconds: Mapping[int, float]) -> None:
        """Let time pass until a change, which then takes effect."""
        for arrival in sorted(change.arrivals, key=lambda job: (job.at_seconds, job.job_id)):
            self.run_until(max(arrival.at_seconds, self.clock))
            self._add(arrival.job_id, arrival.gpus, arrival.budget, seconds[arrival.job_id])
        self.run_until(change.clock_seconds)
        for job_id, budget in change.budgets.items():
            self._move(job_id, budget)
        self._gpus = change.gpus

    def run_until(self, end: float, awaited: set[int] | None = None) -> None:
        """Let time pass; jobs end on the way. Stop when all awaited jobs have ended."""
        while awaited is None or awaited:
            self._balance()
            at, peers = min(map(self._find_next_end, (self._full, self._sharing)), key=_time_of)
            if (until := min(at, end)) < math.inf:
                for side in (self._full, self._sharing):
                    if side.rate < math.inf:
                        side.clock += side.rate * (until - self.clock)
                self.clock = until
            if peers is None or at > end:
                return
            _, job_id = peers.queue[0]
            self.ends[job_id] = self.clock
            self._remove(job_id)
            if awaited:
                awaited.discard(job_id)

    def stop(self) -> EvenCluster:
        """Return the cluster now."""
        clocks = {budget: peers.reading for budget, peers in self._peers.items()}
        return EvenCluster(self.clock, self._gpus, clocks, self._jobs)

    def _add(
        self, job_id: int, gpus: int, budget: float, seconds: float, served: float = 0.0
    ) -> None:
        """Add a job that has already received some service, in seconds."""
        peers = self._find_peers(budget)
        began = peers.reading - served
        self._jobs[job_id] = PresentJob(gpus, budget, began, seconds)
        self._count(peers, gpus)
        heapq.heappush(peers.queue, (began + seconds, job_id))
        self._schedule(peers)

    def _remove(self, job_id: int) -> None:
        job = self._jobs.pop(job_id)
        peers = self._peers[job.budget]
        self._count(peers, -job.gpus)
        if peers.gang:
            self._schedule(peers)
        else:  # nobody is left: the clock starts anew, exactly
            del self._peers[job.budget]

    def _move(self, job_id: int, budget: float) -> None:
        """Give a job another budget."""
        there = self._jobs.get(job_id)
        if there and there.budget != budget:
            served = self._peers[there.budget].reading - there.began
            self._remove(job_id)
            self._add(job_id, there.gpus, budget, there.seconds, served)

    def _find_peers(self, budget: float, reading: float = 0.0) -> _Peers:
        """Return the jobs of a budget; if there are none, their clock starts from a reading."""
        if (found := self._peers.get(budget)) is None:
            found = self._peers[budget] = _Peers(budget, self._sharing, reading)
            self._join(found, self._sharing, reading)
        return found

    def _join(self, peers: _Peers, side: _Side, reading: float) -> None:
        """Let the clock of a side drive that of a budget, from a reading on."""
        peers.side = side
        peers.lag = reading - peers.pace * side.clock
        if peers.budget != ABSENT:
            heapq.heappush(side.edge, -peers.budget if side.shares else peers.budget)

    def _count(self, peers: _Peers, gpus: int) -> None:
        """Add GPUs to the gangs of a budget."""
        peers.gang += gpus
        if peers.side.shares:
            self._demand += gpus * int(peers.budget * UNITS)
        else:
            self._taken += gpus

    def _schedule(self, peers: _Peers) -> None:
        """Enter when the next job of a budget ends."""
        if peers.budget == ABSENT:
            return
        while True:
            due, job_id = peers.queue[0]
            job = self._jobs.get(job_id)
            if job and job.budget == peers.budget and job.began + job.seconds == due:
                break
            heapq.heappop(peers.queue)
        peers.entry = next(self._entries)
        reading = (due - peers.lag) / peers.pace
        heapq.heappush(peers.side.ends, (reading, peers.budget, peers.entry))

    def _find_next_end(self, side: _Side) -> tuple[float, _Peers | None]:
        """Return when the next job of a side ends, and the jobs of its budget."""
        while side.ends and side.rate > 0.0:
            reading, budget, entry = side.ends[0]
            peers = self._peers.get(budget)
            if peers and peers.entry == entry:
                return self.clock + max(reading - side.clock, 0.0) / side.rate, peers
            heapq.heappop(side.ends)
        return math.inf, None

    def _balance(self) -> None:
        """Find θ, and move the budgets that it puts on the other side."""
        full, sharing = self._full, self._sharing
        sharing.rate = self._find_theta()
        while (peers := self._find_edge(full)) and peers.budget * sharing.rate < 1.0:
            self._transfer(peers, sharing)
        while (peers := self._find_edge(sharing)) and peers.budget * sharing.rate >= 1.0:
            self._transfer(peers, full)
        if sharing.rate == math.inf:
            sharing.clock = 0.0  # drives nothing: a small reading is a precise one

    def _find_theta(self) -> float:
        """Return θ with the budgets as they are on both sides; negative if too many are full."""
        left = float(self._gpus - self._taken)
        if self._demand:
            return left * UNITS / self._demand
        return math.inf if left >= 0.0 else -math.inf

    def _find_edge(self, side: _Side) -> _Peers | None:
        """Return the jobs of the budget that is closest to the other side."""
        while side.edge:
            peers = self._peers.get(abs(side.edge[0]))
            if peers and peers.side is side:
                return peers
            heapq.heappop(side.edge)
        return None

    def _transfer(self, peers: _Peers, side: _Side) -> None:
        """Move a budget to the other side, which changes θ."""
        gang, reading = peers.gang, peers.reading
        self._count(peers, -gang)
        self._join(peers, side, reading)
        self._count(peers, gang)
        self._schedule(peers)
        self._sharing.rate = self._find_theta()


def _time_of(end: tuple[float, _Peers | None]) -> float:
    return end[0]


def find_fair_finishes(
    arrivals: Collection[Arrival], seconds: Mapping[int, float], gpus: int
) -> dict[int, float]:
    """Return when each job of a workload ends in the even cluster, by job id.

    Args:
        arrivals: The jobs.
        seconds: Their isolated run times, by job id.
        gpus: GPUs of the cluster, at least one, which stay the same.
    """
    last = max((job.at_seconds for job in arrivals), default=0.0)
    service = _Service(EvenCluster(gpus=gpus), {})
    service.carry_out(ClusterChange(last, tuple(arrivals), gpus), seconds)
    service.run_until(math.inf)
    return service.ends


def measure_rho(
    finish: float, arrival: float, fair_finish: float, round_seconds: float, restart_seconds: float
) -> float:
    """Return ρ: a job's completion time over that in the even cluster.

    The least that a scheduler of rounds costs is added to the latter: a round and a restart.
    """
    return (finish - arrival) / (fair_finish - arrival + round_seconds + restart_seconds)
