"""The queues of the published Tiresias simulator, from event to event.

What is known of it, written anew: arrivals, ends, falls and promotions happen at whole
seconds; at each, jobs are taken queue by queue as they stand, whoever fits runs, and
those that wait go behind those that run. It has two peculiarities, each of which can be
mended here to see what it accounts for.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

THRESHOLDS = (3_250, 7_200)


class Rules(NamedTuple):
    """How it goes about it.

    Attributes:
        late: To find when a job must next be looked at, a threshold in GPU-seconds is held
            against its run time in seconds, so that gangs fall late.
        as_joined: Those that wait stand as they joined the queue; else by arrival.
        promote: Times the run time that a job waits before it is promoted; 0 for never.
    """

    late: bool = True
    as_joined: bool = True
    promote: int = 0


class Outcome(NamedTuple):
    mean_jct: float
    makespan: float
    preemptions: int
    promotions: int


@dataclass
class Job:
    """A job and where it stands; `executed` and `waited` count from its last promotion."""

    gpus: int
    arrival: int
    seconds_left: int
    executed: int = 0
    waited: int = 0
    queue: int = 0
    runs: bool = False

    @property
    def service(self) -> int:
        return self.executed * self.gpus

    def promotion_in(self, promote: int) -> float:
        """Seconds until it is promoted if it waits until then."""
        if self.runs or not (promote and self.queue and self.executed):
            return math.inf
        return self.executed * promote - self.waited

    def fall_in(self, late: bool) -> float:
        """Seconds until its next check for a demotion if it runs until then."""
        if not self.runs or self.queue == len(THRESHOLDS):
            return math.inf
        threshold = THRESHOLDS[self.queue]
        if late:
            return (threshold - self.executed) // self.gpus
        return max(1, math.ceil(threshold / self.gpus) - self.executed)


class Cluster:
    """The queues of a cluster."""

    def __init__(self, gpus: int, rules: Rules) -> None:
        self.gpus = gpus
        self.rules = rules
        self.queues: tuple[list[Job], ...] = ([], [], [])
        self.preemptions = 0
        self.promotions = 0

    @property
    def jobs(self) -> list[Job]:
        return [job for queue in self.queues for job in queue]

    def next_end(self) -> float:
        return min((job.seconds_left for job in self.jobs if job.runs), default=math.inf)

    def next_look(self) -> float:
        waits = [job.promotion_in(self.rules.promote) for job in self.jobs]
        falls = [job.fall_in(self.rules.late) for job in self.jobs]
        return min((wait for wait in (*waits, *falls) if wait >= 0), default=math.inf)

    def move(self, job: Job, queue: int) -> None:
        self.queues[job.queue].remove(job)
        self.queues[queue].append(job)
        job.queue = queue

    def let_pass(self, seconds: int) -> list[Job]:
        """Let time pass; returns those that ended."""
        ended = []
        for job in self.jobs:
            if job.runs:
                job.seconds_left -= seconds
                job.executed += seconds
                if not job.seconds_left:
                    self.queues[job.queue].remove(job)
                    ended.append(job)
                elif job.queue < len(THRESHOLDS) and job.service >= THRESHOLDS[job.queue]:
                    self.move(job, job.queue + 1)
            elif job.executed:
                job.waited += seconds
                if job.promotion_in(self.rules.promote) <= 0:
                    job.executed = job.waited = 0
                    self.move(job, 0)
                    self.promotions += 1
        return ended

    def schedule(self) -> None:
        """Decide which jobs run."""
        free = self.gpus
        for queue in self.queues:
            if not self.rules.as_joined:
                queue.sort(key=lambda job: (not job.runs, job.arrival))
            for job in queue:
                fits = job.gpus <= free
                free -= job.gpus if fits else 0
                self.preemptions += job.runs and not fits
                job.runs = fits
            queue.sort(key=lambda job: not job.runs)


def simulate(jobs: Iterable[Job], gpus: int, rules: Rules) -> Outcome:
    """Run jobs to their end; no two arrive at once."""
    coming = sorted(jobs, key=lambda job: job.arrival, reverse=True)
    cluster, clock, jcts = Cluster(gpus, rules), 0, list[int]()
    while coming or cluster.jobs:
        arrival = coming[-1].arrival - clock if coming else math.inf
        seconds = int(min(arrival, cluster.next_end(), cluster.next_look()))
        clock += seconds
        jcts += [clock - job.arrival for job in cluster.let_pass(seconds)]
        if seconds == arrival:
            cluster.queues[0].append(coming.pop())
        cluster.schedule()
    return Outcome(sum(jcts) / len(jcts), clock, cluster.preemptions, cluster.promotions)
