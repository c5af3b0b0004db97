"""The requests that a round makes to Prefect's server, and the flow runs that it adopts."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.context import SyncClientContext
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from flows.prefect_server.prefect_driver import (
    PrefectDriver,
    open_prefect_driver,
    scheduling_round,
)
from flows.prefect_server.round_deployment import RoundDeployment
from flows.runs.resuming import resume
from flows.runs.simulation import simulate
from tests.flows.test_prefect import START

pytestmark = pytest.mark.prefect


@pytest.fixture
def service(client: SyncPrefectClient) -> Iterator[tuple[PrefectDriver, RoundDeployment]]:
    """A driver of a service's rounds, whose deployment's schedule is paused."""
    with open_prefect_driver(1e6) as driver:
        assert driver.deployment
        client.pause_deployment(driver.deployment.id)
        yield driver, driver.deployment
        client.resume_deployment(driver.deployment.id)


@pytest.fixture
def requests(service: tuple[PrefectDriver, RoundDeployment]) -> list[str]:
    """The requests of the driver that are answered from now on, without those for artifacts.

    The client repeats a request that a busy server refuses; a round does not make it twice.
    """
    seen = list[str]()

    def note(answer: httpx.Response) -> None:
        request = answer.request
        path = "/".join(
            "ID" if len(part) == len(str(UUID(int=0))) else part
            for part in request.url.path.removeprefix("/api/").split("/")
        )
        if "artifacts" not in path and not answer.is_server_error:
            seen.append(f"{request.method} {path}")

    opened = SyncClientContext.get()
    assert opened
    opened.client._client.event_hooks["response"].append(note)
    return seen


READ = "POST deployments/get_scheduled_flow_runs"
RUN = ["POST flow_runs/ID/set_state"] * 2


def test_a_round_makes_few_requests_and_adopts_what_users_started(
    client: SyncPrefectClient,
    service: tuple[PrefectDriver, RoundDeployment],
    requests: list[str],
    tmp_path: Path,
) -> None:
    driver, deployment = service
    run = simulate(START, tmp_path, driver=driver, rounds=1)  # settles what a dead process left
    requests.clear()
    resume(run, tmp_path, driver=driver, rounds=1)
    assert requests == ["POST flow_runs/", *RUN]

    started, deleted = (client.create_flow_run_from_deployment(deployment.id).id for _ in "ab")
    requests.clear()
    assert deployment.read_request().run_once
    assert requests == [READ, "GET deployments/ID"]
    requests.clear()
    resume(run, tmp_path, driver=driver, rounds=1)
    assert requests == ["PATCH flow_runs/ID", "PATCH flow_runs/ID/labels", *RUN]
    client.delete_flow_run(deleted)
    requests.clear()
    resume(run, tmp_path, driver=driver, rounds=1)
    assert requests == ["PATCH flow_runs/ID", "POST flow_runs/", *RUN]

    adopted = client.read_flow_run(started)
    assert (adopted.state_name, adopted.name) == ("Completed", f"{run} round 2")
    assert adopted.parameters == {"run": run, "number": 2}


def test_a_pause_is_read_from_the_deployment_only_where_no_round_is_announced(
    client: SyncPrefectClient,
    service: tuple[PrefectDriver, RoundDeployment],
    requests: list[str],
) -> None:
    _, deployment = service
    assert deployment.read_request().paused
    client.resume_deployment(deployment.id)
    requests.clear()
    assert not deployment.read_request().paused
    assert requests == [READ, "GET deployments/ID"]
    # As the server's scheduler announces rounds; this server has none.
    client.request("POST", "/deployments/{id}/schedule", path_params={"id": deployment.id})
    requests.clear()
    assert not deployment.read_request().paused
    assert requests == [READ]


def test_requests_that_write_at_once_wait_for_each_other(client: SyncPrefectClient) -> None:
    flow_id = client.create_flow(scheduling_round)

    def write(name: str) -> None:
        with (
            temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
            get_client(sync_client=True) as own,
        ):
            deployment = own.create_deployment(flow_id, name, tags=["a"])
            own.create_flow_run_from_deployment(deployment)
            own.delete_deployment(deployment)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(write, map(str, range(24)))) == [None] * 24
