"""A virtual cluster in real time whose containers crash."""

from random import Random

from containers.runtime import ContainerEvent, EventKind
from containers.virtual.real_time import RealTimeCluster

SHARE = 0.05
"""Share of the leases of a round that end in a crash."""


class CrashingCluster(RealTimeCluster):
    """Containers crash at times drawn by job and clock, so repeated rounds repeat the crashes."""

    def advance(self, idle_until: float | None) -> None:
        """See `Runtime.advance`."""
        began, drawn = self._clock, dict[int, float]()
        for job_id in sorted(self._leases):
            rng = Random(f"{job_id}/{began}")
            if rng.random() < SHARE:
                drawn[job_id] = rng.random() * self._terms.round_seconds
        # One lease stays: without any, the round would be idle, and could end at once.
        crashed = {job_id: self._leases.pop(job_id) for job_id in [*drawn][: len(self._leases) - 1]}
        super().advance(idle_until)
        for job_id, lease in crashed.items():
            job, lasts = self._jobs[job_id], min(drawn[job_id], self._clock - began)
            lost = min(lease.lost_seconds, lasts)
            lasts = lost + job.train(lasts - lost, self._terms.throughputs)
            kind = EventKind.FINISHED if job.done else EventKind.CRASHED
            reason = "" if job.done else "exit code 1"
            event = ContainerEvent(job_id, kind, began + lasts, lease.gpus, reason)
            self._finished.append(event)
            self._ran.append(job_id)
        self._ran.sort()
