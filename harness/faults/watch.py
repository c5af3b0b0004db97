"""Independent check that no GPU or job is in two containers at once."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import docker
import docker.errors

from containers.docker.rendering import GPUS, JOB, ROUND, RUN
from harness.dockerd import Dockerd


@dataclass
class Watch:
    """Watches the runs' containers continuously; ignores others of the daemon.

    Attributes:
        daemon: The daemon.
        broken: Broken invariants, in words.
        looks: Number of looks.
        whole: Whether it looked to the end.
    """

    daemon: Dockerd
    broken: list[str] = field(default_factory=list)
    looks: int = 0
    whole: bool = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        over = threading.Event()
        thread = threading.Thread(target=self._go, args=(over,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _go(self, over: threading.Event) -> None:
        client = docker.DockerClient(self.daemon.endpoint, version="1.41", timeout=5)
        while not over.wait(0.1):
            with suppress(docker.errors.DockerException, OSError):
                self.look(client.api.containers())
        client.close()
        self.whole = True

    def look(self, rows: list[dict[str, Any]]) -> None:
        """Look once, at containers as the daemon lists them."""
        self.looks += 1
        holders: dict[str, str] = {}
        leases: dict[str, str] = {}
        for row in rows:
            name, labels = (row["Names"] or [row["Id"]])[0].lstrip("/"), row["Labels"] or {}
            if RUN not in labels and not name.startswith("shockwave-"):
                continue
            if lacking := {RUN, JOB, ROUND, GPUS} - labels.keys():
                self._report(f"container {name} lacks the labels {', '.join(sorted(lacking))}")
                continue
            job, lease = f"{labels[RUN]} {labels[JOB]}", f"round {labels[ROUND]}"
            for gpu in labels[GPUS].split(","):
                if holders.setdefault(gpu, job) != job:
                    self._report(f"GPU {gpu} is in containers of {holders[gpu]} and {job}")
            if leases.setdefault(job, lease) != lease:
                self._report(f"{job} runs in leases of {leases[job]} and {lease}")

    def _report(self, problem: str) -> None:
        if problem not in self.broken:
            self.broken.append(problem)
