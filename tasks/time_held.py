"""Time limits: how long jobs have held GPUs, and which jobs have reached their limit."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from containers.runtime import ContainerEvent, EventKind, Observation
from predictor.job import JobSpec


@dataclass(frozen=True, slots=True)
class TimeHeld:
    """The time for which active jobs with a limit (`JobSpec.max_seconds`) have held GPUs.

    The scheduler measures it, as jobs could misreport their run time. `seconds` is the total
    length of a job's leases up to the last round boundary, restarts included.
    """

    clock_seconds: float = 0.0
    seconds: Mapping[int, float] = field(default_factory=dict)

    def after(self, seen: Observation, holders: Iterable[JobSpec]) -> "TimeHeld":
        """Return the times after a round's observation, without ended jobs.

        `holders` are the jobs that held GPUs in the round.
        """
        seconds = dict(self.seconds)
        for spec in holders:
            if spec.max_seconds:
                seconds[spec.job_id] = self._held(seen, spec)
        for job_id in seen.ended:
            seconds.pop(job_id, None)
        return TimeHeld(seen.clock_seconds, seconds)

    def _held(self, seen: Observation, holder: JobSpec) -> float:
        return self.seconds.get(holder.job_id, 0.0) + seen.clock_seconds - self.clock_seconds

    def is_over(self, seen: Observation, holder: JobSpec) -> bool:
        """Return whether a job that held GPUs in the round has reached its limit."""
        return 0.0 < holder.max_seconds <= self._held(seen, holder)

    def give_up(
        self, seen: Observation, holders: Mapping[int, tuple[JobSpec, tuple[int, ...]]]
    ) -> Observation:
        """Add the end of jobs that reached their limit to an observation.

        `holders` are the jobs that held GPUs in the round, with these GPUs, by job id.
        """
        held = self.after(seen, (spec for spec, _ in holders.values())).seconds
        free = {event.job_id for event in seen.finished}
        ends = tuple(
            ContainerEvent(
                job_id,
                EventKind.FAILED,
                seen.clock_seconds,
                () if job_id in free else gpus,
                f"held GPUs for {held[job_id]:,.0f} s, and its max_seconds are "
                f"{spec.max_seconds:,.0f}",
            )
            for job_id, (spec, gpus) in holders.items()
            if job_id in held and held[job_id] >= spec.max_seconds
        )
        return replace(seen, finished=(*seen.finished, *ends)) if ends else seen
