"""How long jobs have held GPUs: the definition of GPU time, and limits on it.

A lease is held from its launch to its end: the first event that ends it, a preemption, or a move to
other GPUs, as their events report. The view `leases` counts the same from records.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from containers.runtime import ContainerEvent, EventKind, Observation
from predictor.job import JobSpec


@dataclass(frozen=True, slots=True)
class GpuHold:
    """GPUs that a job held for some time.

    Attributes:
        seconds: The time, never negative.
        shared_seconds: Part of it in which another job held the same GPUs.
    """

    gpus: tuple[int, ...]
    seconds: float
    shared_seconds: float = 0.0

    @property
    def gpu_seconds(self) -> float:
        """GPU time; two jobs that share GPUs count half each."""
        return len(self.gpus) * (self.seconds - self.shared_seconds / 2.0)


@dataclass(frozen=True, slots=True)
class TimeHeld:
    """The time for which active jobs have held GPUs.

    The scheduler measures it, as jobs could misreport their run time.

    Attributes:
        clock_seconds: The last round boundary, up to which time is counted.
        seconds: Total length of a job's leases, restarts included, by the id of jobs with a limit
            (`JobSpec.max_seconds`).
        launched: Launches of current leases after that boundary, by job id.
    """

    clock_seconds: float = 0.0
    seconds: Mapping[int, float] = field(default_factory=dict)
    launched: Mapping[int, float] = field(default_factory=dict)

    def measure_round(
        self,
        leases: Mapping[int, tuple[int, ...]],
        finished: Iterable[ContainerEvent],
        until: float,
    ) -> dict[int, GpuHold]:
        """Return what jobs held from the last boundary to the next, `until`, by job id.

        `leases` are the GPUs by job id, `finished` the events that ended leases in between.
        """
        ends: dict[int, float] = {}
        for event in finished:
            ends[event.job_id] = min(event.at_seconds, ends.get(event.job_id, until))
        spans = {
            job_id: (self.launched.get(job_id, self.clock_seconds), ends.get(job_id, until))
            for job_id in leases
        }
        holders: dict[int, list[int]] = {}
        for job_id, gpus in leases.items():
            holders.setdefault(gpus[0], []).append(job_id)
        found = {}
        for job_id, gpus in leases.items():
            began, ended = spans[job_id]
            there = [spans[other] for other in holders[gpus[0]]]
            both = min(end for _, end in there) - max(begin for begin, _ in there)
            shared = max(both, 0.0) if len(there) > 1 else 0.0
            found[job_id] = GpuHold(gpus, max(ended - began, 0.0), shared)
        return found

    def measure_dispatch(
        self, leases: Mapping[int, tuple[int, ...]], events: Iterable[ContainerEvent]
    ) -> dict[int, GpuHold]:
        """Return what jobs held after the last boundary until the dispatch ended their lease.

        `leases` are the GPUs by job id up to the dispatch, `events` those of the dispatch.
        """
        return {
            event.job_id: GpuHold(leases[event.job_id], event.at_seconds - self.clock_seconds)
            for event in events
            if event.at_seconds > self.clock_seconds and event.job_id in leases
            if event.kind is EventKind.PREEMPTED or event.gpus != leases[event.job_id]
        }

    def after_round(self, seen: Observation, held: Mapping[int, float]) -> "TimeHeld":
        """Return the times after a round's observation, without ended jobs.

        `held` are the seconds that jobs with a limit held GPUs in the round, by job id.
        """
        seconds = self._add(held)
        for job_id in seen.ended:
            seconds.pop(job_id, None)
        return TimeHeld(seen.clock_seconds, seconds)

    def after_dispatch(
        self, events: Iterable[ContainerEvent], held: Mapping[int, float]
    ) -> "TimeHeld":
        """Return the times after a round's dispatch; `held` as in `after_round`."""
        launched = {
            event.job_id: event.at_seconds
            for event in events
            if event.kind is not EventKind.PREEMPTED and event.at_seconds > self.clock_seconds
        }
        return TimeHeld(self.clock_seconds, self._add(held), launched)

    def _add(self, held: Mapping[int, float]) -> dict[int, float]:
        return {**self.seconds, **{job: self.seconds.get(job, 0.0) + held[job] for job in held}}

    def is_over(self, holder: JobSpec, held: float) -> bool:
        """Return whether a job reached its limit; it held GPUs for `held` s in the round."""
        return 0.0 < holder.max_seconds <= self.seconds.get(holder.job_id, 0.0) + held

    def give_up(
        self, seen: Observation, specs: Mapping[int, JobSpec], held: Mapping[int, GpuHold]
    ) -> Observation:
        """Add the end of jobs that reached their limit to an observation.

        `specs` and `held` are the jobs that held GPUs in the round, by job id.
        """
        free, ended = {event.job_id for event in seen.finished}, {*seen.ended}
        ends = tuple(
            ContainerEvent(
                job_id,
                EventKind.FAILED,
                seen.clock_seconds,
                () if job_id in free else found.gpus,
                f"held GPUs for {self.seconds.get(job_id, 0.0) + found.seconds:,.0f} s, and its "
                f"max_seconds are {specs[job_id].max_seconds:,.0f}",
            )
            for job_id, found in held.items()
            if job_id not in ended and self.is_over(specs[job_id], found.seconds)
        )
        return replace(seen, finished=(*seen.finished, *ends)) if ends else seen
