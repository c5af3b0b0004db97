"""Jobs as users submit them: by file, by options, or by both."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.runs.job_file import JobFile
from flows.runs.toml_file import read_toml, validate_fields
from predictor.errors import InputError
from predictor.job import JobSpec
from predictor.throughput import Profile


def read_job_fields(path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Read the fields of a job's file; options override them.

    Raises:
        InputError: The file cannot be read, or a field is invalid; the error names it.
    """
    fields = {**read_toml(path, "a job's TOML file"), **options}
    parse_job(path, fields)
    return fields


def parse_job(path: Path, fields: Mapping[str, Any] | JobFile, *, texts: bool = False) -> JobFile:
    """Validate the fields of a job.

    Args:
        path: Their file, for error messages.
        fields: The fields; a `JobFile` is returned unchanged.
        texts: Whether numbers may be text, as in HTML forms.

    Raises:
        InputError: A field is invalid; the error names it.
    """
    return validate_fields(path, JobFile, fields, "a job", strict=False if texts else None)


def describe_launch(job: JobFile) -> str:
    """Describe how a job would be launched, without the options that its node adds."""
    least, most = job.demand.least, job.demand.most
    gpus = f"{least} to {most} GPUs" if least < most else f"{most} GPU{'s' * (most > 1)}"
    parts = [job.image] if job.image else []
    if job.timed:
        parts.append(shlex.join(job.command) or "the command of the image")
    else:
        parts.append(f"{job.model}, {job.mode}, batch size {job.batch_size}, {job.epochs} epochs")
    if job.code:
        parts.append(f"code {job.code}")
    if job.environment:
        parts.append(f"with {shlex.join(f'{n}={v}' for n, v in job.environment.items())}")
    if job.secrets:
        parts.append(f"secrets {' '.join(job.secrets)}")
    if job.network:
        parts.append(f"network {job.network}")
    if job.volumes:
        parts.append(f"volumes {' '.join(job.volumes)}")
    if job.max_seconds:
        parts.append(f"for {job.max_seconds:,.0f} s at most")
    tasks = f", each of the tasks {job.array}" if job.array else ""
    return f"on {gpus}{tasks}: {', '.join(parts)}"


def make_specs(
    job: JobFile,
    profile: Profile,
    samples: Mapping[str, int],
    find_jobs: Callable[[Sequence[str]], tuple[int, ...]],
) -> tuple[JobSpec, ...]:
    """Return the job of a declaration, or the tasks of its array.

    Args:
        job: The declaration.
        profile: Throughputs by model.
        samples: Default samples per epoch, by model.
        find_jobs: Returns the ids of named jobs, for which this job waits.

    Raises:
        InputError: A field is invalid; the error names it.
    """
    try:
        return job.specs(0, 0.0, profile, samples, find_jobs(job.after))
    except InputError as error:
        place = re.sub(r"^job \d+, ", "", error.place)
        raise InputError(place, error.problem, error.remedy) from None
