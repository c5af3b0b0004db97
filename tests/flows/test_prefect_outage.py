"""Rounds go on while Prefect's server is stopped or does not answer, and flow runs once it does."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

from flows.prefect_server import fallback
from flows.prefect_server.access import Access, read_access
from flows.prefect_server.fallback import FallbackDriver, open_fallback_driver
from flows.prefect_server.own_server import apply_settings, run_plain_server
from flows.runs.resuming import resume
from flows.runs.simulation import simulate
from harness.up import find_server, free_port
from tasks.round import RecordedRound
from tasks.run import Run
from tests.flows.test_prefect import START
from warehouse.store.reader import Reader

Served = Callable[[], AbstractContextManager[Access]]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Starts a server, always on the same port and database, which is this process's."""
    port = free_port()
    monkeypatch.setattr(fallback, "LEAST_SECONDS", 10.0)  # a busy machine answers later
    with temporary_settings({PREFECT_HOME: tmp_path / "home"}):
        access = read_access(f"http://127.0.0.1:{port}")
        with apply_settings(access.client_settings()):
            yield partial(run_plain_server, port=port)


def send_to_server(number: int) -> None:
    """Send a signal to the server of this test; the process can have others."""
    port = urlsplit(str(PREFECT_API_URL.value())).port
    os.kill(find_server(os.getpid(), port), number)


def states(client: SyncPrefectClient, run: str) -> dict[int, str | None]:
    """States of the flow runs of a run's rounds; fails if a round has two."""
    found = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(tags=FlowRunFilterTags(all_=[run])), limit=200
    )
    by_round = {each.parameters["number"]: each.state_name for each in found}
    assert len(by_round) == len(found)
    return by_round


def check_same_as_plain(run: str, warehouse: Path) -> None:
    """The rounds must be those of the same run without Prefect."""
    plain = simulate(START, warehouse)
    records = [Reader(warehouse).records(name) for name in (run, plain)]
    assert records[0] == records[1]


@pytest.mark.prefect
@pytest.mark.slow
@pytest.mark.process
def test_rounds_go_on_while_the_server_is_stopped(served: Served, tmp_path: Path) -> None:
    said = list[str]()
    with open_fallback_driver(1.0, said.append) as driver:
        run = simulate(START, tmp_path, driver=driver, rounds=1)  # before its first start
        with served():
            driver._again_at = 0.0
            resume(run, tmp_path, driver=driver, rounds=1)
        resume(run, tmp_path, driver=driver, rounds=2)
        with served():
            driver._again_at = 0.0
            resume(run, tmp_path, driver=driver)
            with get_client(sync_client=True) as client:
                found = states(client, run)
    count = len(Reader(tmp_path).records(run))
    assert found == {number: "Completed" for number in range(count) if number not in (0, 2, 3)}
    absent, back = "has not answered since ", "answers again; "
    assert [line[: len(absent)] for line in said[::2]] == [absent] * 2
    assert said[1::2] == [f"{back}{missed} rounds ran without it" for missed in (1, 2)]
    check_same_as_plain(run, tmp_path)


@pytest.mark.prefect
@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("begun", [False, True], ids=["before a round", "in a round"])
def test_rounds_go_on_while_the_server_accepts_requests_but_answers_none(
    served: Served, tmp_path: Path, begun: bool
) -> None:
    said = list[str]()

    def hang_in_round(run: Run) -> RecordedRound:
        run.check = lambda: send_to_server(signal.SIGSTOP)
        return driver(run)

    with served(), open_fallback_driver(1.0, said.append) as driver:
        assert isinstance(driver, FallbackDriver)
        run = simulate(START, tmp_path, driver=driver, rounds=2)
        if not begun:
            send_to_server(signal.SIGSTOP)
        resume(run, tmp_path, driver=hang_in_round, rounds=1)
        resume(run, tmp_path, driver=driver, rounds=1)
        send_to_server(signal.SIGCONT)
        driver._again_at = 0.0
        resume(run, tmp_path, driver=driver)
        with get_client(sync_client=True) as client:
            found = states(client, run)
    count = len(Reader(tmp_path).records(run))
    assert set(found.values()) == {"Completed"}
    # The server may have received the request for the flow run of the round that it hung before.
    assert {*range(count)} - {*found} <= ({3} if begun else {2, 3})
    assert len(said) == 2
    check_same_as_plain(run, tmp_path)
