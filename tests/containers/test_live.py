"""Whatever goes wrong with containers, no job comes to harm, and records say why in words."""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from requests import HTTPError

from containers.docker import daemon as containers_docker
from containers.docker.fleet import lock_cluster
from containers.docker.nodes import ContainerLimits, Gpu, Node, Nodes
from containers.leasing.ends import WAS_KILLED
from containers.runtime import EventKind
from harness.dockerd import (
    COUNTING,
    IMAGE,
    LIMITS,
    LOUD,
    LYING,
    STUBBORN,
    Dockerd,
    cluster,
    mixed,
    mounts,
    with_slots,
)
from harness.waiting import HANG_SECONDS, wait_for
from predictor.errors import InputError, WarehouseBusy
from tests.containers.driver import by_job, driven, job, long, losses


def container(daemon: Dockerd, run: str, job_id: int) -> Any:
    """The only container of a job."""
    (container,) = [
        container
        for container in daemon.containers(run)
        if container.labels["shockwave.job"] == str(job_id)
    ]
    return container


def images(daemon: Dockerd, storage: Path, *names: str, hung_rounds: int = 1_000) -> Nodes:
    """Machines of 4 GPUs that are one, each with an image of its own."""
    slots = (Gpu(cpus=1.0),) * 4
    nodes = [Node(f"n{i}", daemon.endpoint, "cpu", name, slots) for i, name in enumerate(names)]
    return Nodes(
        tuple(nodes),
        storage,
        "1000:1000",
        mounts=mounts(),
        limits=LIMITS,
        grace_seconds=1.0,
        hung_rounds=hung_rounds,
    )


def test_each_trouble_is_recorded_in_words(daemon: Dockerd, storage: Path) -> None:
    names = (COUNTING, "shockwave-test:missing", STUBBORN, LYING, LOUD)
    nodes = images(daemon, storage, *names)
    killed, removed, imageless, deaf, spanning, lying, loud = range(7)
    specs = [long(i, gpus=2 if i == spanning else 1) for i in range(7)]
    with driven(nodes, "troubles", specs, round_seconds=1.0) as driver:
        leases = {killed: (0,), removed: (1,), imageless: (4,), deaf: (8,)}
        driver.dispatch({**leases, spanning: (3, 5), lying: (12,), loud: (16,)})
        assert {event.kind for event in driver.events} == {EventKind.STARTED}
        container(daemon, "troubles", killed).kill()
        container(daemon, "troubles", removed).remove(force=True)
        driver.runtime.advance(None)
        driver.look()
        while {lying, loud} & driver.leases.keys():
            driver.play(driver.leases)
        crashed, lost = (by_job(driver.events, EventKind(k)) for k in ("crashed", "lost"))
        assert by_job(driver.events, EventKind.STOPPED) == {killed: WAS_KILLED}
        assert crashed.pop(lying) == "exited as if done, and reported 0 of 10000 epochs"
        assert crashed.pop(loud) == "exited with code 1: no such data set"
        assert crashed == {}
        for job_id in (imageless, spanning):
            reason = lost.pop(job_id)
            assert reason.startswith("could not be started: No such image")
            assert reason.endswith("shockwave-test:missing: build or load the image on that node")
        assert lost == {removed: "its container vanished"}

        wait_for(container(daemon, "troubles", deaf).logs)
        (preempted,) = driver.dispatch({})
        assert preempted.job_id == deaf
        assert preempted.reason == "a test says so; killed, as SIGTERM did not end it in 1 s"
        assert daemon.containers("troubles") == []
        assert daemon.client().networks.list(names=["troubles"]) == []
        assert driver.seen[-1].drained == ()


def test_too_little_memory_and_a_full_disk_are_reported(daemon: Dockerd, storage: Path) -> None:
    limits = ContainerLimits(memory_bytes=48 * 2**20, pids=64, scratch_bytes=2**20)
    starved = cluster(daemon, storage, limits=limits)
    full = cluster(daemon, daemon.small)
    with driven(starved, "starved", [job(0)]) as hungry, driven(full, "full", [job(0)]) as cramped:
        hungry.dispatch({0: (0,)})
        cramped.dispatch({0: (1,)})
        cramped.until_over()
        hungry.until_over()
        for _ in range(9):  # Docker does not always hear of it (containers.leasing.ends)
            if hungry.kinds(0)[-1] == "crashed":
                break
            assert hungry.last(0).reason == WAS_KILLED
            hungry.dispatch({0: (0,)})
            hungry.until_over()
    assert set(hungry.kinds(0)[:-1]) <= {"started", "resumed", "stopped"}
    assert hungry.kinds(0)[-1] == "crashed"
    assert cramped.kinds(0) == ["started", "stopped"]
    assert hungry.last(0).reason == "out of memory: its limit is 0.0469 GiB"
    assert cramped.last(0).reason.startswith("could not write to its folder: error: /job/")
    assert "No space left on device; make room" in cramped.last(0).reason
    shutil.rmtree(daemon.small / "full")


