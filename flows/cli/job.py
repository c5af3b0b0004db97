"""Commands about jobs of a service."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.connection import complete_jobs, connect, find_login
from flows.cli.options import Json, Warehouse
from flows.cli.output import print_filled, print_log, print_rows, print_table, say
from flows.scheduler.options import DATABASE_URL
from flows.scheduler.process import is_locked
from predictor.errors import InputError, WarehouseBusy
from warehouse import DEFAULT_WAREHOUSE

if TYPE_CHECKING:
    from flows.api.authorization import AuthorizedApi
    from flows.api.client import Client
    from flows.api.rows import Accepted, JobRow

POLL_SECONDS = 2.0
"""Interval at which `job wait` looks. An engineering choice."""


JobName = Annotated[
    str,
    typer.Argument(
        help="Id or name of a job, or NAME[INDEX] for a task of an array.",
        autocompletion=complete_jobs,
    ),
]
JobNames = Annotated[
    list[str],
    typer.Argument(
        help="Ids or names of jobs, or NAME[INDEX] for a task of an array.",
        autocompletion=complete_jobs,
    ),
]
Key = Annotated[
    str, typer.Option(help="Idempotency key: a repeated request with the same key has no effect.")
]


def print_accepted(accepted: "Accepted", name: str, as_json: bool, what: str = "") -> None:
    """Print the number and job of each accepted entry.

    `what` is the subject and the verb of the sentence for a command that is about no job, such as
    "window 4 of node 1 is".
    """
    first, kind, job = accepted.entry, accepted.kind, accepted.job_id
    if as_json:
        for n in range(accepted.jobs):
            about = {"entry": first + n, "kind": kind, "job_id": None if job is None else job + n}
            print_rows([about | {"name": name}], as_json)
        return
    jobs = f"job {job}"
    if job is not None and accepted.jobs > 1:
        jobs = f"jobs {job} to {job + accepted.jobs - 1}"
    if kind == "submit":
        verb = "are" if accepted.jobs > 1 else "is"
        say(f"{jobs}{f' ({name})' * bool(name)} {verb} accepted")
        return
    what = what or f"{kind} of {jobs if job is not None else f'node {name}'} is"
    takes = "they take" if what.endswith(" are") else "it takes"
    say(f"{what} accepted; {takes} effect in the next round")


def make_key(key: str, number: int) -> str:
    """Return the key of one of several requests of a command; the first one has its own."""
    return f"{key}#{number}" if key and number else key


def order(
    kind: str,
    targets: Sequence[str],
    warehouse: Path,
    as_json: bool,
    key: str,
    value: float = 0.0,
) -> None:
    """Give a command about some jobs or a node."""
    from tasks.commands import CommandKind

    with connect(warehouse) as service:
        for number, target in enumerate(targets):
            # A repetition of the whole command repeats each part's key.
            own = make_key(key, number)
            accepted = service.send_command(CommandKind(kind), target, value=value, key=own)
            print_accepted(accepted, target, as_json)


def _make_order(kind: str) -> Callable[..., None]:
    def give(
        jobs: JobNames,
        key: Key = "",
        warehouse: Warehouse = DEFAULT_WAREHOUSE,
        as_json: Json = False,
    ) -> None:
        order(kind, jobs, warehouse, as_json, key)

    return give


cancel, hold, release, requeue = map(_make_order, ("cancel", "hold", "release", "requeue"))


def set_budget(
    job: JobName,
    value: Annotated[float, typer.Argument(help="Its budget, relative to other jobs.")],
    key: Key = "",
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Change a job's budget in the market."""
    order("budget", [job], warehouse, as_json, key, value)


def print_queue(warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False) -> None:
    """List active jobs in order, with expected starts, ends and price."""
    with connect(warehouse) as service:
        asked = ("job_id", "ends_in_s", "waits_for", "status", "starts_in_s", "name")
        rows = [to_columns(row) for row in service.list_queue()]
    print_forecasts(rows, as_json, asked)
    if find_login() is None and not is_locked(Path(warehouse)):
        say("(the service is stopped; this is its state after its last round)", err=True)


def print_forecasts(
    rows: list[dict[str, Any]], as_json: bool, important: Sequence[str] = ()
) -> None:
    """Print rows with forecasts as `print_filled` does; tables say the age of all in one line."""
    ages = {row["forecast_age_s"] or 0.0 for row in rows}
    if not as_json:
        rows = [row | {"forecast_age_s": None} for row in rows]
    print_filled(rows, as_json, important)
    if age := max(ages, default=0.0):
        say(f"(forecasts are from {age:,.0f} s before the last round)", err=True)


