"""Tables of bare jobs, as published for production clusters: arrival, run time and GPUs.

Model, batch size and regimes are missing. They are drawn as by the generator, so that the isolated
run time is as close to the table's duration as whole epochs allow.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from predictor.errors import InputError, check_plain
from predictor.image import NAME
from predictor.job import Mode
from tasks.sources import Workload, sort_by_arrival
from warehouse.wording import counted
from warehouse.workloads.families import FAMILIES, generated_profile
from warehouse.workloads.fields import LARGEST, Row, parse_rows, read_text, suggest_mending
from warehouse.workloads.generator import (
    JobRequest,
    draw_family,
    draw_model,
    draw_modes,
    draw_regimes,
)
from warehouse.workloads.mix import MODE_WEIGHTS, MOST_SECONDS, check_weights

UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
"""Units of numeric times, in seconds."""

TIMES = ("arrival", "duration", "start", "end")
"""Roles whose columns can have a unit."""

ROLES = (*TIMES, "gpus", "gpu_percent", "instances", "name", "tenant", "model")
"""Roles of columns."""

MOMENT = "2026-03-02T08:00:00+01:00"
"""Example of an ISO date and time, for error messages."""

_MISSING = ("", "none", "null", "nan", "nat")


@dataclass(frozen=True, slots=True)
class TableJob:
    """A job as a table declares it.

    Attributes:
        arrival_seconds: Submission time, on any clock: the first job arrives at 0.
        seconds: Run time of the job alone.
        gpus: GPUs that the job holds at once.
        model: Jobs with the same model share a model family; None to draw the family.
        place: File and line, for error messages.
    """

    arrival_seconds: float
    seconds: float
    gpus: int
    tenant: str = "default"
    model: str | None = None
    place: str = ""
    name: str = ""


def read_job_table(
    path: Path,
    columns: Mapping[str, str],
    *,
    rng: np.random.Generator,
    modes: Mapping[Mode, float] = MODE_WEIGHTS,
    only: Mapping[str, str] | None = None,
    skip_unusable: bool = False,
) -> Workload:
    """Read a CSV table of jobs, and draw the missing models and regimes.

    Job ids number the jobs from 0 in the order of the file; arrivals count from the first.

    Args:
        path: The table, with a header.
        columns: Column by role: `arrival`; `duration`, or `start` and `end`; `gpus` or
            `gpu_percent`, per instance if `instances` is given; optionally `name`, `tenant` and
            `model`. A unit other than seconds follows the column's name, as in `hours:h`.
        rng: Source of all randomness.
        modes: Share of each adaptation mode.
        only: Required values by column; other lines are ignored.
        skip_unusable: Skip lines without GPUs, times or a run time instead of refusing them; the
            workload's source states how many.

    Raises:
        InputError: The file cannot be read or a field is wrong; the error names file and line.
    """
    only = only or {}
    _check_roles(columns)
    text = read_text(path)
    table = _Columns.of(columns, text.partition("\n")[0])
    check_weights("modes", modes)
    jobs: list[TableJob] = []
    skipped = 0
    for row in parse_rows(path, text, dict.fromkeys([*table.names.values(), *only])):
        if any(row.values[column].strip() != value for column, value in only.items()):
            continue
        unusable = table.why_unusable(row)
        if unusable is None:
            jobs.append(table.parse_job(row))
        elif skip_unusable:
            skipped += 1
        else:
            raise unusable
    if only and not (jobs or skipped):
        asked = ", ".join(f"{column}={value}" for column, value in only.items())
        raise InputError("only", f"no line of {path} has {asked}", "give values that are there")
    if not jobs:
        raise InputError(str(path), "holds no jobs to read", "give a table with at least one")
    source = [path.name, *(f"{column}={value}" for column, value in only.items())]
    if skipped:
        source.append(f"{counted(skipped, 'line')} skipped")
    return draw_workload(", ".join(source), jobs, rng, modes)


def _check_roles(columns: Mapping[str, str]) -> None:
    for role in columns:
        if role not in ROLES:
            raise InputError("columns", f"unknown {role!r}", f"known are {', '.join(ROLES)}")
    problem = None
    if "arrival" not in columns:
        problem = "no column for the arrival"
    elif ("duration" in columns) == bool({"start", "end"} & columns.keys()):
        problem = "needed is either duration, or start and end"
    elif ("start" in columns) != ("end" in columns):
        problem = "start and end go together"
    elif ("gpus" in columns) == ("gpu_percent" in columns):
        problem = "needed is either gpus or gpu_percent"
    if problem:
        remedy = "give for instance arrival=submit_time,duration=run_time,gpus=n"
        raise InputError("columns", problem, remedy)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Names of columns by role, and units of times by role, in seconds."""

    names: Mapping[str, str]
    units: Mapping[str, float]

    @classmethod
    def of(cls, columns: Mapping[str, str], header: str) -> "_Columns":
        """Split the units off the columns; refuse suffixes that are no units of their roles."""
        names, units = dict(columns), dict.fromkeys(TIMES, 1.0)
        for role, column in columns.items():
            name, _, unit = column.rpartition(":")
            if name and role in TIMES and unit in UNITS:
                names[role], units[role] = name, UNITS[unit]
            elif not name or column in header or name not in header:
                continue  # a colon of the column's own, or a column that the table lacks
            elif role not in TIMES:
                problem = f"{role} has the unit {unit!r}, and only {', '.join(TIMES)} have units"
                raise InputError("columns", problem, f"give {role}={name}")
            else:
                remedy = f"known are {', '.join(UNITS)}, as in {role}={name}:h"
                raise InputError("columns", f"unknown unit {unit!r} of {role}", remedy)
        return cls(names, units)

    def why_unusable(self, row: Row) -> InputError | None:
        """Return why a well-formed line is not a job; None if it is one."""
        remedy = "leave the line out or skip unusable ones"
        for role, column in self.names.items():
            if role not in ("name", "tenant", "model") and self._name(row, role) is None:
                return row.refusal(column, "holds no value", remedy)
        seconds, column = self._seconds(row)
        if not seconds > 0:
            return row.refusal(column, f"a run time of {seconds:g} s is not positive", remedy)
        gpus, column = self._gpus(row)
        return None if gpus else row.refusal(column, "the job has no GPUs", remedy)

    def parse_job(self, row: Row) -> TableJob:
        """Return the job of a usable line."""
        seconds, column = self._seconds(row)
        if seconds > MOST_SECONDS:
            raise row.refusal(column, f"{seconds:g} s are beyond all bounds", "mend the field")
        name = self._name(row, "name") or ""
        if name and not NAME.fullmatch(name):
            allowed = "letters, digits, '.', '_' and '-', at most 100"
            remedy = f"use {allowed}, or do without the role name"
            raise row.refusal(self.names["name"], f"{name!r} is not a name", remedy)
        return TableJob(
            place=row.place,
            arrival_seconds=self._time(row, "arrival"),
            seconds=seconds,
            gpus=self._gpus(row)[0],
            name=name,
            tenant=self._name(row, "tenant") or "default",
            model=self._name(row, "model"),
        )

    def _name(self, row: Row, role: str) -> str | None:
        """Return a field; None if the table lacks the role or the field is empty."""
        column = self.names.get(role)
        if column is None or row.values[column].strip().lower() in _MISSING:
            return None
        return row.name(column)

    def _time(self, row: Row, role: str) -> float:
        """Parse a number of units, or an ISO date and time, by default in UTC."""
        column = self.names[role]
        text = row.values[column].strip()
        try:
            seconds = float(check_plain(text)) * self.units[role]
        except ValueError:
            try:
                moment = datetime.fromisoformat(text)
            except ValueError:
                problem = f"{text!r} is neither a number nor an ISO date and time"
                remedy = (
                    suggest_mending(text)
                    if "," in text
                    else f"write it as a number, or as {MOMENT}"
                )
                raise row.refusal(column, problem, remedy) from None
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        if not abs(seconds) <= LARGEST:
            raise row.refusal(column, f"{text} is not a time", "mend the field")
        return seconds

    def _seconds(self, row: Row) -> tuple[float, str]:
        """Return the run time, and the column for its error messages."""
        if "duration" not in self.names:
            return self._time(row, "end") - self._time(row, "start"), self.names["end"]
        column = self.names["duration"]
        seconds = row.number(column, float) * self.units["duration"]
        if not math.isfinite(seconds):
            raise row.refusal(column, f"{seconds} is not a run time", "mend the field")
        return seconds, column

    def _gpus(self, row: Row) -> tuple[int, str]:
        """Return the GPUs of the whole job, and the column for its error messages."""
        instances = _parse_count(row, self.names["instances"]) if "instances" in self.names else 1
        if "gpus" in self.names:
            column = self.names["gpus"]
            gpus = instances * _parse_count(row, column)
        else:
            column = self.names["gpu_percent"]
            percent = max(row.number(column, float), 0.0)
            if not percent <= LARGEST:
                raise row.refusal(column, f"{percent} is not a share of a GPU", "mend the field")
            gpus = math.ceil(round(instances * percent / 100, 6))  # so that ten times 0.1 is 1
        if gpus > LARGEST:
            raise row.refusal(column, f"{gpus} GPUs are beyond all bounds", "mend the field")
        return gpus, column


