"""Limits of a query: time, memory, and disk space."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import TypeVar

import duckdb

from predictor.errors import InputError, first_line

Answer = TypeVar("Answer")

SPILL = ".spill-"
"""Prefix of the folders, within the warehouse, into which queries spill."""


@dataclass(frozen=True)
class QueryLimits:
    """Limits of a query.

    Attributes:
        seconds: Wall-clock time; None for no limit.
        memory_mib: DuckDB's memory in MiB; None for 80 % of what the process may use.
    """

    seconds: float | None = None
    memory_mib: int | None = None


UNLIMITED = QueryLimits()


def too_little_memory(error: duckdb.Error) -> InputError:
    """Return the error for a limit on memory that was exceeded."""
    problem = f"is too little for the query ({first_line(error)})"
    return InputError("memory", problem, "ask for less, or allow more memory")


@contextmanager
def connect(warehouse: Path, limits: QueryLimits) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open an in-memory database within limits that spills into the warehouse.

    A query may spill into half of the free disk space, because runs write to that disk as well. If
    the warehouse is not writable, nothing spills.
    """
    with ExitStack() as stack:
        folder, room = "", 0
        with suppress(OSError):
            made = TemporaryDirectory(prefix=SPILL, dir=warehouse, ignore_cleanup_errors=True)
            folder, room = stack.enter_context(made), shutil.disk_usage(warehouse).free // 2
        config: dict[str, str | bool | int | float | list[str]] = {"temp_directory": folder}
        if folder:
            config["max_temp_directory_size"] = f"{room}B"
        if limits.memory_mib is not None:
            config["memory_limit"] = f"{limits.memory_mib}MiB"
        connection = stack.enter_context(closing(duckdb.connect(config=config)))
        connection.execute("SET parquet_metadata_cache = true")  # a query scans a file many times
        connection.execute("SET TimeZone = 'UTC'")  # print times alike on every machine
        yield connection


def run_interruptible(
    connection: duckdb.DuckDBPyConnection,
    work: Callable[[], Answer],
    seconds: float | None = None,
    ended: Event | None = None,
) -> Answer:
    """Run a function on a connection so that an interrupt, or `seconds`, ends its query.

    Python handles signals between bytecode instructions of the main thread, and a query is a single
    instruction. The query therefore runs in another thread. `ended` is set if the query ends early.

    Raises:
        InputError: The query exceeded its limit.
    """
    answer: Future[Answer] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:
            answer.set_exception(error)

    try:
        Thread(target=run, daemon=True).start()
        if wait([answer], seconds).done:
            return answer.result()
    except KeyboardInterrupt:
        _end(connection, answer, ended)
        raise
    _end(connection, answer, ended)
    problem = f"the query was ended after {seconds:g} s"
    raise InputError("timeout", problem, "ask for less, or allow more seconds")


def _end(
    connection: duckdb.DuckDBPyConnection, answer: Future[Answer], ended: Event | None
) -> None:
    if ended is not None:
        ended.set()
    while not wait([answer], timeout=0.05).done:  # the query may not have started yet
        connection.interrupt()
    with suppress(BaseException):
        answer.result()
