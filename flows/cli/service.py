"""The command `up`: Prefect's UI with the deployments."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Warehouse
from flows.cli.output import say
from warehouse import DEFAULT_WAREHOUSE


def up(
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
            envvar="PREFECT_SERVER_DATABASE_CONNECTION_URL",
            help="Prefect's database: Postgres or SQLite; a file of its own if not given.",
        ),
    ] = "",
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
) -> None:
    """Start Prefect's server and UI, and serve the flows that can be started from it."""
    from flows.service.listening import Listening
    from flows.service.service import Service, serve

    serve(
        Service(
            Listening(host, port, tls_cert, tls_key, behind_proxy),
            database_url,
            Path(warehouse).absolute(),
        ),
        lambda line: say(line, err=True),
    )
