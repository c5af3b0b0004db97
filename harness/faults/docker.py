"""Faults of a Docker daemon and its containers."""

import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker.errors

from containers.docker.nodes import Nodes
from containers.docker.rendering import JOB, RUN
from harness.dockerd import Dockerd, cluster
from harness.faults.trial import GRACE_SECONDS, HUNG_ROUNDS, STORAGE_BYTES
from harness.faults.watch import Watch


class DockerMachinery:
    """Two nodes of a daemon, as a `Machinery`."""

    def __init__(self, daemon: Dockerd) -> None:
        self._daemon = daemon

    def cluster(self, storage: Path) -> Nodes:
        """See `Machinery.cluster`."""
        endpoints = dict.fromkeys(("one", "two"), self._daemon.endpoint)
        options = {"grace_seconds": GRACE_SECONDS, "hung_rounds": HUNG_ROUNDS}
        least_free = STORAGE_BYTES // 16  # checkpoints take less
        return cluster(
            self._daemon, storage, nodes=endpoints, gpus=2, least_free=least_free, **options
        )

    def _running(self) -> list[Any]:
        """The running containers of the runs.

        Raises:
            APIError: A container ended just now.
        """
        running: list[Any] = self._daemon.client().containers.list(
            filters={"label": RUN, "status": "running"}
        )
        return running

    def running(self) -> set[tuple[str, int]]:
        """See `Machinery.running`."""
        try:
            labels = [container.labels for container in self._running()]
        except docker.errors.APIError:
            return set()
        return {(label[RUN], int(label[JOB])) for label in labels}

    def faults(self, generator: random.Random) -> dict[str, Callable[[], bool]]:
        """See `Machinery.faults`."""

        def to_container(harm: Callable[[Any], None]) -> bool:
            try:
                running = self._running()
                if running:
                    harm(generator.choice(running))
            except docker.errors.APIError:
                return False
            return bool(running)

        return {
            "container killed": lambda: to_container(lambda c: c.kill()),
            "container removed": lambda: to_container(lambda c: c.remove(force=True)),
            "container hung": lambda: to_container(lambda c: c.pause()),
            "daemon restarted": self._restart,
            "daemon killed": self._kill_daemon,
        }

    def _restart(self) -> bool:
        self._daemon.stop()
        self._daemon.start()
        return True

    def _kill_daemon(self) -> bool:
        number = (self._daemon.folder / "pid").read_text()
        subprocess.run(self._daemon.within("kill", "-KILL", number), check=True)
        assert self._daemon.process is not None
        self._daemon.process.wait()
        # A number in these files may be that of another process by now.
        (self._daemon.folder / "pid").unlink()
        (self._daemon.folder / "exec" / "containerd" / "containerd.pid").unlink(missing_ok=True)
        self._daemon.start()
        return True

    def mend(self) -> None:
        """See `Machinery.mend`: each fault repairs what it broke."""

    def left(self, run: str) -> list[str]:
        """See `Machinery.left`: containers and networks."""
        networks = self._daemon.client().networks.list(filters={"label": f"{RUN}={run}"})
        left = [f"container {container.name}" for container in self._daemon.containers(run)]
        return left + [f"network {network.name}" for network in networks]

    @contextmanager
    def watching(self) -> Iterator[list[str]]:
        """See `Machinery.watching`."""
        watch = Watch(self._daemon)
        with watch.watching():
            yield watch.broken
        if not (watch.looks and watch.whole):
            watch.broken.append("nobody looked at the containers, or not to the end")
