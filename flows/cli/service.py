"""The service as a whole: `up`, `down`, `status`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Json, Warehouse, takes
from flows.cli.output import print_rows, say
from flows.service.options import DATABASE_URL, ServiceOptions
from warehouse import DEFAULT_WAREHOUSE


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
            help="Prefect's database: Postgres or SQLite; a file of its own if not given.",
        ),
    ] = "",
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once it is ready, and let it run on.")
    ] = False,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
) -> None:
    """Start a service that takes jobs in, and Prefect's server with its UI."""
    from flows.service.listening import Listening
    from flows.service.service import Service, serve

    service = Service(
        Listening(host, port, tls_cert, tls_key, behind_proxy),
        database_url,
        Path(warehouse).absolute(),
        options,
    )
    if detach:
        from flows.service.detached import start_detached

        say(start_detached(service), err=True)
    else:
        serve(service, lambda line: say(line, err=True))


def down(warehouse: Warehouse = DEFAULT_WAREHOUSE) -> None:
    """Stop the service of a warehouse; its jobs go on at its next start."""
    from flows.service.running import stop

    stopped = stop(Path(warehouse).absolute())
    say("stopped" if stopped else f"no service is running in {warehouse}")


def status(warehouse: Warehouse = DEFAULT_WAREHOUSE, as_json: Json = False) -> None:
    """Say where the service stands: rounds, GPUs, jobs, and what waits in its inbox."""
    from flows.cli.jobs import desk
    from flows.service.running import running

    folder = Path(warehouse).absolute()
    process = running(folder)
    about = {
        "service": "running" if process and process.ready else "starting" if process else "stopped",
        "url": process.url if process else None,
        "speed": process.speed if process else None,
    }
    with desk(folder) as found:
        rows = {**about, **asdict(found.status())}
    if as_json:
        print_rows([rows], as_json)
    else:
        print_rows(({"figure": name, "value": value} for name, value in rows.items()), as_json)
