"""Sources of jobs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Protocol

from containers.virtual.truth import GroundTruth
from predictor.errors import InputError
from predictor.job import JobSpec
from predictor.throughput import Profile
from solver.inventory import Inventory
from tasks.rows import content_hash, to_row


class JobSource(Protocol):
    """Jobs in the order of their arrival.

    A source is stateless: the number of jobs taken is part of a run's state, so that a
    resumed, forked or replayed run gets the same jobs.
    """

    def until(self, clock_seconds: float, taken: int) -> tuple[JobSpec, ...]:
        """The jobs that arrived by a time and are not taken yet.

        Args:
            clock_seconds: The run's clock.
            taken: Number of jobs taken so far.
        """
        ...

    def next_arrival(self, taken: int) -> float | None:
        """Arrival of the next job on the run's clock in seconds; None if unknown."""
        ...

    def exhausted(self, taken: int) -> bool:
        """Whether no further job can arrive."""
        ...


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs that are all declared when a run begins.

    Attributes:
        jobs: By arrival and then job id.
    """

    jobs: tuple[JobSpec, ...]

    def until(self, clock_seconds: float, taken: int) -> tuple[JobSpec, ...]:
        """See `JobSource.until`."""
        coming = self.jobs[taken:]
        return tuple(takewhile(lambda job: job.arrival_seconds <= clock_seconds, coming))

    def next_arrival(self, taken: int) -> float | None:
        """See `JobSource.next_arrival`."""
        return self.jobs[taken].arrival_seconds if taken < len(self.jobs) else None

    def exhausted(self, taken: int) -> bool:
        """See `JobSource.exhausted`."""
        return taken >= len(self.jobs)


@dataclass(frozen=True)
class Workload:
    """A trace with its jobs' ground truths and throughput profile.

    Attributes:
        source: Origin: a trace's name or the generator's parameters.
        specs: The jobs as declared, by arrival and then job id.
        truths: Ground truths in the same order, for virtual clusters only.
        profile: Throughput profile, known to the scheduler.
        places: File and line by job id, for error messages; empty for generated jobs.
    """

    source: str
    specs: tuple[JobSpec, ...]
    truths: tuple[GroundTruth, ...]
    profile: Profile
    places: Mapping[int, str] = field(default_factory=dict, compare=False)

    @cached_property
    def digest(self) -> str:
        """The hash of its jobs and ground truths."""
        jobs = zip(self.specs, self.truths, strict=True)
        return content_hash([[to_row(spec), to_row(truth)] for spec, truth in jobs])

    @property
    def trace(self) -> Trace:
        """Its jobs as a source."""
        return Trace(self.specs)

    def figures(self) -> dict[str, str | int | float]:
        """Summary: source, number of jobs, isolated work in GPU-hours, and last arrival."""
        jobs = zip(self.specs, self.truths, strict=True)
        work = sum(self.profile.reference(s).gpus * t.isolated_seconds for s, t in jobs)
        return {
            "source": self.source,
            "jobs": len(self.specs),
            "gpu_hours": work / 3600,
            "last_arrival_s": self.specs[-1].arrival_seconds,
        }

    def check_fits(self, inventory: Inventory) -> None:
        """Refuse a workload with a job that a cluster can never run.

        Raises:
            InputError: A job needs more GPUs, or other GPU types, than the cluster has, or the
                cluster has several pools.
        """
        pool = inventory.only
        for spec in self.specs:
            if not inventory.menu(spec.demand):
                raise InputError(
                    f"{self.places.get(spec.job_id, self.source)}, job {spec.job_id}",
                    f"needs {spec.demand.least} GPUs{' of type ' * bool(spec.demand.types)}"
                    f"{' or '.join(spec.demand.types)}, and the cluster has {pool.gpus}",
                    "give a larger cluster or leave the job out",
                )


def by_arrival(
    jobs: Iterable[tuple[JobSpec, GroundTruth]],
) -> tuple[tuple[JobSpec, ...], tuple[GroundTruth, ...]]:
    """Jobs and their truths, by arrival and then job id."""
    ordered = sorted(jobs, key=lambda job: (job[0].arrival_seconds, job[0].job_id))
    return tuple(spec for spec, _ in ordered), tuple(truth for _, truth in ordered)
