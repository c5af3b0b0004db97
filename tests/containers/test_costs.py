"""Jobs that would run for ever, or take everything, are held to their limits."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from containers.docker.checking import check_before_run, check_cluster
from containers.docker.nodes import ContainerLimits, Nodes
from containers.runtime import EventKind
from containers.virtual.truth import GroundTruth
from flows.explain.replay import replay
from flows.explain.sentences import describe_answer
from flows.explain.why import why
from flows.runs.live import run_live
from flows.runs.start import make_start
from harness.dockerd import LIMITS, LOUD, Dockerd, cluster, python
from predictor.errors import InputError
from predictor.job import JobSpec, Regime
from predictor.throughput import Profile
from tasks.backoff import PATIENCE
from tasks.record import RuntimeKind, Settings, make_pool
from tasks.sources import Workload
from tests.containers.driver import driven, job, long
from warehouse.store.audit import audit
from warehouse.store.reader import Reader

COSTLY, DEAR = "shockwave-test:costly", "shockwave-test:dear"
STOPS, TOUCHES, FILLS, LIES, HONEST = range(5)
HUNG_ROUNDS = 3
FOLDER = ContainerLimits(memory_bytes=2**28, pids=64, scratch_bytes=2**20, folder_bytes=2**22)

PROGRAM = f"""
import json, os, time
job = json.load(open("/job/job.json"))
number, size = job["job_id"], job["batch_size"]
def stand(epoch, step, seconds):
    place = dict(epoch=epoch, step=step, batch_size=size, run_seconds=seconds)
    with open("/job/new", "w") as file:
        file.write(json.dumps(place))
    os.replace("/job/new", "/job/progress.json")
if number == {STOPS}:
    raise SystemExit(75)
count = 0
while number == {TOUCHES}:
    count += 1
    stand(0, count % 2, 0.02 * count)
    time.sleep(0.02)
while number == {FILLS}:
    count += 1
    with open(f"/job/{{count}}", "wb") as file:
        file.write(bytes(2**16))
    time.sleep(0.002)
while number == {LIES}:
    count += 1
    stand(0, count, 0.02 * count)
    time.sleep(0.02)
for epoch in range(job["epochs"]):
    time.sleep(0.2)
    with open("/job/telemetry.jsonl", "a") as file:
        file.write(json.dumps(dict(epoch=epoch, batch_size=size, seconds=0.2)) + "\\n")
    stand(epoch + 1, 0, 0.2 * (epoch + 1))
