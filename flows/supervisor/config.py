"""Configuration of the service: listen address, database and settings."""

import asyncio
import errno
import socket
import sqlite3
import ssl
from contextlib import closing
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from flows.deployments.forms import trace_folder
from flows.prefect_server.command import answers
from flows.prefect_server.logs import LogFormat
from flows.scheduler.options import ServiceOptions
from flows.scheduler.process import FOLDER, find_service, make_busy_error
from predictor.errors import InputError
from warehouse.analytics.catalog import build
from warehouse.inbox.database import without_password
from warehouse.inbox.inbox import Inbox
from warehouse.store.checks import check_links, check_warehouse
from warehouse.store.durable import writing
from warehouse.store.reader import Reader

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

DATABASE_SECONDS = 30.0
"""Timeout for connecting to the database. An engineering bound."""

PREFECT_DAYS, FEWEST_DAYS, MOST_DAYS = 1.0, 0.1, 3_650.0
"""Default and bounds of the days for which Prefect keeps ended flow runs. The default is
the least that shows the night before. Prefect's own minimum is an hour."""

_EVERY = ("0.0.0.0", "::")


@dataclass(frozen=True)
class ListenAddress:
    """The address on which a service listens.

    Attributes:
        host: Address or name of an interface of this machine.
        tls_cert: Certificate of the host, to serve HTTPS.
        tls_key: The certificate's key.
        proxy: URL of the reverse proxy in front of it; empty if there is none.
        single_sign_on: File that says whom the proxy may name as users.
    """

    host: str
    port: int
    tls_cert: Path | None = None
    tls_key: Path | None = None
    proxy: str = ""
    single_sign_on: Path | None = None

    @property
    def tls(self) -> tuple[str, str] | None:
        """Files of certificate and key; None without HTTPS."""
        return (str(self.tls_cert), str(self.tls_key)) if self.tls_cert and self.tls_key else None

    @property
    def url(self) -> str:
        """URL for programs on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        scheme = "https" if self.tls else "http"
        return (
            f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"
        )

    @property
    def shown(self) -> str:
        """URL of the UI for a browser."""
        return self.proxy or self.url

    def check(self) -> None:
        """Refuse an address that is unusable, or that would expose the secret to a network.

        Raises:
            InputError: The port is not available, the certificate or its key cannot be used, or
                other machines could read the traffic.
        """
        self._check_files()
        self._check_proxy()
        if self.single_sign_on:
            from flows.web.single_sign_on import read_single_sign_on

            read_single_sign_on(self.single_sign_on)
            if not self.proxy:
                remedy = "give --behind-proxy with the address that browsers show"
                raise InputError("single_sign_on", "needs a proxy", remedy)
        try:
            addresses = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError):
            raise InputError(
                "host", f"{self.host!r} is not a known address", "try 127.0.0.1"
            ) from None
        public = [entry[4][0] for entry in addresses if not ip_address(entry[4][0]).is_loopback]
        if public and not self.tls and not self.proxy:
            raise InputError(
                "host",
                f"other machines reach {self.host}, and HTTP would expose the secret to them",
                "give --tls-cert and --tls-key, or --behind-proxy URL if a proxy serves HTTPS",
            )
        if self.tls and self.host in _EVERY:
            raise InputError(
                "host",
                f"no certificate is valid for {self.host}",
                "give the name or address of its certificate",
            )
        family, kind, protocol, _, address = addresses[0]
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            raise self._unavailable(error) from None

    def _check_files(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "tls_cert" if self.tls_cert is None else "tls_key"
            raise InputError(missing, "is missing", "give both --tls-cert and --tls-key")
        if self.tls:
            cert, key = self.tls
            try:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(cert, key, password=lambda: "")
            except OSError as error:  # includes ssl.SSLError
                raise InputError(
                    "tls_cert",
                    f"cannot be served with its key ({error.strerror or error})",
                    "give PEM files of a certificate and its key, without a passphrase",
                ) from None

    def _check_proxy(self) -> None:
        if not self.proxy:
            return
        try:
            parts = urlsplit(self.proxy)
            port = parts.port  # raises if it is not a number
        except ValueError:
            parts, port = urlsplit(""), None
        default = {"https": 443, "http": 80}.get(parts.scheme)
        plain = f"{parts.scheme}://{parts.netloc}"
        local = parts.hostname in ("localhost", "127.0.0.1", "::1")  # such as the end of ssh -L
        if not parts.hostname or plain != self.proxy or port == default or "@" in plain:
            raise InputError(
                "behind_proxy",
                f"{self.proxy!r} is not a plain URL",
                "give https://HOST or https://HOST:PORT, without path and default port",
            )
        if parts.scheme != "https" and not (parts.scheme == "http" and local):
            raise InputError(
                "behind_proxy",
                f"{self.proxy} would expose the secret to the network",
                "give an address with https://, or one of this machine",
            )

    def _unavailable(self, error: OSError) -> InputError:
        if error.errno != errno.EADDRINUSE:
            return InputError(
                "port",
                f"cannot listen on {self.host}:{self.port} ({error.strerror})",
                "give another host or port",
            )
        prefect = answers(self.url)
        who = "a service of another warehouse or another Prefect server"
        stop = "stop it (for a service: shockwave down --warehouse FOLDER)"
        return InputError(
            "port",
            f"{who if prefect else 'another program'} already listens on port {self.port}",
            f"{stop if prefect else 'stop it'}, or give another port",
        )


DATABASES = "postgresql+asyncpg://USER:PASSWORD@HOST:PORT/NAME or sqlite+aiosqlite:///PATH"


@dataclass(frozen=True)
class Service:
    """Configuration of the service.

    Attributes:
        database_url: URL of Prefect's database; if empty, SQLite in Prefect's home.
        warehouse: Absolute path of its warehouse.
        standby: Whether to wait until no other process serves the warehouse.
        prefect_days: Days for which Prefect keeps ended flow runs and events.
    """

    listening: ListenAddress
    database_url: str
    warehouse: Path
    options: ServiceOptions = field(default_factory=ServiceOptions)
    standby: bool = False
    log_format: LogFormat = LogFormat.TEXT
    prefect_days: float = PREFECT_DAYS

    @property
    def reports(self) -> Path:
        """Folder of reports, which the server serves."""
        return self.warehouse / "reports"

    @property
    def traces(self) -> Path:
        """Folder of the traces that the forms offer."""
        return trace_folder(self.warehouse)

    def check(self) -> None:
        """Check the configuration before any process starts.

        Raises:
            InputError: See `ListenAddress.check`; or the database cannot be reached, the folder is
                no warehouse, or a setting is invalid or differs from the run's.
            WarehouseBusy: The warehouse has a service, and this one is no standby.
            WarehouseError: The folder cannot be written.
        """
        if not self.standby and find_service(self.warehouse):
            raise make_busy_error(self.warehouse)
        if (self.warehouse / FOLDER).is_dir():  # a standby or an inbox may precede the warehouse
            check_links(self.warehouse)
        elif self.warehouse.is_file() or any(self.warehouse.glob("*")):
            check_warehouse(self.warehouse)
        self.listening.check()
        if not FEWEST_DAYS <= self.prefect_days <= MOST_DAYS:
            problem = f"{self.prefect_days:g} is out of range"
            remedy = f"give at least {FEWEST_DAYS:g} and at most {MOST_DAYS:,.0f}"
            raise InputError("prefect_days", problem, remedy)
        if self.database_url:
            _check_database(self.database_url)
        self.options.check()
        build(self.warehouse)  # last, because it writes files
        with Inbox(self.warehouse, self.database_url) as inbox:
            if name := inbox.run:
                self.options.check_same(name, Reader(self.warehouse).header(name))
        with writing(self.warehouse):
            self.reports.mkdir(exist_ok=True)  # served before the first report exists
            self.traces.mkdir(exist_ok=True)
            (self.warehouse / FOLDER).mkdir(exist_ok=True)  # with Postgres, no inbox does this


def _check_database(url: str) -> None:
    from asyncpg import InterfaceError, PostgresError  # type: ignore[import-untyped]
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    try:
        asked = make_url(url)
    except ArgumentError:
        raise InputError("database_url", "is not a database URL", f"give {DATABASES}") from None
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