def print_jobs(
    only: Annotated[
        str,
        typer.Option(
            help="Filter on columns: COLUMN=VALUE|VALUE,… with * for any text, such as "
            "status=runs|waits,by=ann."
        ),
    ] = "",
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """List the jobs of the service."""
    from flows.api.rows import JobRow
    from flows.runs.workload_source import parse_pairs
    from warehouse.workloads.logs.log import RowFilter

    asked = parse_pairs("only", only)
    if unknown := asked.keys() - (columns := [field.name for field in fields(JobRow)]):
        raise InputError("only", f"there is no column {min(unknown)}", f"give {', '.join(columns)}")
    chosen = RowFilter.of(asked)
    with connect(warehouse) as service:
        rows = [to_columns(row) for row in service.list_jobs()]
    found = [row for row in rows if chosen.has(_to_texts(row))]
    if only and not found and not as_json:
        print_table(columns, [])
        say("(no job matches)", err=True)
        return
    print_filled(found, as_json, ("status", "reason", "name"))


def wait(jobs: JobNames, warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False) -> None:
    """Wait until jobs have ended; exit code 1 if one did not finish."""
    from containers.runtime import EventKind

    with connect(warehouse) as service:
        # All are known before one is waited for.
        asked = [row for job in jobs for row in _find_tasks(service, job)]
        ends = [_wait_for(service, row) for row in asked]
    print_filled([to_columns(row) for row in ends], as_json, ("status", "reason", "name"))
    if any(row.status != EventKind.FINISHED for row in ends):
        raise typer.Exit(1)


def _find_tasks(service: "AuthorizedApi | Client", job: str) -> "list[JobRow]":
    """Return a job; for the name of an array all its tasks, which have consecutive ids."""
    last = service.get_job(job)
    if job != last.name:
        return [last]
    found = [last]
    for row in reversed(service.list_jobs()):
        if row.job_id == found[-1].job_id - 1 and (row.name, row.by) == (job, last.by):
            found.append(row)
    return found[::-1]


def _wait_for(service: "AuthorizedApi | Client", row: "JobRow") -> "JobRow":
    while row.ended_s is None and row.status != "refused":
        time.sleep(POLL_SECONDS)
        with suppress(WarehouseBusy):  # its server may be starting again
            row = service.get_job(str(row.job_id))
    return row


def print_logs(
    job: JobName,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Print new lines as they come, until the job ends."),
    ] = False,
    tail: Annotated[
        int | None, typer.Option(min=0, help="Print only so many of the last lines.")
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="A run in containers; by default the service's.")
    ] = None,
    cluster: Annotated[
        Path | None, typer.Option(help="Cluster file of the run (TOML); not needed for a service.")
    ] = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Print the output of a job's containers."""
    if run is None and cluster is None:
        with connect(warehouse) as service:
            _print_logs(service.read_logs(job, follow=follow, tail=tail), as_json)
        return
    from flows.api.job_logs import check_has_logs, has_ended, read_logs
    from flows.runs.cluster_file import read_site
    from warehouse.store.reader import Reader

    if run is None:
        from flows.api.commands import ServiceCommands

        with ServiceCommands(Path(warehouse).absolute(), os.environ.get(DATABASE_URL, "")) as local:
            run, number = local.run, local.find_job(job)
    elif job.isascii() and job.isdigit():
        number = int(job)
    else:
        remedy = "give the job's id: only jobs of a service have names"
        raise InputError("job", f"{job!r} is not an id", remedy)
    check_has_logs(reader := Reader(warehouse), run, number)
    if cluster is None:
        raise InputError("cluster", "is missing", "give the cluster file of the run")
    nodes = read_site(cluster)
    ended = partial(has_ended, reader, run, number)
    _print_logs(read_logs(nodes, run, number, follow=follow, has_ended=ended, tail=tail), as_json)


def _print_logs(parts: Iterable[bytes], as_json: bool) -> None:
    if as_json:
        from flows.api.log_format import parse_logs

        rows = ({"container": name, "line": line} for name, line in parse_logs(parts))
        print_rows(rows, as_json)
        return
    for text in parts:
        print_log(text)


def _to_texts(row: dict[str, Any]) -> dict[str, str]:
    return {name: "" if value is None else str(value) for name, value in row.items()}


def to_columns(row: Any) -> dict[str, Any]:
    """Return a row as columns, with GPUs as text."""
    return {
        field: " ".join(map(str, value)) if isinstance(value, tuple) else value
        for field, value in asdict(row).items()
    }
