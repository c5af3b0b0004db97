"""Jobs of other images, in containers."""

from dataclasses import replace
from pathlib import Path

import pytest

from containers.docker.logs import read_job_log
from containers.docker.nodes import Gpu, Nodes
from containers.runtime import EventKind
from flows.explain.replay import replay
from flows.runs.live import run_live
from flows.runs.start import make_start
from harness.dockerd import IMAGE, PLAIN, Dockerd, cluster, python
from predictor.errors import InputError
from predictor.job import JobKind, JobSpec
from predictor.throughput import Profile
from tasks.invariants import Invariants
from tasks.record import RuntimeKind, Settings, make_pool
from tasks.sources import Workload
from tests.containers.driver import driven
from tests.kinds import CHECKPOINTING, OPAQUE, timed, with_jobs
from warehouse.store.audit import audit
from warehouse.store.reader import Reader

STOPPED_ONCE = """
import os, pathlib, signal, sys, time
saved = pathlib.Path(os.environ['SHOCKWAVE_JOB_FOLDER']) / 'saved'
saved.with_name('progress.json').write_text('{"share": 0.5}')
signal.signal(15, lambda *_: (saved.write_text('x'), print('saves', flush=True), os._exit(75)))
while not saved.exists():
    time.sleep(0.05)
print('goes on', flush=True)
"""
"""It ends once it was stopped and started again, and not before."""


def others(
    job_id: int,
    *command: str,
    limit: float,
    kind: JobKind = CHECKPOINTING,
    gpus: int = 1,
    at: float = 0.0,
    environment: tuple[str, ...] = (),
) -> JobSpec:
    """A job of another image."""
    spec, _ = timed(job_id, 1.0, limit=limit, kind=kind, gpus=gpus, at=at, image=PLAIN)
    return replace(spec, command=command, environment=environment)


def workload(*specs: JobSpec) -> Workload:
    jobs = [(spec, timed(0, 1.0, limit=1.0)[1]) for spec in specs]
    return with_jobs(Workload("others", (), (), Profile({})), jobs)


def log(nodes: Nodes, run: str, job_id: int) -> str:
    return b"".join(read_job_log(nodes.folder(run, job_id))).decode()


def test_eight_jobs_of_others_run_are_preempted_go_on_and_end(
    daemon: Dockerd, storage: Path, tmp_path: Path
) -> None:
    nodes = cluster(daemon, storage)
    nodes = replace(nodes, nodes=(replace(nodes.nodes[0], gpus=(Gpu(cpus=0.5),) * 2),))
    count = python(), "/opt/jobs/count.py"
    few = ("TARGET=3", "STEP=0.1")
    asked = workload(
        others(0, python(), "-c", STOPPED_ONCE, limit=300.0),
        others(1, python(), "-c", STOPPED_ONCE, limit=310.0),
        others(2, "sleep", "3", kind=OPAQUE, limit=250.0),
        others(3, "sleep", "0.1", kind=OPAQUE, gpus=2, limit=150.0, at=1.5),
        *(others(n, *count, limit=200.0, at=1.5, environment=few) for n in range(4, 8)),
    )
    settings = Settings(
        "srtf", make_pool(2, 2), round_seconds=1.0, restart_seconds=0.5, runtime=RuntimeKind.DOCKER
    )
    start = make_start(asked, settings)
    name = run_live(start, nodes, tmp_path)

    recorded = [record for record, _ in Reader(tmp_path).records(name)]
    invariants = Invariants(start.header, start.workload)
    assert [said for record in recorded for said in invariants.check(record)] == []
    ends = {event.job_id: event.kind for record in recorded for event in record.finished}
    assert ends == dict.fromkeys(range(8), EventKind.FINISHED)
    events = [event for record in recorded for event in record.events]
    preempted = {event.job_id for event in events if event.kind is EventKind.PREEMPTED}
    assert {0, 1} <= preempted
    assert preempted.isdisjoint({2, 3}), "opaque"
    halfway = {
        entry.job_id for record in recorded for entry in record.progress if entry.share == 0.5
    }
    assert {0, 1} <= halfway <= {0, 1, 4, 5, 6, 7}
    image = daemon.client().images.get(PLAIN).id
    started = [event for event in events if event.kind is EventKind.STARTED]
    assert [event.reason for event in started] == [f"of image {image}"] * 8
    assert "saves" in log(nodes, name, 0)
    assert log(nodes, name, 0).endswith("goes on\n")
    assert log(nodes, name, 4).endswith("to 3\n")
    assert audit(tmp_path, name).findings == ()
    assert replay(name, tmp_path).differences == []


def test_a_job_goes_on_with_the_image_that_it_began_with(daemon: Dockerd, storage: Path) -> None:
    tag = "changing-job:latest"
    daemon.add_image(tag, [])
    first = daemon.client().images.get(tag).id
    spec = replace(others(0, "sleep", "600", limit=900.0), image=tag, model=tag)
    nodes = cluster(daemon, storage, images=("changing-*",), grace_seconds=1.0)
    with driven(nodes, "changing", [spec]) as driver:
        driver.play({0: (0,)}, {})
        daemon.add_image(tag, [], "ENV OTHER=1")  # another image has the tag from now on
        second = daemon.client().images.get(tag).id
        driver.play({0: (1,)})
        (container,) = daemon.containers("changing")
        assert container.image.id == first
        driver.play({})
        daemon.client().images.remove(first, force=True)
        driver.play({0: (0,)})
        (lost,) = [event for event in driver.events if event.kind is EventKind.UNSTARTED]
        assert lost.reason == (
            f"could not be started: image {tag} of node one is {second}, "
            f"not the one that the job began with: load {first}"
        )


def test_jobs_may_name_the_images_that_are_listed_and_no_others(
    daemon: Dockerd, storage: Path, tmp_path: Path
) -> None:
    nodes = cluster(daemon, storage, images=())
    settings = Settings("srtf", make_pool(4, 4), round_seconds=1.0, runtime=RuntimeKind.DOCKER)
    settings = replace(settings, restart_seconds=0.5)
    start = make_start(workload(others(0, "true", limit=60.0)), settings)
    with pytest.raises(InputError, match=f"job 0, image: {PLAIN} is none of the images that jobs"):
        run_live(start, nodes, tmp_path)
    assert not (tmp_path / "records").exists()
    listed = replace(nodes, images=(IMAGE,))
    with (
        pytest.raises(InputError, match="add it to images in the cluster file"),
        driven(listed, "unlisted", start.workload.specs),
    ):
        pass
