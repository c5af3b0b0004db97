"""The running service of a warehouse: a file lock identifies it, a file announces it."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from flows.prefect_server.children import POLL_SECONDS, STOP_SECONDS
from predictor.errors import WarehouseBusy, WarehouseError
from warehouse.store.durable import lock_run, write_text, writing

FOLDER = "inbox"
"""Folder of the inbox in a warehouse."""

ASKED_SECONDS = 1.0
"""How long to retry the service's lock: a process that tests it holds it briefly. An engineering
bound."""

STATE = "service.json"

LOCK = Path(FOLDER) / ".service.lock"
"""File that a warehouse's service locks."""


LATE = Path(FOLDER) / "late"
"""File with the number of late rounds of a virtual cluster, whose records do not show them."""

PREFECT = Path(FOLDER) / "prefect"
"""File with what a service's scheduler last found of Prefect's server."""


@dataclass(frozen=True)
class ServiceProcess:
    """A running service.

    Attributes:
        url: Address of the UI.
        since: Start, in seconds since the epoch.
        speed: Seconds of its run per second.
        ready: Whether all its processes were ready.
        down: Its processes that failed and are about to be restarted, in words.
    """

    pid: int
    url: str
    since: float
    speed: float
    ready: bool = False
    down: tuple[str, ...] = ()


@contextmanager
def announce(warehouse: Path, url: str, speed: float) -> Iterator[Callable[[Sequence[str]], None]]:
    """Be a warehouse's service within the context; yield a function that announces readiness.

    The function takes the processes that are down, in words.

    Raises:
        WarehouseBusy: Another process is the service.
    """
    folder = warehouse / FOLDER
    with writing(warehouse):
        folder.mkdir(parents=True, exist_ok=True)
    lock = _take_lock(warehouse)
    mine = ServiceProcess(os.getpid(), url, time.time(), speed)

    def write(now: ServiceProcess) -> None:
        with writing(warehouse):
            write_text(folder / STATE, json.dumps(asdict(now)))

    try:
        write(mine)
        yield lambda down: write(replace(mine, ready=True, down=tuple(down)))
    finally:
        (folder / STATE).unlink(missing_ok=True)
        os.close(lock)


def _take_lock(warehouse: Path) -> int:
    """Take the service's lock; retry for a moment, because a test of the lock holds it, too."""
    deadline = time.monotonic() + ASKED_SECONDS
    while True:
        try:
            return lock_run(warehouse / LOCK, "service")
        except WarehouseBusy:
            if time.monotonic() > deadline:
                raise make_busy_error(warehouse) from None
        time.sleep(ASKED_SECONDS / 100)


def make_busy_error(warehouse: Path) -> WarehouseBusy:
    """Return the error that a warehouse already has a service, with its address."""
    server = find_service(warehouse)
    where = f" at {server.url} (process {server.pid})" if server else ""
    return WarehouseBusy(
        str(warehouse),
        f"has a running service{where}",
        "stop it with shockwave down, or start another with --warehouse and --port",
    )


def is_locked(warehouse: Path) -> bool:
    """Return whether a process is a warehouse's service, or is starting as it."""
    import fcntl

    try:
        with (warehouse / LOCK).open("rb") as lock:  # also by those who may only read
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (FileNotFoundError, NotADirectoryError):
        pass
    return False


def find_service(warehouse: Path) -> ServiceProcess | None:
    """Return the running service of a warehouse; None if there is none."""
    if not is_locked(warehouse):
        return None
    folder = warehouse / FOLDER
    with suppress(OSError, ValueError, TypeError, RecursionError):
        server = ServiceProcess(**json.loads((folder / STATE).read_text()))
        if isinstance(server.pid, int) and server.pid > 1:  # other numbers mean process groups
            return server
    return None  # the service is starting or stopping


def write_prefect_state(warehouse: Path, state: str) -> None:
    """Keep what a service's scheduler found of Prefect's server, for `read_prefect_state`."""
    with writing(warehouse):
        write_text(warehouse / PREFECT, state)


def read_prefect_state(warehouse: Path) -> str | None:
    """Return what the scheduler last found of Prefect's server; None before its first round."""
    with suppress(OSError, ValueError):
        return (warehouse / PREFECT).read_text()
    return None


def count_late_round(warehouse: Path) -> None:
    """Count a late round of a virtual cluster, for `read_late_rounds`."""
    late = read_late_rounds(warehouse) + 1
    with suppress(WarehouseError), writing(warehouse):  # a full disk ends the round elsewhere
        write_text(warehouse / LATE, str(late))


def read_late_rounds(warehouse: Path) -> int:
    """Return the number of late rounds that the records do not show."""
    with suppress(OSError, ValueError):
        return int((warehouse / LATE).read_text())
    return 0


def stop_service(warehouse: Path) -> bool:
    """Stop a warehouse's service and its processes; return whether there was one.

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
