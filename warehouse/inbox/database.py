"""The databases of the inbox and of the lease: a SQLite file each, or one Postgres database.

Opening an empty database creates its tables.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from predictor.errors import InputError, WarehouseBusy, first_line
from warehouse.inbox.tables import ENTRIES, METADATA, VERSION, VERSIONS
from warehouse.store.durable import check_regular, writing

BUSY_SECONDS = 60.0
"""Longest time in seconds that a transaction waits for another. An engineering bound."""

POSTGRES = "postgresql+asyncpg"

LOCK = 0x5AFE
"""Advisory lock of Postgres that writing transactions hold: a number that no other program uses."""

Result = TypeVar("Result")


def without_password(url: URL) -> str:
    """Return a URL as text without its password, which can also be among its options."""
    return str(url.set(query={}))


class Database:
    """A database of entries or of the lease, which threads can share.

    Args:
        file: SQLite file, created if missing; unused with Postgres.
        url: URL of a Postgres database (`postgresql+asyncpg://…`); any other means the file.
        lock: Postgres advisory lock of writing transactions; transactions with other locks do not
            wait.

    Raises:
        InputError: The URL is invalid, or the database cannot be reached.
        WarehouseError: The file cannot be written.
        WarehouseBusy: The database does not answer, or is not writable.
    """

    def __init__(self, file: Path, url: str = "", lock: int = LOCK) -> None:
        try:
            asked = make_url(url) if url else None
        except ArgumentError:
            raise InputError("database_url", "is no URL of a database", _REMEDY) from None
        postgres = asked is not None and asked.drivername == POSTGRES
        self._postgres = _Postgres(asked) if asked is not None and postgres else None
        self._sqlite = None if postgres else _sqlite(file)
        self._shown = without_password(asked) if asked is not None and postgres else str(file)
        self._lock = lock
        self._do(_create_tables, LOCK)

    def read(self, work: Callable[[Connection], Result]) -> Result:
        """Run a query; in SQLite, within a single snapshot."""
        return self._do(work, None)

    def write(self, work: Callable[[Connection], Result]) -> Result:
        """Run an exclusive transaction; on return it is on disk."""
        return self._do(work, self._lock)

    def _do(self, work: Callable[[Connection], Result], lock: int | None) -> Result:
        try:
            if self._postgres:
                return self._postgres.do(work, lock)
            assert self._sqlite
            options = {"immediate": lock is not None}
            with self._sqlite.connect().execution_options(**options) as found, found.begin():
                return work(found)
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            reason = first_line(getattr(error, "orig", None) or error)
            problem = f"the database does not answer ({reason})"
            raise WarehouseBusy(self._shown, problem, "try again, or start the database") from None

    def close(self) -> None:
        """Close all connections."""
        if self._postgres:
            self._postgres.close()
        if self._sqlite:
            self._sqlite.dispose()


_REMEDY = f"give {POSTGRES}://USER:PASSWORD@HOST:PORT/NAME"


def _sqlite(file: Path) -> Engine:
    """Return an engine that flushes commits to disk; only the file's user can read it."""
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        # Never open an existing file: closing it would release this process's POSIX locks on it,
        # which SQLite uses. Another process would then remove the log to which this process writes.
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        check_regular(file)
    url = URL.create("sqlite", database=str(file))
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def durable(connection: Any, record: object) -> None:
        connection.isolation_level = None  # transactions begin below, not in the driver
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        alone = connection.get_execution_options().get("immediate")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if alone else "BEGIN")

    return engine


class _Postgres:
    """Transactions on Postgres, in a thread with an event loop: the driver is asynchronous."""

    def __init__(self, url: URL) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        # Reads use no transaction, which would cost two round trips: a statement sees all commits
        # either way.
        self._engine: AsyncEngine = create_async_engine(
            url, pool_pre_ping=True, isolation_level="AUTOCOMMIT"
        )

    def do(self, work: Callable[[Connection], Result], lock: int | None) -> Result:
        async def doing() -> Result:
            async with asyncio.timeout(BUSY_SECONDS), self._engine.connect() as connection:
                if lock is None:
                    return await connection.run_sync(work)
                await connection.execution_options(isolation_level="READ COMMITTED")
                async with connection.begin():
                    # Writers take turns, so that numbers follow the order of commits.
                    await connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({lock})")
                    return await connection.run_sync(work)

        return asyncio.run_coroutine_threadsafe(doing(), self._loop).result()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._engine.dispose(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _create_tables(connection: Connection) -> None:
    """Create the tables in an empty database; refuse a database of other tables."""
    versions, entries = (inspect(connection).has_table(t.name) for t in (VERSIONS, ENTRIES))
    if not versions and entries:
        raise InputError("database_url", "has tables of another program", "give another database")
    if not versions:
        METADATA.create_all(connection)
        connection.execute(insert(VERSIONS), {"version": VERSION})
    elif connection.scalar(select(VERSIONS.c.version)) != VERSION:
        problem = "is of an unknown version"
        raise InputError("database_url", problem, "use the program that wrote it")
