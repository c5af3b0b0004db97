"""Commands about the service as a whole."""

import re
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.connection import connect, find_login
from flows.cli.job import print_forecasts, to_columns
from flows.cli.options import Json, Warehouse, expand_settings
from flows.cli.output import (
    print_fields,
    print_filled,
    print_rows,
    say,
)
from flows.cli.progress import get_progress
from flows.prefect_server.logs import LogFormat, is_structured, log_line
from flows.scheduler.options import DATABASE_URL, ServiceOptions
from predictor.errors import InputError
from warehouse import DEFAULT_WAREHOUSE

if TYPE_CHECKING:
    from flows.api.rows import EventRow


def _refuse_password(ctx: typer.Context, option: typer.CallbackParam, url: str) -> str:
    """Refuse a database URL with a password on the command line."""
    source = ctx.get_parameter_source(option.name or "")
    if source and source.name == "COMMANDLINE" and re.search(r"//[^/@]*:[^/]+@|[?&]password=", url):
        problem = "has a password, which every user of this machine sees in the process list"
        remedy = f"give the URL in {DATABASE_URL}, or keep the password in ~/.pgpass"
        raise InputError("--database-url", problem, remedy)
    return url


@expand_settings(options=ServiceOptions)
def start(
    options: ServiceOptions,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65_535)] = 4200,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate of the host (PEM), to serve HTTPS.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key (PEM).")] = None,
    behind_proxy: Annotated[
        str,
        typer.Option(help="URL under which a proxy or tunnel serves it."),
    ] = "",
    single_sign_on: Annotated[
        Path | None,
        typer.Option(help="File that says whom this proxy may name as users (TOML)."),
    ] = None,
    database_url: Annotated[
        str,
        typer.Option(
            envvar=DATABASE_URL,
            callback=_refuse_password,
            help="Prefect's database, Postgres or SQLite; by default a file in PREFECT_HOME.",
        ),
    ] = "",
    detach: Annotated[
        bool, typer.Option("--detach", help="Run in the background; return once it is ready.")
    ] = False,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="Wait, and take over when the serving one ends."),
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option(help="Lines of text, or JSON objects.")
    ] = LogFormat.TEXT,
    prefect_days: Annotated[
        float, typer.Option(help="Days for which Prefect keeps ended flow runs, at least 0.1.")
    ] = 1.0,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
) -> None:
    """Start a service that accepts jobs, and Prefect's server with its UI."""
    from flows.supervisor.config import ListenAddress, Service
    from flows.supervisor.service import serve

    service = Service(
        ListenAddress(host, port, tls_cert, tls_key, behind_proxy, single_sign_on),
        database_url,
        Path(warehouse).absolute(),
        options,
        standby,
        log_format,
        prefect_days,
    )
    if standby and detach:
        remedy = "start it by systemd, or with nohup and &"
        raise InputError("standby", "cannot be detached", remedy)
    if detach:
        from flows.supervisor.service import start_detached

        get_progress().begin("starting the service")
        command = [word for word in sys.argv[1:] if word != "--detach"]
        say(start_detached(service, command), err=True)
    else:
        serve(service, _print_line)


def _print_line(line: str) -> None:
    """Print a line of status; a full disk does not stop the service."""
    if is_structured():
        log_line("up", line)
        return
    with suppress(OSError):
        say(line, err=True)


def stop(warehouse: Warehouse = DEFAULT_WAREHOUSE) -> None:
    """Stop a warehouse's service; its jobs continue when it starts again."""
    from flows.scheduler.process import stop_service

    stopped = stop_service(Path(warehouse).absolute())
    say("stopped" if stopped else f"no service is running in {warehouse}")


def print_status(warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False) -> None:
    """Show the service's rounds, GPUs, jobs and pending requests."""
    from flows.scheduler.process import find_service, read_prefect_state

    folder = Path(warehouse).absolute()
    login = find_login()
    process = None if login else find_service(folder)
    about = {
        "service": "running" if process and process.ready else "starting" if process else "stopped",
        "url": process.url if process else None,
        "speed": process.speed if process else None,
        "prefect": read_prefect_state(folder) if process else None,
    }
    if process and process.down:
        about["down"] = "; ".join(process.down)
    with connect(folder) as service:
        rows = {**about, **asdict(service.get_status())}
    if login:
        rows |= {"service": "running", "url": login.url}
    if as_json:
        print_rows([rows], as_json)
    else:
        print_fields(rows)


def login(
    url: Annotated[
        str, typer.Argument(help="URL of the service: https://…, http://127.0.0.1:4200.")
    ],
) -> None:
    """Send commands to a remote service; reads a token from stdin."""
    from getpass import getpass

    from flows.api.client import Client, check_url
    from flows.api.login import Login, save_login

    check_url(url)
    with_terminal = sys.stdin.isatty()
    token = (getpass("Token: ") if with_terminal else sys.stdin.readline()).strip()
    if not token:
        raise InputError(
            "token",
            "is missing",
            "type one, or read it from a file: shockwave login URL < FILE; "
            "create one on the service's machine: shockwave token add NAME",
        )
    with Client(url, token) as client:
        caller = client.get_caller()
        file = save_login(Login(client.url, token))
    of = f" of {caller.tenant}" if caller.tenant else ""
    say(f"logged in to {client.url} as {caller.name}, {caller.role}{of}; token saved in {file}")


