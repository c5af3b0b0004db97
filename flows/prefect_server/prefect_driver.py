"""The Prefect driver: a round as a flow run of five task runs.

Rounds are separate flow runs, tagged with the run. They have no parent flow run, because a nested
flow run waits until its parent's task run is stored.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prefect import flow, tags, task
from prefect.cache_policies import NO_CACHE
from prefect.logging.handlers import PrefectConsoleHandler
from prefect.settings import (
    PREFECT_API_REQUEST_TIMEOUT,
    PREFECT_API_URL,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    PREFECT_SERVER_ANALYTICS_ENABLED,
    PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT,
    PREFECT_SERVER_DATABASE_TIMEOUT,
    PREFECT_SERVER_SERVICES_EVENT_PERSISTER_MAX_FLUSH_RETRIES,
    PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE,
    PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL,
    PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE,
    temporary_settings,
)
from prefect.settings.legacy import Setting

from flows.prefect_server.access import describe_first_start
from tasks.prefect_tasks import call_steps, call_tasks, register_round
from tasks.round import Round, Run


@flow(
    name="round",
    description="One scheduling round: collect, predict, solve, dispatch, record.",
    flow_run_name="{run} round {number}",
)
def scheduling_round(run: str, number: int) -> None:
    """Run a round of a run that is active in this process.

    Args:
        run: The run's id.
        number: The round, from 0.
    """
    call_tasks(run, number)


def run_round_in_prefect(run: Run) -> Round:
    """Run a round as a flow run; `tasks.round.run_round` is the plain driver."""
    number = run.state.round
    with register_round(run) as this, tags(run.name, run.header.settings.policy):
        scheduling_round(run.name, number)
    return this


def run_tasks(run: Run) -> Round:
    """Run a round as five task runs of the current flow run."""
    with register_round(run) as this:
        call_tasks(run.name, run.state.round)
    return this


@task(
    name="round",
    description="One scheduling round: collect, predict, solve, dispatch, record.",
    task_run_name="round {number}",
    tags=["shockwave"],
    cache_policy=NO_CACHE,
)
def whole_round(run: str, number: int) -> None:
    """Run a round of a run that is active in this process, as one task."""
    call_steps(run, number)


def run_task(run: Run) -> Round:
    """Run a round as one task run of the current flow run."""
    with register_round(run) as this:
        whole_round(run.name, run.state.round)
    return this


def needs_server() -> bool:
    """Return whether a Prefect server must be started, because none is configured."""
    return not PREFECT_API_URL.value()


def describe_wait() -> str:
    """Return what a command waits for: the start of a server, or the configured server."""
    return f"starting Prefect{describe_first_start()}" if needs_server() else "reaching Prefect"


ANSWER_SECONDS = 300.0
"""Timeout of API requests and database queries, for busy machines. An engineering bound."""

MOST_FLUSHES = 2_000
"""How often in a row the server retries to write a batch of events, every 5 s and with each full
batch, before it drops the batch with a traceback. High, because a database may be away for hours,
or stop before the server. Finite, because an event that can never be written blocks all others. An
engineering bound."""

SERVER_SETTINGS: dict[Setting, Any] = {
    PREFECT_SERVER_ANALYTICS_ENABLED: False,
    PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT: ANSWER_SECONDS,
    PREFECT_SERVER_DATABASE_TIMEOUT: ANSWER_SECONDS,
    PREFECT_SERVER_SERVICES_EVENT_PERSISTER_MAX_FLUSH_RETRIES: MOST_FLUSHES,
    PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE: 100,
    PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE: 100,
    PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL: 1.0,
}
"""Settings of servers that Shockwave starts: no telemetry, and task runs stored in batches. Single
writes would lock SQLite against the next flow run, which would then wait two seconds. Sizes and
interval are engineering choices; no sweep is recorded."""


@contextmanager
def embedded_prefect() -> Iterator[None]:
    """Embed Prefect in a program: no logs on the terminal, no waits between flow runs.

    The heartbeat is disabled: its thread sleeps in whole seconds and is joined after each
    synchronous flow. It is not needed, because runs of dead processes resume from their records.
    """
    logging.getLogger("prefect").setLevel(logging.WARNING)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, PrefectConsoleHandler):  # the caller reports errors once
            handler.setLevel(logging.CRITICAL)
    own = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None, PREFECT_API_REQUEST_TIMEOUT: ANSWER_SECONDS}
    with temporary_settings({**own, **SERVER_SETTINGS}):
        yield