def _parse_count(row: Row, column: str) -> int:
    """Parse an integer, which tables with gaps can write as 8.0; negative ones count as 0."""
    value = row.number(column, float)
    if not value.is_integer():
        raise row.refusal(column, f"{row.values[column]!r} is not a whole number", "mend the field")
    return max(int(value), 0)


def draw_workload(
    source: str,
    jobs: Sequence[TableJob],
    rng: np.random.Generator,
    modes: Mapping[Mode, float] = MODE_WEIGHTS,
) -> Workload:
    """Return a workload of bare jobs, at least one, with missing attributes drawn."""
    profile = generated_profile(sorted({job.gpus for job in jobs}))
    families = {family.name: family for family in FAMILIES}
    for model in dict.fromkeys(job.model for job in jobs if job.model):
        families[model] = families.get(model) or draw_family(rng)
    first = min(job.arrival_seconds for job in jobs)
    made = []
    for job_id, (job, mode) in enumerate(zip(jobs, draw_modes(rng, len(jobs), modes), strict=True)):
        family, batch_size = draw_model(rng, families[job.model] if job.model else None)
        arrival = job.arrival_seconds - first
        request = JobRequest(job_id, mode, job.gpus, arrival, job.seconds, job.tenant, job.name)
        made.append(draw_regimes(rng, request, family, batch_size, profile))
    specs, truths = sort_by_arrival(made)
    places = {job_id: job.place for job_id, job in enumerate(jobs) if job.place}
    return Workload(source=source, specs=specs, truths=truths, profile=profile, places=places)
