"""The deployments of `shockwave up`: their effects, and a walk through them in a browser."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Locator, Page, expect
from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterId,
    LogFilter,
    LogFilterFlowRunId,
)
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import PrefectHTTPStatusError

from flows.deployments.deployments import read_deployments
from flows.deployments.forms import (
    MOST_ROUNDS,
    Form,
    ReplayForm,
    ReportForm,
    RoundForm,
    SimulationForm,
)
from flows.deployments.replaying import replay
from flows.deployments.reporting import report
from flows.deployments.stepping import simulate as simulation
from flows.deployments.stepping import step
from flows.prefect_server.command import REPORTS
from flows.prefect_server.prefect_driver import embedded_prefect
from flows.runs.simulation import simulate
from flows.runs.start import make_start
from flows.runs.workload_source import Source
from harness.up import Up
from harness.waiting import HANG_SECONDS, wait_for
from tasks.record import Settings, make_pool
from tests.runs import chained, make, write
from tests.ui.attacks import authorization
from tests.ui.browser import browser, log_in, start_flow_run
from tests.ui.flow_runs import artifacts, outcome, rows_of, started
from tests.ui.service import line_of
from warehouse.analytics.questions import Analytics
from warehouse.store.reader import Reader

pytestmark = pytest.mark.prefect


@pytest.fixture(scope="module")
def unfinished(up: Up) -> str:
    """A run that was left after two rounds."""
    start = make_start(
        Source(jobs=2).open(), Settings("shockwave", make_pool(4), round_seconds=1800)
    )
    return simulate(start, up.warehouse, rounds=2)


def called(client: SyncPrefectClient, flow: Flow[..., Any], form: Form, up: Up) -> FlowRun:
    """The flow of a deployment, called in this process."""
    with embedded_prefect():
        state = flow(form, up.warehouse, return_state=True)
    assert state.state_details.flow_run_id
    return client.read_flow_run(state.state_details.flow_run_id)


def fetched(up: Up, path: str) -> bytes:
    """A file that the server serves to holders of the secret."""
    asked = Request(up.url + path, headers=authorization(up.access))
    with urlopen(asked) as answer:
        content: bytes = answer.read()
        return content


def of_what_serves(up: Up, variable: str) -> str:
    """A variable of the process that starts flow runs, which inherit it."""
    found = up.descendants()
    (serving,) = [process for process in found if b"flows.deployments.serving" in line_of(process)]
    lines = Path(f"/proc/{serving}/environ").read_text().split("\0")
    return dict(line.split("=", 1) for line in lines if line)[variable]


# Deployments


def test_all_deployments_are_served(up: Up, client: SyncPrefectClient) -> None:
    names = {"round", *(deployment.name for deployment in read_deployments())}
    found = wait_for(  # the scheduler creates `round` just after it is ready
        lambda: {deployment.name: deployment for deployment in client.read_deployments()},
        lambda found: set(found) == names,
    )
    for deployment in read_deployments():
        served = found[deployment.name]
        assert served.description == deployment.description
        assert set(served.tags) == {"shockwave", *deployment.tags}
        assert served.parameters == {**deployment.parameters, "warehouse": str(up.warehouse)}
        assert served.enforce_parameter_schema


def test_a_round_steps_the_run(up: Up, client: SyncPrefectClient, unfinished: str) -> None:
    flow_run = started(client, "step", {"run": unfinished, "rounds": 2})
    assert outcome(flow_run) == ("Completed", f"run {unfinished!r} has not ended after 4 rounds")
    assert flow_run.name == f"{unfinished} +2"
    assert set(flow_run.tags) == {"shockwave", "virtual"}
    records = [record for record, _ in Reader(up.warehouse).records(unfinished)]
    assert len(records) == 4

    shown = artifacts(client, flow_run.id)
    assert set(shown) == {
        *(f"{what}-{unfinished}" for what in ("allocation", "market", "run")),
        f"run-{unfinished}-in-words",
    }
    (row,) = rows_of(shown[f"run-{unfinished}"])
    assert (row["run"], row["policy"], row["complete"]) == (unfinished, "shockwave", False)


def test_stepped_runs_are_what_they_would_have_been(
    up: Up, client: SyncPrefectClient, unfinished: str, tmp_path: Path
) -> None:
    flow_run = called(client, step, RoundForm(run=unfinished, rounds=MOST_ROUNDS), up)
    rounds = len(Reader(up.warehouse).records(unfinished))
    assert outcome(flow_run) == ("Completed", f"run {unfinished!r} has ended after {rounds} rounds")
    undisturbed = simulate(Reader(up.warehouse).start(unfinished), tmp_path)
    assert Reader(up.warehouse).records(unfinished) == Reader(tmp_path).records(undisturbed)


def test_a_round_that_fails_says_why(up: Up, client: SyncPrefectClient) -> None:
    assert outcome(started(client, "step", {"run": "nobody-1"})) == (
        "Failed",
        f"run 'nobody-1': not in the warehouse {up.warehouse}; list them with: shockwave run list",
    )
    wait_for(lambda: "Finished in state Failed" in up.log.read_text())
    # A traceback would end with the error's name; the server's own are not looked at.
    assert not re.search("InputError|nanobind", up.log.read_text())


@pytest.mark.parametrize(
    "form", [{"run": "a", "rounds": 0}, {"run": "a", "rounds": MOST_ROUNDS + 1}, {"run": "../a"}]
)
def test_a_form_out_of_bounds_makes_no_flow_run(
    client: SyncPrefectClient, form: dict[str, Any]
) -> None:
    found = client.read_deployment_by_name("step/step")
    of_step = DeploymentFilter(id=DeploymentFilterId(any_=[found.id]))
    before = {flow_run.id for flow_run in client.read_flow_runs(deployment_filter=of_step)}
    with pytest.raises(PrefectHTTPStatusError, match=r"409 Conflict[\s\S]*Validation failed"):
        client.create_flow_run_from_deployment(found.id, parameters={"form": form})
    after = {flow_run.id for flow_run in client.read_flow_runs(deployment_filter=of_step)}
    assert after == before


def test_a_replay_shows_what_it_found(up: Up, client: SyncPrefectClient) -> None:
    start = make_start(Source(jobs=1).open(), Settings("fifo", make_pool(4), round_seconds=3600))
    run = simulate(start, up.warehouse)
    rounds = len(Reader(up.warehouse).records(run))
    flow_run = called(client, replay, ReplayForm(run=run), up)
    said = f"{run}: {rounds} rounds replayed, all identical byte for byte"
    assert outcome(flow_run) == ("Completed", said)
    shown = artifacts(client, flow_run.id)
    assert rows_of(shown[f"replay-{run}"]) == [{"rounds": rounds, "result": "identical"}]


def test_a_replay_that_differs_fails_and_shows_where(up: Up, client: SyncPrefectClient) -> None:
    made = make(
        make_start(Source(jobs=1).open(), Settings("fifo", make_pool(4), round_seconds=3600))
    )
    first, *others = made.records
    changed = replace(first, solve=replace(first.solve, objective=first.solve.objective + 1))
    run = write(up.warehouse, made.start, chained(made.start, [changed, *others]))
    flow_run = called(client, replay, ReplayForm(run=run), up)
    rounds = len(made.records)
    assert outcome(flow_run) == ("Failed", f"{run}: 1 of {rounds} rounds differ")
    shown = rows_of(artifacts(client, flow_run.id)[f"replay-{run}"])
    assert [(row["round"], row["field"]) for row in shown] == [(0, "solve")]


def test_a_report_is_linked_and_handed_out(
    up: Up, client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REPORTS, of_what_serves(up, REPORTS))
    start = make_start(Source(jobs=2).open(), Settings("srtf", make_pool(4), round_seconds=3600))
    run = simulate(start, up.warehouse)
    flow_run = called(client, report, ReportForm(about=run, title="Two jobs"), up)
    page = up.warehouse / "reports" / f"{run}.html"
    assert outcome(flow_run) == ("Completed", str(page))

    shown = artifacts(client, flow_run.id)
    (row,) = rows_of(shown[f"figures-{run}"])
    assert (row["run"], row["complete"]) == (run, True)
    assert shown[f"report-{run}"].data == f"[Two jobs](/reports/{run}.html)"
    assert fetched(up, f"/reports/{run}.html") == page.read_bytes()
    images = [str(artifact.data) for artifact in shown.values() if artifact.type == "image"]
    assert len(images) == 4
    for image in images:
        assert fetched(up, image).startswith(b"\x89PNG\r\n\x1a\n")


def test_a_trace_of_the_warehouse_is_simulated(up: Up, client: SyncPrefectClient) -> None:
    lines = ["job_id,num_gpu,submit_time,iterations,model_name,duration,interval"]
    lines += [f"{job},1,{60 * job},10,vgg19,7200,30" for job in range(5)]
    (up.warehouse / "traces" / "five.csv").write_text("\n".join(lines) + "\n")
    form = {"trace": "five.csv", "format": "tiresias", "gpus": 4, "round_seconds": 3600}
    flow_run = called(client, simulation, SimulationForm.model_validate(form), up)
    assert outcome(flow_run)[0] == "Completed"
    assert flow_run.name == "shockwave, five.csv on 4 GPUs"
    run = re.findall("'(.+)'", str(outcome(flow_run)[1]))[0]
    rounds = len(Reader(up.warehouse).records(run))
    assert set(artifacts(client, flow_run.id)) == {
        *(f"finished-jobs-{run}", f"run-{run}", f"run-{run}-in-words")
    }
    mine = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run.id]))
    wait_for(  # Prefect stores task runs a little later
        lambda: sorted(task.name for task in client.read_task_runs(flow_run_filter=mine)),
        lambda names: names == sorted(f"{run} round {number}" for number in range(rounds)),
    )
    chosen = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[flow_run.id]))
    said = re.compile(rf"{run} round (\d+): \d+ jobs hold \d+ GPUs, after \d+ ms")
    wait_for(  # Prefect sends logs in batches
        lambda: [said.fullmatch(line.message) for line in client.read_logs(chosen)],
        lambda found: [int(line[1]) for line in found if line] == [*range(rounds)],
    )


def test_only_files_of_the_folder_are_simulated(up: Up, client: SyncPrefectClient) -> None:
    for given in ("nothing.csv", "../runs.csv", "/etc/passwd"):
        flow_run = called(client, simulation, SimulationForm(trace=Path(given)), up)
        problem = f"{given!r} is not in the folder traces of the warehouse; copy it there"
        assert outcome(flow_run) == ("Failed", f"Trace: {problem}")


# A walk


FEW_FRAMES = "window.requestAnimationFrame = draw => setTimeout(() => draw(performance.now()), 500)"
"""Has a graph drawn twice a second; sixty times, by the processor, takes most of a core."""

GRAPH_LEFT = tuple(
    f"Cannot read properties of null (reading '{name}')" for name in ("position", "addChild")
)
"""Errors of the UI's graph of a run if its page is left while it is drawn."""


