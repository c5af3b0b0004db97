"""Start and end of `shockwave up`; the last test stops the shared service."""

import os
import signal
import sqlite3
import ssl
from contextlib import closing
from pathlib import Path

import pytest
from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.settings import PREFECT_API_SSL_CERT_FILE, temporary_settings

from flows.api.commands import ServiceCommands
from flows.prefect_server.access import Access
from flows.runs.resuming import resume
from flows.scheduler.options import DATABASE_URL, ServiceOptions
from flows.scheduler.process import FOLDER
from flows.supervisor.config import ListenAddress, Service
from harness.up import Up, free_port, running
from harness.waiting import wait_for
from predictor.allocation import Demand
from predictor.job import JobSpec, Mode
from tasks.commands import CommandKind
from tests.flows.conftest import Command
from tests.ui.attacks import ask
from tests.ui.flow_runs import outcome, started
from tests.ui.service import line_of, ready, start
from warehouse.inbox.inbox import Inbox
from warehouse.store.audit import audit
from warehouse.store.folder import records_folder
from warehouse.store.parts import WHOLE
from warehouse.store.reader import Reader

pytestmark = pytest.mark.prefect


def test_with_postgres_and_tls_behind_a_proxy_it_serves_and_killed_it_leaves_nothing(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    """With the configured database; without one, and outside CI, with SQLite."""
    url, (cert, key) = os.environ.get("SHOCKWAVE_POSTGRES", ""), certificate
    assert url or "CI" not in os.environ
    if url:
        beside = tmp_path / "beside"
        Service(ListenAddress("127.0.0.1", free_port()), url, beside).check()
        assert (beside / FOLDER).is_dir(), "the log of a detached one is there"
    with ready(
        tmp_path,
        *("--host", "localhost", "--tls-cert", str(cert), "--tls-key", str(key)),
        *("--behind-proxy", "https://gpu.example"),
        SSL_CERT_FILE=str(cert),
        PREFECT_SERVER_REGISTER_BLOCKS_ON_START="0",  # a second, and nothing here has blocks
        **({DATABASE_URL: url} if url else {}),
    ) as service:
        assert "Ready: https://gpu.example/deployments" in service.log.read_text()
        access = Access(f"https://localhost:{service.port}", service.access.secret)
        trusted = ssl.create_default_context(cafile=str(cert))
        for host, status in (
            (f"localhost:{service.port}", 200),
            ("gpu.example", 200),
            (f"gpu.example:{service.port}", 403),
        ):
            asked = ask(access, "GET", "/api/health", headers={"Host": host}, tls=trusted)
            assert asked[0] == status, host
        with (
            temporary_settings(access.client_settings() | {PREFECT_API_SSL_CERT_FILE: str(cert)}),
            get_client(sync_client=True) as client,
        ):
            form = {"jobs": 1, "gpus": 4, "round_seconds": 3600}
            assert outcome(started(client, "simulate", form))[0] == "Completed"
        assert (Path(service.env["PREFECT_HOME"]) / "prefect.db").exists() is not bool(url)

        processes = service.descendants()
        assert len(processes) >= 3  # the server, what serves, the scheduler
        assert service.stop(signal.SIGKILL) == -signal.SIGKILL
        assert wait_for(lambda: running(processes), lambda left: not left) == set()


def test_a_job_is_handed_in_and_the_scheduler_may_be_killed(up: Up) -> None:
    job = JobSpec(0, "conv-small", 32, 32, Demand.gang(2), Mode.STATIC, 500, 40_000, 0.0)
    with Inbox(up.warehouse) as inbox:
        first = inbox.submit(job, key="a").number
        with ServiceCommands(up.warehouse) as commands:

            def statuses(last: int) -> list[str]:
                return [row.status for row in commands.list_jobs()][-last:]

            wait_for(lambda: statuses(1), lambda found: found == ["runs"], every=0.5)
            (scheduler,) = [
                number
                for number in up.descendants()
                if b"flows.scheduler.scheduler" in line_of(number)
            ]
            os.kill(scheduler, signal.SIGKILL)
            second = inbox.submit(job, key="b").number
            inbox.command(CommandKind.CANCEL, first)
            wait_for(
                lambda: statuses(2),
                lambda found: found in (["cancelled", "runs"], ["withdrawn", "runs"]),
                every=0.5,
            )
            inbox.command(CommandKind.CANCEL, second)
    assert audit(up.warehouse, commands.run).findings == ()


def test_a_second_server_on_the_same_port_says_so(up: Up, here: Command, tmp_path: Path) -> None:
    ran = here("up", "--port", up.port, "--warehouse", tmp_path / "warehouse")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "error: --port: a service of another warehouse or another Prefect server already listens "
        f"on port {up.port}; stop it (for a service: shockwave down --warehouse FOLDER), "
        "or give another port\n"
    )


def test_stopped_while_it_starts_it_leaves_nothing(tmp_path: Path) -> None:
    with start(tmp_path) as service:
        wait_for(service.descendants, every=0.2)
        processes = service.descendants()
        assert service.stop(signal.SIGTERM) == 0
        assert running(processes) == set()
        *_, last = service.log.read_text().splitlines()
        assert last.startswith("Starting")


def test_stopped_it_cancels_what_is_under_way(up: Up, client: SyncPrefectClient) -> None:
    """Stops the service that the tests before share."""
    found = client.read_deployment_by_name("simulate/simulate")
    form = {"jobs": 200, "gpus": 8, "seed": 5}
    flow_run = client.create_flow_run_from_deployment(
        found.id, parameters={**found.parameters, "form": form}
    )

    def begun() -> list[Path]:  # no other run but the service's: those have ended
        parts = records_folder(up.warehouse).glob("run=shockwave-*/round=*.parquet")
        folders = {part.parent for part in parts}
        return [folder for folder in folders if not (folder / WHOLE).exists()]

    wait_for(begun)
    processes = up.descendants()
    assert len(processes) >= 3  # the server, what serves, the flow run

    assert up.stop(signal.SIGINT) == 130
    assert running(processes) == set()
    assert "error: shockwave up: stopped; " in up.log.read_text()
    with closing(sqlite3.connect(Path(up.env["PREFECT_HOME"]) / "prefect.db")) as database:
        ((state,),) = database.execute(
            "SELECT state_type FROM flow_run WHERE replace(id, '-', '') = ?", [flow_run.id.hex]
        )
    assert state == "CANCELLED", up.log.read_text()[-6000:]
    (folder,) = begun()
    run = folder.name.removeprefix("run=")
    rounds = len(Reader(up.warehouse).records(run))
    resume(run, up.warehouse, rounds=1)
    assert len(Reader(up.warehouse).records(run)) == rounds + 1
    again = Service(
        ListenAddress("127.0.0.1", up.port), "", up.warehouse, ServiceOptions(speed=100)
    )
    again.check()  # as the next start does
