"""A virtual cluster in real time, for services without machines.

Jobs behave as in containers (`containers.virtual.faithful`). Rounds last as long as they would, or
less by the factor of a pace.
"""

import time
from collections.abc import Callable, Sequence

from containers.runtime import ResumePoint, Terms
from containers.virtual.faithful import ClusterState, FaithfulCluster
from containers.virtual.truth import GroundTruth
from predictor.job import JobSpec


class ScaledClock:
    """A run's clock that goes faster than the wall's by a factor.

    Args:
        clock_seconds: The run's clock now.
        speed: Seconds of the run in a second.
        now: A monotonic clock, in seconds.
        sleep: Sleeps for some seconds.
    """

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
        """The run's clock."""
        return self._clock + (self._now() - self._at) * self.speed

    def wait_for(self, clock_seconds: float) -> None:
        """Wait until that time."""
        while (left := (clock_seconds - self.now()) / self.speed) > 0.0:
            self._sleep(left)

    def reach(self, clock_seconds: float) -> None:
        """Wait until that time; if it is long past, set the clock back: no round is skipped."""
        self.wait_for(clock_seconds)
        if (self.now() - clock_seconds) / self.speed > LATE_SECONDS:
            self._clock, self._at = clock_seconds, self._now()


LATE_SECONDS = 1.0
"""How late a round may begin without the clock being set back. An engineering choice."""


class RealTimeCluster(FaithfulCluster):
    """A `Runtime` for a service without machines, whose jobs come as it goes.

    Without a pace it repeats what happened: an idle round ends at the time that `advance` is given.

    Args:
        made: Makes the ground truth of a job.
        terms: The terms of the run.
        state: The state to continue from; None for a new run.

    Attributes:
        made: Makes the ground truth of a job.
        pace: The clock to follow; None to repeat.
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
        """See `Runtime.advance`; an idle round ends early at an arrival."""
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