def whoami(warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False) -> None:
    """Print the caller's name, role and tenant, and the service."""
    from flows.api.notices import name_user_block

    login = find_login()
    with connect(warehouse) as service:
        caller = service.get_caller()
    about = {"name": caller.name, "role": caller.role.value, "tenant": caller.tenant}
    about["notices"] = name_user_block(caller.name)
    rows = about | {"service": login.url if login else str(Path(warehouse).absolute())}
    if as_json:
        print_rows([rows], as_json)
    else:
        print_fields(rows)


def logout() -> None:
    """Forget the remote service and use the local warehouse again."""
    from flows.api.login import delete_login

    say("logged out" if delete_login() else "not logged in")


def print_events(
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Print new lines as they come, until interrupted."),
    ] = False,
    after: Annotated[int, typer.Option(help="List only events after this round.")] = -1,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """List events of jobs and nodes, and users' requests."""
    with connect(warehouse) as service:
        for row in service.read_events(after, follow=follow):
            if as_json:
                print_rows([to_columns(row)], as_json)
            else:
                say(_describe_event(row))


def _describe_event(row: "EventRow") -> str:
    about = "" if row.job_id is None else f" job {row.job_id}{f' ({row.name})' * bool(row.name)}"
    gpus = f" on GPUs {' '.join(map(str, row.gpus))}" if row.gpus else ""
    reason = f": {row.reason}" if row.reason else ""
    return f"{row.at_s:>12,.1f} s  round {row.round}  {row.kind}{about}{gpus}{reason}"


Jobs = list[str] | None

CHANGED = ("whatif_ends_in_s", "later_s", "name", "whatif_starts_in_s", "ends_in_s", "starts_in_s")
"""Columns to leave out last if a forecast does not fit the terminal."""


def forecast(
    submit: Annotated[
        list[Path] | None, typer.Option(help="File (TOML) of a job to submit.")
    ] = None,
    cancel: Annotated[Jobs, typer.Option(help="A job to cancel.")] = None,
    hold: Annotated[Jobs, typer.Option(help="A job to hold.")] = None,
    release: Annotated[Jobs, typer.Option(help="A held job to release.")] = None,
    drain: Annotated[Jobs, typer.Option(help="A node to drain.")] = None,
    cordon: Annotated[Jobs, typer.Option(help="A node to cordon.")] = None,
    uncordon: Annotated[Jobs, typer.Option(help="A node to uncordon.")] = None,
    budget: Annotated[
        Jobs, typer.Option(help="TENANT=FACTOR: factor on the budgets of its jobs.")
    ] = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Forecast starts and ends of the active jobs, with and without a change."""
    from flows.api.requests import WhatIf, parse_budget_factor
    from flows.api.rows import SHOWN
    from flows.api.submission import parse_job
    from flows.runs.toml_file import read_toml
    from warehouse.wording import counted

    files = ((path, read_toml(path, "a job's TOML file")) for path in submit or ())
    change = WhatIf(
        submit=[parse_job(path, fields | {"code": ""}) for path, fields in files],
        cancel=cancel or [],
        hold=hold or [],
        release=release or [],
        drain=drain or [],
        cordon=cordon or [],
        uncordon=uncordon or [],
        budget=dict(map(parse_budget_factor, budget or ())),
    )
    with connect(warehouse) as service:
        asked = change.model_dump(mode="json", exclude_unset=True)
        rows = [asdict(row) for row in service.forecast(asked)]
    if not change.changes:
        rows = [
            {field: row[field] for field in row if not field.startswith(("whatif", "later"))}
            for row in rows
        ]
    if as_json or not change.changes:
        print_forecasts(rows, as_json)
        return
    reasons = [(row["name"] or f"job {row['job_id']}", row.pop("whatif_reason")) for row in rows]
    for row in rows:
        del row["forecast_age_s"]  # 0: all are of the last round
    print_filled(rows, as_json, CHANGED, always=CHANGED)
    moved = [row["later_s"] for row in rows if row["later_s"]]
    say("")
    later = sum(seconds > 0 for seconds in moved)
    say(f"{counted(later, 'job')} should end later, {len(moved) - later} earlier")
    endless = [f"{name} {reason}" for name, reason in reasons if reason]
    if endless:
        more = f"; and {len(endless) - SHOWN} more" if len(endless) > SHOWN else ""
        say(f"{counted(len(endless), 'job')} would not end: {'; '.join(endless[:SHOWN])}{more}")
