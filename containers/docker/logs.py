"""Logs of jobs: kept beside their folders, as Docker forgets them with the container."""

from collections.abc import Iterator
from pathlib import Path

from containers.docker.nodes import Nodes

MOST_BYTES = 2**25
"""Size at which a job's log begins anew; the one before is kept as well. An engineering bound."""


def log_file(nodes: Nodes, run: str, job_id: int) -> Path:
    """The log of a job's containers that have ended, which no container can write to."""
    return nodes.folder(run, job_id).with_suffix(".log")


def keep(path: Path, container: str, log: bytes) -> None:
    """Append a container's log to that of its job.

    Args:
        path: The job's log.
        container: Name of the container.
        log: What it printed.

    Raises:
        OSError: The storage cannot be written.
    """
    if path.exists() and path.stat().st_size + len(log) > MOST_BYTES:
        path.replace(path.with_suffix(".log.1"))
    text = f"--- {container}\n".encode() + log[-MOST_BYTES:]
    with path.open("ab") as file:
        file.write(text if text.endswith(b"\n") else text + b"\n")


def kept(nodes: Nodes, run: str, job_id: int) -> Iterator[bytes]:
    """The logs of a job's ended containers, the oldest first."""
    path = log_file(nodes, run, job_id)
    for file in (path.with_suffix(".log.1"), path):
        if file.is_file():
            yield file.read_bytes()
