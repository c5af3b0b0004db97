"""The process that is the service of a warehouse: found by a lock, announced in a file."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from flows.prefect_server.children import POLL_SECONDS, STOP_SECONDS
from predictor.errors import WarehouseBusy, WarehouseError
from warehouse.store.durable import lock_run, write_text, writing

FOLDER = "inbox"
"""The folder of the inbox in a warehouse."""

ASKED_SECONDS = 1.0
"""Longest time for which a process that tests the lock holds it. An engineering bound."""

STATE = "service.json"

LOCK = Path(FOLDER) / ".service.lock"
"""The file in a warehouse that its service locks."""


@dataclass(frozen=True)
class ServiceProcess:
    """The process of a running service.

    Attributes:
        pid: Its process.
        url: Address of its UI.
        since: When it started, in seconds since the epoch.
        speed: Seconds of its run in a second.
        ready: Whether all processes that it started are ready.
    """

    pid: int
    url: str
    since: float
    speed: float
    ready: bool = False


@contextmanager
def announce(warehouse: Path, url: str, speed: float) -> Iterator[Callable[[], None]]:
    """Be the service of a warehouse within the context; yields a function that announces readiness.

    Raises:
        WarehouseBusy: Another process is its service.
    """
    folder = warehouse / FOLDER
    with writing(warehouse):
        folder.mkdir(parents=True, exist_ok=True)
    lock = _take_lock(warehouse)
    mine = ServiceProcess(os.getpid(), url, time.time(), speed)

    def write(*, ready: bool) -> None:
        with writing(warehouse):
            write_text(folder / STATE, json.dumps({**asdict(mine), "ready": ready}))

    try:
        write(ready=False)
        yield lambda: write(ready=True)
    finally:
        (folder / STATE).unlink(missing_ok=True)
        os.close(lock)


def _take_lock(warehouse: Path) -> int:
    """Take the lock of the service; a process that tests it holds it for a moment, too."""
    deadline = time.monotonic() + ASKED_SECONDS
    while True:
        try:
            return lock_run(warehouse / LOCK, "service")
        except WarehouseBusy:
            if time.monotonic() > deadline:
                raise make_busy_error(warehouse) from None
        time.sleep(ASKED_SECONDS / 100)


def make_busy_error(warehouse: Path) -> WarehouseBusy:
    """Make the error that a warehouse has a service already, with its address."""
    server = find_service(warehouse)
    where = f" at {server.url} (process {server.pid})" if server else ""
    return WarehouseBusy(
        str(warehouse),
        f"has a running service{where}",
        "stop it with shockwave down, or start another with --warehouse and --port",
    )


def is_locked(warehouse: Path) -> bool:
    """Whether a process is the service of a warehouse, or is starting as it."""
    lock = warehouse / LOCK
    if lock.exists():
        try:
            os.close(lock_run(lock, "service"))
        except WarehouseBusy:
            return True
    return False


def find_service(warehouse: Path) -> ServiceProcess | None:
    """Find the service of a warehouse; None if none is running."""
    if not is_locked(warehouse):
        return None
    folder = warehouse / FOLDER
    with suppress(OSError, ValueError, TypeError, RecursionError):
        server = ServiceProcess(**json.loads((folder / STATE).read_text()))
        if isinstance(server.pid, int) and server.pid > 1:  # other numbers mean process groups
            return server
    return None  # it is starting or stopping


def stop_service(warehouse: Path) -> bool:
    """Stop the service of a warehouse and its processes; returns whether there was one.

    Raises:
        WarehouseError: The process does not stop.
    """
    server = find_service(warehouse)
    if server is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(server.pid, signal.SIGTERM)
    deadline = time.monotonic() + 3 * STOP_SECONDS
    while (now := find_service(warehouse)) is not None and now.pid == server.pid:
        if time.monotonic() > deadline:
            raise WarehouseError(str(warehouse), f"process {server.pid} does not stop", "kill it")
        time.sleep(POLL_SECONDS)
    return True
