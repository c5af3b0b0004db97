"""Commands about jobs of a service."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.connection import complete_jobs, connect, find_login
from flows.cli.options import Json, Warehouse
from flows.cli.output import print_filled, print_log, print_rows, say
from flows.scheduler.options import DATABASE_URL
from flows.scheduler.process import is_locked
from predictor.errors import InputError
from warehouse import DEFAULT_WAREHOUSE

if TYPE_CHECKING:
    from flows.api.rows import Accepted


JobName = Annotated[
    str,
    typer.Argument(
        help="Id or name of a job, or NAME[INDEX] for a task of an array.",
        autocompletion=complete_jobs,
    ),
]
Key = Annotated[
    str, typer.Option(help="Idempotency key: a repeated request with the same key has no effect.")
]


def print_accepted(accepted: "Accepted", name: str, as_json: bool, what: str = "") -> None:
    """Print the number and job of each accepted entry; `what` names a command about no job."""
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
    what = what or f"{kind} of {jobs if job is not None else f'node {name}'}"
    say(f"{what} is accepted; it takes effect in the next round")


def order(
    kind: str, target: str, warehouse: Path, as_json: bool, key: str, value: float = 0.0
) -> None:
    """Give a command about a job or node."""
    from tasks.commands import CommandKind

    with connect(warehouse) as service:
        accepted = service.send_command(CommandKind(kind), target, value=value, key=key)
    print_accepted(accepted, target, as_json)


def _make_order(kind: str) -> Callable[..., None]:
    def give(
        job: JobName, key: Key = "", warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False
    ) -> None:
        order(kind, job, warehouse, as_json, key)

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
    order("budget", job, warehouse, as_json, key, value)


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


def print_jobs(warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False) -> None:
    """List all jobs of the service."""
    with connect(warehouse) as service:
        asked = ("status", "reason", "name")
        print_filled([to_columns(row) for row in service.list_jobs()], as_json, asked)


def print_logs(
    job: JobName,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Print new lines as they come, until the job ends."),
    ] = False,
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
            _print_logs(service.read_logs(job, follow=follow), as_json)
        return
    from flows.api.job_logs import check_has_logs, has_ended, read_logs
    from flows.runs.cluster_file import read_cluster_file
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
    nodes = read_cluster_file(cluster)
    ended = partial(has_ended, reader, run, number)
    _print_logs(read_logs(nodes, run, number, follow=follow, has_ended=ended), as_json)


def _print_logs(parts: Iterable[bytes], as_json: bool) -> None:
    if as_json:
        from flows.api.log_format import parse_logs

        rows = ({"container": name, "line": line} for name, line in parse_logs(parts))
        print_rows(rows, as_json)
        return
    for text in parts:
        print_log(text)


def to_columns(row: Any) -> dict[str, Any]:
    """Return a row as columns, with GPUs as text."""
    return {
        field: " ".join(map(str, value)) if isinstance(value, tuple) else value
        for field, value in asdict(row).items()
    }
