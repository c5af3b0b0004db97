"""The Prefect driver against the plain driver, and its traces in Prefect."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterTags,
    LogFilter,
    LogFilterFlowRunId,
)
from prefect.client.schemas.objects import FlowRun, TaskRun, TaskRunResult
from prefect.client.schemas.sorting import FlowRunSort, TaskRunSort

from flows.campaigns import Runner
from flows.campaigns.campaign import campaign
from flows.campaigns.compare import make_comparison
from flows.campaigns.execution import watch_campaigns
from flows.cli.progress import VARIABLE
from flows.deployments.deployments import FILE, read_deployments
from flows.explain.replay import replay
from flows.explain.whatif import Change, whatif
from flows.prefect_server.access import Access
from flows.prefect_server.prefect_driver import open_prefect_driver
from flows.runs.resuming import resume
from flows.runs.settings import ClusterSize, SimulationSettings
from flows.runs.simulation import Driver, simulate
from flows.runs.start import make_start
from flows.runs.workload_source import Source
from harness.waiting import HANG_SECONDS, wait_for
from predictor.errors import WarehouseError
from tasks.prefect_tasks import TASKS, should_retry
from tasks.record import Parameter, Settings, Start, make_pool
from tasks.round import ROUND, record
from tasks.run import Run
from tests.flows.conftest import Command
from tests.ui.flow_runs import artifacts, rows_of
from warehouse.analytics.questions import Analytics
from warehouse.store.audit import audit
from warehouse.store.campaigns import read_cells
from warehouse.store.folder import name_of, place_of, records_folder
from warehouse.store.reader import Reader

pytestmark = pytest.mark.prefect

ROOT = Path(__file__).parents[2]
STEPS = [step.__name__ for step in ROUND]
START = make_start(Source(jobs=2).open(), Settings("shockwave", make_pool(4), round_seconds=3600))


def flow_runs(client: SyncPrefectClient, tag: str) -> list[FlowRun]:
    return client.read_flow_runs(
        flow_run_filter=FlowRunFilter(tags=FlowRunFilterTags(all_=[tag])),
        sort=FlowRunSort.START_TIME_ASC,
    )


def task_runs(client: SyncPrefectClient, flow_run: UUID, count: int) -> list[TaskRun]:
    return wait_for(  # the server stores task runs in batches
        lambda: client.read_task_runs(
            flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[flow_run])),
            sort=TaskRunSort.EXPECTED_START_TIME_ASC,
        ),
        lambda found: (
            len(found) == count and all(run.state and run.state.is_final() for run in found)
        ),
        every=0.2,
    )


@dataclass(frozen=True)
class Both:
    """The same run under both drivers."""

    warehouse: Path
    plain: str
    prefect: str

    @property
    def reader(self) -> Reader:
        return Reader(self.warehouse)

    @property
    def analytics(self) -> Analytics:
        return Analytics(self.warehouse)


@pytest.fixture
def driver(client: SyncPrefectClient) -> Iterator[Driver]:
    with open_prefect_driver() as opened:
        yield opened


@pytest.fixture(scope="module")
def both(client: SyncPrefectClient, tmp_path_factory: pytest.TempPathFactory) -> Both:
    warehouse = tmp_path_factory.mktemp("both")
    with open_prefect_driver() as driver:
        prefect = simulate(START, warehouse, driver=driver)
    return Both(warehouse, simulate(START, warehouse), prefect)


def test_a_run_under_prefect_replays_and_forks_as_a_plain_one(both: Both) -> None:
    for run in (both.plain, both.prefect):
        assert replay(run, both.warehouse).differences == []
    for change in (Change(), Change(policy="srtf")):
        forks = [whatif(run, both.warehouse, 2, change) for run in (both.plain, both.prefect)]
        assert replace(forks[0], run="") == replace(forks[1], run="")


def test_both_drivers_write_the_same_rounds(both: Both) -> None:
    plain, prefect = both.reader.records(both.plain), both.reader.records(both.prefect)
    assert len(plain) > 3
    assert plain == prefect
    stored = [
        both.analytics.query(
            f"SELECT * EXCLUDE (run, timings) FROM records WHERE run = '{run}' ORDER BY round"
        )
        for run in (both.plain, both.prefect)
    ]
    assert stored[0] == stored[1]


def test_each_round_is_a_flow_run(both: Both, client: SyncPrefectClient) -> None:
    runs = flow_runs(client, both.prefect)
    rounds = range(len(both.reader.records(both.prefect)))
    assert [run.name for run in runs] == [f"{both.prefect} round {number}" for number in rounds]
    assert [run.parameters for run in runs] == [
        {"run": both.prefect, "number": number} for number in rounds
    ]
    for run in runs:
        assert run.state is not None
        assert run.state.is_completed()
        assert set(run.tags) == {both.prefect, "shockwave"}


SOURCES = {
    "collect": {"run": []},
    "predict": {"run": [], "collected": ["collect"]},
    "solve": {"run": [], "prediction": ["predict"]},
    "dispatch": {"run": [], "prediction": ["predict"], "plan": ["solve"]},
    "record": {
        "run": [],
        "collected": ["collect"],
        "prediction": ["predict"],
        "plan": ["solve"],
        "events": ["dispatch"],
        "timings": [],
    },
}
"""The steps that return each input of a step."""


def test_the_inputs_of_each_step_name_the_task_runs_that_returned_them(
    both: Both, client: SyncPrefectClient
) -> None:
    for number, flow_run in enumerate(flow_runs(client, both.prefect)):
        runs = task_runs(client, flow_run.id, len(STEPS))
        assert [run.name for run in runs] == [
            f"{step} {both.prefect} round {number}" for step in STEPS
        ]
        ids = dict(zip(STEPS, (run.id for run in runs), strict=True))
        for step, run in zip(STEPS, runs, strict=True):
            sources = {
                name: [source.id for source in found if isinstance(source, TaskRunResult)]
                for name, found in run.task_inputs.items()
            }
            assert sources == {
                name: [ids[source] for source in found] for name, found in SOURCES[step].items()
            }
            assert run.state is not None
            assert run.state.is_completed()


def test_the_log_of_a_round_has_a_line_for_each_event_and_each_step(
    both: Both, client: SyncPrefectClient
) -> None:
    kept, digest = both.reader.records(both.prefect)[0]
    flow_run = flow_runs(client, both.prefect)[0]
    steps = task_runs(client, flow_run.id, len(STEPS))
    chosen = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[flow_run.id]))
    # Prefect sends logs every two seconds.
    lines = wait_for(
        lambda: client.read_logs(chosen),
        lambda lines: any(digest in line.message for line in lines),
    )
    said = f"{both.prefect} round 0: "
    assert all(line.message.startswith(said) for line in lines)
    (first, *_) = kept.leases
    events = [f"job {spec.job_id} arrived" for spec in kept.arrivals]
    assert [line.message.removeprefix(said) for line in lines] == [
        *events,
        f"clock: 0.0 s; jobs arrived: {len(events)}, reported: 0; containers ended: 0",
        f"active jobs: {len(events)}; new forecasts: {len(kept.forecasts)}",
        "policy shockwave; jobs with GPUs: 1, busy GPUs: "
        f"{len(first.gpus)}; {kept.solve.status} by {kept.solve.backend}, gap 0.00%",
        f"job {first.job_id} started",
        "jobs started: 1",
        f"recorded with hash {digest}",
    ]
    ids = {line.task_run_id: None for line in lines}  # in order
    assert [*ids] == [step.id for step in steps]


def test_each_round_shows_its_allocation_and_its_market(
    both: Both, client: SyncPrefectClient
) -> None:
    records = both.reader.records(both.prefect)
    for (kept, _), flow_run in zip(records, flow_runs(client, both.prefect), strict=True):
        shown = artifacts(client, flow_run.id)
        assert set(shown) == {f"allocation-{both.prefect}", f"market-{both.prefect}"}
        allocation = rows_of(shown[f"allocation-{both.prefect}"])
        if kept.leases:
            assert [(row["job"], row["gpus"]) for row in allocation] == [
                (launch.job_id, " ".join(map(str, launch.gpus))) for launch in kept.leases
            ]
        else:
            assert allocation == [{"job": "none"}]
        market = shown[f"market-{both.prefect}"]
        assert market.type == "markdown"
        assert isinstance(market.data, str)
        assert market.data.startswith(f"# Round {kept.round} of run {both.prefect}\n")
        if kept.solve.prices:
            assert f"| solution | {kept.solve.status}, by {kept.solve.backend} " in market.data
            assert f"| gap between the plan and its bound | {kept.solve.gap:.2%} |" in market.data
        leases = {lease.job_id: " ".join(map(str, lease.gpus)) for lease in kept.leases}
        for event in (*kept.finished, *kept.events):
            gpus = " ".join(map(str, event.gpus))
            assert f"\n| {event.job_id} | {event.kind} | {gpus} | {event.reason}" in market.data
        assert f"shockwave why JOB --run {both.prefect} --round {kept.round}`" in market.data
        bids = re.findall(r"\n\| (\d+) \| \d+ \| [\d.e+-]+ \| ([\d ]+|waits) \|", market.data)
        assert sorted(bids) == sorted(
            (str(bid.job_id), leases.get(bid.job_id, "waits")) for bid in kept.bids
        )


def test_a_failing_step_fails_its_flow_run_and_the_run_can_be_resumed(
    both: Both, client: SyncPrefectClient, driver: Driver, tmp_path: Path
) -> None:
    def take_the_folder_away(run: Run) -> None:
        if run.state.round == 2:
            folder = place_of(tmp_path, run.name)
            folder.rename(tmp_path / "away")
            folder.write_text("a file where the folder was")

    # Another seed on record gives another id than the runs above, for the same jobs.
    start = make_start(START.workload, replace(START.header.settings, seed=1))
    with pytest.raises(WarehouseError, match="cannot be written"):
        simulate(start, tmp_path, driver=driver, progress=take_the_folder_away)
    (folder,) = (path for path in records_folder(tmp_path).glob("run=*") if path.is_file())
    run = name_of(folder)

    *completed, failed = flow_runs(client, run)
    assert [flow_run.state_name for flow_run in completed] == ["Completed"] * 2
    assert (failed.name, failed.state_name) == (f"{run} round 2", "Failed")
    assert failed.state is not None
    assert failed.state.message is not None
    assert "cannot be written (Not a directory)" in failed.state.message
    steps = task_runs(client, failed.id, len(STEPS))
    assert [step.state_name for step in steps] == ["Completed"] * 4 + ["Failed"]
    assert artifacts(client, failed.id) == {}

    folder.unlink()
    (tmp_path / "away").rename(folder)
    assert resume(run, tmp_path, driver=driver) == run
    assert [again.state_name for again in flow_runs(client, run)[3:]] == ["Completed"] * (
        len(both.reader.records(both.plain)) - 2
    )
    undisturbed = simulate(start, tmp_path)
    assert Reader(tmp_path).records(run) == Reader(tmp_path).records(undisturbed)


def test_a_record_that_cannot_be_written_at_first_is_written_later(
    client: SyncPrefectClient, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_the_way(run: Run) -> None:
        if run.state.round == 1:
            (place_of(tmp_path, run.name) / "round=000001.parquet").mkdir()

    def out_of_it_once_it_failed(task: Any, task_run: TaskRun, state: Any) -> bool:
        next(records_folder(tmp_path).glob("run=*/round=000001.parquet")).rmdir()
        return should_retry(task, task_run, state)

    monkeypatch.setattr(TASKS[record], "retry_condition_fn", out_of_it_once_it_failed)

    start = make_start(START.workload, replace(START.header.settings, seed=3))
    run = simulate(start, tmp_path, driver=driver, progress=in_the_way)
    _, late, *_ = flow_runs(client, run)
    steps = task_runs(client, late.id, len(STEPS))
    assert [step.state_name for step in steps] == ["Completed"] * len(STEPS)
    *once_each, tries = (step.run_count for step in steps)
    assert set(once_each) == {1}
    assert tries == 2
    assert audit(tmp_path, run).findings == ()


def test_compare_is_a_flow_run_with_a_task_run_a_policy(
    here: Command, client: SyncPrefectClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "0.001")
    ran = here(
        *(
            "compare",
            "--driver",
            "prefect",
            "--gpus",
            4,
            "--jobs",
            1,
            "--policies",
            "fifo,shockwave,srtf",
        ),
        *("--set", "lateness=1e-4", "--warehouse", tmp_path, "--json"),
    )
    assert ran.code == 0, ran.err
    progress = [re.match(r" *\d+ s  (.*)", line) for line in ran.err.splitlines()]
    for said in ("reaching Prefect", "1 of 3, fifo: ", "3 of 3, srtf: ", "reading figures"):
        assert any(line and line[1].startswith(said) for line in progress), ran.err
    assert all(progress)
    monkeypatch.undo()
    assert [row["policy"] for row in ran.rows] == ["fifo", "shockwave", "srtf"]
    first, second, _ = (row["run"] for row in ran.rows)
    assert [row["jct_difference_s"] for row in ran.rows] == [
        None,
        *(pytest.approx(row["mean_jct_s"] - ran.rows[0]["mean_jct_s"]) for row in ran.rows[1:]),
    ]
    parameters = [Reader(tmp_path).header(run).settings.parameters for run in (first, second)]
    assert parameters == [(), (Parameter("lateness", 1e-4),)]

    (table,) = (  # other tests compare on this server, too
        artifact
        for artifact in client.read_artifacts()
        if (artifact.key or "").startswith("summary-compare-")
        and [row["policy"] for row in rows_of(artifact)] == ["fifo", "shockwave", "srtf"]
    )
    assert table.flow_run_id is not None
    flow_run = client.read_flow_run(table.flow_run_id)
    assert (flow_run.name, flow_run.state_name) == ("campaign compare", "Completed")
    assert flow_run.parameters["plan"]["description"] == "fifo,shockwave,srtf (fair)"
    steps = task_runs(client, flow_run.id, 3)
    assert {step.name for step in steps} == {
        f"{policy}/workload/cluster/seed0" for policy in ("fifo", "shockwave", "srtf")
    }
    assert {step.state_name for step in steps} == {"Completed"}


def test_watchers_are_called_for_every_round(client: SyncPrefectClient, tmp_path: Path) -> None:
    calls: list[tuple[str, int]] = []

    def watch(start: Start) -> Callable[[Run], None]:
        return lambda run: calls.append((start.header.settings.policy, run.state.round))

    plan = make_comparison(
        "two", Source(jobs=1), ClusterSize(4), SimulationSettings(), ["fifo", "shockwave"]
    )
    with watch_campaigns(rounds=watch):
        done = campaign(plan, Runner.THREADS, 1, None, tmp_path)
    rounds = [len(Reader(tmp_path).records(cell.run)) for cell in read_cells(tmp_path, done)]
    assert calls == [
        (policy, number + 1)
        for policy, count in zip(["fifo", "shockwave"], rounds, strict=True)
        for number in range(count)
    ]


def test_prefect_yaml_is_deployed_as_a_whole(client: SyncPrefectClient, server: Access) -> None:
    client.create_work_pool(WorkPoolCreate(name="shockwave", type="process"))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "prefect", "--no-prompt"),
            *("deploy", "--all", "--prefect-file", str(FILE)),
        ],
        cwd=ROOT,
        env=os.environ | server.client_env(),
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr

    found = {deployment.name: deployment for deployment in client.read_deployments()}
    assert set(found) == {deployment.name for deployment in read_deployments()}
    for deployment in read_deployments():
        deployed = found[deployment.name]
        assert deployed.work_pool_name == "shockwave"
        assert deployed.entrypoint == deployment.entrypoint
        assert set(deployed.tags) == {*deployment.tags}
        assert deployed.enforce_parameter_schema
        assert "warehouse" in deployed.parameter_openapi_schema["properties"]
