"""Tables whose columns the user declares, role by role."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from predictor.errors import InputError
from warehouse.workloads.logs.lines import Columns, read_lines, take_usable
from warehouse.workloads.logs.log import UNKNOWN, JobLine, ReadOptions, TableJob
from warehouse.workloads.moments import UNITS
from warehouse.workloads.tabular import open_table

TIMES = ("arrival", "duration", "start", "end")
"""Roles whose columns can have a unit."""

ROLES = (
    *TIMES,
    *("gpus", "gpu_percent", "instances", "name", "tenant", "user", "model", "state", "gpu_type"),
)
"""Roles of columns."""


@dataclass(frozen=True)
class DeclaredTable:
    """A table with a column for each declared role.

    Attributes:
        roles: Column by role: `arrival`; `duration`, or `start` and `end`; `gpus` or
            `gpu_percent`, per instance if `instances` is given; optionally `name`, `tenant` and
            others. A unit other than seconds follows the column's name, as in `hours:h`. With
            `instances`, lines are tasks: those of the same name and arrival are one gang.
    """

    roles: Mapping[str, str]

    @property
    def unknown(self) -> tuple[str, ...]:
        """See `LogReader.unknown`."""
        return UNKNOWN

    def read(self, path: Path, options: ReadOptions, left_out: Counter[str]) -> Iterator[TableJob]:
        """See `LogReader.read`."""
        _check_roles(self.roles)
        columns = self._split_units(path, options)
        gangs: dict[object, list[JobLine]] = {}
        for number, line in enumerate(read_lines(path, columns, options, left_out)):
            tasks = "instances" in self.roles and line.text("name")
            key = (line.text("name"), line.text("arrival")) if tasks else number
            gangs.setdefault(key, []).append(line)
        for lines in gangs.values():
            yield from take_usable(partial(_make_job, lines), options, left_out)

    def _split_units(self, path: Path, options: ReadOptions) -> Columns:
        """Split the units off the columns; refuse suffixes that are not units of their roles."""
        with open_table(path, [], header=options.header) as table:
            there = {*table.columns} | {*options.header}
        names, units = dict(self.roles), {}
        for role, column in self.roles.items():
            name, _, unit = column.rpartition(":")
            if not name or column in there or name not in there:
                continue
            if role not in TIMES:
                problem = f"{role} has the unit {unit!r}, and only {', '.join(TIMES)} have units"
                raise InputError("columns", problem, f"give {role}={name}")
            if unit not in UNITS:
                remedy = f"choose from {', '.join(UNITS)}, as in {role}={name}:h"
                raise InputError("columns", f"unknown unit {unit!r} of {role}", remedy)
            names[role], units[role] = name, UNITS[unit]
        return Columns(
            {role: (name,) for role, name in names.items()},
            needed=[(role,) for role in names],
            units=units,
            free_text="name",
        )


def _check_roles(roles: Mapping[str, str]) -> None:
    for role in roles:
        if role not in ROLES:
            raise InputError("columns", f"unknown {role!r}", f"choose from {', '.join(ROLES)}")
    problem = None
    if "arrival" not in roles:
        problem = "no column for the arrival"
    elif ("duration" in roles) == bool({"start", "end"} & roles.keys()):
        problem = "needed is either duration, or start and end"
    elif ("start" in roles) != ("end" in roles):
        problem = "start and end go together"
    elif ("gpus" in roles) == ("gpu_percent" in roles):
        problem = "needed is either gpus or gpu_percent"
    if problem:
        remedy = "give for instance arrival=submit_time,duration=run_time,gpus=n"
        raise InputError("columns", problem, remedy)


def _make_job(lines: list[JobLine]) -> TableJob:
    """Return the job of its tasks: one gang, from the first start to the last end."""
    gpus = round(sum(_count_gpus(line) for line in lines), 6)
    tasks = [line for line in lines if _count_gpus(line) > 0] or lines
    if len(tasks) == 1:
        return tasks[0].job(tasks[0].seconds("duration"), gpus)
    if "duration" in tasks[0].columns:
        return tasks[0].job(max(line.seconds("duration") or 0.0 for line in tasks), gpus)
    first = min(tasks, key=lambda line: line.at("start"))
    last = max(tasks, key=lambda line: line.at("end"))
    return replace(first, values={**first.values, "end": last.values["end"]}).job(None, gpus)


def _count_gpus(line: JobLine) -> float:
    instances = line.number("instances") if "instances" in line.columns else 1.0
    if "gpus" in line.columns:
        return instances * line.number("gpus")
    return instances * line.number("gpu_percent") / 100
