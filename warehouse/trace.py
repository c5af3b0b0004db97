"""The trace format that Gavel and Shockwave publish, with its two companion tables.

A trace is tab-separated without a header, one job a line; throughputs are a JSON
object by worker type; GNS regimes are a CSV table. `docs/traces.md` describes all
three. Reading gives the declared jobs and, apart from them, the hidden truth.
"""

import ast
import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, TypeVar

from containers.virtual import GroundTruth
from predictor.errors import InputError
from predictor.job import JobSpec, Mode, Regime
from predictor.profile import Profile
from warehouse.workload import Workload

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

SAMPLES_PER_EPOCH = {
    "ResNet-18": 50_000,
    "ResNet-50": 100_000,
    "Transformer": 10_000,
    "LM": 59_675,
    "Recommendation": 117_907,
}
"""Data set size by model, as the published simulator counts it."""

MAX_BATCH_SIZE = {
    "ResNet-18": 256,
    "ResNet-50": 128,
    "Transformer": 128,
    "LM": 80,
    "Recommendation": 8_192,
}
"""Batch size that adaptation stops at; a job may start above it."""

_JOB_TYPE = re.compile(r"(?P<model>.+) \(batch size (?P<batch_size>\d+)\)")

Number = TypeVar("Number", int, float)

GnsTable = Mapping[tuple[str, int, int], tuple[Regime, ...]]
"""(model, initial batch size, scale factor) to regimes, the last one open-ended."""


def read_workload(trace: Path, profile: Path, regimes: Path | None = None) -> Workload:
    """Read a trace with its throughput table and, for GNS jobs, its regime table.

    Args:
        trace: Tab-separated job list.
        profile: Throughputs by worker type.
        regimes: GNS regimes; without it GNS jobs never change.

    Raises:
        InputError: A file cannot be read or a field is wrong; names file and line.
    """
    table = read_throughputs(profile)
    gns = read_gns_regimes(regimes) if regimes is not None else {}
    specs: list[JobSpec] = []
    truths: list[GroundTruth] = []
    lines = _read_text(trace).splitlines()
    for number, line in enumerate(lines, start=1):
        if line.strip():
            spec, steps = _parse_job(f"{trace}:{number}", line, job_id=len(specs))
            specs.append(spec)
            truths.append(_truth(f"{trace}:{number}", spec, steps, table, gns))
    if not specs:
        raise InputError(str(trace), "holds no jobs", "give a trace with at least one line")
    order = sorted(range(len(specs)), key=lambda i: (specs[i].arrival_seconds, i))
    return Workload(
        source=trace.name,
        specs=tuple(specs[i] for i in order),
        truths=tuple(truths[i] for i in order),
        profile=table,
    )


def read_throughputs(path: Path, worker_type: str = "v100") -> Profile:
    """Read the steps per second of jobs that run alone on one worker type.

    Raises:
        InputError: The file is not a throughput table.
    """
    try:
        document = json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}:{error.lineno}", f"not valid JSON ({error.msg})", "give a throughput table"
        ) from None
    if not isinstance(document, dict) or not isinstance(document.get(worker_type), dict):
        raise InputError(
            str(path), f"has no worker type {worker_type!r}", "give a throughput table"
        )
    return Profile(dict(_throughputs(path, worker_type, document[worker_type])), source=str(path))


def _throughputs(
    path: Path, worker_type: str, table: Mapping[str, Any]
) -> Iterable[tuple[tuple[str, int, int], float]]:
    for key, entry in table.items():
        place = f"{path}, {worker_type}, {key}"
        try:
            job_type, scale_factor = ast.literal_eval(key)
            match = _JOB_TYPE.fullmatch(job_type)
            if match is not None:  # other entries name models without a batch size
                batch_size = int(match["batch_size"])
                rate = float(entry["null"])
                if not math.isfinite(rate):
                    raise ValueError
                yield (match["model"], batch_size, int(scale_factor)), rate
        except (ValueError, SyntaxError, TypeError, KeyError, OverflowError):
            raise InputError(
                place,
                'is not an entry like "(\'LM (batch size 5)\', 1)": {"null": 10.5}',
                "mend the entry",
            ) from None


