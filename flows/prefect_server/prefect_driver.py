"""The Prefect driver: a round as a flow run of five task runs.

Rounds are separate flow runs, tagged with the run. They have no parent flow run, because a nested
flow run waits until its parent's task run is stored.
"""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from prefect import Flow, flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.actions import FlowRunCreate
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext, SyncClientContext
from prefect.exceptions import PrefectSignal
from prefect.flow_engine import run_flow
from prefect.logging.handlers import PrefectConsoleHandler
from prefect.settings import (
    PREFECT_API_REQUEST_TIMEOUT,
    PREFECT_API_URL,
    PREFECT_CLIENT_MAX_RETRIES,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    PREFECT_LOCAL_STORAGE_PATH,
    PREFECT_SERVER_ANALYTICS_ENABLED,
    PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT,
    PREFECT_SERVER_DATABASE_TIMEOUT,
    PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE,
    PREFECT_SERVER_SERVICES_EVENT_PERSISTER_MAX_FLUSH_RETRIES,
    PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE,
    PREFECT_SERVER_SERVICES_SCHEDULER_MIN_RUNS,
    PREFECT_SERVER_SERVICES_SCHEDULER_MIN_SCHEDULED_TIME,
    PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE,
    PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL,
    PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE,
    temporary_settings,
)
from prefect.settings.legacy import Setting
from prefect.states import Pending, to_state_create

from flows.prefect_server.access import describe_first_start
from flows.prefect_server.crashes import LABEL, identify_process, settle_rounds
from flows.prefect_server.round_artifacts import RoundPublisher, open_publisher
from flows.prefect_server.round_client import RoundClient
from flows.prefect_server.round_deployment import RoundDeployment
from tasks.prefect_tasks import LOG, RunHandle, call_task
from tasks.round import RecordedRound, StepResult, run_round
from tasks.round_log import summarize_round
from tasks.run import Run

TAG = "shockwave"
"""Tag of all flow runs of Shockwave."""


@flow(
    name="round",
    description="One scheduling round: collect, predict, solve, dispatch, record.",
    validate_parameters=False,
    persist_result=False,
)
def scheduling_round(call: Callable[[], object]) -> None:
    """Run the next round of a run that is active in this process."""
    call()


class PrefectDriver:
    """Runs rounds as flow runs; `tasks.round.run_round` is the plain driver.

    `deployment` is that of a service.
    """

    def __init__(
        self,
        flow: Flow[Any, Any],
        flow_id: UUID,
        client: RoundClient,
        publisher: RoundPublisher,
        deployment: RoundDeployment | None = None,
    ) -> None:
        self._flow, self._flow_id, self._client = flow, flow_id, client
        self._publisher, self.deployment = publisher, deployment
        self._settled = ""

    def __call__(self, run: Run) -> RecordedRound:
        """Run the next round.

        Raises:
            Exception: The round failed, or Prefect did.
        """
        outcome, failure = self.attempt(run)
        if failure and not (outcome.done() and outcome.exception()):
            raise failure
        return outcome.result()

    def attempt(self, run: Run) -> tuple[Future[RecordedRound], BaseException | None]:
        """Run the next round; return its outcome, and Prefect's own failure.

        The outcome is pending if Prefect failed before the round began.
        """
        outcome = Future[RecordedRound]()

        def call() -> None:
            outcome.set_running_or_notify_cancel()
            try:
                with self._publisher.sending():
                    outcome.set_result(run_round(run, call_task))
            except BaseException as error:
                outcome.set_exception(error)
                raise

        try:
            if self._settled != run.name:
                settle_rounds(self._client, run)
                self._settled = run.name
            flow_run = self._make_flow_run(run)
            self._client.own(flow_run)
            run_flow(self._flow, flow_run, {"call": call})
        except (Exception, PrefectSignal) as error:
            own = outcome.done() and outcome.exception() is error
            return outcome, None if own else error
        self._publisher.publish(run, outcome.result(), flow_run.id)
        return outcome, None

    def _make_flow_run(self, run: Run) -> FlowRun:
        """Adopt a flow run of the deployment for a run's next round, or create one.

        The engine would make four requests: for the flow, the flow run, its name and its
        parameters.
        """
        fields = {
            "name": str(RunHandle(run)),
            "parameters": {"run": run.name, "number": run.state.round},
            "tags": sorted({TAG, run.name, run.header.settings.policy}),
            "flow_version": self._flow.version,
        }
        labels = {LABEL: identify_process()}
        if self.deployment and (adopted := self.deployment.adopt(fields, labels)):
            return adopted
        wanted = FlowRunCreate(
            flow_id=self._flow_id,
            **fields,
            labels=labels,
            state=to_state_create(Pending()),
            idempotency_key=str(uuid4()),  # the client repeats a request that was not answered
            **({"deployment_id": self.deployment.id} if self.deployment else {}),
        )
        content = wanted.model_dump(mode="json", exclude_unset=True)
        answer = self._client.request("POST", "/flow_runs/", json=content)
        return FlowRun.model_validate(answer.json())

    def abandon(self) -> None:
        """Drop the artifacts that wait for a server that does not answer."""
        self._publisher.abandon()


