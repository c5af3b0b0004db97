"""Campaigns in Prefect's UI, under way and ended."""

import json
import re
from pathlib import Path
from statistics import fmean

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.client.schemas.objects import Artifact

from flows.campaigns import Runner, execution
from flows.campaigns.campaign import campaign
from flows.campaigns.execution import campaign_id
from flows.campaigns.plan import read_campaign
from flows.cli.progress import VARIABLE
from tests.flows.conftest import Command
from tests.flows.test_campaign import PLAN, plan
from warehouse.analytics.questions import Analytics
from warehouse.store.campaigns import read_cells
from warehouse.store.files import CellStatus

pytestmark = [
    pytest.mark.prefect,
    # Prefect's pools leave sockets and processes to the interpreter's end.
    pytest.mark.filterwarnings("default"),
]


def artifact(client: SyncPrefectClient, key: str) -> Artifact:
    return client.read_artifacts(
        artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[key.replace(".", "-")]))
    )[-1]


def test_cells_that_end_in_the_same_second_are_reported_together(
    client: SyncPrefectClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "REPORT_SECONDS", 3600.0)
    shown: list[tuple[int, int, float]] = []
    with execution.watch_campaigns(cells=lambda *counts: shown.append(counts)):
        done = campaign(read_campaign(plan(tmp_path)), Runner.THREADS, 1, None, tmp_path / "w")
    assert shown == [(0, 4, 0.0), (4, 4, 1.0)]
    assert {row.status for row in read_cells(tmp_path / "w", done)} == {CellStatus.FINISHED}


def test_what_prefect_shows(
    here: Command, client: SyncPrefectClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, warehouse = plan(tmp_path), tmp_path / "w"
    monkeypatch.setenv(VARIABLE, "0.001")
    asked = ("campaign", "run", path, "--runner", "threads", "--driver", "prefect")
    ran = here(*asked, "--warehouse", warehouse, "--json")
    assert ran.code == 0, ran.err
    assert re.search(r"^ *\d+ s  small: 4 of 4 cells$", ran.err, re.MULTILINE)
    assert all(re.match(r" *\d+ s  ", line) for line in ran.err.splitlines())
    monkeypatch.undo()
    name = campaign_id(read_campaign(path))
    fifo, shockwave, paired = ran.rows
    assert list(fifo)[:6] == ["campaign", "policy", "workload", "cluster", "options", "seeds"]
    assert (fifo["campaign"], fifo["policy"], fifo["seeds"]) == (name, "fifo", 2)
    assert shockwave["policy"] == "shockwave"
    assert (paired["policy"], paired["against"], paired["pairs"]) == ("shockwave", "fifo", 2)
    assert paired["makespan_percent_low"] <= paired["makespan_percent"]
    changes = cell_changes(warehouse, name, "mean_jct_s")
    assert paired["mean_jct_percent"] == pytest.approx(100 * fmean(changes))
    assert fifo["makespan_s_low"] < fifo["makespan_s"] < fifo["makespan_s_high"]
    assert (warehouse / "campaigns" / name / "campaign.toml").read_text() == PLAN

    progress = artifact(client, f"progress-{name}")
    assert (progress.type, progress.data) == ("progress", 100.0)
    assert progress.description == f"4 of 4 cells of {name}"
    summary = artifact(client, f"summary-{name}")
    assert isinstance(summary.data, str)
    assert [row["policy"] for row in json.loads(summary.data)] == ["fifo", "shockwave"]
    cells = artifact(client, f"cells-{name}").data
    assert isinstance(cells, str)
    shown = [(row["cell"], row["status"], row["run"]) for row in json.loads(cells)]
    assert shown == [(row.cell, "finished", row.run) for row in read_cells(warehouse, name)]


def cell_changes(warehouse: Path, name: str, figure: str) -> list[float]:
    """By seed, the change of a figure from fifo to shockwave, as a share."""
    query = f"SELECT c.policy, {figure} FROM campaign_cells AS c JOIN run_summary USING (run)"
    query += f" WHERE campaign = '{name}' ORDER BY cell"
    by_policy: dict[str, list[float]] = {}
    for policy, value in Analytics(warehouse).query(query)[1]:
        by_policy.setdefault(policy, []).append(value)
    pairs = zip(by_policy["fifo"], by_policy["shockwave"], strict=True)
    return [after / before - 1 for before, after in pairs]
