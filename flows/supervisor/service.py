"""`shockwave up`: a Prefect server, the server of the deployments, and a service's scheduler."""

import asyncio
import math
import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING

from flows.deployments.forms import trace_folder
from flows.prefect_server.children import POLL_SECONDS, READY_SECONDS, Child
from flows.prefect_server.command import REPORTS, WAREHOUSE, answers, server_command, shows
from flows.prefect_server.logs import LogFormat, begin
from flows.scheduler.leadership import TOKEN, LeaseSite, lead
from flows.scheduler.options import DATABASE_URL, ServiceOptions
from flows.scheduler.process import FOLDER, LOCK, find_service, make_busy_error
from flows.supervisor.listening import ListenAddress
from predictor.errors import InputError, Interrupted, WarehouseError
from warehouse.analytics.catalog import build
from warehouse.inbox.database import without_password
from warehouse.inbox.inbox import Inbox
from warehouse.store.checks import check_links, check_warehouse
from warehouse.store.durable import writing
from warehouse.store.reader import Reader

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from flows.prefect_server.access import Access

DATABASE_SECONDS = 30.0
"""Timeout for connecting to the database. An engineering bound."""

STEADY_SECONDS = 60.0
"""Life of a process after which its next end counts as the first again. An engineering choice."""

TRIES = 6
"""Most ends of a process in a row; the last wait is of half a minute. An engineering choice."""

SILENT_SECONDS, SILENT_ROUNDS = 300.0, 3
"""A scheduler without progress for so long, and so many rounds more, hangs: it is killed and
started again. Engineering bounds, above the wait for hosts that do not answer; configured waits
are added (`_waits`)."""

APP = "flows.supervisor.app:create_app"
"""Factory of the server's app."""

DATABASES = "postgresql+asyncpg://USER:PASSWORD@HOST:PORT/NAME or sqlite+aiosqlite:///PATH"


@dataclass(frozen=True)
class Service:
    """Configuration of the service.

    Attributes:
        listening: Where it listens, and under which names it is reached.
        database_url: Prefect's database; SQLite in Prefect's home if empty.
        warehouse: Folder that keeps the records of all runs, absolute.
        options: Settings of the service that takes jobs in.
        standby: Whether to wait until no other process serves the warehouse.
        log_format: Format of its log.
    """

    listening: ListenAddress
    database_url: str
    warehouse: Path
    options: ServiceOptions = field(default_factory=ServiceOptions)
    standby: bool = False
    log_format: LogFormat = LogFormat.TEXT

    @property
    def reports(self) -> Path:
        """The folder that reports are written to and served from."""
        return self.warehouse / "reports"

    @property
    def traces(self) -> Path:
        """The folder of traces that forms name."""
        return trace_folder(self.warehouse)

    def check(self) -> None:
        """Check the configuration before any process is started.

        Raises:
            InputError: See `Listening.check`; or the database cannot be reached, or the folder
                holds other things than a warehouse.
            WarehouseBusy: The warehouse has a service, and this is not to stand by.
            WarehouseError: The folder cannot be written.
        """
        if not self.standby and find_service(self.warehouse):
            raise make_busy_error(self.warehouse)
        if (self.warehouse / LOCK).exists():  # a standby makes it first of all
            check_links(self.warehouse)
        elif self.warehouse.is_file() or any(self.warehouse.glob("*")):
            check_warehouse(self.warehouse)
        self.listening.check()
        if self.database_url:
            _check_database(self.database_url)
        self.options.check()
        build(self.warehouse)  # last, as it writes
        with Inbox(self.warehouse, self.database_url) as inbox:
            if name := inbox.run:
                self.options.check_same(name, Reader(self.warehouse).header(name))
        with writing(self.warehouse):
            self.reports.mkdir(exist_ok=True)  # served before the first report
            self.traces.mkdir(exist_ok=True)
            (self.warehouse / FOLDER).mkdir(exist_ok=True)  # no inbox is in it with Postgres


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
            "database_url",
            f"{without_password(asked)} cannot be reached ({reason})",
            "start the database or correct the URL",
        ) from None


async def _connect(url: "URL") -> None:
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(url)
    try:
        async with asyncio.timeout(DATABASE_SECONDS), engine.connect() as connection:
            encoding = (await connection.exec_driver_sql("SHOW server_encoding")).scalar()
        if encoding != "UTF8":
            problem = f"{without_password(url)} has the encoding {encoding}"
            raise InputError("database_url", problem, "create it with ENCODING 'UTF8'")
    finally:
        await engine.dispose()


def describe_access(listening: ListenAddress) -> tuple[str, str]:
    """Where the password and the page of a service are, in words."""
    from flows.prefect_server.access import installation_file

    return (
        f"The UI asks for a password: the line in {installation_file()}. "
        "Where a browser asks for a user name as well, it is the part before the colon.",
        f"Jobs, GPUs and the queue: {listening.shown}/live",
    )


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
    begin(service.log_format)
    with _stopping() as stop, ExitStack() as started:
        listening, url = service.listening, service.database_url
        place = LeaseSite(service.warehouse, url, listening.shown, service.options.speed)
        if not service.standby:
            service.check()
        leader = started.enter_context(lead(place, stop, report, standby=service.standby))
        if leader is None:
            return
        if service.standby:
            service.check()
        from flows.prefect_server.access import access_to, first_start

        access = access_to(listening.url, listening.proxy)
        report(f"Starting Prefect at {listening.shown}{first_start(url)}.")
        kept = list[SupervisedProcess]()
        for started_with in _processes(service, access, leader.token):
            process = SupervisedProcess(*started_with, report)
            kept.append(started.enter_context(closing(process)))
            if not process.wait_until_ready(stop):
                return
        for line in describe_access(listening):
            report(line)
        report(f"Ready: {listening.shown}/deployments (Ctrl-C stops it)")
        leader.ready()
        while not stop.wait(POLL_SECONDS):
            leader.check()
            for process in kept:
                process.keep()


