"""Jobs of a service: hand them in, steer them, look at them."""

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.completion import named_jobs
from flows.cli.options import Json, Warehouse, after_dashes, warehouse_named
from flows.cli.output import print_listed, print_log, print_rows, say
from flows.scheduler.options import DATABASE_URL
from flows.scheduler.process import is_locked
from predictor.errors import InputError
from predictor.job import Mode
from warehouse import DEFAULT_WAREHOUSE

if TYPE_CHECKING:
    from flows.api.authorization import AuthorizedApi
    from flows.api.client import Client
    from flows.api.login import Login
    from flows.api.rows import Accepted, EventRow
    from flows.runs.job_file import JobFile
    from tasks.commands import CommandKind

JobName = Annotated[
    str,
    typer.Argument(
        help="A job, by its id or name, or NAME[INDEX], a task of an array.",
        autocompletion=named_jobs,
    ),
]
Key = Annotated[
    str, typer.Option(help="Makes it idempotent: again with the same key, it is not repeated.")
]


def desk(warehouse: Path) -> "AuthorizedApi | Client":
    """The service of a command: that of the login, unless `--warehouse` is given."""
    if (login := asked_login()) is not None:
        from flows.api.client import Client

        return Client(login.url, login.token)
    from flows.api.authorization import open_local

    return open_local(Path(warehouse).absolute(), os.environ.get(DATABASE_URL, ""))


def asked_login() -> "Login | None":
    """The login of a command; None if it reads a warehouse."""
    from flows.api.login import read_login

    return None if warehouse_named.get() else read_login()