"""


@pytest.fixture(scope="module")
def own(daemon: Dockerd) -> Iterator[Dockerd]:
    """The daemon with an image of jobs that do as above, and one that declares volumes."""
    daemon.add_image(COSTLY, [python(), "-c", PROGRAM])
    daemon.add_image(DEAR, [python(), "-c", "pass"], "VOLUME /cache", "VOLUME /opt/models")
    yield daemon
    for name in (COSTLY, DEAR):
        daemon.client().images.remove(name)


def ran(nodes: Nodes, warehouse: Path, *specs: JobSpec) -> tuple[str, dict[int, list[str]]]:
    """Run jobs to their end, and check invariants of the records.

    Returns:
        The run, and what happened to each job.
    """
    held = {spec.job_id: (Regime(32, spec.epochs),) for spec in specs}
    truths = tuple(GroundTruth(number, 2.0, regimes, regimes) for number, regimes in held.items())
    profile = Profile.of_type({("Recommendation", 32, 1): 10.0})
    settings = Settings(
        "fifo", make_pool(5, 5), round_seconds=1.0, restart_seconds=0.5, runtime=RuntimeKind.DOCKER
    )
    start = make_start(Workload("costly", specs, truths, profile), settings)
    name = run_live(start, nodes, warehouse)
    kinds: dict[int, list[str]] = {spec.job_id: [] for spec in specs}
    for record, _ in Reader(warehouse).records(name):
        for event in (*record.finished, *record.events):
            kinds[event.job_id].append(str(event.kind))
    assert audit(warehouse, name).findings == ()
    assert replay(name, warehouse).differences == []
    return name, kinds


def reason(warehouse: Path, run: str, job_id: int) -> str:
    """The last line of `why` on a job."""
    return list(describe_answer(why(job_id, warehouse, run)))[-1]


def test_jobs_that_stop_fill_their_folder_or_lie_are_given_up(
    own: Dockerd, storage: Path, tmp_path: Path
) -> None:
    # However slow a machine is to start a container, none of these counts as hung.
    nodes = cluster(own, storage, gpus=5, image=COSTLY, limits=FOLDER, hung_rounds=1_000)
    limits = {LIES: {"samples": 10**6, "max_seconds": 8.0}}
    numbers = (STOPS, FILLS, LIES, HONEST)
    specs = (job(number, epochs=10, **limits.get(number, {})) for number in numbers)
    name, kinds = ran(nodes, tmp_path, *specs)
    assert kinds[STOPS].count("stopped") == PATIENCE[EventKind.STOPPED].tries
    for job_id, mine in kinds.items():
        assert mine[-1] == ("finished" if job_id == HONEST else "failed")
        again = {"stopped"} if job_id == STOPS else set()
        assert {*mine[:-1]} <= {"started", "resumed", *again}  # nobody takes anybody's GPUs
    assert reason(tmp_path, name, STOPS).endswith(
        "failed: stopped 10 times in a row, the last time: stopped without being asked to "
        "from here (exit code 75)."
    )
    assert reason(tmp_path, name, FILLS).endswith(": its folder takes more than 0.00391 GiB.")
    assert reason(tmp_path, name, LIES).endswith(" s, and its max_seconds are 8.")
    assert own.containers(name) == []


def test_a_job_that_does_nothing_but_touch_its_files_is_given_up(
    own: Dockerd, storage: Path, tmp_path: Path
) -> None:
    nodes = cluster(own, storage, gpus=5, image=COSTLY, limits=FOLDER, hung_rounds=HUNG_ROUNDS)
    name, kinds = ran(nodes, tmp_path, job(TOUCHES, epochs=10))
    assert kinds[TOUCHES].count("crashed") == PATIENCE[EventKind.CRASHED].tries
    assert reason(tmp_path, name, TOUCHES).endswith(
        "failed: crashed 5 times in a row, the last time: hung: no step completed for "
        f"{HUNG_ROUNDS} rounds."
    )


def test_a_job_that_fills_its_folder_is_killed_before_the_round_is_over(
    own: Dockerd, storage: Path
) -> None:
    nodes = cluster(own, storage, image=COSTLY, limits=FOLDER)
    with driven(nodes, "filled", [long(FILLS)], round_seconds=3_600.0) as driver:
        driver.dispatch({FILLS: (0,)})
        driver.runtime.advance(None)
        assert own.containers("filled") == []
        assert driver.look().ended == (FILLS,)
        assert driver.last(FILLS).reason == "its folder takes more than 0.00391 GiB"


def test_a_job_that_blocks_its_own_files_crashes(own: Dockerd, storage: Path) -> None:
    nodes = cluster(own, storage, image=LOUD)
    with driven(nodes, "blocked", [job(0)]) as driver:
        folder = nodes.folder("blocked", 0)
        (folder / "job.json").mkdir(parents=True)
        driver.dispatch({0: (0,)})
        driver.until_over()
        assert driver.last(0).kind is EventKind.CRASHED
        assert driver.last(0).reason == "its folder cannot be written: Is a directory"


def test_an_image_that_declares_volumes_is_refused(own: Dockerd, storage: Path) -> None:
    nodes = cluster(own, storage, image=DEAR, gpus=1)
    problem = f"image {DEAR} declares the volume /cache, /opt/models: build it without VOLUME"
    found = {finding.check: finding for finding in check_cluster(nodes)}
    for check in ("image", "container"):
        assert (found[check].sound, found[check].found) == (False, problem)
    with pytest.raises(InputError, match=f"node one: image {DEAR} declares the volume /cache"):
        check_before_run(nodes)
    with driven(nodes, "dear", [job(0)]) as driver:  # the image was changed since
        driver.dispatch({0: (0,)})
        driver.until_over()
        assert driver.last(0).kind is EventKind.LOST
        assert driver.last(0).reason == f"could not be started: {problem}"
        assert own.containers("dear") == []
    assert own.client().volumes.list() == []
    sound = replace(nodes, nodes=(replace(nodes.nodes[0], image=COSTLY),), limits=LIMITS)
    assert {finding.check: finding for finding in check_cluster(sound)}["image"].sound