def test_a_job_in_trouble_reports_each_epoch_once(daemon: Dockerd, storage: Path) -> None:
    # It moves from one pool to the other, to the GPU of another job, on which it is killed.
    nodes = mixed(cluster(daemon, storage, image=COUNTING), 0.25)
    other = {8: (1,)}
    folder = nodes.folder("restless", 7)
    folder.mkdir(parents=True)
    victim = storage / "victim"
    victim.write_text("untouched")
    (folder / "telemetry.jsonl").write_bytes(b'\xff{garbage\n{"epoch": 3}\n{"epoch": 15, "ba')
    (folder / ".job.json.new").symlink_to(victim)
    os.chown(folder / "telemetry.jsonl", 1000, 1000)
    with driven(nodes, "restless", [long(7), long(8)]) as restless:
        restless.dispatch(other)
        restless.until_trained(8)
        for gpu, end in ((2, "preempt"), (1, "kill")):
            before = restless.epochs(7)
            restless.play({7: (gpu,), **other})
            restless.until_trained(7, before)
            if end == "kill":
                container(daemon, "restless", 7).kill()
                restless.play(restless.leases)
            else:
                restless.play(other)
        before = restless.epochs(7)
        restless.play({7: (3,)})
        restless.until_trained(7, before)
    assert restless.kinds(7) == [
        *("started", "preempted", "resumed", "stopped", "resumed", "preempted")
    ]
    assert restless.kinds(8) == ["started", "preempted"]
    assert restless.epochs(7) == list(range(len(restless.epochs(7))))
    assert victim.read_text() == "untouched"


def test_a_gang_shrinks_and_grows(daemon: Dockerd, storage: Path) -> None:
    nodes = with_slots(cluster(daemon, storage), 0.5)
    spec = job(7, epochs=16, samples=160)
    with (
        driven(nodes, "fixed", [spec]) as fixed,
        driven(nodes, "resized", [spec]) as resized,
    ):
        fixed.dispatch({7: (0,)})
        for gpus in ((1,), (1, 2), (1, 2, 3), (2,)):
            before = resized.epochs(7)
            resized.play({7: gpus})
            resized.until_trained(7, before)
        resized.until_over()
        fixed.until_over()
    assert resized.epochs(7) == fixed.epochs(7) == list(range(16))
    straight, changed = (losses(nodes, run, 7) for run in ("fixed", "resized"))
    assert {len(values) for values in changed.values()} == {1}
    for epoch, (loss,) in straight.items():
        assert [*changed[epoch]] == pytest.approx([loss], rel=1e-4)
    described = json.loads((nodes.folder("resized", 7) / "job.json").read_text())
    assert described["scale_factor"] == 1


def test_a_gang_spans_machines_on_a_network_of_its_own(daemon: Dockerd, storage: Path) -> None:
    # The longest names that policies give runs: the rendezvous must be found by name.
    run = "tiresias_gittins-published-954f78-1234"
    nodes = cluster(daemon, storage, nodes={"one": daemon.endpoint, "two": daemon.endpoint}, gpus=2)
    with driven(nodes, run, [job(0, gpus=3, epochs=2)]) as driver:
        driver.dispatch({0: (1, 2, 3)})
        found = {
            container.labels["shockwave.node"]: container for container in daemon.containers(run)
        }
        assert found.keys() == {"one", "two"}
        (network,) = daemon.client().networks.list(names=[run[:20]])
        network.reload()
        assert network.attrs["Internal"]
        assert {container.id for container in network.containers} == {
            container.id for container in found.values()
        }
        for container in found.values():
            assert container.attrs["NetworkSettings"]["Networks"].keys() == {network.name}
        driver.until_over()
        assert driver.epochs(0) == [0, 1], driver.events
        assert driver.kinds(0) == ["started", "finished"]
    assert daemon.containers(run) == []
    assert daemon.client().networks.list(names=[run[:20]]) == []


