"""A writer of workloads as public traces with their tables, for `read_workload` to read."""

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
from predictor.throughput import Profile
from tasks.sources import Workload
from warehouse.workloads.regimes import COLUMNS, JOB_COLUMNS, isolated_seconds, own_schedule
from warehouse.workloads.tables import LOSSES, MEASURED
from warehouse.workloads.trace import DECLARED


class Files(NamedTuple):
    """The files of a workload, named after the options that read them."""

    trace: Path
    profile: Path
    regimes: Path

    @classmethod
    def within(cls, folder: Path) -> "Files":
        """Return the paths of the files in a folder."""
        return cls(folder / "jobs.trace", folder / "throughputs.json", folder / "regimes.csv")


def write_workload(
    workload: Workload, folder: Path, throughputs: Path | None = None, *, overwrite: bool = False
) -> Files:
    """Write a workload; reading the files returns the same workload, except for its name.

    Each file is written atomically, and none is written unless all can be.

    Args:
        workload: The workload.
        folder: The folder; created if missing.
        throughputs: The table from which the profile was read, if it holds what would not be
            written: pairs, or rates by nodes. It then replaces the profile.
        overwrite: Whether existing files may be replaced.

    Returns:
        The files; the profile can be `throughputs`.

    Raises:
        InputError: A file exists already, or the folder cannot be written.
    """
    own = Files.within(folder)
    files = own._replace(profile=throughputs or own.profile)
    if workload.slots > 1:
        problem = "has jobs that hold shares of GPUs, for which the format has no place"
        raise InputError(workload.source, problem, "set slots to 1, to round up to whole GPUs")
    for spec in workload.specs:
        elastic = spec.demand.least < spec.demand.most
        if elastic or spec.timed or spec.image:
            what = "its numbers of GPUs" if elastic else "what it runs"
            problem = f"the format has no place for {what}"
            raise InputError(f"job {spec.job_id}", problem, "keep its TOML file")
    jobs = list(zip(workload.specs, workload.truths, strict=True))
    contents = {files.trace: _trace(jobs), files.regimes: _regimes(jobs, workload.profile)}
    if throughputs is None:
        contents[files.profile] = _throughputs(workload.profile)
    for path in contents:
        if path.is_dir():
            raise InputError(
                str(path), "is a folder where a file is written", "give another output folder"
            )
        if path.exists() and not overwrite:
            raise InputError(str(path), "is there already", "give another folder or set overwrite")
    _write_all(folder, contents)
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
        str(spec.demand.least),
        str(spec.mode),
        repr(spec.budget),
        _slo(spec, truth),
        str(round(truth.isolated_seconds)),
        repr(spec.arrival_seconds),
    )


def _slo(spec: JobSpec, truth: GroundTruth) -> str:
    within = spec.options.deadline_seconds
    return repr(within / truth.isolated_seconds) if within else "-1"


def _job_type(model: str, batch_size: int) -> str:
    return f"{model} (batch size {batch_size})"


def _throughputs(profile: Profile) -> str:
    """Return a table for `read_throughputs`: types with pairs have a part `measured`."""
    tables: dict[str, dict[str, dict[str, float | tuple[float, float]]]] = {}
    measured: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for (model, batch_size, gpu_type, gpus), rate in profile.rates.items():
        entry = _entry(model, batch_size, gpus)
        tables.setdefault(gpu_type, {})[entry] = {"null": rate}
        took = profile.restarts.get((gpu_type, gpus))
        if took is not None:
            entries = measured.setdefault(gpu_type, {}).setdefault("entries", {})
            entries[entry] = {"restart_seconds": took}
    for (model, size, other, other_size, gpu_type, gpus), rate in profile.pairs.items():
        back = profile.pairs[other, other_size, model, size, gpu_type, gpus]
        beside = tables[gpu_type][_entry(model, size, gpus)]
        beside[_entry(other, other_size, gpus)] = rate, back
        measured.setdefault(gpu_type, {})
    more = {MEASURED: measured, LOSSES: profile.losses}
    return json.dumps(tables | {key: part for key, part in more.items() if part}, indent=1) + "\n"


def _entry(model: str, batch_size: int, gpus: int) -> str:
    """Return the key of a job in a table of throughputs."""
    return repr((_job_type(model, batch_size), gpus))


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
                spec.demand.least,
                own_schedule(spec, truth.targets),
                spec.job_id,
                "" if truth.profiled == truth.targets else own_schedule(spec, truth.profiled),
                "" if follows else repr(truth.isolated_seconds),
            )
        )
    return text.getvalue()


def _write_all(folder: Path, contents: Mapping[Path, str]) -> None:
    temporary = {path: path.with_name(f".{path.name}.{uuid4().hex}") for path in contents}
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in contents.items():
            temporary[path].write_text(text, encoding="utf-8")
        for path in contents:
            temporary[path].replace(path)
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error})"
        raise InputError(str(folder), problem, "give another folder") from None
    finally:
        for path in temporary.values():
            with contextlib.suppress(OSError):
                path.unlink()
        with contextlib.suppress(OSError):  # keep a folder that is not empty
            for place in made:
                place.rmdir()
