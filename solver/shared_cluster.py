"""Simulate an equally shared cluster of several GPU types, round by round, beside the schedule.

Gavel (OSDI '20) measures finish-time fairness against a cluster that gives each active job 1/n of
every GPU type by Gavel's round-based mechanism: each GPU type goes to the fitting gangs with the
highest ratio of share to time received since shares were last dealt. When a job ends, the others
get more, so all jobs can meet their finish times together. A fluid model with the same shares would
differ: where gangs do not fit, small ones go first and end a fifth earlier than in the fluid model.
Every arrival projects the finish times anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import NamedTuple

import numpy as np

from predictor.arrays import Floats, Ints
from predictor.rows import from_json, to_json
from solver.bidding import Outlook
from solver.plan import Situation

DEALT = 6
"""Minimum rounds between dealings of shares: Gavel's 1,920 s in its rounds of 360 s."""

LONGER = 0.003
"""Bound on effort: simulated rounds lengthen by this share of the time ahead. Not swept."""

MANY = 300
"""Bound on effort: with more jobs than this, rounds lengthen in proportion. Not swept."""

DIGITS = 7
"""Decimals kept of rounds and speeds, a numerical tolerance."""


class Sharer(NamedTuple):
    """A job in the shared cluster.

    Attributes:
        arrival: Clock at its arrival, in seconds.
        left: Work left, in seconds on its fastest allocation.
        gpus: Gang size.
        fair: Clock at its projected finish, in seconds.
        came: Rounds simulated before it arrived.
        speeds: Speed by type, relative to its fastest allocation; 0 where it cannot run.
        whole: Part of a round, by type, that whole steps fill.
        owed: Deficit by type when shares were last dealt, in rounds.
        received: Rounds received by type since then, plus one half.
    """

    job_id: int
    arrival: float
    left: float
    gpus: float
    fair: float
    came: int
    speeds: tuple[float, ...]
    whole: tuple[float, ...]
    owed: tuple[float, ...]
    received: tuple[float, ...]

    @classmethod
    def new(
        cls,
        job_id: int,
        arrival: float,
        left: float,
        gpus: float,
        speeds: Sequence[float],
        whole: Sequence[float],
    ) -> "Sharer":
        """Return a job that arrives."""
        none, half = ((part,) * len(speeds) for part in (0.0, 0.5))
        return cls(job_id, arrival, left, gpus, 0.0, 0, tuple(speeds), tuple(whole), none, half)

    def also_at(self, speeds: Sequence[float], whole: Sequence[float]) -> "Sharer":
        """Return the job with speeds on types that came into service.

        The new speeds may be relative to another type than the present ones.
        """
        if all(self.speeds) or self.speeds == tuple(speeds):
            return self
        pairs = list(zip(self.speeds, speeds, strict=True))
        scale = next((mine / now for mine, now in pairs if mine and now), 1.0)
        return self._replace(
            speeds=tuple(mine or round(scale * now, DIGITS) for mine, now in pairs),
            whole=tuple(
                part if mine else new
                for mine, part, new in zip(self.speeds, self.whole, whole, strict=True)
            ),
        )


