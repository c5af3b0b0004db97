"""Logs of jobs: kept beside their folders, as Docker forgets them with the container.

The output of each container follows a heading with its name. An output line that begins like a
heading gets that beginning twice, so that no job can print the heading of a container.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from containers.docker.nodes import Nodes

MOST_BYTES = 2**25
"""Size at which a job's log is rotated; the previous log is kept as well. An engineering bound."""

MARK = b"--- "
"""How a heading begins."""

_MARKED = re.compile(rb"^(?=--- )", re.MULTILINE)
_QUOTED = re.compile(rb"^--- (?=--- )", re.MULTILINE)


def make_heading(container: str) -> bytes:
    """The heading of a container's output."""
    return MARK + container.encode() + b"\n"


def quote(log: bytes) -> bytes:
    """A container's output, in which no line is a heading."""
    return _MARKED.sub(MARK, log)


def unquote(text: bytes) -> bytes:
    """A container's output, from the result of `quoted`."""
    return _QUOTED.sub(b"", text)


def log_file(nodes: Nodes, run: str, job_id: int) -> Path:
    """The log of a job's containers that have ended, which no container can write to."""
    return nodes.folder(run, job_id).with_suffix(".log")


def append_log(path: Path, container: str, log: bytes) -> None:
    """Append a container's log to that of its job.

    Args:
        path: The job's log.
        container: Name of the container.
        log: What it printed.

    Raises:
        OSError: The storage cannot be written.
    """
    text = make_heading(container) + quote(log[-MOST_BYTES:])
    if path.exists() and path.stat().st_size + len(text) > MOST_BYTES:
        path.replace(path.with_suffix(".log.1"))
    with path.open("ab") as file:
        file.write(text if text.endswith(b"\n") else text + b"\n")


def read_job_log(nodes: Nodes, run: str, job_id: int) -> Iterator[bytes]:
    """The logs of a job's ended containers, the oldest first, as `keep` writes them."""
    path = log_file(nodes, run, job_id)
    for file in (path.with_suffix(".log.1"), path):
        if file.is_file():
            yield file.read_bytes()
