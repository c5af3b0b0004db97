"""Writes a workload as a public trace with its two tables, for `read_workload` to read."""

import contextlib
import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from containers.virtual.truth import GroundTruth
from predictor.errors import InputError
from predictor.job import JobSpec
from predictor.profile import Profile
from warehouse.workloads.regimes import COLUMNS, JOB_COLUMNS, isolated_seconds, own_schedule
from warehouse.workloads.trace import DECLARED, WORKER_TYPE
from warehouse.workloads.workload import Workload


class Files(NamedTuple):
    """The files of a workload, named as the options that read them."""

    trace: Path
    profile: Path
    regimes: Path

    @classmethod
    def within(cls, folder: Path) -> "Files":
        """Where a folder has them."""
        return cls(folder / "jobs.trace", folder / "throughputs.json", folder / "regimes.csv")


def write_workload(workload: Workload, folder: Path, *, overwrite: bool = False) -> Files:
    """Write a workload; reading the files gives the same, but for its name.

    Each file is written whole or not at all, and none unless all can be.

    Args:
        workload: What to write.
        folder: Where to; made if it is not there.
        overwrite: Whether files that are there may be replaced.

    Returns:
        The files.

    Raises:
        InputError: A file is there already, or the folder cannot be written.
    """
    files = Files.within(folder)
    for path in files:
        if path.is_dir():
            raise InputError(str(path), "is a folder", "give another folder to write to")
        if path.exists() and not overwrite:
            raise InputError(str(path), "is there already", "give another folder or overwrite it")
    jobs = list(zip(workload.specs, workload.truths, strict=True))
    _write_all(
        folder,
        {
            files.trace: _trace(jobs),
            files.profile: _throughputs(workload.profile),
            files.regimes: _regimes(jobs, workload.profile),
        },
    )
    return files


def _trace(jobs: Iterable[tuple[JobSpec, GroundTruth]]) -> str:
    return "".join("\t".join(_job_fields(spec, truth)) + "\n" for spec, truth in jobs)


def _job_fields(spec: JobSpec, truth: GroundTruth) -> tuple[str, ...]:
    return (
        _job_type(spec.model, spec.batch_size),
        json.dumps({name: getattr(spec, name) for name in DECLARED}),
        "-",
        "-",
        "0",
        str(spec.total_steps),
        str(spec.scale_factor),
        str(spec.mode),
        repr(spec.budget),
        "-1",
        str(round(truth.isolated_seconds)),
        repr(spec.arrival_seconds),
    )


def _job_type(model: str, batch_size: int) -> str:
    return f"{model} (batch size {batch_size})"


def _throughputs(profile: Profile) -> str:
    table = {
        repr((_job_type(model, batch_size), scale_factor)): {"null": rate}
        for (model, batch_size, scale_factor), rate in profile.steps_per_second.items()
    }
    return json.dumps({WORKER_TYPE: table}, indent=1) + "\n"


def _regimes(jobs: Iterable[tuple[JobSpec, GroundTruth]], profile: Profile) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*COLUMNS, *JOB_COLUMNS))
    for spec, truth in jobs:
        follows = truth.isolated_seconds == isolated_seconds(spec, truth.profiled, profile)
        writer.writerow(
            (
                spec.model,
                spec.batch_size,
                spec.scale_factor,
                own_schedule(spec, truth.targets),
                spec.job_id,
                "" if truth.profiled == truth.targets else own_schedule(spec, truth.profiled),
                "" if follows else repr(truth.isolated_seconds),
            )
        )
    return text.getvalue()


def _write_all(folder: Path, contents: Mapping[Path, str]) -> None:
    temporary = {path: path.with_name(f".{path.name}.{uuid4().hex}") for path in contents}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in contents.items():
            temporary[path].write_text(text, encoding="utf-8")
        for path in contents:
            temporary[path].replace(path)
    except OSError as error:
        raise InputError(
            str(folder), f"cannot be written ({error.strerror or error})", "give another folder"
        ) from None
    finally:
        for path in temporary.values():
            with contextlib.suppress(OSError):
                path.unlink()
