"""The trace format that Gavel and Shockwave publish, with its two companion tables.

A trace is tab-separated, without a header and with one job per line. Throughputs are a JSON object
by worker type, and regimes a CSV table. `docs/traces.md` describes all three. Readers keep the
hidden truth apart from the declared jobs.
"""

import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from containers.virtual.truth import GroundTruth
from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import TABLE_MODES, JobSpec, Mode
from predictor.options import JobOptions
from predictor.plugins import Kind, find_plugin
from predictor.throughput import Profile
from tasks.sources import Workload, sort_by_arrival
from warehouse.workloads import gavel
from warehouse.workloads.fields import LARGEST, Row, read_text
from warehouse.workloads.mix import MOST_SECONDS
from warehouse.workloads.plugged import tabulate
from warehouse.workloads.published_rules import (
    MAX_BATCH_SIZE,
    SAMPLES_PER_EPOCH,
    published_gns,
    published_truth,
)
from warehouse.workloads.regimes import RegimeTable, read_regimes
from warehouse.workloads.tables import read_throughputs

COLUMNS = (
    "job_type",
    "command",
    "working_directory",
    "steps_argument",
    "needs_data",
    "total_steps",
    "scale_factor",
    "mode",
    "priority_weight",
    "slo",
    "duration",
    "arrival",
)

SHAPES = gavel.SHAPES | {len(COLUMNS): COLUMNS}
"""Columns of a trace, by their number."""

PUBLISHED = "published"
"""Stands for the regimes of the published simulator, in place of a table of them."""

_WHOLE = "a whole number of 0 or more", lambda value: type(value) is int and 0 <= value <= LARGEST
_FLAG = "true or false", lambda value: isinstance(value, bool)

DECLARED: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "job_id": _WHOLE,
    "tenant": ("printable text", lambda value: isinstance(value, str) and value.isprintable()),
    "samples_per_epoch": _WHOLE,
    "max_batch_size": _WHOLE,
    "consolidate": _FLAG,
    "max_seconds": (
        "a number of 0 or more",
        lambda value: type(value) in (int, float) and 0 <= value <= LARGEST,
    ),
    "opportunistic": _FLAG,
    "name": ("printable text", lambda value: isinstance(value, str) and value.isprintable()),
}
"""Fields that a job can declare besides the columns, in a JSON object in place of the command: what
each must be, and whether a value is."""

MOST_EPOCHS = 1_000_000
"""Most epochs of a job; the published rules loop over epochs. An engineering bound."""


def read_workload(
    trace: Path, profile: Path, regimes: Path | None = None, gpu_types: Collection[str] = ()
) -> Workload:
    """Read a trace with its throughput table and, if given, its regime table.

    Args:
        trace: Tab-separated job list.
        profile: Throughputs by worker type. If no such file exists, the name of a throughput model
            that another distribution provides.
        regimes: Regimes of kinds of GNS jobs and of single jobs, or `published` for those of the
            published simulator; without a table, GNS jobs never change.
        gpu_types: Worker types of the profile; by default V100, or the only one.

    Raises:
        InputError: A file cannot be read or a field is wrong; the error names file and line.
    """
    plugin = None if profile.exists() else find_plugin(Kind.THROUGHPUTS, str(profile))
    if plugin is None:
        table = read_throughputs(profile, gpu_types)
    else:
        table = tabulate(plugin, read_jobs(trace), gpu_types)
    changes = _read_changes(regimes)
    declared = _jobs(trace)
    jobs = {job_id: _known(line, table, changes) for job_id, line in declared.items()}
    changes.check_jobs(jobs)
    specs, truths = sort_by_arrival(jobs.values())
    places = {job_id: line.place for job_id, line in declared.items()}
    return Workload(source=trace.name, specs=specs, truths=truths, profile=table, places=places)


def _read_changes(regimes: Path | None) -> RegimeTable:
    if regimes is None:
        return RegimeTable()
    if str(regimes) == PUBLISHED and not regimes.exists():
        return RegimeTable(published_gns())
    return read_regimes(regimes)


def read_jobs(trace: Path) -> tuple[JobSpec, ...]:
    """Read the jobs of a trace as declared, in the order of its lines.

    The jobs have no deadlines, because deadlines depend on throughputs.

    Raises:
        InputError: The file cannot be read or a field is wrong; the error names file and line.
    """
    return tuple(line.spec for line in _jobs(trace).values())


class _Line(NamedTuple):
    """A job of a trace, with its place, its number of columns, and its SLO.

    The SLO is the largest JCT over isolated run time; 0 for none.
    """

    place: str
    spec: JobSpec
    columns: int
    slo: float


def _jobs(trace: Path) -> dict[int, _Line]:
    jobs: dict[int, _Line] = {}
    for number, line in enumerate(read_text(trace).splitlines(), start=1):
        if line.strip():
            place = f"{trace}:{number}"
            row = _row(place, line)
            columns = len(row.values)
            first = next(iter(jobs.values()), None)
            if first and columns != first.columns:
                problem = f"{columns} columns after lines of {first.columns}"
                raise InputError(place, problem, "correct the line")
            spec = _parse_job(row, position=len(jobs))
            if spec.job_id in jobs:
                problem = f"job {spec.job_id} is there twice"
                raise InputError(place, problem, "give each job an id of its own")
            jobs[spec.job_id] = _Line(place, spec, columns, _slo(row))
    if not jobs:
        raise InputError(str(trace), "holds no jobs", "give a trace with at least one line")
    return jobs


