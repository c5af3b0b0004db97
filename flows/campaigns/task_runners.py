"""Prefect's task runners of a campaign's cells: threads, processes, a Dask or a Ray cluster."""

import atexit
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from prefect.task_runners import ProcessPoolTaskRunner, TaskRunner, ThreadPoolTaskRunner

from flows.campaigns import Runner
from flows.campaigns.runners import REACH_SECONDS, make_unreachable, prepare_process
from flows.prefect_server.teardown import silence_teardown

START_SECONDS = 600.0
"""Timeout for a local cluster to start and connect on a busy machine. An engineering bound."""


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
            raise make_unreachable(address, (str(error).splitlines() or [""])[0]) from None
        yield started


def _made(runner: Runner, workers: int, address: str | None) -> TaskRunner[Any]:
    match runner:
        case Runner.THREADS:
            return ThreadPoolTaskRunner(max_workers=workers)
        case Runner.PROCESSES:
            return ProcessPoolTaskRunner(max_workers=workers, initializer=prepare_task_process)
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


def prepare_task_process() -> None:
    """Prepare a worker process for task runs."""
    keep_quiet()
    prepare_process()