def read_gns_regimes(path: Path) -> GnsTable:
    """Read the epochs from which each GNS batch size holds.

    Raises:
        InputError: A column is missing or a schedule is malformed; names the line.
    """
    rows = csv.DictReader(_read_text(path).splitlines())
    wanted = ("model", "initial_batch_size", "scale_factor", "schedule")
    missing = [column for column in wanted if column not in (rows.fieldnames or ())]
    if missing:
        raise InputError(
            f"{path}:1", f"missing column {missing[0]!r}", f"the header is {','.join(wanted)}"
        )
    table: dict[tuple[str, int, int], tuple[Regime, ...]] = {}
    for row in rows:
        place = f"{path}:{rows.line_num}"
        batch_size = _number(place, row, "initial_batch_size", int)
        scale_factor = _number(place, row, "scale_factor", int)
        try:
            schedule = _parse_schedule(row["schedule"])
        except (ValueError, AttributeError):
            raise InputError(
                f"{place}, schedule",
                f"{row['schedule']!r} is not like '0:16;31:32'",
                "give ascending epochs from 0, each with a larger batch size",
            ) from None
        table[row["model"], batch_size, scale_factor] = schedule
    return table


def _parse_schedule(text: str) -> tuple[Regime, ...]:
    steps = [tuple(map(int, step.split(":"))) for step in text.split(";")]
    starts = [start for start, _ in steps]
    sizes = [size for _, size in steps]
    if starts[0] != 0 or any(b <= a for column in (starts, sizes) for a, b in pairwise(column)):
        raise ValueError
    lengths = [*(b - a for a, b in pairwise(starts)), math.inf]
    return tuple(Regime(size, length) for size, length in zip(sizes, lengths, strict=True))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise InputError(str(path), str(reason), "give a readable file") from None


def _number(
    place: str, values: Mapping[str, str], column: str, kind: Callable[[str], Number]
) -> Number:
    try:
        return kind(values[column])
    except (ValueError, TypeError):  # a short row of a CSV table holds None
        wanted = "a whole number" if kind is int else "a number"
        raise InputError(
            f"{place}, {column}", f"{values[column]!r} is not {wanted}", "mend the field"
        ) from None


def _parse_job_type(place: str, text: str) -> tuple[str, int]:
    match = _JOB_TYPE.fullmatch(text)
    if match is None:
        raise InputError(
            f"{place}, job_type", f"{text!r} is not like 'LM (batch size 5)'", "mend the job type"
        )
    return match["model"], int(match["batch_size"])


def _parse_job(place: str, line: str, job_id: int) -> tuple[JobSpec, int]:
    fields = line.split("\t")
    if len(fields) != len(COLUMNS):
        raise InputError(
            place,
            f"{len(fields)} columns instead of {len(COLUMNS)}",
            f"the tab-separated columns are {', '.join(COLUMNS)}",
        )
    values = dict(zip(COLUMNS, fields, strict=True))
    model, batch_size = _parse_job_type(place, values["job_type"])
    if model not in SAMPLES_PER_EPOCH:
        raise InputError(
            f"{place}, job_type",
            f"unknown model {model!r}",
            f"known are {', '.join(sorted(SAMPLES_PER_EPOCH))}",
        )
    if values["mode"] not in list(Mode):
        raise InputError(
            f"{place}, mode",
            f"{values['mode']!r} is not an adaptation mode",
            f"known are {', '.join(Mode)}",
        )
    steps = _number(place, values, "total_steps", int)
    if steps <= 0:
        raise InputError(f"{place}, total_steps", f"{steps} is not positive", "mend the field")
    samples = SAMPLES_PER_EPOCH[model]
    try:
        spec = JobSpec(
            job_id=job_id,
            model=model,
            batch_size=batch_size,
            max_batch_size=max(MAX_BATCH_SIZE[model], batch_size),
            scale_factor=_number(place, values, "scale_factor", int),
            mode=Mode(values["mode"]),
            epochs=math.ceil(steps / math.ceil(samples / batch_size)) if batch_size else 1,
            samples_per_epoch=samples,
            arrival_seconds=_number(place, values, "arrival", float),
            budget=_number(place, values, "priority_weight", float),
        )
    except InputError as error:
        field = error.place.split(", ")[-1]
        column = "priority_weight" if field == "budget" else field
        raise InputError(f"{place}, {column}", error.problem, error.remedy) from None
    return spec, steps


