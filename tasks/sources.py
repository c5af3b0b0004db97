"""Where jobs come from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Protocol

from containers.virtual.truth import GroundTruth
from predictor.errors import InputError
from predictor.job import JobSpec
from predictor.throughput import Profile
from solver.inventory import Inventory


class JobSource(Protocol):
    """Jobs in the order of their arrival.

    A source has no position of its own: how many jobs were taken is part of a run's state,
    so that a run that is resumed, forked or replayed asks for the same jobs again.
    """

    def until(self, clock_seconds: float, taken: int) -> tuple[JobSpec, ...]:
        """The jobs that arrived by a time, after those taken already.

        Args:
            clock_seconds: The run's clock.
            taken: How many were taken already.
        """
        ...

    def next_arrival(self, taken: int) -> float | None:
        """When the next job arrives, where that is known, on the run's clock in seconds."""
        ...

    def exhausted(self, taken: int) -> bool:
        """Whether no job can come any more."""
        ...


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs that are all known when a run begins.

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
    """A trace, what its jobs will really do, and how fast they run.

    Attributes:
        source: Where it came from: a trace's name or the generator's parameters.
        specs: The jobs as declared, by arrival and then job id.
        truths: Ground truth in the same order; for the virtual cluster that plays it only.
        profile: Throughputs, known to the scheduler.
        places: File and line by job id, for error messages; empty if jobs were generated.
    """

    source: str
    specs: tuple[JobSpec, ...]
    truths: tuple[GroundTruth, ...]
    profile: Profile
    places: Mapping[int, str] = field(default_factory=dict, compare=False)

    @property
    def trace(self) -> Trace:
        """Its jobs as a source."""
        return Trace(self.specs)

    def figures(self) -> dict[str, str | int | float]:
        """What it is, how many jobs, their work in GPU hours, and when the last arrives."""
        jobs = zip(self.specs, self.truths, strict=True)
        work = sum(self.profile.reference(s).gpus * t.isolated_seconds for s, t in jobs)
        return {
            "source": self.source,
            "jobs": len(self.specs),
            "gpu_hours": work / 3600,
            "last_arrival_s": self.specs[-1].arrival_seconds,
        }

    def check_fits(self, inventory: Inventory) -> None:
        """Refuse a job that a cluster can never run.

        Raises:
            InputError: A job needs more GPUs than there are, or other ones.
        """
        for spec in self.specs:
            if not inventory.menu(spec.demand):
                raise InputError(
                    f"{self.places.get(spec.job_id, self.source)}, job {spec.job_id}",
                    f"needs {spec.demand.least} GPUs{' of type ' * bool(spec.demand.types)}"
                    f"{' or '.join(spec.demand.types)}, and the cluster has {inventory.gpus}",
                    "give a larger cluster or leave the job out",
                )


def by_arrival(
    jobs: Iterable[tuple[JobSpec, GroundTruth]],
) -> tuple[tuple[JobSpec, ...], tuple[GroundTruth, ...]]:
    """Jobs and their truths, by arrival and then job id."""
    ordered = sorted(jobs, key=lambda job: (job[0].arrival_seconds, job[0].job_id))
    return tuple(spec for spec, _ in ordered), tuple(truth for _, truth in ordered)
