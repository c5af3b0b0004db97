"""`shockwave up`: a Prefect server, and a process that serves the deployments."""

import asyncio
import errno
import signal
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING

from flows.servers.children import POLL_SECONDS, child
from flows.servers.command import REPORTS, answers, server_command
from predictor.errors import InputError, Interrupted
from warehouse.analytics.catalog import build
from warehouse.store.folder import check_warehouse

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

DATABASE_SECONDS = 30.0
"""Timeout for connecting to the database."""

DATABASES = "postgresql+asyncpg://USER:PASSWORD@HOST:PORT/NAME or sqlite+aiosqlite:///PATH"


@dataclass(frozen=True)
class Service:
    """Configuration of the service.

    Attributes:
        host: Address to listen on.
        port: Port to listen on.
        database_url: Prefect's database; SQLite in Prefect's home if empty.
        warehouse: Folder that keeps the records of all runs, absolute.
    """

    host: str
    port: int
    database_url: str
    warehouse: Path

    @property
    def reports(self) -> Path:
        """The folder that reports are written to and served from."""
        return self.warehouse / "reports"

    @property
    def url(self) -> str:
        """URL of the UI for a browser on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def check(self) -> None:
        """Check the configuration before any process is started.

        Raises:
            InputError: The port is not available, the database cannot be reached, or the
                folder exists and is no warehouse.
            WarehouseError: The folder cannot be written.
        """
        if self.warehouse.exists():
            check_warehouse(self.warehouse)
        self._check_port()
        if self.database_url:
            _check_database(self.database_url)
        build(self.warehouse)  # last, as it writes

    def _check_port(self) -> None:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM
            )[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except socket.gaierror:
            raise InputError(
                "host", f"{self.host!r} is no known address", "try 127.0.0.1"
            ) from None
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise InputError(
                    "port",
                    f"{self.host}:{self.port} cannot be listened on ({error.strerror})",
                    "give another host or port",
                ) from None
            who = "a Prefect server" if answers(self.url) else "another program"
            raise InputError(
                "port", f"{who} is on port {self.port} already", "stop it or give another port"
            ) from None


def _check_database(url: str) -> None:
    from asyncpg import InterfaceError, PostgresError  # type: ignore[import-untyped]
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    try:
        asked = make_url(url)
    except ArgumentError:
        raise InputError("database_url", "is no URL of a database", f"give {DATABASES}") from None
    if asked.drivername not in ("postgresql+asyncpg", "sqlite+aiosqlite"):
        raise InputError(
            "database_url", f"{asked.drivername} is not supported", f"give {DATABASES}"
        )
    try:
        if asked.drivername == "sqlite+aiosqlite":
            with closing(sqlite3.connect(asked.database or ":memory:")) as database:
                database.execute("PRAGMA schema_version")
        else:
            asyncio.run(_connect(asked))
    except (  # SQLAlchemy does not wrap asyncpg's errors while connecting
        *(SQLAlchemyError, PostgresError, InterfaceError),
        *(sqlite3.Error, OSError, TimeoutError),
    ) as error:
        cause = getattr(error, "orig", None) or error
        reason = (str(cause).strip() or "no answer").splitlines()[0]
        raise InputError(
            "database_url",  # a URL is shown without its password
            f"{asked} cannot be reached ({reason})",
            "start the database or correct the URL",
        ) from None


async def _connect(url: "URL") -> None:
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(url)
    try:
        async with asyncio.timeout(DATABASE_SECONDS), engine.connect():
            pass
    finally:
        await engine.dispose()


def serve(service: Service, report: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT, then stop all started processes.

    Args:
        service: The configuration.
        report: Called with each line of status.

    Raises:
        InputError: See `Service.check`.
        WarehouseError: The warehouse cannot be written, or a started process ended by itself.
        Interrupted: SIGINT was received.
    """
    with _stopping() as stop, ExitStack() as started:
        service.check()
        report(f"Starting Prefect at {service.url}; the first start takes some 20 s.")
        command = server_command("create_app", service.host, service.port)
        server = started.enter_context(child("Prefect server", command, _server_env(service)))
        if not server.wait_until(lambda: answers(service.url), stop):
            return
        serving = started.enter_context(
            child(
                "serving the deployments",
                [sys.executable, "-m", "flows.service.serving", str(service.warehouse)],
                {"PREFECT_API_URL": f"{service.url}/api", REPORTS: str(service.reports)},
            )
        )
        if not serving.wait_until(serving.reported_ready.is_set, stop):
            return
        report(f"Ready: {service.url}/deployments (Ctrl-C stops it)")
        while not stop.wait(POLL_SECONDS):
            server.check()
            serving.check()


@contextmanager
def _stopping() -> Iterator[Event]:
    """An event that SIGTERM and SIGINT set; after SIGINT the context ends as interrupted."""
    stop, numbers = Event(), []

    def on_signal(number: int, frame: FrameType | None) -> None:
        numbers.append(number)
        stop.set()

    before = {
        number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if signal.SIGINT in numbers:
        raise Interrupted("shockwave up", "stopped", "start it again with the same options")


def _server_env(service: Service) -> dict[str, str]:
    from flows.servers.prefect_driver import SERVER_SETTINGS

    env = {setting.name: str(value) for setting, value in SERVER_SETTINGS.items()} | {
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_UI_API_URL": "/api",  # relative, so that any host name works
        "PREFECT_LOGGING_SERVER_LEVEL": "ERROR",
        REPORTS: str(service.reports),
    }
    if service.database_url:
        env["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = service.database_url
    return env
