"""Slurm's accounting: `sacct` with any columns and delimiter, and its JSON."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from predictor.errors import InputError
from warehouse.workloads.logs.lines import Columns, read_lines, take_usable
from warehouse.workloads.logs.log import (
    NEVER_STARTED,
    NOT_ASKED,
    SEEN_BEFORE,
    STEPS,
    STILL_RUNNING,
    UNKNOWN,
    UNREADABLE,
    JobLine,
    ReadOptions,
    RowFilter,
    TableJob,
    UnusableError,
)
from warehouse.workloads.logs.objects import iterate_objects
from warehouse.workloads.moments import Moments, clean, parse_clock
from warehouse.workloads.opening import open_text

HEADER = (
    *("JobIDRaw", "JobID", "JobName", "User", "Account", "QOS", "Partition", "State", "ExitCode"),
    *("Submit", "Eligible", "Start", "End", "ElapsedRaw", "TimelimitRaw", "ReqTRES", "AllocTRES"),
    *("NNodes", "NodeList"),
)
"""Columns that docs/traces.md asks for, of exports without a header."""

COLUMNS = Columns(
    {
        "id": ("JobID",),
        "raw": ("JobIDRaw",),
        "cluster": ("Cluster",),
        "name": ("JobName",),
        "user": ("User",),
        "tenant": ("Account",),
        "state": ("State",),
        "arrival": ("Submit",),
        "eligible": ("Eligible",),
        "start": ("Start",),
        "end": ("End",),
        "elapsed": ("ElapsedRaw", "Elapsed"),
        "limit_minutes": ("TimelimitRaw",),
        "limit": ("Timelimit",),
        "gpus": ("AllocTRES",),
        "requested": ("ReqTRES",),
        "older": ("AllocGRES",),
        "oldest": ("ReqGRES",),
        "nodes": ("NNodes", "AllocNodes"),
    },
    needed=(
        ("id", "raw"),
        ("arrival",),
        ("elapsed", "end"),
        ("gpus", "requested", "older", "oldest"),
    ),
    units={},
    header=HEADER,
    free_text="name",
    unset="0",
    of_lines=True,
)

ENDED = "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE"
"""First words of states that end a job for good; the same id may then come again."""

RUNAWAY = "lost by Slurm (sacctmgr show runawayjobs)"

UNLIMITED = "unlimited", "partition_limit"

_TRES = re.compile(r"gres/gpu(?::(?P<kind>[^=,]+))?=(?P<number>\d+)")
_UNREADABLE = re.compile(r"gres/gpu(?::[^=,]+)?=(?!\d)")
_GRES = re.compile(r"gpu:(?:(?P<kind>[^:,()]+):)?(?P<number>\d+)")


class Sacct:
    """Rows of `sacct`: steps, requeues and the tasks of arrays become jobs."""

    unknown = (*UNKNOWN, "jobs of other partitions and clusters, unless they are in the export")

    def read(self, path: Path, options: ReadOptions, left_out: Counter[str]) -> Iterator[TableJob]:
        """See `LogReader.read`."""
        groups: dict[tuple[str, ...], list[JobLine]] = {}
        for line in _read_rows(path, options, left_out):
            if "." in line.text("id") or "." in line.text("raw"):
                left_out[STEPS] += 1
                continue
            raw = line.text("raw") or line.text("id")
            key = line.text("cluster"), raw, line.text("name"), line.text("user")
            groups.setdefault(key, []).append(line)
        for rows in groups.values():
            for runs in _split_reused(_drop_repeated(rows, left_out)):
                if not runs[-1].selected:
                    left_out[NOT_ASKED] += 1
                    continue
                yield from take_usable(partial(_make_job, runs), options, left_out)


def _read_rows(path: Path, options: ReadOptions, left_out: Counter[str]) -> Iterator[JobLine]:
    with open_text(path) as file:
        start = file.read(4096).lstrip()
        if not start.startswith("{"):
            yield from read_lines(path, COLUMNS, options, left_out, several=True)
            return
        text = start + file.read()
    found = re.search(r'"jobs"\s*:\s*\[', text)
    if not found:
        raise InputError(str(path), "is JSON without jobs", "give the JSON of sacct")
    roles = {role: names[0] for role, names in COLUMNS.names.items()}
    selection, moments = RowFilter.of(options.only), Moments.of(options.zone)
    for place, job in iterate_objects(path, text, found.end()):
        try:
            row = _flatten(place, job)
        except InputError:
            if not options.skip_unreadable:
                raise
            left_out[UNREADABLE] += 1
            continue
        for column in selection.patterns.keys() - {name.casefold() for name in row}:
            remedy = f"choose from {', '.join(row)}"
            raise InputError("only", f"the JSON of sacct has no {column!r}", remedy)
        values = {role: clean(row[name]) for role, name in roles.items() if name in row}
        asked = selection.has({name.casefold(): text for name, text in row.items()})
        yield JobLine(place, values, roles, moments, selected=asked)


def _flatten(place: str, job: Mapping[str, Any]) -> dict[str, str]:
    """Return a job of its JSON as a row of `sacct`."""
    try:
        array, time, tres = job.get("array") or {}, job["time"], job.get("tres") or {}
        state = job["state"]["current"]
        parent, task = _value(array.get("job_id")), _value(array.get("task_id"))
        raw = str(job["job_id"])
        limit = _value(time.get("limit"))
        return {
            "JobIDRaw": raw,
            "JobID": f"{parent}_{task}" if parent and task is not None else raw,
            "Cluster": str(job.get("cluster") or ""),
            "JobName": str(job.get("name") or ""),
            "User": str((job.get("association") or {}).get("user") or job.get("user") or ""),
            "Account": str(job.get("account") or ""),
            "Partition": str(job.get("partition") or ""),
            "QOS": str(job.get("qos") or ""),
            "State": state if isinstance(state, str) else " ".join(map(str, state)),
            "Submit": _time(time.get("submission")),
            "Eligible": _time(time.get("eligible")),
            "Start": _time(time.get("start")),
            "End": _time(time.get("end")),
            "ElapsedRaw": str(_value(time.get("elapsed")) or 0),
            "TimelimitRaw": "UNLIMITED" if limit is None else str(limit),
            "AllocTRES": _join(tres.get("allocated")),
            "ReqTRES": _join(tres.get("requested")),
            "NNodes": str(job.get("allocation_nodes") or ""),
            "NodeList": str(job.get("nodes") or ""),
        }
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"is not a job of sacct ({type(error).__name__}: {error})"
        raise InputError(place, problem, "give the JSON of sacct") from None


def _value(number: Any) -> Any:
    """Return a number that newer versions wrap as `{set, infinite, number}`; None if unset."""
    if isinstance(number, dict):
        return number["number"] if number.get("set") and not number.get("infinite") else None
    return number


def _time(seconds: Any) -> str:
    """Return a time; 0 stands for what has not happened."""
    return str(_value(seconds) or "")


def _join(resources: Sequence[Mapping[str, Any]] | None) -> str:
    return ",".join(
        f"{r['type']}/{r['name']}={r['count']}" for r in resources or () if r["type"] == "gres"
    )


def _drop_repeated(rows: list[JobLine], left_out: Counter[str]) -> list[JobLine]:
    """Return each run once: of the same run in overlapping exports, the row that has an end."""
    runs: dict[tuple[str, str], JobLine] = {}
    for row in rows:
        key = row.text("arrival"), row.text("start")
        if key in runs:
            left_out[SEEN_BEFORE] += 1
        if key not in runs or not runs[key].text("end"):
            runs[key] = row
    return [*runs.values()]


def _split_reused(rows: list[JobLine]) -> Iterator[list[JobLine]]:
    """Yield the runs of one job each; an id that ended for good may come again."""
    rows.sort(key=lambda row: row.text("arrival"))
    runs: list[JobLine] = []
    for row in rows:
        if runs and runs[-1].text("state").startswith(ENDED):
            yield runs
            runs = []
        runs.append(row)
    yield runs


def _make_job(runs: list[JobLine]) -> TableJob:
    """Return the job of its runs: requeues are one job, as long as all of them."""
    last, state = runs[-1], runs[-1].text("state")
    timed = "start" in last.columns
    started = [row for row in runs if row.text("start") or not timed]
    if state.startswith("PENDING") and timed and last.text("start"):
        raise UnusableError(RUNAWAY)
    if not started or (state.startswith("PENDING") and last is started[-1]):
        raise UnusableError(NEVER_STARTED)
    unended = "end" in last.columns and not last.text("end")
    if unended or state.startswith(("RUNNING", "SUSPENDED", "COMPLETING")):
        raise UnusableError(STILL_RUNNING)
    values = {
        **started[-1].values,
        "key": last.text("id") or last.text("raw"),
        "state": last.values.get("state", ""),
        "arrival": runs[0].values["arrival"],
        "eligible": runs[0].values.get("eligible", ""),
        "start": started[0].values.get("start", ""),
    }
    line = replace(started[-1], values=values)
    return line.job(
        _sum_elapsed(started),
        _count_gpus(started[-1])[0],
        attempts=len(started),
        gpu_type=_count_gpus(started[-1])[1],
        limit_seconds=_limit(last),
        periods=_list_periods(started),
    )


def _list_periods(runs: list[JobLine]) -> tuple[tuple[float, float], ...]:
    """Return start and end of each run of a job that ran several times."""
    return tuple(chain.from_iterable(row.periods() for row in runs)) if len(runs) > 1 else ()


def _sum_elapsed(runs: list[JobLine]) -> float | None:
    if not all(row.text("elapsed") for row in runs):
        return None if len(runs) == 1 else sum(row.span() for row in runs)
    return sum(row.number("elapsed", parse_clock) for row in runs)


def _count_gpus(row: JobLine) -> tuple[int, str]:
    """Return GPUs and their type: untyped and typed rows count the same GPUs."""
    for role in ("gpus", "requested"):
        found = [(m["kind"] or "", int(m["number"])) for m in _TRES.finditer(row.text(role))]
        if not found and _UNREADABLE.search(row.text(role)):
            raise row.refusal(role, f"{row.text(role)!r} has no number of GPUs")
        if found:
            plain = sum(number for kind, number in found if not kind)
            typed = [(kind, number) for kind, number in found if kind]
            kind = typed[0][0] if typed else ""
            return plain or sum(number for _, number in typed), kind
    for role in ("older", "oldest"):
        if found_older := _GRES.search(row.text(role)):
            gpus = int(found_older["number"]) * int(row.number("nodes") or 1)
            return gpus, found_older["kind"] or ""
    return 0, ""


def _limit(row: JobLine) -> float:
    """Return the limit of the run time in seconds; 0 without one."""
    if row.text("limit_minutes") and row.text("limit_minutes").lower() not in UNLIMITED:
        return row.number("limit_minutes") * 60
    if row.text("limit") and row.text("limit").lower() not in UNLIMITED:
        return row.number("limit", parse_clock)
    return 0.0


SACCT = Sacct()
