"""One service for the tests of all files, and the command line as tests of the flows call it."""

from collections.abc import Iterator

import pytest
from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.settings import temporary_settings

from harness.up import Up
from tests.flows.conftest import here
from tests.ui.service import ready

__all__ = ["here"]


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A service with a report, on a home of its own; the last test of `test_up.py` stops it."""
    with ready(tmp_path_factory.mktemp("up"), "--speed", "100") as service:
        reports = service.warehouse / "reports"
        (reports / "page.html").write_text("<title>a report</title>")
        yield service


@pytest.fixture
def client(up: Up) -> Iterator[SyncPrefectClient]:
    with (
        temporary_settings(up.access.client_settings()),
        get_client(sync_client=True) as client,
    ):
        yield client
