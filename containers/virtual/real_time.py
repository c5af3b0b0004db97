"""A virtual cluster in real time, for services without machines.

Jobs behave as in containers (`containers.virtual.faithful`). Rounds take real time, divided by the
clock's speed.
"""

import time
from collections.abc import Callable, Sequence

from containers.runtime import ResumePoint, Terms
from containers.virtual.faithful import ClusterState, FaithfulCluster
from containers.virtual.truth import GroundTruth
from predictor.job import JobSpec


class ScaledClock:
    """A run's clock that runs `speed` times as fast as the monotonic clock `now`."""

    def __init__(
        self,
        clock_seconds: float,
        speed: float,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.speed = speed
        self._now, self._sleep = now, sleep
        self._clock, self._at = clock_seconds, now()

    def now(self) -> float:
        """Return the run's clock."""
        return self._clock + (self._now() - self._at) * self.speed

    def wait_for(self, clock_seconds: float) -> None:
        """Wait until the run's clock reaches a time."""
        while (left := (clock_seconds - self.now()) / self.speed) > 0.0:
            self._sleep(left)

    def reach(self, clock_seconds: float) -> None:
        """Wait until a time; if it is long past, set the clock back so that no round is skipped."""
        self.wait_for(clock_seconds)
        if (self.now() - clock_seconds) / self.speed > LATE_SECONDS:
            self._clock, self._at = clock_seconds, self._now()


LATE_SECONDS = 1.0
"""Delay of a round beyond which the clock is set back. An engineering choice."""


class RealTimeCluster(FaithfulCluster):
    """A `Runtime` for a service without machines, with jobs unknown in advance.

    Without a pace it replays recorded rounds: an idle round ends at the `idle_until` of `advance`.
    A `state` continues an earlier cluster; `made` makes the ground truth of a job.
    """

    def __init__(
        self,
        made: Callable[[JobSpec], GroundTruth],
        terms: Terms,
        state: ClusterState | None = None,
    ) -> None:
        self.pace: ScaledClock | None = None
        self.made, self._own = made, dict[int, GroundTruth]()
        super().__init__(self._own, terms, ResumePoint())
        if state:
            self._clock = state.clock_seconds
            self._jobs, self._leases = {**state.jobs}, {**state.leases}
            self._own |= {job_id: job.truth for job_id, job in state.jobs.items()}

    def admit(self, jobs: Sequence[JobSpec]) -> None:
        """See `Runtime.admit`."""
        self._own |= {spec.job_id: self.made(spec) for spec in jobs}
        super().admit(jobs)

    def advance(self, idle_until: float | None) -> None:
        """See `Runtime.advance`; an arrival ends an idle round early."""
        busy, end = bool(self._leases), self._clock + self._terms.round_seconds
        super().advance(None if self.pace else idle_until)
        if not self.pace:
            return
        if busy:
            self.pace.reach(self._clock)
        else:
            until = end if idle_until is None else min(end, idle_until)
            self.pace.wait_for(until)
            self._clock = self.pace.now()

    def reap(self, job_ids: Sequence[int]) -> None:
        """See `Runtime.reap`."""
        super().reap(job_ids)
        for job_id in job_ids:
            del self._own[job_id]
