"""Task runners of a campaign's cells: threads, processes, a Dask or a Ray cluster."""

import atexit
import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from multiprocessing.connection import wait
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from prefect.task_runners import ProcessPoolTaskRunner, TaskRunner, ThreadPoolTaskRunner

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

START_SECONDS = 600.0
"""Timeout for a local cluster to start and connect on a busy machine. An engineering bound."""


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
        raise _unreachable(address, error.strerror or str(error)) from None


def _unreachable(address: str, reason: str) -> InputError:
    return InputError(
        "address",
        f"{address} cannot be reached ({reason})",
        "start the cluster or correct the address",
    )


@contextmanager
def make_task_runner(
    runner: Runner, workers: int, address: str | None
) -> Iterator[TaskRunner[Any]]:
    """Start a task runner, and stop it at the end of the context.

    Args:
        runner: Kind of task runner.
        workers: Number of cells to run in parallel; ignored for an existing cluster.
        address: Address of an existing Dask scheduler or Ray head node; by default a local
            cluster is started.

    Raises:
        InputError: The cluster at the address cannot be used.
    """
    with ExitStack() as stack:
        try:
            started = stack.enter_context(_made(runner, workers, address))
            if runner is Runner.DASK:
                _ = started.client  # type: ignore[attr-defined]  # connects
        except Exception as error:
            if address is None:
                raise
            raise _unreachable(address, (str(error).splitlines() or [""])[0]) from None
        yield started


def _made(runner: Runner, workers: int, address: str | None) -> TaskRunner[Any]:
    match runner:
        case Runner.THREADS:
            return ThreadPoolTaskRunner(max_workers=workers)
        case Runner.PROCESSES:
            return ProcessPoolTaskRunner(max_workers=workers, initializer=prepare_process)
        case Runner.DASK:
            import dask
            from prefect_dask.task_runners import DaskTaskRunner

            if address is not None:
                return DaskTaskRunner(address=address, client_kwargs={"timeout": REACH_SECONDS})
            local = {
                "n_workers": workers,
                "threads_per_worker": 1,
                "dashboard_address": "127.0.0.1:0",
                "security": True,  # TLS with keys of this cluster only; Ray creates its own token
            }
            dask.config.set({"distributed.comm.timeouts.connect": f"{START_SECONDS:.0f}s"})
            return DaskTaskRunner(cluster_kwargs=local)
        case Runner.RAY:
            from prefect_ray.task_runners import RayTaskRunner

            asked: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
            if address is None:
                _without_dashboard()
                address = "local"  # by default Ray connects to any cluster on this machine
                asked |= {"num_cpus": workers, "include_dashboard": False}
                limits = {"worker_register_timeout_seconds": int(START_SECONDS)}
                asked |= {"_system_config": limits}
            made: TaskRunner[Any] = RayTaskRunner(address=address, init_kwargs=asked)
            return made


def _without_dashboard() -> None:
    """Prevent Ray from starting a dashboard process.

    Even without UI and reports, the dashboard queries the metadata services of AWS, Azure and
    Google about this machine; no setting of Ray prevents it.
    """
    from ray import _private  # not its modules: prefect_ray loads Ray at its first use

    _private.services.start_api_server = lambda *_, **__: ("", None)  # looks like a failed start


_at_teardown = cache(atexit.register)


def keep_quiet() -> None:
    """Suppress terminal output of Prefect's log and of the interpreter's teardown.

    Prefect resets its log level at a worker process's first task, so every task calls this.
    """
    _at_teardown(silence_teardown)
    logging.getLogger("prefect").setLevel(logging.WARNING)


def prepare_process() -> None:
    """Let a worker process end with its parent process, and leave Ctrl-C to the parent."""
    keep_quiet()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        Thread(target=_end_with, args=[parent.sentinel], daemon=True).start()


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
