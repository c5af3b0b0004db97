"""Artifacts of rounds and runs: their links, and how often they change."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.client.schemas.objects import Artifact

from flows.prefect_server import progress_artifact
from flows.prefect_server.command import REPORTS
from flows.prefect_server.progress_artifact import UPDATE_SECONDS, ProgressArtifact
from flows.prefect_server.round_artifacts import make_artifacts
from flows.runs.simulation import prepare
from tasks.round import run_round
from tests.flows.conftest import Command
from tests.runs import Memory, tiny

pytestmark = pytest.mark.prefect


def market_of_first_round(service: bool) -> str:
    """The market artifact of the first round of run `tiny-1`."""
    with prepare(tiny("shockwave", jobs=2)).open_run(Memory()) as run:
        done = run_round(run)
        header = replace(run.header, service=service)
        artifacts = {
            made.key: made for made in make_artifacts("tiny-1", header, done, [done.record])
        }
    market = artifacts["market-tiny-1"].data
    assert isinstance(market, str)
    return market


def test_a_round_of_a_service_links_to_the_page_of_each_job_and_to_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REPORTS, str(tmp_path))
    market = market_of_first_round(service=True)
    assert "\n| [0](/live/jobs/0#why-title) | started | " in market
    assert "\n- [live page](/live)\n- [write a report](/deployments)\n" in market

    (tmp_path / "tiny-1.html").touch()
    assert "\n- [report](/reports/tiny-1.html)\n" in market_of_first_round(service=True)


def test_a_round_of_a_simulation_has_no_links_to_pages_of_a_service() -> None:
    market = market_of_first_round(service=False)
    assert "\n| 0 | started | " in market
    assert "](/" not in market


def progress_artifacts(client: SyncPrefectClient, key: str) -> list[Artifact]:
    chosen = ArtifactFilter(key=ArtifactFilterKey(any_=[key]))
    return client.read_artifacts(artifact_filter=chosen)


def test_progress_is_updated_every_few_seconds_and_at_the_end(
    client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(progress_artifact, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    shown = ProgressArtifact("some-progress")

    def after(seconds: float, percent: float) -> float:
        clock[0] += seconds
        shown.update(percent, f"{percent} %")
        (artifact,) = progress_artifacts(client, "some-progress")
        assert isinstance(artifact.data, int | float)
        assert artifact.description == f"{float(artifact.data)} %"
        return artifact.data

    steps = [(0.0, 1.0), (1.0, 2.0), (UPDATE_SECONDS, 3.0), (1.0, 4.0), (0.0, 100.0)]
    assert [after(*step) for step in steps] == [1.0, 1.0, 3.0, 3.0, 100.0]


def test_a_simulation_of_the_command_line_shows_its_finished_jobs(
    here: Command, client: SyncPrefectClient, tmp_path: Path
) -> None:
    ran = here(
        *("simulate", "--jobs", 2, "--gpus", 4, "--policy", "fifo", "--driver", "prefect"),
        *("--round-seconds", 3600, "--warehouse", tmp_path, "--json"),
    )
    assert ran.code == 0, ran.err
    run = ran.rows[0]["run"]
    (artifact,) = progress_artifacts(client, f"finished-jobs-{run}")
    assert (artifact.type, artifact.data) == ("progress", 100.0)
    assert str(artifact.description).startswith(f"2 of 2 jobs of run {run} have ended (round ")