def _known(line: _Line, profile: Profile, changes: RegimeTable) -> tuple[JobSpec, GroundTruth]:
    """Return a job with its deadline, and its ground truth, on which the deadline depends."""
    truth = _truth(line, profile, changes)
    if not line.slo:
        return line.spec, truth
    # Round to the millisecond, so that writing the SLO and reading it again gives the same
    # deadline.
    within = round(line.slo * truth.isolated_seconds, 3)
    return replace(line.spec, options=JobOptions(deadline_seconds=within)), truth


def _truth(line: _Line, profile: Profile, changes: RegimeTable) -> GroundTruth:
    place, spec, columns, _ = line
    own = changes.own.get(spec.job_id)
    if own is not None:
        truth = own.truth(spec, profile)
    elif spec.epochs > MOST_EPOCHS:
        problem = f"{spec.epochs} epochs are too large"
        raise InputError(f"{place}, total_steps", problem, "correct the field")
    else:
        try:
            if columns in gavel.SHAPES:
                truth = gavel.static_truth(spec, profile)
            else:
                truth = published_truth(spec, profile, changes.gns)
        except InputError as error:
            of_table = f" in {error.place}" * (error.place == profile.source)
            raise InputError(place, error.problem + of_table, error.remedy) from None
    if not truth.isolated_seconds <= MOST_SECONDS:
        problem = f"a run time of {truth.isolated_seconds:g} s is too large"
        remedy = "correct the field or the job's throughput"
        raise InputError(f"{place}, total_steps", problem, remedy)
    return truth


def _parse_declared(row: Row) -> dict[str, Any]:
    """Return the JSON object in place of the command; empty for an actual command."""
    text = row.values["command"]
    if not text.startswith("{"):
        return {}
    try:
        declared: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError):
        raise row.refusal("command", "not valid JSON", "correct the object") from None
    for name, value in declared.items():
        if name not in DECLARED:
            raise row.refusal("command", f"unknown {name!r}", f"choose from {', '.join(DECLARED)}")
        wanted, is_valid = DECLARED[name]
        if not is_valid(value):
            problem = f"{value!r} is not {wanted}"
            raise row.refusal(f"command, {name}", problem, "correct the object")
    return declared


def _published_sizes(row: Row, model: str, batch_size: int) -> dict[str, int]:
    if model not in SAMPLES_PER_EPOCH:
        known = f"choose from {', '.join(sorted(SAMPLES_PER_EPOCH))}"
        raise row.refusal("job_type", f"unknown model {model!r}", known)
    return {
        "samples_per_epoch": SAMPLES_PER_EPOCH[model],
        "max_batch_size": max(MAX_BATCH_SIZE[model], batch_size),
    }


def _row(place: str, line: str) -> Row:
    fields = line.split("\t")
    columns = SHAPES.get(len(fields))
    if columns is None:
        raise InputError(
            place,
            f"{len(fields)} columns instead of {len(COLUMNS)}",
            f"the tab-separated columns are {', '.join(COLUMNS)}"
            if len(fields) > 1
            else "separate them by tabs, or give the format of a CSV table",
        )
    return Row(place, dict(zip(columns, fields, strict=True)))


def _slo(row: Row) -> float:
    """Return the largest JCT over isolated run time; 0 for none."""
    if row.values.get("slo", "").strip() in ("", "-"):
        return 0.0
    times = row.number("slo", float)
    if not times < math.inf:
        raise row.refusal("slo", f"{times} is not a finite number", "give -1 for none")
    return max(times, 0.0)


def _parse_job(row: Row, position: int) -> JobSpec:
    """Return the job of a line, without its SLO; by default its id is `position`."""
    if len(row.values) in gavel.SHAPES:
        mode, (model, batch_size) = Mode.STATIC, gavel.job_type(row)
        samples = SAMPLES_PER_EPOCH.get(model, gavel.EPOCH_STEPS * batch_size)
        declared: dict[str, Any] = {"samples_per_epoch": samples, "max_batch_size": batch_size}
    else:
        model, batch_size = gavel.job_type(row, alone=False)
        declared = _parse_declared(row)
        if not declared.keys() >= {"samples_per_epoch", "max_batch_size"}:
            declared = _published_sizes(row, model, batch_size) | declared
        if row.values["mode"] not in TABLE_MODES:
            problem = f"{row.values['mode']!r} is not an adaptation mode"
            raise row.refusal("mode", problem, f"choose from {', '.join(TABLE_MODES)}")
        mode = Mode(row.values["mode"])
    steps = row.positive("total_steps", int)
    steps_per_epoch = math.ceil(declared["samples_per_epoch"] / batch_size)
    try:
        return JobSpec(
            model=model,
            batch_size=batch_size,
            demand=Demand.gang(row.positive("scale_factor", int)),
            mode=mode,
            epochs=math.ceil(steps / max(steps_per_epoch, 1)),
            arrival_seconds=row.number("arrival", float),
            budget=row.number("priority_weight", float) if "priority_weight" in row.values else 1.0,
            total_steps=steps,
            **({"job_id": position} | declared),
        )
    except InputError as error:
        field = error.place.split(", ")[-1]
        column = "priority_weight" if field == "budget" else field
        raise row.refusal(column, error.problem, error.remedy) from None
