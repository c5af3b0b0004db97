"""The Prefect driver: a round as a flow run of five task runs.

Rounds are flow runs of their own, tagged with the run, and not nested in one flow run:
a nested one would wait for its parent's task run to be stored.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prefect import flow, tags
from prefect.logging.handlers import PrefectConsoleHandler
from prefect.settings import (
    PREFECT_API_REQUEST_TIMEOUT,
    PREFECT_API_URL,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    PREFECT_SERVER_ANALYTICS_ENABLED,
    PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT,
    PREFECT_SERVER_DATABASE_TIMEOUT,
    PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE,
    PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL,
    PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE,
    temporary_settings,
)
from prefect.settings.legacy import Setting

from tasks.prefect_tasks import call_tasks, under_way
from tasks.round import Round, Run


@flow(
    name="round",
    description="One scheduling round: collect, predict, solve, dispatch, record.",
    flow_run_name="{run} round {number}",
)
def scheduling_round(run: str, number: int) -> None:
    """Run one round of a run that this process holds.

    Args:
        run: The run's id.
        number: The round, from 0.
    """
    call_tasks(run, number)


def run_round_in_prefect(run: Run) -> Round:
    """The Prefect driver; see `tasks.round.run_round` for the plain one."""
    number = run.state.round
    with under_way(run) as this, tags(run.name, run.header.settings.policy):
        scheduling_round(run.name, number)
    return this


def run_tasks(run: Run) -> Round:
    """A round as five task runs of the flow run that is under way."""
    with under_way(run) as this:
        call_tasks(run.name, run.state.round)
    return this


def starts_server() -> bool:
    """Whether Prefect has to start a server of its own, as it is told of none."""
    return not PREFECT_API_URL.value()


ANSWER_SECONDS = 300.0
"""What a request, and the database behind it, may take on a busy machine."""

SERVER_SETTINGS: dict[Setting, Any] = {
    PREFECT_SERVER_ANALYTICS_ENABLED: False,
    PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT: ANSWER_SECONDS,
    PREFECT_SERVER_DATABASE_TIMEOUT: ANSWER_SECONDS,
    PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE: 100,
    PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE: 100,
    PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL: 1.0,
}
"""Of a server that is started here: it tells nobody, and stores task runs in batches, as
stored one by one on SQLite they lock out the next flow run, which then waits two seconds."""


@contextmanager
def embedded_prefect() -> Iterator[None]:
    """Prefect as a program embeds it: quiet on the terminal, no waits between flow runs.

    The heartbeat's thread sleeps in whole seconds and would be joined after each
    synchronous flow; a run that dies is resumed from its records instead.
    """
    logging.getLogger("prefect").setLevel(logging.WARNING)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, PrefectConsoleHandler):  # an error is told once, by who catches it
            handler.setLevel(logging.CRITICAL)
    own = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None, PREFECT_API_REQUEST_TIMEOUT: ANSWER_SECONDS}
    with temporary_settings({**own, **SERVER_SETTINGS}):
        yield