def submit(
    job: Annotated[
        list[str] | None,
        typer.Argument(help="The job's file (TOML), or after -- its command.", show_default=False),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Its name.")] = None,
    gpus: Annotated[
        int | None, typer.Option(help="GPUs of its gang; 1 if not given.", min=1)
    ] = None,
    model: Annotated[str | None, typer.Option(help="Its model, of those of the service.")] = None,
    mode: Annotated[Mode | None, typer.Option(help="How it adapts its batch size.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Batch size in the first epoch.")] = None,
    max_batch_size: Annotated[int | None, typer.Option(help="Largest batch size.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs to train.")] = None,
    samples_per_epoch: Annotated[int | None, typer.Option(help="Size of the data set.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="What it promises: adaptive, checkpointing or opaque.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="Image of its containers.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Who it is for.")] = None,
    budget: Annotated[
        float | None, typer.Option(help="Its budget in the market, relative to other jobs.")
    ] = None,
    priority: Annotated[
        float | None,
        typer.Option(help="Its weight among its tenant's jobs, which share their budgets."),
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(help="Seconds for which it may hold GPUs.")
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            help="A job that has to end well before it starts.", autocompletion=named_jobs
        ),
    ] = None,
    opportunistic: Annotated[
        bool | None, typer.Option("--opportunistic", help="Run it in what others leave.")
    ] = None,
    array: Annotated[
        str | None, typer.Option(help="Its tasks, such as 0-31%4: 32, of which 4 run at a time.")
    ] = None,
    retries: Annotated[
        int | None, typer.Option(help="How often it is launched again after crashes.")
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(help="Seconds in which it is to end; most policies only tell.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(help="A variable of its environment, NAME=VALUE.")
    ] = None,
    secret: Annotated[
        list[str] | None, typer.Option(help="Name of a file that it finds in /run/secrets.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say when it would start and end; submit nothing.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of a job's file, and exit.")
    ] = False,
    key: Key = "",
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Submit a job durably: once accepted, no crash loses it."""
    from flows.api.submission import parse_job, read_job_fields
    from flows.runs.job_fields import parse_variables
    from flows.runs.job_file import JobFile

    if schema:
        typer.echo(json.dumps(JobFile.model_json_schema(), indent=2))
        return
    options: dict[str, Any] = {
        "name": name,
        "scale_factor": gpus,
        "model": model,
        "mode": mode,
        "batch_size": batch_size,
        "max_batch_size": max_batch_size,
        "epochs": epochs,
        "samples_per_epoch": samples_per_epoch,
        "kind": kind,
        "image": image,
        "tenant": tenant,
        "budget": budget,
        "priority": priority,
        "max_seconds": max_seconds,
        "after": after or None,
        "array": array,
        "opportunistic": opportunistic,
        "retries": retries,
        "deadline_seconds": deadline,
        "environment": parse_variables("env", env) if env else None,
        "secrets": secret or None,
    }
    fields = {field: value for field, value in options.items() if value is not None}
    words, command = job or [], list(after_dashes.get())
    if words != command and not (len(words) == 1 and words[0].endswith(".toml")):
        problem = f"{words[0][:80]!r} is no job's file, which ends in .toml"
        raise InputError("job", problem, "write -- before a command: … -- python train.py")
    file = words[0] if words and not command else None
    with _by_options(fields, file), desk(warehouse) as service:
        if command:
            fields["command"] = command
        elif file is not None:
            fields = read_job_fields(Path(file), fields)
        if dry_run:
            _print_expected(
                asdict(service.forecast_job(fields)), parse_job(Path("job"), fields), as_json
            )
            return
        accepted = service.submit(fields, key=key)
    print_accepted(accepted, str(fields.get("name", "")), as_json)


OPTIONS = {
    "scale_factor": "gpus",
    "deadline_seconds": "deadline",
    "environment": "env",
    "secrets": "secret",
}
"""Options of `submit` by field of a job, where they differ."""


@contextmanager
def _by_options(given: Collection[str], file: str | None) -> Iterator[None]:
    """Name the option, in errors about a field of the job, unless its file gave it.

    Args:
        given: Fields that options gave.
        file: The job's file; None without one, where all fields are of options.
    """
    try:
        yield
    except InputError as error:
        place = error.place.removeprefix(f"{file or 'job'}: ")
        found = re.fullmatch(r"(\w+)([.\[].*)?", place)
        if found is None or (file is not None and found[1] not in given):
            raise
        field = found[1]
        raise type(error)(OPTIONS.get(field, field), error.problem, error.remedy) from None


def _print_expected(row: dict[str, Any], job: "JobFile", as_json: bool) -> None:
    from flows.api.submission import describe_launch

    if as_json:
        launch = job.model_dump(mode="json", exclude_unset=True)
        expected = {field: row[field] for field in row if field != "job_id"}
        print_rows([expected | {"launch": launch}], as_json)
        return
    say(f"it would be launched {describe_launch(job)}")
    if row["starts_in_s"] is None:
        waits = f" while it waits for {row['waits_for']}" * bool(row["waits_for"])
        say(f"it can run here; when it would start cannot be predicted{waits}")
        return
    for verb, what in (("start", "starts"), ("end", "ends")):
        low, high = row[f"{what}_low_s"], row[f"{what}_high_s"]
        say(f"it would {verb} in {row[f'{what}_in_s']:,.0f} s (80 %: {low:,.0f} to {high:,.0f} s)")
    if row["in_time"]:
        say(f"within its deadline of {row['deadline_in_s']:,.0f} s: {row['in_time']}")


def print_accepted(accepted: "Accepted", name: str, as_json: bool) -> None:
    """Print the accepted entries: number and job of each."""
    first, kind, job = accepted.entry, accepted.kind, accepted.job_id
    if as_json:
        print_rows(
            [
                {
                    "entry": first + n,
                    "kind": kind,
                    "job_id": None if job is None else job + n,
                    "name": name,
                }
                for n in range(accepted.jobs)
            ],
            as_json,
        )
        return
    jobs = f"job {job}"
    if job is not None and accepted.jobs > 1:
        jobs = f"jobs {job} to {job + accepted.jobs - 1}"
    if kind == "submit":
        verb = "are" if accepted.jobs > 1 else "is"
        say(f"{jobs}{f' ({name})' * bool(name)} {verb} accepted")
    else:
        about = f" of {jobs}" if job is not None else f" of node {name}"
        say(f"{kind}{about} is accepted; the next round takes it in")


def order(
    kind: "CommandKind", target: str, warehouse: Path, as_json: bool, key: str, value: float = 0.0
) -> None:
    """Give a command about a job or node."""
    with desk(warehouse) as service:
        accepted = service.send_command(kind, target, value=value, key=key)
    print_accepted(accepted, target, as_json)


def cancel(
    job: JobName, key: Key = "", warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False
) -> None:
    """Cancel a job at the end of this round."""
    from tasks.commands import CommandKind

    order(CommandKind.CANCEL, job, warehouse, as_json, key)


def hold(
    job: JobName, key: Key = "", warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False
) -> None:
    """Withhold GPUs from a job until it is released."""
    from tasks.commands import CommandKind

    order(CommandKind.HOLD, job, warehouse, as_json, key)


def release(
    job: JobName, key: Key = "", warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False
) -> None:
    """Release a held job."""
    from tasks.commands import CommandKind

    order(CommandKind.RELEASE, job, warehouse, as_json, key)


def requeue(
    job: JobName, key: Key = "", warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False
) -> None:
    """Preempt a job for a round and reset its back-off."""
    from tasks.commands import CommandKind

    order(CommandKind.REQUEUE, job, warehouse, as_json, key)


def budget(
    job: JobName,
    value: Annotated[float, typer.Argument(help="Its budget, relative to other jobs.")],
    key: Key = "",
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Change a job's budget in the market."""
    from tasks.commands import CommandKind

    order(CommandKind.BUDGET, job, warehouse, as_json, key, value)


def queue(warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False) -> None:
    """List active jobs in order, with expected starts, ends and price."""
    with desk(warehouse) as service:
        asked = ("job_id", "ends_in_s", "waits_for", "status", "starts_in_s", "name")
        print_listed([shown(row) for row in service.list_queue()], as_json, asked)
    if asked_login() is None and not is_locked(Path(warehouse)):
        say("(the service is stopped; this is how its last round left it)", err=True)


def print_jobs(warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False) -> None:
    """List all jobs of the service."""
    with desk(warehouse) as service:
        asked = ("status", "reason", "name")
        print_listed([shown(row) for row in service.list_jobs()], as_json, asked)


def logs(
    job: JobName,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until interrupted.")
    ] = False,
    run: Annotated[
        str | None, typer.Option(help="A run in containers, by default the service's.")
    ] = None,
    cluster: Annotated[
        Path | None, typer.Option(help="Its cluster file (TOML); a service's is known.")
    ] = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Print the output of a job's containers."""
    if run is None and cluster is None:
        with desk(warehouse) as service:
            _print_logs(service.read_logs(job, follow=follow), as_json)
        return
    from flows.api.job_logs import check_has_logs, read_logs
    from flows.runs.cluster_file import read_cluster_file
    from warehouse.store.reader import Reader

    if run is None:
        from flows.api.commands import ServiceCommands

        with ServiceCommands(Path(warehouse).absolute(), os.environ.get(DATABASE_URL, "")) as local:
            run, number = local.run, local.find_job(job)
    elif job.isascii() and job.isdigit():
        number = int(job)
    else:
        raise InputError("job", f"{job!r} is no id", "names are known of a service's jobs only")
    check_has_logs(Reader(warehouse), run, number)
    if cluster is None:
        raise InputError("cluster", "is missing", "give the cluster file of the run")
    _print_logs(read_logs(read_cluster_file(cluster), run, number, follow=follow), as_json)


def _print_logs(parts: Iterable[bytes], as_json: bool) -> None:
    if as_json:
        from flows.api.log_format import parse_logs

        rows = ({"container": name, "line": line} for name, line in parse_logs(parts))
        print_rows(rows, as_json)
        return
    for text in parts:
        print_log(text)


def events(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until interrupted.")
    ] = False,
    after: Annotated[int, typer.Option(help="List what came after this round only.")] = -1,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """List events of jobs and nodes, and users' requests."""
    with desk(warehouse) as service:
        for row in service.read_events(after, follow=follow):
            if as_json:
                print_rows([shown(row)], as_json)
            else:
                say(_in_words(row))


def _in_words(row: "EventRow") -> str:
    about = "" if row.job_id is None else f" job {row.job_id}{f' ({row.name})' * bool(row.name)}"
    gpus = f" on GPUs {' '.join(map(str, row.gpus))}" if row.gpus else ""
    reason = f": {row.reason}" if row.reason else ""
    return f"{row.at_s:>12,.1f} s  round {row.round}  {row.kind}{about}{gpus}{reason}"


def shown(row: Any) -> dict[str, Any]:
    """A row as its columns; GPUs as text."""
    return {
        field: " ".join(map(str, value)) if isinstance(value, tuple) else value
        for field, value in asdict(row).items()
    }
