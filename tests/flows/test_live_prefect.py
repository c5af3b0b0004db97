"""A whole run of real training jobs in containers, through the Prefect flow."""

from dataclasses import replace
from pathlib import Path

import pytest
from prefect.client.orchestration import SyncPrefectClient

from benchmarks.alone import losses
from containers.docker.nodes import Gpu
from containers.runtime import EventKind
from flows.explain.replay import replay
from flows.prefect_server.prefect_driver import open_prefect_driver
from flows.runs.live import run_live
from flows.runs.start import make_start
from harness.dockerd import cluster, dockerd
from harness.faults.jobs import workload
from predictor.job import TABLE_MODES
from tasks.record import RuntimeKind, Settings, make_pool
from tests.daemons import need_daemon
from warehouse.store.audit import audit
from warehouse.store.reader import Reader

JOBS = (1, 2, 5)
"""A job of each mode, one of them a gang, for which two GPUs are too few."""


@pytest.mark.docker
def test_jobs_of_all_modes_run_to_their_end_through_the_prefect_flow(
    client: SyncPrefectClient, storage: Path, tmp_path: Path
) -> None:
    need_daemon()
    settings = Settings(
        "shockwave",
        make_pool(2, 2),
        round_seconds=4.0,
        restart_seconds=2.0,
        runtime=RuntimeKind.DOCKER,
    )
    start = make_start(workload(0.4, JOBS), settings)
    with dockerd() as own:
        nodes = cluster(own, storage)
        nodes = replace(nodes, nodes=(replace(nodes.nodes[0], gpus=(Gpu(cpus=1.0),) * 2),))
        with open_prefect_driver() as driver:
            name = run_live(start, nodes, tmp_path, driver=driver)
    recorded = [record for record, _ in Reader(tmp_path).records(name)]
    assert {spec.mode for spec in start.workload.specs} == set(TABLE_MODES)
    ends = {event.job_id: event.kind for record in recorded for event in record.finished}
    assert ends == {spec.job_id: EventKind.FINISHED for spec in start.workload.specs}
    for spec in start.workload.specs:
        sizes = {
            report.batch_size
            for record in recorded
            for report in record.reports
            if report.job_id == spec.job_id
        }
        assert (len(sizes) > 1) == (len(spec.batch_sizes) > 1), (spec, sizes)
        # That they equal those of the undisturbed job is tested under faults.
        reported = losses(nodes.folder(name, spec.job_id))
        assert [*map(len, reported.values())] == [1] * spec.epochs
    ran = [entry for record in recorded for entry in record.progress if entry.memory_bytes]
    assert any(entry.cpu_seconds > 0.1 for entry in ran)
    assert audit(tmp_path, name).findings == ()
    again = replay(name, tmp_path)
    assert (again.rounds, again.differences) == (len(recorded), [])
