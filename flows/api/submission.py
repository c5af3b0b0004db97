"""A job as its user declares it: by a file, by options, or by both."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from flows.runs.job_file import JobFile
from flows.runs.toml_file import checked, read_toml
from predictor.errors import InputError
from predictor.job import JobSpec
from predictor.throughput import Profile
from solver.inventory import MOST_GPUS


class TenantUpdate(BaseModel):
    """New terms of a tenant (`TenantTerms`); fields that are not given stay as they are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    budget: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 1.0
    gpu_hours: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 0.0
    window_hours: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] = 24.0
    rollover: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 0.0
    images: Annotated[
        tuple[Annotated[str, Field(max_length=255)], ...], Field(max_length=1000)
    ] = ()


class NodeRequest(BaseModel):
    """A node that is added (`NewNode`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(min_length=1, max_length=60)] = ""
    gpu_type: Annotated[str, Field(min_length=1, max_length=60)] = ""
    gpus: Annotated[int, Field(ge=1, le=MOST_GPUS)] = 1
    price: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0


def read_job_fields(path: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job's file, overridden by options.

    Args:
        path: The file.
        given: Options by field.

    Raises:
        InputError: The file cannot be read, or a field is invalid; the error names it.
    """
    fields = {**read_toml(path, "a job's TOML file"), **given}
    parse_job(path, fields)
    return fields


def job_schema() -> dict[str, Any]:
    """The JSON Schema of a job's file."""
    return JobFile.model_json_schema()


def parse_job(path: Path, fields: Mapping[str, Any], *, texts: bool = False) -> JobFile:
    """The declaration in the fields of a file.

    Args:
        path: The file.
        fields: Its fields.
        texts: Whether numbers may be texts, as forms have them.

    Raises:
        InputError: A field is invalid; the error names it.
    """
    return checked(path, JobFile, fields, "a job", strict=False if texts else None)


def describe_launch(job: JobFile) -> str:
    """How a job would be launched, in words: as declared, without what its node adds."""
    gpus = f"{job.scale_factor} GPU{'s' * (job.scale_factor > 1)}"
    said = [job.image or "the image of its node"]
    if job.timed:
        said += [shlex.join(job.command) or "the command of the image"]
    else:
        said += [f"{job.model}, {job.mode}, batch size {job.batch_size}, {job.epochs} epochs"]
    said += [f"with {shlex.join(f'{n}={v}' for n, v in job.environment.items())}"] * bool(
        job.environment
    )
    said += [f"secrets {' '.join(job.secrets)}"] * bool(job.secrets)
    said += [f"for {job.max_seconds:,.0f} s at most"] * bool(job.max_seconds)
    tasks = f", each of the tasks {job.array}" * bool(job.array)
    return f"on {gpus}{tasks}: {', '.join(said)}"


def make_specs(
    job: JobFile,
    profile: Profile,
    samples: Mapping[str, int],
    before: Callable[[Sequence[str]], tuple[int, ...]],
) -> tuple[JobSpec, ...]:
    """The job of a declaration, or the tasks of its array.

    Args:
        job: The declaration.
        profile: Throughputs of the models that are known.
        samples: Samples per epoch by model, where it has none.
        before: Returns the ids of the jobs that it comes after, from their names.

    Raises:
        InputError: A field is invalid; the error names it.
    """
    try:
        return job.specs(0, 0.0, profile, samples, before(job.after))
    except InputError as error:
        place = re.sub(r"^job \d+, ", "", error.place)
        raise InputError(place, error.problem, error.remedy) from None
