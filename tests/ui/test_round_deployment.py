"""Rounds of a service belong to the deployment `round`: paused, run once and resumed in the UI."""

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterDeploymentId
from prefect.client.schemas.objects import FlowRun

from flows.api.commands import ServiceCommands
from flows.api.rows import Status
from harness.up import Up
from harness.waiting import HANG_SECONDS, wait_for
from predictor.allocation import Demand
from predictor.job import JobSpec, Mode
from tasks.commands import CommandKind
from tests.ui.browser import browser, log_in, start_flow_run
from warehouse.inbox.inbox import Inbox
from warehouse.store.reader import Reader

pytestmark = pytest.mark.prefect

JOB = JobSpec(0, "conv-small", 32, 32, Demand.gang(2), Mode.STATIC, 5_000, 40_000, 0.0)


@pytest.fixture
def service(up: Up) -> Iterator[ServiceCommands]:
    """The service with a job that runs."""
    with Inbox(up.warehouse) as inbox, ServiceCommands(up.warehouse) as commands:
        entry = inbox.submit(JOB)
        wait_for(commands.get_status, lambda status: status.running == 1, every=0.2)
        yield commands
        inbox.command(CommandKind.CANCEL, entry.number)


@pytest.fixture
def page(up: Up) -> Iterator[Page]:
    """A page of the UI."""
    with browser() as opened:
        page = opened.new_page(
            viewport={"width": 1400, "height": 1000}, base_url=up.url, reduced_motion="reduce"
        )
        page.set_default_timeout(HANG_SECONDS * 1e3)
        log_in(page, up.access)
        yield page


def test_pause_run_once_and_resume_in_the_ui(
    up: Up, client: SyncPrefectClient, page: Page, service: ServiceCommands
) -> None:
    """`status` and the records show each; the job keeps its GPUs."""
    deployment = client.read_deployment_by_name("round/round")
    (schedule,) = deployment.schedules
    assert (schedule.active, schedule.schedule.interval.total_seconds()) == (True, 1.2)  # type: ignore[union-attr]
    assert deployment.global_concurrency_limit
    assert deployment.global_concurrency_limit.limit == 1

    page.goto(f"/deployments/deployment/{deployment.id}")
    toggle = page.locator(".deployment-schedule-card__action .p-toggle")

    def switched(active: bool) -> bool:
        """Click until the server has it: while rounds write, it may answer that it is busy."""
        (schedule,) = client.read_deployment(deployment.id).schedules
        if schedule.active is not active:
            toggle.click()
        return schedule.active is active

    wait_for(lambda: switched(False), every=3.0)
    wait_for(service.get_status, lambda status: status.paused, every=0.2)
    paused = until_quiet(service)
    assert (paused.running, paused.busy_gpus) == (1, 2)
    mine = FlowRunFilter(deployment_id=FlowRunFilterDeploymentId(any_=[deployment.id]))
    before = rounds_of(client, mine)

    def run_once() -> None:
        page.get_by_role("button", name="Run", exact=True).click()
        page.get_by_text("Quick run").click()

    start_flow_run(page, run_once)
    wait_for(service.get_status, lambda status: status.rounds == paused.rounds + 1, every=0.2)
    again = until_quiet(service)
    assert (again.rounds, again.paused, again.busy_gpus) == (paused.rounds + 1, True, 2)
    (by_hand,) = wait_for(
        lambda: rounds_of(client, mine, states=("Completed",)).keys() - before.keys()
    )
    assert by_hand == paused.rounds

    wait_for(lambda: switched(True), every=3.0)
    wait_for(service.get_status, lambda status: status.rounds > again.rounds + 2, every=0.2)
    assert not service.get_status().paused
    taken = {
        command.kind: record.round
        for record, _ in Reader(up.warehouse).records(service.run)
        for command in record.commands
        if command.kind in (CommandKind.PAUSE, CommandKind.RESUME)
    }
    assert taken == {CommandKind.PAUSE: paused.rounds, CommandKind.RESUME: again.rounds}


def until_quiet(service: ServiceCommands) -> Status:
    """The status once no round was added for three rounds' time."""
    while True:
        before = service.get_status()
        time.sleep(4.0)
        if (now := service.get_status()).rounds == before.rounds:
            return now


def rounds_of(
    client: SyncPrefectClient, mine: FlowRunFilter, states: tuple[str, ...] = ()
) -> dict[int, FlowRun]:
    """The deployment's flow runs of rounds, by round."""
    found = client.read_flow_runs(flow_run_filter=mine, limit=200)
    return {
        each.parameters["number"]: each
        for each in found
        if "number" in each.parameters and (not states or each.state_name in states)
    }