def test_a_job_that_ends_as_it_is_preempted_is_reported_the_next_time(
    daemon: Dockerd, storage: Path
) -> None:
    with driven(cluster(daemon, storage, image=COUNTING), "late", [job(0)]) as driver:
        driver.dispatch({0: (0,)})
        assert container(daemon, "late", 0).wait(timeout=HANG_SECONDS)["StatusCode"] == 0
        driver.dispatch({})
        assert driver.look().reports == ()
        driver.play({0: (1,)})
        driver.until_over()
        assert driver.kinds(0) == ["started", "preempted", "resumed", "finished"]
        assert driver.epochs(0) == [0, 1, 2]
        assert driver.progress[0][-1].steps_left == 0


def test_a_gpu_whose_container_cannot_be_ended_is_given_to_nobody(
    daemon: Dockerd, storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = cluster(daemon, storage, image=COUNTING)
    with driven(nodes, "stuck", [long(0), long(1)]) as driver:
        driver.play({0: (0,)})
        with monkeypatch.context() as patched:  # as with a process in uninterruptible sleep

            def refuse(*given: Any) -> None:
                raise containers_docker.Refused("cannot kill container: tried to kill container")

            patched.setattr(containers_docker.Daemon, "stop", refuse)
            driver.play({1: (0,)})
            (running,) = daemon.containers("stuck")
            assert running.labels["shockwave.job"] == "0"
            remark = "its container could not be ended: cannot kill container"
            assert remark in next(e.reason for e in driver.events if e.kind is EventKind.PREEMPTED)
            assert driver.last(1).kind is EventKind.LOST
            assert driver.last(1).reason.startswith("could not be started: GPU 0 is still held by")
        driver.play({1: (0,)})
        (running,) = daemon.containers("stuck")
        assert running.labels["shockwave.job"] == "1"


def is_paused(container: Any) -> bool:
    """Pause a container; a busy kernel may be unable to freeze it yet."""
    with suppress(HTTPError):  # of the SDK
        container.pause()
        return True
    return False


def test_a_container_that_hangs_is_not_that_of_the_next_lease(
    daemon: Dockerd, storage: Path
) -> None:
    nodes = cluster(daemon, storage, image=COUNTING, hung_rounds=2, grace_seconds=1.0)
    with driven(nodes, "again", [long(0)]) as driver:
        driver.play({0: (0,)})
        hung = container(daemon, "again", 0)
        wait_for(lambda: is_paused(hung))
        while driver.leases:
            driver.play(driver.leases)
        assert driver.last(0).kind is EventKind.CRASHED
        assert driver.last(0).reason == "hung: no step completed for 2 rounds"
        driver.play({0: (0,)})
        assert driver.last(0).kind is EventKind.RESUMED
        now = container(daemon, "again", 0)
        assert (now.id == hung.id, now.status) == (False, "running")


def test_one_scheduler_at_a_time(daemon: Dockerd, storage: Path) -> None:
    nodes = cluster(daemon, storage, image=COUNTING)
    with lock_cluster(nodes, "first"):
        with (
            pytest.raises(WarehouseBusy, match="another scheduler uses it"),
            lock_cluster(nodes, "second"),
        ):
            pass
        with driven(nodes, "first", [long(0)]) as driver:
            driver.play({0: (0,)})
            for name in ("one", "by-another-name"):
                other = cluster(daemon, storage / "other", nodes={name: daemon.endpoint})
                with (
                    pytest.raises(WarehouseBusy, match=f"node {name}: runs jobs of run first"),
                    lock_cluster(other, "second"),
                ):
                    pass
                with lock_cluster(other, "second", removed={0}):  # it may be lent to others
                    pass
    with lock_cluster(nodes, "second"):
        pass


def test_one_gpu_of_two_nodes_is_refused(storage: Path) -> None:
    node = Node("a", "unix:///run/x.sock", "v100", IMAGE, (Gpu(device="0"),))
    twin = Node("b", "unix:///run/x.sock", "v100", IMAGE, (Gpu(device="0"),))
    with pytest.raises(InputError, match=r"GPU 0 of unix:///run/x\.sock is there twice"):
        Nodes((node, twin), storage, "1000:1000")
