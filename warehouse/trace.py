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
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from containers.virtual import GroundTruth
from predictor.errors import InputError
from predictor.job import JobSpec, Mode, Regime
from predictor.profile import Profile
from warehouse.published import (
    MAX_BATCH_SIZE,
    SAMPLES_PER_EPOCH,
    GnsTable,
    published_truth,
)
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

_JOB_TYPE = re.compile(r"(?P<model>.+) \(batch size (?P<batch_size>\d+)\)")

Number = TypeVar("Number", int, float)


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
            place = f"{trace}:{number}"
            spec = _parse_job(place, line, job_id=len(specs))
            specs.append(spec)
            try:
                truths.append(published_truth(spec, table, gns))
            except InputError as error:
                raise InputError(place, error.problem, error.remedy) from None
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


def _parse_job(place: str, line: str, job_id: int) -> JobSpec:
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
        return JobSpec(
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
            total_steps=steps,
        )
    except InputError as error:
        field = error.place.split(", ")[-1]
        column = "priority_weight" if field == "budget" else field
        raise InputError(f"{place}, {column}", error.problem, error.remedy) from None
