"""Jobs of a measured application on a virtual clock, by hand: rounds of 60 s, restarts of 30 s."""

from dataclasses import replace
from pathlib import Path

import pytest

from containers.runtime import EventKind, Lease, Observation, ResumePoint, Terms
from containers.virtual.application_cluster import ApplicationCluster, ApplicationFactory
from containers.virtual.truth import GroundTruth
from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import JobSpec, Mode, Regime
from predictor.throughput import Profile
from solver.inventory import Inventory, Pool
from tests.applications import write_applications, write_jobs
from tests.strategies import cluster
from warehouse.workloads.applications import read_application_jobs

NODES = Inventory((Pool("t4", 8, 2),))


@pytest.fixture
def runtime(tmp_path: Path) -> ApplicationCluster:
    path = write_jobs(tmp_path, "a,0,toy,2,20", "b,0,toy,2,20")
    workload = read_application_jobs(path, write_applications(tmp_path / "apps"), ("t4",))
    terms = Terms("", 60.0, 30.0, workload.profile, NODES)
    opened = ApplicationFactory(workload.truths).open(terms, ResumePoint(jobs=workload.specs))
    assert isinstance(opened, ApplicationCluster)
    return opened


def go_on(runtime: ApplicationCluster, *gpus: int) -> tuple[EventKind, Observation]:
    """Launch the first job, let a round pass."""
    (event,) = runtime.launch(0, [Lease(0, gpus)])
    runtime.advance(None)
    return event.kind, runtime.observe()


def test_progress_follows_the_measured_noise_and_ends_in_whole_seconds(
    runtime: ApplicationCluster,
) -> None:
    # A step of 1.2 s is worth 1.6, then 1.82 steps of the first batch size: 75 s and 66 s.
    kind, seen = go_on(runtime, 0, 1)
    (entry,) = seen.progress
    assert kind is EventKind.STARTED
    assert (seen.clock_seconds, entry.seconds, entry.fraction) == (60.0, 30.0, pytest.approx(0.4))
    assert entry.steps_left == 80  # of 100, 20 of them in this epoch
    _, seen = go_on(runtime, 0, 1)
    (report,) = seen.reports
    assert (report.epoch, report.epochs, report.batch_size, report.seconds) == (0, 1, 20, 75.0)
    assert seen.progress[0].fraction == pytest.approx(15 / 66)
    _, seen = go_on(runtime, 0, 1)
    (end,) = seen.finished
    assert (end.kind, end.at_seconds, end.gpus) == (EventKind.FINISHED, 30.0 + 75.0 + 66.0, (0, 1))
    assert (seen.clock_seconds, seen.progress[0].steps_left) == (180.0, 0)


def test_a_job_restarts_where_its_nodes_change(runtime: ApplicationCluster) -> None:
    kinds, trained = [], []
    for gpus in [(0, 1), (2, 3), (2,), (3,), (2,)]:
        kind, seen = go_on(runtime, *gpus)
        kinds.append(str(kind))
        trained += [entry.seconds for entry in seen.progress]
    assert kinds == ["started", "resumed", "resumed", "renewed", "renewed"]
    assert trained[:4] == [30.0, 30.0, 30.0, 60.0]


def test_it_waits_without_a_restart_and_resumes_with_one(runtime: ApplicationCluster) -> None:
    go_on(runtime, 0, 1)
    (event,) = runtime.preempt({0: "for another job"})
    assert (event.kind, event.gpus) == (EventKind.PREEMPTED, (0, 1))
    runtime.advance(100.0)
    assert runtime.observe().clock_seconds == 120.0  # the first round that ends at 100 s or later
    kind, seen = go_on(runtime, 0, 1)
    assert (kind, seen.progress[0].seconds) == (EventKind.RESUMED, 30.0)


def open_beside(tmp_path: Path, gpus: int = 2, speed: float = 1.0) -> ApplicationCluster:
    """Open a cluster with a job of an application, 0, and one of a table of rates, 1."""
    path = write_jobs(tmp_path, "a,0,toy,2,20")
    workload = read_application_jobs(path, write_applications(tmp_path / "apps"), ("t4",))
    rates = {("net", 32, "t4", gpus): 2.0 * speed, ("net", 64, "t4", gpus): speed}
    net = JobSpec(
        job_id=1,
        model="net",
        batch_size=32,
        max_batch_size=64,
        demand=Demand.gang(gpus),
        mode=Mode.GNS,
        epochs=3,
        samples_per_epoch=640,
        arrival_seconds=0.0,
    )
    regimes = Regime(32, 2), Regime(64, 1)  # two epochs of 20 steps, then one of 10
    truths = (*workload.truths, GroundTruth(1, 30.0, regimes, regimes))
    terms = Terms("", 60.0, 30.0, replace(workload.profile, rates=rates), NODES)
    jobs = (*workload.specs, net)
    opened = ApplicationFactory(truths).open(terms, ResumePoint(jobs=jobs))
    assert isinstance(opened, ApplicationCluster)
    return opened


def test_other_jobs_train_at_their_rates_beside(tmp_path: Path) -> None:
    runtime = open_beside(tmp_path)
    runtime.launch(0, [Lease(0, (0, 1)), Lease(1, (2, 3))])
    runtime.advance(None)
    seen = runtime.observe()
    (end,) = seen.finished
    assert (end.job_id, end.at_seconds) == (1, 30.0 + 10.0 + 10.0 + 10.0)
    assert [(r.batch_size, r.epochs, r.seconds) for r in seen.reports] == [(32, 2, 20), (64, 1, 10)]
    assert [(entry.job_id, entry.seconds) for entry in seen.progress] == [(0, 30.0), (1, 30.0)]


def test_other_jobs_restart_wherever_their_gpus_change(tmp_path: Path) -> None:
    runtime = open_beside(tmp_path, gpus=1, speed=0.25)  # it trains 120 s
    kinds, trained = [], []
    for gpu in (2, 3, 3):
        (event,) = runtime.launch(0, [Lease(1, (gpu,))])
        runtime.advance(None)
        kinds.append(event.kind)
        trained.append(runtime.observe().progress[0].seconds)
    assert kinds == [EventKind.STARTED, EventKind.RESUMED, EventKind.RENEWED]
    assert trained == [30.0, 30.0, 60.0]


def test_jobs_without_measurements_are_refused(tmp_path: Path, runtime: ApplicationCluster) -> None:
    path = write_jobs(tmp_path, "a,0,toy,2,20")
    workload = read_application_jobs(path, tmp_path / "apps")
    terms = Terms("", 60.0, 30.0, Profile({}), cluster(8))
    with pytest.raises(InputError, match="unknown model 'toy'"):
        ApplicationFactory(workload.truths).open(terms, ResumePoint(jobs=workload.specs))
