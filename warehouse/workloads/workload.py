"""Jobs to schedule, with the truth that drives the virtual cluster."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from containers.virtual.truth import GroundTruth
from predictor.errors import InputError
from predictor.job import JobSpec
from predictor.profile import Profile


@dataclass(frozen=True)
class Workload:
    """Jobs, what they will really do, and how fast they run.

    Attributes:
        source: Where it came from: a trace's name or the generator's parameters.
        specs: The jobs as declared, by arrival and then job id.
        truths: Ground truth in the same order; for the virtual cluster only.
        profile: Throughputs, known to the scheduler.
        places: File and line by job id, for error messages; empty if jobs were generated.
    """

    source: str
    specs: tuple[JobSpec, ...]
    truths: tuple[GroundTruth, ...]
    profile: Profile
    places: Mapping[int, str] = field(default_factory=dict, compare=False)

    def figures(self) -> dict[str, str | int | float]:
        """What it is, how many jobs, their work in GPU hours, and when the last arrives."""
        jobs = zip(self.specs, self.truths, strict=True)
        return {
            "source": self.source,
            "jobs": len(self.specs),
            "gpu_hours": sum(s.scale_factor * t.isolated_seconds for s, t in jobs) / 3600,
            "last_arrival_s": self.specs[-1].arrival_seconds,
        }

    def check_fits(self, gpus: int) -> None:
        """Refuse a job that the cluster can never run.

        Raises:
            InputError: A job needs more GPUs than there are.
        """
        for spec in self.specs:
            if spec.scale_factor > gpus:
                raise InputError(
                    f"{self.places.get(spec.job_id, self.source)}, job {spec.job_id}",
                    f"scale factor {spec.scale_factor} is above the cluster's {gpus} GPUs",
                    "give more GPUs or leave the job out",
                )


def by_arrival(
    jobs: Iterable[tuple[JobSpec, GroundTruth]],
) -> tuple[tuple[JobSpec, ...], tuple[GroundTruth, ...]]:
    """Jobs and their truths, by arrival and then job id."""
    ordered = sorted(jobs, key=lambda job: (job[0].arrival_seconds, job[0].job_id))
    return tuple(spec for spec, _ in ordered), tuple(truth for _, truth in ordered)
