"""The service as a whole: `up`, `down`, `status`."""

import re
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Json, Warehouse, takes
from flows.cli.output import print_fields, print_rows, say
from flows.prefect_server.logs import LogFormat, structured, tell
from flows.scheduler.options import DATABASE_URL, ServiceOptions
from predictor.errors import InputError
from warehouse import DEFAULT_WAREHOUSE


def _without_password(ctx: typer.Context, option: typer.CallbackParam, url: str) -> str:
    """A database's URL; a URL with a password is refused on the command line."""
    source = ctx.get_parameter_source(option.name or "")
    if source and source.name == "COMMANDLINE" and re.search(r"//[^/@]*:[^/]+@|[?&]password=", url):
        problem = "has a password, which all users of this machine see in the list of processes"
        raise InputError("--database-url", problem, f"give the URL in {DATABASE_URL}, or ~/.pgpass")
    return url


@takes(options=ServiceOptions)
def up(
    options: ServiceOptions,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65_535)] = 4200,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate of the host (PEM), to serve HTTPS.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key (PEM).")] = None,
    behind_proxy: Annotated[
        str,
        typer.Option(help="Address at which a proxy or tunnel serves it, as browsers write it."),
    ] = "",
    database_url: Annotated[
        str,
        typer.Option(
            envvar=DATABASE_URL,
            callback=_without_password,
            help="Prefect's database: Postgres or SQLite; a file of its own if not given.",
        ),
    ] = "",
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once it is ready, and let it run on.")
    ] = False,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="Wait, and take over when the one that serves ends."),
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option(help="Lines of text, or JSON objects with ids of what happens.")
    ] = LogFormat.TEXT,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
) -> None:
    """Start a service that accepts jobs, and Prefect's server with its UI."""
    from flows.supervisor.config import ListenAddress, Service
    from flows.supervisor.service import serve

    service = Service(
        ListenAddress(host, port, tls_cert, tls_key, behind_proxy),
        database_url,
        Path(warehouse).absolute(),
        options,
        standby,
        log_format,
    )
    if standby and detach:
        raise InputError(
            "standby", "cannot be detached", "start it by systemd, or with nohup and &"
        )
    if detach:
        from flows.cli.progress import progress
        from flows.supervisor.service import start_detached

        progress().stage("starting the service")
        say(start_detached(service), err=True)
    else:
        serve(service, _print_line)


def _print_line(line: str) -> None:
    """Print a line of status; a full disk of the log does not stop the service."""
    if structured():
        tell("up", line)
        return
    with suppress(OSError):
        say(line, err=True)


def down(warehouse: Warehouse = DEFAULT_WAREHOUSE) -> None:
    """Stop a warehouse's service; its jobs continue when it starts again."""
    from flows.scheduler.process import stop_service

    stopped = stop_service(Path(warehouse).absolute())
    say("stopped" if stopped else f"no service is running in {warehouse}")


def status(warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False) -> None:
    """Show the service's rounds, GPUs, jobs and pending requests."""
    from flows.cli.jobs import asked_login, desk
    from flows.scheduler.process import find_service

    folder = Path(warehouse).absolute()
    login = asked_login()
    process = None if login else find_service(folder)
    about = {
        "service": "running" if process and process.ready else "starting" if process else "stopped",
        "url": process.url if process else None,
        "speed": process.speed if process else None,
    }
    with desk(folder) as service:
        rows = {**about, **asdict(service.get_status())}
    if login:
        rows |= {"service": "running", "url": login.url}
    if as_json:
        print_rows([rows], as_json)
    else:
        print_fields(rows)


def login(
    url: Annotated[
        str, typer.Argument(help="Where the service is: https://…, http://127.0.0.1:4200.")
    ],
) -> None:
    """Send commands to a remote service; reads a token from stdin."""
    import sys
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
            "type one, or have it read from a file: shockwave login URL < FILE; "
            "the service's machine makes one: shockwave token add NAME",
        )
    with Client(url, token) as client:
        caller = client.get_caller()
        file = save_login(Login(client.url, token))
    of = f" of {caller.tenant}" if caller.tenant else ""
    say(f"logged in to {client.url} as {caller.name}, {caller.role}{of}; kept in {file}")


def logout() -> None:
    """Forget the remote service and use the local warehouse again."""
    from flows.api.login import delete_login

    say("logged out" if delete_login() else "nobody is logged in")
