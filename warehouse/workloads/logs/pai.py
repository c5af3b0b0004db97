"""Alibaba's PAI cluster (Weng et al., NSDI '22): jobs made of tasks, with shares of GPUs."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from predictor.errors import InputError
from warehouse.workloads.fields import read_text
from warehouse.workloads.logs.lines import Columns, read_lines, take_usable
from warehouse.workloads.logs.log import (
    NEVER_STARTED,
    NO_GPUS,
    NOT_ASKED,
    STILL_RUNNING,
    UNKNOWN,
    WAITS,
    JobLine,
    ReadOptions,
    TableJob,
    UnusableError,
)

TASK_HEADER = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu"),
    *("plan_mem", "plan_gpu", "gpu_type"),
)
JOB_HEADER = "job_name", "inst_id", "user", "status", "start_time", "end_time"
"""Columns of the tables, which are published without headers."""

TASKS = Columns(
    {
        "key": ("job_name",),
        "name": ("job_name",),
        "instances": ("inst_num",),
        "state": ("status",),
        "start": ("start_time",),
        "end": ("end_time",),
        "gpus": ("plan_gpu",),
        "gpu_type": ("gpu_type",),
    },
    needed=(("key",), ("instances",), ("start",), ("end",), ("gpus",)),
    units={},
    header=TASK_HEADER,
    members=("pai_task_table",),
)

JOBS = Columns(
    {"key": ("job_name",), "arrival": ("start_time",), "user": ("user",), "state": ("status",)},
    needed=(("key",), ("arrival",)),
    units={},
    header=JOB_HEADER,
    members=("pai_job_table",),
)


class Pai:
    """`pai_task_table`, with submissions and users from `pai_job_table` beside it."""

    unknown = (*UNKNOWN, f"{WAITS} after submission, without pai_job_table beside the trace")

    def read(self, path: Path, options: ReadOptions, left_out: Counter[str]) -> Iterator[TableJob]:
        """See `LogReader.read`."""
        tasks, jobs = _find_tables(path)
        header = options.header or _read_header(tasks)
        of_jobs = {
            name: text
            for name, text in options.only.items()
            if jobs and name.casefold() in JOB_HEADER
        }
        only = {name: options.only[name] for name in options.only if name not in of_jobs}
        about_jobs = replace(options, only=of_jobs)
        submitted = _read_submissions(jobs, about_jobs, left_out) if jobs else {}
        groups: dict[str, list[JobLine]] = {}
        asked = replace(options, header=header, only=only)
        for line in read_lines(tasks, TASKS, asked, left_out, several=True):
            groups.setdefault(line.text("key"), []).append(line)
        for key, lines in groups.items():
            known = submitted[key].selected if key in submitted else not of_jobs
            if not known or not any(line.selected for line in lines):
                left_out[NOT_ASKED] += 1
                continue
            make = partial(_make_job, lines, submitted.get(key))
            yield from take_usable(make, options, left_out)


def _find_tables(path: Path) -> tuple[Path, Path | None]:
    """Return the table of tasks, and that of jobs if it lies beside it."""
    folder = path if path.is_dir() else path.parent
    stems = {
        stem: next((found for found in sorted(folder.glob(f"{stem}*")) if _is_table(found)), None)
        for stem in ("pai_task_table", "pai_job_table")
    }
    jobs = stems["pai_job_table"]
    if not path.is_dir() and not path.name.startswith("pai_job_table"):
        return path, jobs
    tasks = stems["pai_task_table"]
    if tasks is None:
        remedy = "put pai_task_table there, which has the GPUs"
        raise InputError(str(folder), "has no pai_task_table", remedy)
    return tasks, jobs


def _is_table(path: Path) -> bool:
    return path.is_file() and path.suffix != ".header"


def _read_header(table: Path) -> list[str]:
    """Return the columns in the `.header` file beside a table; empty without one."""
    header = table.with_name(table.name.split(".")[0] + ".header")
    return read_text(header).strip().split(",") if header.is_file() else []


def _read_submissions(
    jobs: Path, options: ReadOptions, left_out: Counter[str]
) -> dict[str, JobLine]:
    """Return the lines of the jobs by their names."""
    chosen = replace(options, header=_read_header(jobs))
    lines = read_lines(jobs, JOBS, chosen, left_out, several=True)
    return {line.text("key"): line for line in lines}


def _make_job(lines: list[JobLine], submitted: JobLine | None) -> TableJob:
    """Return the job of its tasks: one gang, from the first start to the last end."""
    tasks = [line for line in lines if line.number("gpus") > 0]
    if not tasks:
        raise UnusableError(NO_GPUS)
    for role, reason in (("start", NEVER_STARTED), ("end", STILL_RUNNING)):
        if not all(line.text(role) for line in tasks):
            raise UnusableError(reason)
    shares = sum(line.number("gpus") * (line.number("instances") or 1.0) for line in tasks)
    launched = min(filter(_is_launched, lines), key=lambda line: line.number("start"))
    first = min(tasks, key=lambda line: line.number("start"))
    last = max(tasks, key=lambda line: line.number("end"))
    values = {
        **first.values,
        "end": last.values["end"],
        "arrival": submitted.text("arrival") if submitted else launched.text("start"),
        "user": submitted.text("user") if submitted else "",
        "state": (submitted.text("state") if submitted else "") or last.text("state"),
    }
    columns = {**first.columns, "arrival": "start_time", "user": "user"}
    line = replace(first, values=values, columns=columns)
    return line.job(None, round(shares / 100, 6))


def _is_launched(task: JobLine) -> bool:
    return bool(task.text("start"))


PAI = Pai()