@dataclass(frozen=True)
class SharedCluster:
    """An equally shared cluster at some time.

    Attributes:
        rounds: Rounds simulated so far.
        since: Rounds since shares were dealt.
        stale: Whether a job came or ended since then.
        sharers: Its jobs, including active jobs that have already ended here.
    """

    clock_seconds: float = 0.0
    types: tuple[str, ...] = ()
    rounds: int = 0
    since: int = 0
    stale: bool = True
    sharers: tuple[Sharer, ...] = ()

    @classmethod
    def read(cls, memory: str, types: tuple[str, ...]) -> "SharedCluster":
        """Return the cluster in a policy's memory, on the GPU types in service."""
        return from_json(cls, memory).on_types(types)

    def on_types(self, types: tuple[str, ...]) -> "SharedCluster":
        """Return the cluster with these types in service.

        Jobs have received no time and have no speed on new types. Time received on removed types
        is forgotten.
        """
        if types == self.types:
            return self
        column = {kind: number for number, kind in enumerate(self.types)}

        def of(values: tuple[float, ...], new: float) -> tuple[float, ...]:
            return tuple(values[column[kind]] if kind in column else new for kind in types)

        sharers = tuple(
            job._replace(
                speeds=of(job.speeds, 0.0),
                whole=of(job.whole, 1.0),
                owed=of(job.owed, 0.0),
                received=of(job.received, 0.5),
            )
            for job in self.sharers
        )
        return replace(self, types=types, stale=True, sharers=sharers)

    def joined(
        self,
        arrivals: Sequence[Sharer],
        active: set[int],
        capacities: Sequence[int],
        round_seconds: float,
    ) -> "SharedCluster":
        """Return the cluster after arrivals, with finish times projected anew.

        `active` are the ids of the active jobs, arrivals included; other jobs are forgotten when
        they end. `capacities` are the GPUs in service by type.
        """
        cluster = self
        arrivals = sorted(arrivals, key=lambda job: (job.arrival, job.job_id))
        for arrival, jobs in groupby(arrivals, key=lambda job: job.arrival):
            if arrival > cluster.clock_seconds:
                cluster = _Play(cluster, capacities, round_seconds).until(arrival)
            new = [job._replace(came=cluster.rounds) for job in jobs]
            cluster = replace(cluster, stale=True, sharers=(*cluster.sharers, *new))
        ends = _Play(cluster, capacities, round_seconds).until(np.inf)
        sharers = tuple(
            job._replace(fair=end.fair)
            for job, end in zip(cluster.sharers, ends.sharers, strict=True)
            if job.left > 0.0 or job.job_id in active
        )
        return replace(cluster, sharers=sharers)


def simulate_shared_cluster(
    situation: Situation, ahead: Outlook, type_of: Ints
) -> tuple[SharedCluster, str]:
    """Return the cluster with all active jobs, and its memory if it changed.

    A job that is new to the cluster starts there with all its work, even if it has run already.
    `type_of` is the number of each row's GPU type, shape (rows,).
    """
    inventory = situation.inventory
    cluster = SharedCluster.read(situation.memory, inventory.types)
    known = {sharer.job_id for sharer in cluster.sharers}
    active = {job.job_id for job in situation.jobs}
    if known >= active:
        return cluster, ""
    speeds = np.zeros((len(situation.jobs), len(inventory.types)))
    speeds[ahead.job_of, type_of] = (ahead.left / ahead.here).round(DIGITS)
    rates = [
        situation.jobs[job].rate(found)
        for job, found in zip(ahead.job_of.tolist(), ahead.allocations, strict=True)
    ]
    steps = np.array(rates) * situation.round_seconds
    whole = np.ones(speeds.shape)
    parts = np.where(steps >= 1.0, np.floor(steps) / steps, 1.0)
    whole[ahead.job_of, type_of] = parts.round(DIGITS)
    firsts = np.flatnonzero(np.diff(ahead.job_of, prepend=-1))
    arrivals = [
        Sharer.new(
            job.job_id,
            job.spec.arrival_seconds,
            job.belief.reference_seconds + left,
            gpus,
            speed,
            part,
        )
        for job, left, speed, part, gpus in zip(
            situation.jobs,
            ahead.left[firsts].tolist(),
            speeds.tolist(),
            whole.tolist(),
            ahead.gangs[firsts].tolist(),
            strict=True,
        )
        if job.job_id not in known
    ]
    rows = zip(speeds.tolist(), whole.tolist(), strict=True)
    now = dict(zip((job.job_id for job in situation.jobs), rows, strict=True))
    sharers = tuple(
        sharer.also_at(*now[sharer.job_id]) if sharer.job_id in now else sharer
        for sharer in cluster.sharers
    )
    cluster = replace(cluster, sharers=sharers)
    capacities = list(inventory.capacities.values())
    cluster = cluster.joined(arrivals, active, capacities, situation.round_seconds)
    return cluster, to_json(cluster)


