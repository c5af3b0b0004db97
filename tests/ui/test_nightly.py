"""The example of a nightly campaign, deployed into a work pool and run by its schedule."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterDeploymentId
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort

from harness.up import PROGRAM, Up
from harness.waiting import HANG_SECONDS, wait_for
from tests.ui.flow_runs import outcome
from warehouse.store.campaigns import read_cells

pytestmark = [pytest.mark.prefect, pytest.mark.process]

ROOT = Path(__file__).parents[2]
PREFECT = [sys.executable, "-m", "prefect"]

CAMPAIGN = """name = "small"
seeds = [1]
policies = ["shockwave", "fifo"]
[settings]
round_seconds = 1800
[[workloads]]
name = "few"
jobs = 2
[[clusters]]
name = "small"
gpus = 4
"""


def called(up: Up, *words: str, cwd: Path = ROOT) -> str:
    """The output of a program that talks to the service."""
    done = subprocess.run(
        words,
        cwd=cwd,
        env=up.env | up.access.client_env(),
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def working(up: Up, log: Path) -> Iterator[None]:
    """A worker of the work pool until the context ends."""
    with log.open("w") as out:
        worker = subprocess.Popen(
            [*PREFECT, "worker", "start", "--pool", "shockwave"],
            cwd=log.parent,
            env=up.env | up.access.client_env(),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            yield
        finally:
            worker.terminate()
            worker.wait(HANG_SECONDS)


def test_a_campaign_and_its_report_run_by_schedule(
    up: Up, client: SyncPrefectClient, tmp_path: Path
) -> None:
    client.create_work_pool(WorkPoolCreate(name="shockwave", type="process"))
    file = "examples/nightly/prefect.yaml"
    called(up, *PREFECT, "--no-prompt", "deploy", "--all", "--prefect-file", file)
    command = (str(PROGRAM), "deployments")
    rows = map(json.loads, called(up, *command, "list", "--json").splitlines())
    (row,) = [row for row in rows if row["deployment"] == "nightly"]
    shown = ("schedule", "plan", "zone", "active")
    assert [row[name] for name in shown] == ["nightly", "0 2 * * *", "Europe/Berlin", True]

    (tmp_path / "small.toml").write_text(CAMPAIGN)
    params = {"file": str(tmp_path / "small.toml"), "warehouse": str(tmp_path / "w")}
    soon = ("--name", "nightly", "--interval", "15", "--params", json.dumps(params))
    called(up, *command, "schedule", "nightly", *soon)
    found = client.read_deployment_by_name("nightly/nightly")
    with working(up, tmp_path / "log"):
        begun = wait_for(lambda: begun_run(client, found.id), every=0.5)
        assert begun
        called(up, *command, "pause", "nightly")
        ended = wait_for(
            lambda: client.read_flow_run(begun.id),
            lambda run: bool(run.state and run.state.is_final()),
            every=0.5,
        )
    assert ended.auto_scheduled
    (folder,) = [path for path in (tmp_path / "w" / "campaigns").glob("small-*")]
    page = tmp_path / "w" / "reports" / f"{folder.name}.html"
    assert outcome(ended)[0] == "Completed", (tmp_path / "log").read_text()
    assert page.stat().st_size > 0
    cells = read_cells(tmp_path / "w", folder.name)
    assert [cell.status for cell in cells] == ["finished", "finished"]
    client.delete_deployment(found.id)
    client.delete_work_pool("shockwave")


def begun_run(client: SyncPrefectClient, deployment: UUID) -> FlowRun | None:
    """The first flow run of a deployment that a worker took."""
    mine = FlowRunFilter(deployment_id=FlowRunFilterDeploymentId(any_=[deployment]))
    found = client.read_flow_runs(flow_run_filter=mine, sort=FlowRunSort.EXPECTED_START_TIME_ASC)
    return next((run for run in found if run.state and not run.state.is_scheduled()), None)
