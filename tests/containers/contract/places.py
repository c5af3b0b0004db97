"""Where the contract of engines is tried: a Docker host and a Slurm, each with two nodes."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from containers.slurm.cluster import SlurmSite, find_cluster
from containers.slurm.parsing import read_hosts
from harness.dockerd import COUNTER, COUNTING, PLAIN, TRAINER, Dockerd, cluster, packages
from harness.dockerd import python as find_python
from harness.slurm import Slurm
from harness.waiting import wait_for
from predictor.job import JobSpec
from tests.containers.driver import Machines

GPUS = 4
"""GPUs of a node; those of the second one begin with this number."""

START_SECONDS = 60.0
"""Time in which Slurm has to start a lease, by default."""


class Place(Protocol):
    """An engine under test, and what its own tools say."""

    program: str

    def nodes(self, *, start_seconds: float = START_SECONDS, **fields: Any) -> Machines:
        """A cluster of nodes with 4 GPUs each, the first two of one type.

        Its jobs count. Slurm has `start_seconds` to start one; Docker does so at once.
        """

    def running(self, run: str) -> dict[int, tuple[str, dict[str, int]]]:
        """The jobs that run, each with its identity, and its GPUs by node."""

    def kill(self, run: str, job_id: int) -> None:
        """Kill a job's program, past the engine."""

    def broken(self) -> Any:
        """A context in which the first node is out of service."""

    def commanded(self, spec: JobSpec, *command: str) -> JobSpec:
        """The job with a command of its own."""


class DockerPlace:
    """Two nodes of one Docker daemon."""

    program = "container"

    def __init__(self, daemon: Dockerd, storage: Path) -> None:
        self._daemon, self._storage = daemon, storage

    def nodes(self, *, start_seconds: float = START_SECONDS, **fields: Any) -> Machines:
        """See `Place.nodes`."""
        named = {"n1": self._daemon.endpoint, "n2": self._daemon.endpoint}
        options = {"nodes": named, "gpus": GPUS, "image": COUNTING, **fields}
        return cluster(self._daemon, self._storage, **options)

    def running(self, run: str) -> dict[int, tuple[str, dict[str, int]]]:
        """See `Place.running`."""
        found: dict[int, tuple[str, dict[str, int]]] = {}
        for container in self._daemon.containers(run):
            if container.status != "running":
                continue
            labels = container.labels
            identity, gpus = found.get(int(labels["shockwave.job"]), ("", {}))
            node, name = labels["shockwave.node"], identity + container.id
            wanted = [int(gpu) // GPUS for gpu in labels["shockwave.gpus"].split(",")]
            assert node not in gpus
            held = {**gpus, node: wanted.count(int(node[1:]) - 1)}
            found[int(labels["shockwave.job"])] = name, held
        return found

    def kill(self, run: str, job_id: int) -> None:
        """See `Place.kill`."""
        for container in self._daemon.containers(run):
            if container.labels["shockwave.job"] == str(job_id):
                container.kill()

    @contextmanager
    def broken(self) -> Iterator[None]:
        """See `Place.broken`."""
        with self._daemon.stopped():
            yield

    def commanded(self, spec: JobSpec, *command: str) -> JobSpec:
        """See `Place.commanded`."""
        return replace(spec, image=PLAIN, command=command)


class SlurmPlace:
    """Four nodes of a Slurm."""

    program = "Slurm job"

    def __init__(self, lab: Slurm, storage: Path) -> None:
        self.lab, self._storage = lab, storage

    def nodes(self, *, start_seconds: float = START_SECONDS, **fields: Any) -> Machines:
        """See `Place.nodes`."""
        python = ("/usr/bin/env", f"PYTHONPATH={TRAINER.parent}:{packages()}", find_python())
        site = SlurmSite(
            self._storage,
            "gpu",
            commands=self.lab.commands(),
            trainer=(*python, str(COUNTER)),
            start_seconds=start_seconds,
            **{"grace_seconds": 10.0, "hung_rounds": 1_000, **fields},
        )
        return find_cluster(site)

    def running(self, run: str) -> dict[int, tuple[str, dict[str, int]]]:
        """See `Place.running`."""
        found: dict[int, tuple[str, dict[str, int]]] = {}
        ids = self.lab.run("squeue", "-h", "--states=RUNNING", "-o", "%A %j").splitlines()
        for number, name in map(str.split, ids):
            if f"shockwave-{run}-job-" not in name:
                continue
            shown = self.lab.run("scontrol", "-d", "-o", "show", "job", number)
            held = re.findall(r" Nodes=(\S+) \S+ \S+ GRES=gpu:\w+:(\d+)", shown)
            gpus = {n: int(each) for names, each in held for n in read_hosts("scontrol", names)}
            if not gpus:
                continue  # it has just ended
            (submitted,) = re.findall(r"SubmitTime=(\S+)", shown)
            job_id = int(name.split("-job-")[1].split("-")[0])
            assert job_id not in found
            found[job_id] = f"{number} {submitted}", gpus
        return found

    def kill(self, run: str, job_id: int) -> None:
        """See `Place.kill`."""
        lease = f"shockwave-{run}-job-{job_id}-"
        (number,) = [
            line.split()[0]
            for line in self.lab.run("squeue", "-h", "-o", "%A %j %T").splitlines()
            if lease in line
        ]
        self.lab.run("scancel", "--signal=KILL", "--full", number)

    @contextmanager
    def broken(self) -> Iterator[None]:
        """See `Place.broken`."""
        self.lab.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=a test")
        try:
            yield
        finally:
            self.lab.run("scontrol", "update", "NodeName=n1", "State=RESUME")
            wait_for(
                lambda: self.lab.run("sinfo", "-h", "-n", "n1", "-o", "%T"),
                lambda state: state.strip() in ("idle", "mixed", "allocated"),
            )

    def commanded(self, spec: JobSpec, *command: str) -> JobSpec:
        """See `Place.commanded`."""
        return replace(spec, command=command)


@pytest.fixture(
    params=[
        pytest.param("docker", marks=pytest.mark.docker),
        pytest.param("slurm", marks=pytest.mark.slurm),
    ]
)
def place(request: pytest.FixtureRequest, storage: Path) -> Place:
    """Each engine; all of its parts fail in CI where it cannot be started."""
    if request.param == "docker":
        return DockerPlace(request.getfixturevalue("daemon"), storage)
    return SlurmPlace(request.getfixturevalue("lab"), storage)
