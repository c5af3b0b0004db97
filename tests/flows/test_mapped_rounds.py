"""Rounds whose steps are divided into mapped task runs, against plain rounds."""

from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, FlowRunFilterName
from prefect.client.schemas.objects import TaskRun, TaskRunResult

from containers.runtime import EventKind
from flows.explain.replay import replay
from flows.prefect_server.prefect_driver import open_prefect_driver
from flows.runs.live import run_live
from flows.runs.simulation import simulate
from flows.runs.start import make_start
from flows.runs.workload_source import Source
from harness.dockerd import COUNTING, Dockerd, cluster
from harness.faults.jobs import workload
from harness.waiting import wait_for
from tasks import round as steps
from tasks.record import RuntimeKind, Settings, Start, make_pool
from warehouse.store.reader import Reader

pytestmark = pytest.mark.prefect


def small(seed: int) -> Start:
    """A run of a few jobs of all modes; its id depends on the seed."""
    jobs = Source(jobs=8, arrivals="at_once", modes="static=1,gns=1,accordion=1", seed=seed)
    return make_start(jobs.open(), Settings("shockwave", make_pool(8), round_seconds=3600))


def sources(run: TaskRun) -> dict[str, set[Any]]:
    """The task runs that each input of a task run names."""
    return {
        name: {source.id for source in found if isinstance(source, TaskRunResult)}
        for name, found in run.task_inputs.items()
    }


def finished_task_runs(client: SyncPrefectClient, run: str, number: int) -> dict[str, TaskRun]:
    """The task runs of a round by name, once all of them are stored."""
    named = FlowRunFilter(name=FlowRunFilterName(any_=[f"{run} round {number}"]))
    (flow_run,) = client.read_flow_runs(flow_run_filter=named)
    chosen = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run.id]))
    found = wait_for(
        lambda: client.read_task_runs(flow_run_filter=chosen),
        lambda found: (
            f"record {run} round {number}" in {task_run.name for task_run in found}
            and all(task_run.state and task_run.state.is_final() for task_run in found)
        ),
        every=0.2,
    )
    return {task_run.name: task_run for task_run in found}


def test_the_forecasts_of_many_jobs_are_task_runs_by_mode(
    client: SyncPrefectClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = small(0)
    monkeypatch.setattr(steps, "FEWEST_FORECASTS", 1)
    with open_prefect_driver() as driver:
        mapped = simulate(start, tmp_path, driver=driver, rounds=3)
    plain = simulate(start, tmp_path, rounds=3)
    assert Reader(tmp_path).records(mapped) == Reader(tmp_path).records(plain)

    (record, _), *_ = Reader(tmp_path).records(mapped)
    found = finished_task_runs(client, mapped, 0)
    parts = {name for name in found if name.startswith("forecast ")}
    assert parts == {f"forecast {spec.mode}" for spec in record.arrivals}
    assert len(parts) > 1
    for name in parts:
        assert sources(found[name]) == {
            "part": set(),
            "inputs": {found[f"collect {mapped} round 0"].id},
            "__parents__": {found[f"predict {mapped} round 0"].id},
        }


def test_a_round_of_a_few_jobs_on_one_machine_has_five_task_runs(
    client: SyncPrefectClient, tmp_path: Path
) -> None:
    with open_prefect_driver() as driver:
        run = simulate(small(1), tmp_path, driver=driver, rounds=1)
    assert len(finished_task_runs(client, run, 0)) == len(steps.ROUND)


@pytest.mark.slow
def test_the_published_trace_has_the_same_records_plain_through_prefect_and_mapped(
    client: SyncPrefectClient, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = Source(
        trace=data / "jobs120_gpus32.trace",
        profile=data / "tacc_throughputs.json",
        regimes=data / "gns_regimes.csv",
    )
    start = make_start(trace.open(), Settings("shockwave", make_pool(32)))
    runs = [simulate(start, tmp_path, rounds=30)]
    with open_prefect_driver() as driver:
        runs.append(simulate(start, tmp_path, driver=driver, rounds=15))
        monkeypatch.setattr(steps, "FEWEST_FORECASTS", 1)
        runs.append(simulate(start, tmp_path, driver=driver, rounds=30))
    plain, prefect, mapped = (
        [digest for _, digest in Reader(tmp_path).records(run)] for run in runs
    )
    assert len(plain) == 30
    assert prefect == plain[:15]
    assert mapped == plain


@pytest.mark.docker
def test_telemetry_and_dispatch_are_task_runs_by_host_and_replay_as_recorded(
    client: SyncPrefectClient, daemon: Dockerd, storage: Path, tmp_path: Path
) -> None:
    settings = Settings(
        "fifo", make_pool(2, 1), round_seconds=2.0, restart_seconds=1.0, runtime=RuntimeKind.DOCKER
    )
    start = make_start(workload(0.4, (0, 3, 4)), settings)
    hosts = dict.fromkeys(("one", "two"), daemon.endpoint)
    nodes = cluster(daemon, storage, nodes=hosts, gpus=1, image=COUNTING)
    with open_prefect_driver() as driver:
        run = run_live(start, nodes, tmp_path, driver=driver)
    records = [record for record, _ in Reader(tmp_path).records(run)]
    ends = [event for record in records for event in record.finished]
    assert [event.kind for event in ends] == [EventKind.FINISHED] * 3
    assert replay(run, tmp_path).differences == []

    first, second = (finished_task_runs(client, run, number) for number in (0, 1))
    for found, number, step, parts in (
        (first, 0, "dispatch", {"start one", "start two"}),
        (second, 1, "collect", {"read one", "read two"}),
    ):
        caller = found[f"{step} {run} round {number}"]
        assert {
            task_run.name
            for task_run in found.values()
            if sources(task_run).get("__parents__") == {caller.id}
        } == parts
    for part in ("start one", "start two"):
        assert sources(first[part])["inputs"] == {
            first[f"{step} {run} round 0"].id for step in ("predict", "solve")
        }