class _Play:
    """A forward simulation of the cluster, as arrays over jobs and types (fields of `Sharer`)."""

    def __init__(
        self, cluster: SharedCluster, capacities: Sequence[int], round_seconds: float
    ) -> None:
        jobs, shape = cluster.sharers, (len(cluster.sharers), len(cluster.types))
        self.cluster, self._round_seconds = cluster, round_seconds
        self._capacities = np.array(capacities, dtype=float)
        self.left = np.array([job.left for job in jobs])
        self.fair = np.array([job.fair for job in jobs])
        self._came = np.array([job.came for job in jobs])
        self._longer = LONGER * max(1.0, len(jobs) / MANY)
        self._gangs = np.array([job.gpus for job in jobs])
        self._speeds, self._whole, self.owed, self.received = (
            np.fromiter(chain.from_iterable(rows), float, shape[0] * shape[1]).reshape(shape)
            for rows in (
                (job.speeds for job in jobs),
                (job.whole for job in jobs),
                (job.owed for job in jobs),
                (job.received for job in jobs),
            )
        )

    def until(self, end: float) -> SharedCluster:
        """Return the cluster at the end of the round in which `end` is reached.

        Sets the finish times of jobs that end before. At infinity all jobs have one: jobs whose
        gangs do not fit the nodes in service wait, and end as if each ran alone.
        """
        begun = clock = self.cluster.clock_seconds
        rounds, since, stale = self.cluster.rounds, self.cluster.since, self.cluster.stale
        there = np.flatnonzero(self.left > 0.0)
        share = self._shares(there)
        while there.size and clock < end:
            length = max(self._round_seconds, min(self._longer * (clock - begun), end - clock))
            if stale and (since >= DEALT or not rounds):
                present = np.minimum(since, rounds - self._came[there])[:, None]
                self.owed[there] += share * present - (self.received[there] - 0.5)
                self.received[there] = 0.5
                since, stale = 0, False
            pace, kinds = self._chosen(there, share, rounds)
            if not pace.any():  # no gang fits the nodes in service
                if end == np.inf:
                    self.fair[there], self.left[there] = clock + self.left[there], 0.0
                break
            needs = np.divide(
                self.left[there], pace, out=np.full(len(pace), np.inf), where=pace > 0
            )
            ran = np.where(needs <= length, needs, length * self._whole[there, kinds])
            ran *= pace > 0.0
            self.received[there, kinds] += ran / length
            done = needs <= length
            self.fair[there[done]] = clock + needs[done]
            self.left[there] = np.where(done, 0.0, self.left[there] - pace * ran)
            clock += float(ran.max())
            rounds, since = rounds + 1, since + 1
            if done.any():
                there, stale = there[~done], True
                share = self._shares(there)
        sharers = tuple(
            job._replace(left=left, fair=fair, owed=tuple(owed), received=tuple(received))
            for job, left, fair, owed, received in zip(
                self.cluster.sharers,
                self.left.tolist(),
                self.fair.tolist(),
                self.owed.round(DIGITS).tolist(),
                self.received.round(DIGITS).tolist(),
                strict=True,
            )
        )
        return replace(
            self.cluster,
            clock_seconds=max(clock, end) if end < np.inf else clock,
            rounds=rounds,
            since=since,
            stale=stale,
            sharers=sharers,
        )

    def _shares(self, there: Ints) -> Floats:
        even = self._capacities / (len(there) * self._gangs[there, None])
        within: Floats = even / np.maximum(1.0, even.sum(axis=1, keepdims=True))
        return within

    def _chosen(self, there: Ints, share: Floats, number: int) -> tuple[Floats, Ints]:
        """Choose the jobs that run in a round; return their speeds (0 if waiting) and types.

        Types take turns at being filled first.
        """
        speeds, owed, gangs = self._speeds[there], self.owed[there], self._gangs[there]
        first = share / self.received[there]
        pace, kinds = np.zeros(len(there)), np.zeros(len(there), dtype=np.int64)
        types = len(self._capacities)
        for kind in range(number, number + types):
            kind %= types
            room = self._capacities[kind]
            some = np.flatnonzero((pace == 0.0) & (speeds[:, kind] > 0.0))
            some = some[np.lexsort((-owed[some, kind], -first[some, kind]))]
            while some.size and room > 0.0:
                needed = np.cumsum(gangs[some])
                fit = int(np.searchsorted(needed, room, side="right"))
                pace[some[:fit]], kinds[some[:fit]] = speeds[some[:fit], kind], kind
                room -= float(needed[fit - 1]) if fit else 0.0
                some = some[fit:]
                some = some[gangs[some] <= room]
        return pace, kinds
