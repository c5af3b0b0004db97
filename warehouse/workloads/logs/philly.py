"""Microsoft's Philly clusters (Jeon et al., ATC '19): `cluster_job_log`, and a table made of it."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any

from predictor.errors import InputError
from warehouse.workloads.logs.lines import Columns, TabularFormat, take_usable
from warehouse.workloads.logs.log import (
    NEVER_STARTED,
    NOT_ASKED,
    SEEN_BEFORE,
    STILL_RUNNING,
    TYPES,
    UNKNOWN,
    WAITS,
    JobLine,
    ReadOptions,
    RowFilter,
    TableJob,
    UnusableError,
)
from warehouse.workloads.logs.objects import iterate_objects
from warehouse.workloads.moments import Moments, clean
from warehouse.workloads.opening import open_text

COLUMNS = {
    "key": "jobid",
    "arrival": "submitted_time",
    "tenant": "vc",
    "user": "user",
    "state": "status",
}
"""Keys of a job by role."""

NO_TIMES = "attempts without times"


class PhillyJson:
    """`cluster_job_log`: a JSON list of jobs, each with its attempts."""

    unknown = (*UNKNOWN, TYPES)

    def read(self, path: Path, options: ReadOptions, left_out: Counter[str]) -> Iterator[TableJob]:
        """See `LogReader.read`."""
        with open_text(path, ("cluster_job_log",)) as file:
            text = file.read()
        found = re.match(r"\s*\[", text)
        if not found:
            raise InputError(str(path), "is no JSON list of jobs", "give a cluster_job_log")
        selection, moments = RowFilter.of(options.only), Moments.of(options.zone)
        seen: set[str] = set()
        for place, job in iterate_objects(path, text, found.end()):
            if not selection.has({key: str(job.get(key, "")) for key in selection.patterns}):
                left_out[NOT_ASKED] += 1
            elif (key := str(job.get("jobid", ""))) in seen:
                left_out[SEEN_BEFORE] += 1
            else:
                seen.update({key} - {""})
                make = partial(_make_job, place, job, moments)
                yield from take_usable(make, options, left_out)


def _make_job(place: str, job: Mapping[str, Any], moments: Moments) -> TableJob:
    """Return the job of an object: as long as all its attempts, on the GPUs of the last one."""
    attempts = job.get("attempts") or []
    if not isinstance(attempts, list) or not all(isinstance(a, dict) for a in attempts):
        raise InputError(
            f"{place}, attempts", "is not a list of attempts", "give the file as published"
        )
    if not attempts:
        raise UnusableError(NEVER_STARTED)
    if _is_missing(attempts[-1].get("end_time")) and not _is_missing(
        attempts[-1].get("start_time")
    ):
        raise UnusableError(STILL_RUNNING)
    whole = [
        a
        for a in attempts
        if not _is_missing(a.get("start_time")) and not _is_missing(a.get("end_time"))
    ]
    if not whole:
        raise UnusableError(NO_TIMES)
    periods = [_find_periods(place, attempt, moments) for attempt in whole]
    times = tuple(chain.from_iterable(periods))
    values = {role: clean(str(job.get(key) or "")) for role, key in COLUMNS.items()}
    values |= {"start": str(whole[0]["start_time"]), "end": str(whole[-1]["end_time"])}
    columns = COLUMNS | {"start": "start_time", "end": "end_time"}
    line = JobLine(place, values, columns, moments)
    gpus = next(filter(None, (_count_gpus(place, a) for a in reversed(attempts))), 0)
    seconds = sum(end - start for start, end in times)
    several = times if len(times) > 1 else ()
    return line.job(seconds, gpus, attempts=len(attempts), periods=several)


def _is_missing(value: object) -> bool:
    return value in (None, "", "None")


def _find_periods(
    place: str, attempt: Mapping[str, Any], moments: Moments
) -> tuple[tuple[float, float], ...]:
    """Return start and end of an attempt; nothing if they are not in this order."""
    columns = {"start": "start_time", "end": "end_time"}
    values = {role: str(attempt[key]) for role, key in columns.items()}
    return JobLine(place, values, columns, moments).periods()


def _count_gpus(place: str, attempt: Mapping[str, Any]) -> int:
    try:
        return sum(len(node["gpus"]) for node in attempt.get("detail") or [])
    except (TypeError, KeyError, AttributeError):
        problem = "is not a list of nodes with their gpus"
        raise InputError(f"{place}, detail", problem, "give the file as published") from None


PHILLY_JSON = PhillyJson()

_TABLE = TabularFormat(
    Columns(
        {
            "arrival": ("timestamp",),
            "duration": ("duration",),
            "gpus": ("num_gpus",),
            "tenant": ("cluster",),
        },
        needed=(("arrival",), ("duration",), ("gpus",)),
        units={},
    ),
    unknown=(*UNKNOWN, TYPES, WAITS, "users"),
    count_seconds=lambda line: line.seconds("duration"),
)


class Philly:
    """The derived table `timestamp,duration,num_gpus,gpu_time,cluster`; or `cluster_job_log`."""

    unknown = _TABLE.unknown

    def read(self, path: Path, options: ReadOptions, left_out: Counter[str]) -> Iterator[TableJob]:
        """See `LogReader.read`."""
        with open_text(path, ("cluster_job_log",)) as file:
            is_json = _starts_with_bracket(file)
        return (PHILLY_JSON if is_json else _TABLE).read(path, options, left_out)


def _starts_with_bracket(file: IO[str]) -> bool:
    return file.read(4096).lstrip().startswith("[")


PHILLY = Philly()
