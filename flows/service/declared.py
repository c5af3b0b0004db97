"""A job as its user declares it: by a file, by options, or by both."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.runs.job_file import JobFile
from flows.runs.toml_file import first_mistake, read_toml
from predictor.errors import InputError
from predictor.job import JobSpec


def from_file(path: Path, given: Mapping[str, Any], samples: Mapping[str, int]) -> JobSpec:
    """The job of a file; options come before what it says.

    Args:
        path: The file.
        given: Options by field.
        samples: Samples per epoch by model, where neither has them.

    Raises:
        InputError: The file cannot be read, or a field is invalid; the error names it.
    """
    return _declared(path, {**read_toml(path, "a job's TOML file"), **given}, samples)


def from_options(given: Mapping[str, Any], samples: Mapping[str, int]) -> JobSpec:
    """The job that options declare; see `from_file`.

    Raises:
        InputError: An option is missing or invalid; the error names it.
    """
    return _declared(Path("job"), given, samples)


def job_schema() -> dict[str, Any]:
    """The JSON Schema of a job's file."""
    return JobFile.model_json_schema()


def _declared(path: Path, fields: Mapping[str, Any], samples: Mapping[str, int]) -> JobSpec:
    try:
        job = JobFile.model_validate(fields)
    except ValidationError as error:
        raise first_mistake(path, error, JobFile, "a job") from None
    try:
        return job.spec(0, 0.0, samples)
    except InputError as error:
        field = error.place.removeprefix("job 0, ")
        raise InputError(f"{path}: {field}", error.problem, error.remedy) from None
