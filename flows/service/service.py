"""`shockwave up`: a Prefect server, and a process that serves the deployments."""

import asyncio
import signal
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
from flows.servers.command import REPORTS, TRACES, answers, server_command, shows
from flows.service.forms import traces_of
from flows.service.listening import Listening
from predictor.errors import InputError, Interrupted
from warehouse.analytics.catalog import build
from warehouse.store.durable import writing
from warehouse.store.folder import check_warehouse

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

DATABASE_SECONDS = 30.0
"""Timeout for connecting to the database. An engineering bound."""

DATABASES = "postgresql+asyncpg://USER:PASSWORD@HOST:PORT/NAME or sqlite+aiosqlite:///PATH"


@dataclass(frozen=True)
class Service:
    """Configuration of the service.

    Attributes:
        listening: Where it listens, and under which names it is reached.
        database_url: Prefect's database; SQLite in Prefect's home if empty.
        warehouse: Folder that keeps the records of all runs, absolute.
    """

    listening: Listening
    database_url: str
    warehouse: Path

    @property
    def reports(self) -> Path:
        """The folder that reports are written to and served from."""
        return self.warehouse / "reports"

    @property
    def traces(self) -> Path:
        """The folder of uploaded traces."""
        return traces_of(self.warehouse)

    def check(self) -> None:
        """Check the configuration before any process is started.

        Raises:
            InputError: See `Listening.check`; or the database cannot be reached, or the folder
                exists and is no warehouse.
            WarehouseError: The folder cannot be written.
        """
        if self.warehouse.exists():
            check_warehouse(self.warehouse)
        self.listening.check()
        if self.database_url:
            _check_database(self.database_url)
        build(self.warehouse)  # last, as it writes
        with writing(self.warehouse):
            self.reports.mkdir(exist_ok=True)  # served before the first report
            self.traces.mkdir(exist_ok=True)


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
        from flows.servers.access import access_to, installation_file

        listening = service.listening
        access = access_to(listening.url, listening.proxy)
        report(f"Starting Prefect at {listening.shown}; the first start takes some 20 s.")
        command = server_command("create_app", listening.host, listening.port, listening.tls)
        env = _server_env(service) | access.server_env()
        server = started.enter_context(child("Prefect server", command, env))
        if not server.wait_until(lambda: answers(access.url), stop):
            return
        serving = started.enter_context(
            child(
                "serving the deployments",
                [sys.executable, "-m", "flows.service.serving", str(service.warehouse)],
                access.client_env() | {REPORTS: str(service.reports)},
            )
        )
        if not serving.wait_until(
            lambda: serving.reported_ready.is_set() and shows(access.url), stop
        ):
            return
        report(
            f"The UI asks for a password: the line in {installation_file()}. "
            "Where a browser asks for a user name as well, it is the part before the colon."
        )
        report(f"Ready: {listening.shown}/deployments (Ctrl-C stops it)")
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
        "PREFECT_SERVER_UI_API_URL": "/api",  # relative, so that any host name works
        "PREFECT_LOGGING_SERVER_LEVEL": "ERROR",
        REPORTS: str(service.reports),
        TRACES: str(service.traces),
    }
    if service.database_url:
        env["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = service.database_url
    return env