def _truth(
    place: str, spec: JobSpec, total_steps: int, profile: Profile, gns: GnsTable
) -> GroundTruth:
    """What the published simulator makes of a job.

    Two rules differ there and here alike: the *profiled* batch sizes give the isolated
    run time; the *targets* are what the cluster meets, tested at the epoch begun.
    """
    try:
        profile.throughput(spec.model, spec.batch_size, spec.scale_factor)
    except InputError as error:
        raise InputError(place, error.problem, error.remedy) from None
    if spec.mode is Mode.GNS:
        table = gns.get(
            (spec.model, spec.batch_size, spec.scale_factor), (Regime(spec.batch_size, math.inf),)
        )
        profiled, targets = _gns_profiled(spec, table), _gns_targets(table)
    elif spec.mode is Mode.ACCORDION:
        profiled, targets = _accordion(spec)
    else:
        profiled, targets = [spec.batch_size] * spec.epochs, [spec.batch_size]
    if spec.batch_size >= spec.max_batch_size:
        targets = [spec.batch_size]

    def runnable(size: int) -> int:
        can_run = profile.can_run(spec.model, size, spec.scale_factor)
        return size if can_run else spec.batch_size

    isolated = sum(profile.epoch_seconds(spec, runnable(size)) for size in profiled)
    return GroundTruth(
        job_id=spec.job_id,
        total_steps=total_steps,
        isolated_seconds=isolated,
        targets=run_lengths(map(runnable, targets)),
    )


def run_lengths(batch_sizes: Iterable[int]) -> tuple[Regime, ...]:
    """Run-length encode the batch sizes of consecutive epochs."""
    return tuple(Regime(size, len(list(run))) for size, run in groupby(batch_sizes))


def _at(table: tuple[Regime, ...], epoch: int) -> tuple[int, int]:
    """Index and batch size of the regime that holds in an epoch."""
    for index, regime in enumerate(table):
        if epoch < regime.epochs:
            return index, regime.batch_size
        epoch -= int(regime.epochs)
    raise AssertionError("the last regime is open-ended")


def _gns_profiled(spec: JobSpec, table: tuple[Regime, ...]) -> list[int]:
    """The table's batch sizes, but the initial one in a last epoch beyond two regimes."""
    sizes = [_at(table, epoch)[1] for epoch in range(spec.epochs)]
    if _at(table, spec.epochs - 1)[0] >= 2:
        sizes[-1] = spec.batch_size
    return sizes


def _gns_targets(table: tuple[Regime, ...]) -> list[int]:
    """A change is due one epoch ahead of the table."""
    changes = sum(int(regime.epochs) for regime in table[:-1])
    return [_at(table, epoch + 1)[1] for epoch in range(changes + 1)]


def _accordion(spec: JobSpec) -> tuple[list[int], list[int]]:
    """Initial batch size in critical epochs, the largest elsewhere.

    Profiled, the first 30 % of the epochs are critical too, and so are two spans of
    the recommendation model; the cluster tests neither.
    """
    small, large = spec.batch_size, spec.max_batch_size
    profiled, targets = [], []
    for epoch in range(spec.epochs + 1):
        critical = _critical(spec, epoch)
        late = spec.model == "Recommendation" and (60 <= epoch < 70 or 80 <= epoch < 90)
        early = epoch <= 0.3 * spec.epochs
        profiled.append(small if critical or late or early else large)
        targets.append(small if critical else large)
    return profiled[: spec.epochs], targets


def _critical(spec: JobSpec, epoch: int) -> bool:
    """Whether the published simulator holds an epoch to be in a critical regime."""
    match spec.model:
        case "ResNet-18":
            first = 20 if spec.batch_size == 256 else 10
            return epoch < first or 150 <= epoch < 160 or 250 <= epoch < 260
        case "ResNet-50":
            return epoch % 30 < 10
        case "LM":
            return epoch < 10
        case "Recommendation":
            return epoch < {512: 30, 1024: 30, 2048: 40}.get(spec.batch_size, 10)
        case _:
            return True
