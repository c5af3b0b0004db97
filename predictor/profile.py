"""Throughput by model, batch size and scale factor."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from predictor.errors import InputError
from predictor.job import JobSpec


@dataclass(frozen=True)
class Profile:
    """Measured or modelled throughput of a whole job when it runs alone.

    Attributes:
        steps_per_second: (model, batch size, scale factor) to steps per second of the
            whole job. A missing or zero entry means that the combination cannot run.
        source: Where the table comes from, for error messages.
    """

    steps_per_second: Mapping[tuple[str, int, int], float]
    source: str = field(default="profile", compare=False)

    def can_run(self, model: str, batch_size: int, scale_factor: int) -> bool:
        """Whether the combination has a positive throughput."""
        return self.steps_per_second.get((model, batch_size, scale_factor), 0.0) > 0.0

    def throughput(self, model: str, batch_size: int, scale_factor: int) -> float:
        """Steps per second of the whole job.

        Raises:
            InputError: The profile has no such combination.
        """
        rate = self.steps_per_second.get((model, batch_size, scale_factor), 0.0)
        if rate > 0.0:
            return rate
        models = sorted({key[0] for key in self.steps_per_second})
        if model not in models:
            raise InputError(
                self.source, f"unknown model {model!r}", f"known are {', '.join(models) or 'none'}"
            )
        raise InputError(
            self.source,
            f"no throughput for {model} with batch size {batch_size} on {scale_factor} GPUs",
            "add the measurement to the profile or change the job",
        )

    def epoch_seconds(self, spec: JobSpec, batch_size: int) -> float:
        """Duration of one epoch of `spec` at `batch_size`, in seconds.

        Raises:
            InputError: The profile has no such combination.
        """
        rate = self.throughput(spec.model, batch_size, spec.scale_factor)
        return spec.samples_per_epoch / batch_size / rate

    def reachable_batch_sizes(self, spec: JobSpec) -> tuple[int, ...]:
        """The declared batch sizes of a job that the profile says can run."""
        model, gpus, rates = spec.model, spec.scale_factor, self.steps_per_second
        sizes = [size for size in spec.batch_sizes if rates.get((model, size, gpus), 0.0) > 0.0]
        return tuple(sizes) or (spec.batch_size,)