@pytest.fixture
def page(up: Up) -> Iterator[Page]:
    """A page of the UI; errors and requests to other hosts fail the test."""
    errors: list[str] = []
    asked: set[str] = set()
    with browser() as opened:
        page = opened.new_page(
            viewport={"width": 1400, "height": 1000}, base_url=up.url, reduced_motion="reduce"
        )
        page.add_init_script(FEW_FRAMES)
        page.set_default_timeout(HANG_SECONDS * 1e3)
        page.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
        log_in(page, up.access)  # without it, the UI itself stumbles over refusals
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
    assert [error for error in errors if error not in GRAPH_LEFT] == []
    assert asked - {""} == {urlsplit(up.url).netloc}


def test_a_campaign_is_started_and_its_artifacts_are_opened(up: Up, page: Page) -> None:
    page.goto("/deployments")
    page.locator("a[href*='/deployments/deployment/']", has_text="campaign").click()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("Custom run").click()
    field(page, "Jobs (Optional)").fill("3")
    start_flow_run(page, page.get_by_role("button", name="Submit").click)
    page.locator("a[href*='/runs/flow-run/']").first.click()
    expect(page.get_by_text("campaign first").first).to_be_visible(timeout=HANG_SECONDS * 1e3)
    expect(page.get_by_text("Completed", exact=True)).to_be_visible(timeout=HANG_SECONDS * 1e3)

    page.get_by_text("Artifacts", exact=True).click()
    card = page.locator("a[href*='/artifacts/']", has_text="summary-first-")
    expect(card).to_contain_text("Campaign first-")
    card.click()
    table = page.locator("table")
    for policy in ("shockwave", "fifo", "srtf"):
        expect(table.get_by_text(policy, exact=True)).to_be_visible()

    _, runs = Analytics(up.warehouse).query("SELECT policy, jobs FROM run_summary WHERE jobs = 3")
    assert sorted(runs) == [("fifo", 3), ("shockwave", 3), ("srtf", 3)]


def field(page: Page, title: str) -> Locator:
    """The input of a form's field."""
    heading = f'.p-label__header .schema-form-property__label:text-is("{title}")'
    return page.locator(f".p-label:has(> {heading}) input").first