Process = tuple[str, list[str], dict[str, str], Callable[[Child], bool], float, float]
"""Name, command line, environment, test for readiness, longest start and longest silence (s)."""


def _processes(service: Service, access: "Access", token: int) -> Iterator[Process]:
    """The server, the server of deployments, and the scheduler, in the order of their starts."""
    listening, warehouse, client = service.listening, str(service.warehouse), access.client_env()
    database = {DATABASE_URL: service.database_url} if service.database_url else {}
    yield (
        "Prefect server",
        server_command(APP, listening.host, listening.port, listening.tls),
        _server_env(service) | access.server_env(),
        lambda child: answers(access.url),
        READY_SECONDS,
        math.inf,
    )
    yield (
        "serving the deployments",
        [sys.executable, "-m", "flows.deployments.serving", warehouse],
        client | {REPORTS: str(service.reports)} | database,
        lambda child: child.reported_ready.is_set() and shows(access.url),
        READY_SECONDS,
        math.inf,
    )
    options, waits = service.options, _waits(service.options)
    yield (
        "scheduler",
        [sys.executable, "-m", "flows.scheduler.scheduler", warehouse, service.options.text],
        client | {TOKEN: str(token)} | database,
        lambda child: child.reported_ready.is_set(),
        READY_SECONDS + waits,
        SILENT_SECONDS + waits + SILENT_ROUNDS * options.round_seconds / options.speed,
    )


def _waits(options: ServiceOptions) -> float:
    """Seconds that a round may wait for containers.

    They end twice in it, each time in the grace period, and those of a gang start one after the
    other, on all nodes at most.
    """
    if options.cluster is None:
        return 0.0
    from containers.docker.daemon import WORK_SECONDS
    from flows.runs.cluster_file import read_cluster_file

    nodes = read_cluster_file(options.cluster)
    return 2.0 * (nodes.grace_seconds + WORK_SECONDS) + len(nodes.nodes) * WORK_SECONDS


class SupervisedProcess:
    """A process that is started again when it ends by itself.

    Args:
        name: Its name in messages.
        command: Its command line.
        env: Variables added to this process's environment.
        ready: Whether it is ready.
        ready_seconds: Timeout for its start, after which it is killed.
        silent_seconds: Time without a report of progress after which it is killed.
        report: Called with each line of status.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        ready: Callable[[Child], bool],
        ready_seconds: float,
        silent_seconds: float,
        report: Callable[[str], None],
    ) -> None:
        self._what, self._ready = (name, command, env, ready_seconds), ready
        self._silent_seconds = silent_seconds
        self._report, self._failures = report, 0
        self._begin()

    def _begin(self) -> None:
        self._child, self._began = Child(*self._what), monotonic()
        self._again_at: float | None = None

    def _is_ready(self) -> bool:
        return self._ready(self._child)

    def wait_until_ready(self, stop: Event) -> bool:
        """Wait for its first start; see `Child.wait_until`."""
        return self._child.wait_until(self._is_ready, stop)

    def keep(self) -> None:
        """Start it again some time after it has ended, sooner the longer it had run.

        Raises:
            WarehouseError: It ended too often in a row.
        """
        if self._again_at is not None:
            if monotonic() >= self._again_at:
                self._begin()
            return
        try:
            if self._child.is_ready(self._is_ready):
                self._check_alive()
        except WarehouseError as error:
            self._child.stop(0.0)
            steady = monotonic() - self._began > STEADY_SECONDS
            self._failures = 1 if steady else self._failures + 1
            if self._failures > TRIES:
                raise
            self._report(f"{error.place} {error.problem}; it is started again")
            self._again_at = monotonic() + 2.0**self._failures / 2.0

    def _check_alive(self) -> None:
        if monotonic() - self._child.heard_at > self._silent_seconds:
            problem, remedy = "does not go on", "see what it waits for"
            raise WarehouseError(self._child.name, problem, remedy)

    def close(self) -> None:
        """Stop it."""
        self._child.stop()


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
    import prefect
    from prefect.settings import get_current_settings

    from flows.prefect_server.prefect_driver import SERVER_SETTINGS

    settings = get_current_settings()

    env = {setting.name: str(value) for setting, value in SERVER_SETTINGS.items()} | {
        "PREFECT_SERVER_UI_API_URL": "/api",  # relative, so that any host name works
        "PREFECT_LOGGING_SERVER_LEVEL": "ERROR",
        REPORTS: str(service.reports),
        WAREHOUSE: str(service.warehouse),
    }
    if service.database_url:
        env["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = service.database_url
    usual = prefect.__ui_static_path__.parent
    if not settings.server.ui.static_directory and not os.access(usual, os.W_OK):
        env["PREFECT_UI_STATIC_DIRECTORY"] = str(settings.home / "ui")  # by another user
    return env