@contextmanager
def open_prefect_driver(service_seconds: float | None = None) -> Iterator[PrefectDriver]:
    """Open the driver of rounds as flow runs.

    It keeps a connection to the server, which takes 30 ms to open. The rounds of a service take
    `service_seconds` of wall time, and are flow runs of the deployment `round`.
    """
    # A given folder for exceptions saves three requests for the server's default.
    folder = PREFECT_LOCAL_STORAGE_PATH.value()
    one_round = scheduling_round.with_options(result_storage=folder, persist_result=False)
    context = SyncClientContext()
    context.client = client = RoundClient()
    with context, open_publisher() as publisher:
        flow_id = client.create_flow(one_round)
        deployment = service_seconds and RoundDeployment(client, flow_id, service_seconds)
        yield PrefectDriver(one_round, flow_id, client, publisher, deployment or None)


@contextmanager
def open_task_driver() -> Iterator[Callable[[Run], RecordedRound]]:
    """Open the driver of rounds as five task runs each of the current flow run, with artifacts."""
    context = FlowRunContext.get()
    assert context
    assert context.flow_run
    flow_run = context.flow_run.id
    with open_publisher() as publisher:

        def drive(run: Run) -> RecordedRound:
            with publisher.sending():
                done = run_round(run, call_task)
            publisher.publish(run, done, flow_run)
            return done

        yield drive


@task(
    name="round",
    description="One scheduling round: collect, predict, solve, dispatch, record.",
    task_run_name="{run}",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def whole_round(run: RunHandle) -> StepResult[RecordedRound]:
    """Run the next round of a run that is active in this process, as one task."""
    done = run_round(run.run)
    LOG.info("%s %s", run.run.name, summarize_round(done.record, done.timings).message)
    return StepResult(done)


def run_task(run: Run) -> RecordedRound:
    """Run a round as one task run of the current flow run."""
    return whole_round(RunHandle(run)).value


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

ANNOUNCED = timedelta(seconds=75)
"""How far ahead flow runs of schedules are announced, beyond the first. The server announces once a
minute, so that less would lose flow runs of schedules with less than a minute between them. An
engineering choice."""

SERVER_SETTINGS: dict[Setting, Any] = {
    PREFECT_SERVER_ANALYTICS_ENABLED: False,
    PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT: ANSWER_SECONDS,
    PREFECT_SERVER_DATABASE_TIMEOUT: ANSWER_SECONDS,
    PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE: 500,
    PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE: 100,
    PREFECT_SERVER_SERVICES_EVENT_PERSISTER_MAX_FLUSH_RETRIES: MOST_FLUSHES,
    PREFECT_SERVER_SERVICES_SCHEDULER_MIN_RUNS: 1,
    PREFECT_SERVER_SERVICES_SCHEDULER_MIN_SCHEDULED_TIME: ANNOUNCED,
    PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE: 100,
    PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE: 100,
    PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL: 1.0,
}
"""Settings of servers that Shockwave starts: no telemetry, flow runs of schedules announced for a
minute in place of an hour, and task runs and events stored in batches. Single writes would lock
SQLite against the next flow run, which would then wait two seconds. Sizes and interval are
engineering choices; no sweep is recorded."""


@contextmanager
def embedded_prefect(answer_seconds: float = ANSWER_SECONDS, retries: int = 5) -> Iterator[None]:
    """Embed Prefect in a program: no logs on the terminal, no waits between flow runs.

    The heartbeat is disabled: its thread sleeps in whole seconds and is joined after each
    synchronous flow. Labels identify the processes of flow runs in its place (`crashes`).

    Args:
        answer_seconds: Timeout of a request.
        retries: Most retries of a request; SQLite refuses a write while another is under way.
    """
    logging.getLogger("prefect").setLevel(logging.WARNING)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, PrefectConsoleHandler):  # the caller reports errors once
            handler.setLevel(logging.CRITICAL)
    own: dict[Setting, Any] = {
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,
        PREFECT_API_REQUEST_TIMEOUT: answer_seconds,
        PREFECT_CLIENT_MAX_RETRIES: retries,
    }
    with temporary_settings({**own, **SERVER_SETTINGS}):
        yield
