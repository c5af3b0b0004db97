"""Two jobs in containers on the same GPUs."""

from contextlib import closing
from pathlib import Path

from containers.clock import RunClock
from containers.docker.docker_runtime import DockerFactory
from containers.leasing.ends import WAS_KILLED
from containers.runtime import EventKind, ResumePoint, Terms
from harness.dockerd import COUNTING, Dockerd, cluster
from tests.containers.driver import driven, job


def quotas(daemon: Dockerd, run: str) -> list[int]:
    """Processor time of the running containers of a run, in parts of 100,000, by job."""
    found = sorted(
        daemon.containers(run), key=lambda container: str(container.labels["shockwave.job"])
    )
    return [
        container.attrs["HostConfig"]["CpuQuota"]
        for container in found
        if container.status == "running"
    ]


def test_jobs_of_a_pair_go_on_alone_and_together_as_if_nothing_happened(
    daemon: Dockerd, storage: Path
) -> None:
    nodes, both = cluster(daemon, storage, gpus=1, image=COUNTING), {0: (0,), 1: (0,)}
    specs = [job(number, epochs=32, samples=256) for number in both]
    with driven(nodes, "pair", specs) as driver:
        driver.dispatch({0: (0,)})
        assert quotas(daemon, "pair") == [100_000]
        driver.dispatch(both)
        assert quotas(daemon, "pair") == [50_000, 50_000]
        driver.until_trained(1)
        next(iter(daemon.containers("pair"))).kill()
        driver.runtime.advance(None)
        (end,) = driver.look().finished
        assert (end.kind, end.reason) == (EventKind.STOPPED, WAS_KILLED)
        assert quotas(daemon, "pair") == [100_000]
        (again,) = driver.dispatch(both)
        assert (again.job_id, again.kind) == (end.job_id, EventKind.RESUMED)
        assert quotas(daemon, "pair") == [50_000, 50_000]

        resume_point = ResumePoint(jobs=tuple(specs), leases=both, started=frozenset(both))
        place, before = DockerFactory(nodes, RunClock()), daemon.containers("pair")
        with closing(place.open(Terms("pair", 0.5), resume_point)):  # as after the scheduler died
            assert daemon.containers("pair") == before
            assert quotas(daemon, "pair") == [50_000, 50_000]

        driver.dispatch({end.job_id: (0,)})
        assert driver.last(1 - end.job_id).kind is EventKind.PREEMPTED
        assert quotas(daemon, "pair") == [100_000]
        driver.play(both)
        driver.until_over()
        for spec in specs:
            assert driver.epochs(spec.job_id) == list(range(spec.epochs))
            assert driver.last(spec.job_id).kind is EventKind.FINISHED
