"""A job and its ground truth as a TOML file, for forks that add jobs."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from containers.virtual.truth import GroundTruth
from flows.runs.toml_file import first_mistake, read_toml
from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import JobSpec, Mode, Regime
from tasks.sources import Workload
from warehouse.workloads.regimes import isolated_seconds

Count = Annotated[int, Field(ge=1, le=10**9)]
Pair = Annotated[list[Count], Field(min_length=2, max_length=2)]


class JobFile(BaseModel):
    """The fields of a job's file; see the example in `docs/cli.md`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    model: str = Field(min_length=1)
    batch_size: Count
    epochs: Count
    max_batch_size: Count | None = None
    scale_factor: Count = 1
    mode: Annotated[Mode, Field(strict=False)] = Mode.STATIC
    samples_per_epoch: Count | None = None
    regimes: list[Pair] | None = Field(default=None, min_length=1)
    tenant: str = Field(default="default", min_length=1)
    budget: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    consolidate: bool = False
    max_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    @property
    def truth(self) -> tuple[Regime, ...]:
        """The true regimes of the job."""
        given = self.regimes or [[self.batch_size, self.epochs]]
        return tuple(Regime(size, epochs) for size, epochs in given)

    @model_validator(mode="after")
    def _check_regimes(self) -> "JobFile":
        sizes = [regime.batch_size for regime in self.truth]
        problem = None
        if sizes[0] != self.batch_size:
            problem = f"regimes begin with batch size {sizes[0]}; begin with batch_size"
        elif sum(regime.epochs for regime in self.truth) != self.epochs:
            problem = f"regimes do not add up to {self.epochs} epochs; correct their epochs"
        elif max(sizes) > (self.max_batch_size or max(sizes)):
            problem = "a regime is above max_batch_size; raise max_batch_size"
        elif self.mode is Mode.STATIC and len(sizes) > 1:
            problem = "a static job never changes its batch size; give another mode"
        elif self.mode is Mode.GNS and sizes != sorted(sizes):
            problem = "the batch size of a GNS job never shrinks; give ascending batch sizes"
        if problem:
            raise ValueError(problem)
        return self


def read_job(
    path: Path, job_id: int, arrival_seconds: float, workload: Workload
) -> tuple[JobSpec, GroundTruth]:
    """Read a job and its ground truth.

    Args:
        path: The file.
        job_id: The job's id.
        arrival_seconds: Its arrival on the run's clock, in seconds.
        workload: The run's workload: supplies the profile and, by default, the samples per
            epoch of other jobs of the same model.

    Raises:
        InputError: The file cannot be read, or a field is invalid; the error names it.
    """
    given = read_toml(path, "a job's TOML file")
    try:
        job = JobFile.model_validate(given)
    except ValidationError as error:
        raise first_mistake(path, error, JobFile, "a job") from None
    like = {spec.model: spec.samples_per_epoch for spec in workload.specs}
    samples = job.samples_per_epoch or like.get(job.model)
    if samples is None:
        raise InputError(
            f"{path}: samples_per_epoch", "is missing, and no job has this model", "add it"
        )
    sizes = [regime.batch_size for regime in job.truth]
    try:
        spec = JobSpec(
            job_id=job_id,
            model=job.model,
            batch_size=job.batch_size,
            max_batch_size=job.max_batch_size or max(sizes),
            demand=Demand.gang(job.scale_factor),
            mode=job.mode,
            epochs=job.epochs,
            samples_per_epoch=samples,
            arrival_seconds=arrival_seconds,
            tenant=job.tenant,
            budget=job.budget,
            consolidate=job.consolidate,
            max_seconds=job.max_seconds,
        )
        isolated = isolated_seconds(spec, job.truth, workload.profile)
    except InputError as error:
        raise InputError(f"{path}: {error.place}", error.problem, error.remedy) from None
    return spec, GroundTruth(job_id, isolated, job.truth, job.truth)
