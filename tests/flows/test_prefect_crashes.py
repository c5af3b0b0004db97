"""Flow runs of killed processes become Crashed, and their runs lose or repeat no round."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
from prefect.client.schemas.objects import FlowRun
from prefect.states import Running

from flows.prefect_server.access import Access
from flows.prefect_server.crashes import (
    ENDED,
    LABEL,
    crash_dead_runs,
    identify_process,
    is_dead,
)
from flows.prefect_server.prefect_driver import open_prefect_driver, scheduling_round
from flows.runs.resuming import resume
from harness.up import PROGRAM
from harness.waiting import wait_for
from warehouse.store.audit import audit
from warehouse.store.folder import run_folders
from warehouse.store.reader import Reader

SIMULATE = ["simulate", "--gpus", "4", "--jobs", "8", "--round-seconds", "900"]


@pytest.mark.process
def test_a_process_is_dead_once_it_was_killed_even_if_nobody_reaped_it() -> None:
    assert not is_dead(identify_process())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        identity = identify_process(process.pid)
        assert not is_dead(identity)
        process.kill()
        wait_for(lambda: is_dead(identity))
    assert is_dead(identity)


def test_a_process_id_that_is_used_again_is_another_process() -> None:
    *same, start = identify_process().split()
    assert is_dead(" ".join((*same, str(int(start) - 1))))


def test_a_process_of_another_host_is_not_judged() -> None:
    _, *rest = identify_process().split()
    assert not is_dead(" ".join(("another-host", *rest[:-1], "1")))


def rounds_in_prefect(client: SyncPrefectClient, run: str) -> list[FlowRun]:
    found = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(tags=FlowRunFilterTags(all_=[run])), limit=200
    )
    return sorted(found, key=lambda flow_run: str(flow_run.created))


@pytest.mark.prefect
@pytest.mark.slow
@pytest.mark.process
def test_the_rounds_of_a_killed_run_crash_and_none_is_lost_or_doubled(
    client: SyncPrefectClient, server: Access, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [PROGRAM, *SIMULATE, "--driver", "prefect", "--warehouse", tmp_path],
        env=os.environ | server.client_env(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def recorded() -> int:
        assert process.poll() is None, "it ended before it was killed"
        return sum(len([*folder.glob("round=*.parquet")]) for folder in run_folders(tmp_path))

    wait_for(recorded, lambda count: count >= 4)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    (run,) = (folder.name.removeprefix("run=") for folder in run_folders(tmp_path))

    crash_dead_runs(client)
    found = rounds_in_prefect(client, run)
    states = Counter(flow_run.state_name for flow_run in found)
    assert set(states) <= {"Completed", "Crashed"}
    assert states["Crashed"] <= 1  # none if it was killed between two rounds
    for flow_run in found:
        assert flow_run.state
        assert flow_run.state_name == "Completed" or flow_run.state.message == ENDED

    kept = Reader(tmp_path).records(run)
    with open_prefect_driver() as driver:
        resume(run, tmp_path, driver=driver)
    records = Reader(tmp_path).records(run)
    assert records[: len(kept)] == kept
    assert [record.round for record, _ in records] == [*range(len(records))]
    assert audit(tmp_path, run).findings == ()
    done = Counter(
        flow_run.parameters["number"]
        for flow_run in rounds_in_prefect(client, run)
        if flow_run.state_name == "Completed"
    )
    assert set(done.values()) == {1}
    # A kill between the record and the end of the flow run leaves a recorded round as crashed.
    assert set(range(len(records))) - set(done) <= {len(kept) - 1}


@pytest.mark.prefect
def test_flow_runs_of_other_hosts_and_of_others_are_left_alone(client: SyncPrefectClient) -> None:
    def create(process: str | None) -> FlowRun:
        made = client.create_flow_run(scheduling_round, state=Running())
        if process:
            client.update_flow_run_labels(made.id, {LABEL: process})
        return made

    *same, start = identify_process().split()
    dead = create(" ".join((*same, str(int(start) - 1))))
    there, here, others = (
        create("another-host namespace boot 1 1"),
        create(identify_process()),
        create(None),
    )
    assert crash_dead_runs(client) == 1
    states = [client.read_flow_run(each.id).state_name for each in (dead, there, here, others)]
    assert states == ["Crashed", "Running", "Running", "Running"]
