"""Runners of a campaign's cells: threads and processes of this machine; checks of all runners."""

import atexit
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from multiprocessing.connection import wait
from threading import Thread
from urllib.parse import urlsplit

from flows.campaigns import Runner
from flows.prefect_server.teardown import silence_teardown
from flows.runs.extras import require
from predictor.errors import InputError

CLUSTERS = (Runner.DASK, Runner.RAY)
"""Runners that take an address."""

DEFAULT_PORTS = {
    (Runner.DASK, ""): 8786,
    (Runner.DASK, "tcp"): 8786,
    (Runner.DASK, "tls"): 8786,
    (Runner.RAY, "ray"): 10_001,
}
"""Default ports of Dask and Ray by runner and URL scheme, for addresses without a port."""

REACH_SECONDS = 10.0
"""Timeout for connecting to an address. An engineering bound."""


def check_runner(runner: Runner, address: str | None) -> None:
    """Refuse a runner that cannot be started.

    Raises:
        InputError: The runner takes no address, nothing listens at the address, or a package is
            missing.
    """
    if address is not None and runner not in CLUSTERS:
        raise InputError("address", f"has no effect with the runner {runner}", "leave it out")
    if runner in CLUSTERS:
        require(runner, "runner")
        if address is not None:
            _check_address(runner, address)


def _check_address(runner: Runner, address: str) -> None:
    """Refuse an address where nothing listens; the clients would retry for half a minute."""
    if (runner, address) == (Runner.RAY, "auto"):
        return
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port or DEFAULT_PORTS.get((runner, parts.scheme))
    except ValueError:
        host, port = None, None
    if host is None or port is None:
        like = "tcp://HOST:8786" if runner is Runner.DASK else "ray://HOST:10001 or HOST:6379"
        raise InputError(
            "address", f"{address!r} is not an address", f"give an address like {like}"
        )
    try:
        socket.create_connection((host, port), REACH_SECONDS).close()
    except OSError as error:
        raise make_unreachable(address, error.strerror or str(error)) from None


def make_unreachable(address: str, reason: str) -> InputError:
    """Return the error for an address that cannot be used."""
    return InputError(
        "address",
        f"{address} cannot be reached ({reason})",
        "start the cluster or correct the address",
    )


SPAWN = multiprocessing.get_context("spawn")
"""Starts processes that import everything anew, as this process has threads."""


def open_executor(
    runner: Runner, workers: int, prepare: Callable[[], object] | None = None
) -> Executor:
    """Return threads of this process, or processes, in which `prepare` is called first."""
    if runner is Runner.THREADS:
        return ThreadPoolExecutor(workers)
    return ProcessPoolExecutor(workers, SPAWN, prepare_process, (prepare,))


def prepare_process(prepare: Callable[[], object] | None = None) -> None:
    """Let a worker process end with its parent process, and leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    atexit.register(silence_teardown)  # the thread outlives the interpreter
    parent = multiprocessing.parent_process()
    if parent is not None:
        Thread(target=_end_with, args=[parent.sentinel], daemon=True).start()
    if prepare is not None:
        prepare()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def stop_processes(runner: Runner) -> None:
    """Terminate the worker processes; recorded rounds are kept."""
    if runner is Runner.PROCESSES:
        for process in multiprocessing.active_children():
            process.terminate()


def is_lost_worker(error: BaseException) -> bool:
    """Return whether a cell failed because its worker died, so that it should be retried."""
    of_cluster = type(error).__module__.partition(".")[0] in ("distributed", "ray")
    return isinstance(error, BrokenExecutor) or of_cluster
