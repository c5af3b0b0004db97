"""Nodes that do not answer, or were cut off, are drained, and their jobs go on elsewhere."""

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import pytest

from containers.clock import RunClock
from containers.docker import daemon as containers_docker
from containers.docker.docker_runtime import DockerFactory
from containers.runtime import EventKind, Lease, ResumePoint, Terms
from harness.dockerd import COUNTING, Dockerd, cluster
from predictor.job import JobSpec
from tests.containers.driver import by_job, driven, job, long


@contextmanager
def silent(path: Path) -> Iterator[Callable[[], int]]:
    """An endpoint that never answers; yields a counter of the requests since its last call."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(64)
        listener.setblocking(False)

        def asked() -> int:
            for times in count():
                try:
                    listener.accept()[0].close()
                except BlockingIOError:
                    return times
            raise AssertionError

        yield asked


def test_nodes_that_do_not_answer_are_drained_and_come_back(
    daemon: Dockerd, storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers_docker, "ANSWER_SECONDS", 3.0)
    specs: list[JobSpec] = [job(0, epochs=3), long(1)]
    with silent(storage / "silent") as asked:
        named = {"one": daemon.endpoint, "two": f"unix://{storage}/silent"}
        nodes = cluster(daemon, storage, nodes=named, gpus=2, image=COUNTING)
        with driven(nodes, "gone", specs) as driver:
            assert driver.seen[-1].drained == (1,)
            assert asked()
            driver.dispatch({0: (0,), 1: (2,)})
            driver.runtime.advance(None)
            assert not asked()  # it would hold up the round
            with daemon.stopped():
                assert driver.look().drained == (0, 1)
                reasons = by_job(driver.events, EventKind.LOST)
                assert reasons[0] in (
                    "node one does not answer: No such file or directory",
                    "node one does not answer: Connection refused",
                )
                assert reasons[1] == "its node does not answer: no answer in 3 s"
                assert driver.play({}).drained == (0, 1)
            assert driver.play({}).drained == (1,)
            driver.dispatch({0: (0,)})
            assert driver.last(0).kind is EventKind.RESUMED
            driver.runtime.advance(None)
            driver.look()
            driver.until_over()
            assert driver.kinds(0) == ["started", "lost", "resumed", "finished"]
            assert driver.epochs(0) == [0, 1, 2]


def test_what_takes_long_is_waited_for_as_long_as_is_said(
    daemon: Dockerd, storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers_docker, "WORK_SECONDS", 0.5)
    (node,) = cluster(daemon, storage).nodes
    with (
        closing(containers_docker.Daemon(node)) as asked,
        daemon.paused(),
        pytest.raises(containers_docker.NodeGone, match=r"^no answer in 0\.5 s$"),
    ):
        asked.remove(containers_docker.Found("id", "", 0, 0, 0, (), False, False))


@pytest.mark.parametrize("removed", [False, True])
def test_a_job_of_a_node_that_was_cut_off_is_ended_there_and_goes_on_elsewhere(
    daemon: Dockerd, storage: Path, removed: bool
) -> None:
    run, way = "cut", storage / "way"
    way.symlink_to(daemon.folder / "s")
    endpoints = {"one": daemon.endpoint, "two": f"unix://{way}"}
    nodes = cluster(daemon, storage, nodes=endpoints, gpus=2, image=COUNTING)
    specs = (long(0), long(1, gpus=2))
    place = DockerFactory(nodes, RunClock())
    with closing(place.open(Terms(run, 0.2), ResumePoint(jobs=specs))) as first:
        first.launch(0, [Lease(0, (2,))])
    resume_point = ResumePoint(leases={0: (2,)}, started=frozenset({0}))
    way.unlink()
    with driven(nodes, run, specs, resume_point=resume_point, round_seconds=0.2) as driver:
        driver.number = 1
        driver.look()
        assert by_job(driver.events, EventKind.LOST) == {
            0: "node two does not answer: No such file or directory"
        }
        driver.play({0: (0,)})
        assert driver.last(0).kind is EventKind.RESUMED
        assert len(daemon.containers(run)) == 2  # as nobody can end the one on node two
        if removed:  # it is not taken for empty as long as it does not answer
            driver.runtime.resize(nodes.inventory, {1})
            assert driver.play(driver.leases).drained == ()
        way.symlink_to(daemon.folder / "s")
        driver.play(driver.leases)
        driver.play(driver.leases)
        assert driver.seen[-1].drained == ()
        (left,) = daemon.containers(run)
        assert (left.status, left.labels["shockwave.node"]) == ("running", "one")
        assert driver.kinds(0) == ["lost", "resumed"]

        driver.play({0: (0,), 1: (1, 2)})
        assert driver.last(1).reason == (
            "could not be started: its gang spans daemons, and the cluster names no network for"
            " that"
        )
