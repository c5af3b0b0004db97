"""A virtual cluster in real time, for services without machines.

Jobs behave as in containers (`containers.virtual.faithful`). Rounds take real time, divided by the
clock's speed.
"""

from collections.abc import Callable, Sequence

from containers.clock import RunClock
from containers.runtime import ResumePoint, Terms
from containers.virtual.faithful import ClusterState, FaithfulCluster
from containers.virtual.truth import GroundTruth
from predictor.job import JobSpec


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
        self.pace: RunClock | None = None
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
            self.pace.reach(self._clock, self._terms.round_seconds)
        else:
            until = end if idle_until is None else min(end, idle_until)
            self.pace.wait_for(until)
            self._clock = self.pace.now()

    def reap(self, job_ids: Sequence[int]) -> None:
        """See `Runtime.reap`."""
        super().reap(job_ids)
        for job_id in job_ids:
            del self._own[job_id]
