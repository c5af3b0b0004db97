"""Logs of jobs, kept beside their folders since Docker deletes them with the container.

A heading with the container's name precedes its output. An output line that begins like a heading
gets that beginning twice, so no job can forge a heading.
"""

import re
from collections.abc import Iterator
from pathlib import Path

MOST_BYTES = 2**25
"""Size at which a job's log is rotated; one previous log is kept. An engineering bound."""

MARK = b"--- "
"""Beginning of a heading."""

_MARKED = re.compile(rb"^(?=--- )", re.MULTILINE)
_QUOTED = re.compile(rb"^--- (?=--- )", re.MULTILINE)


def make_heading(container: str) -> bytes:
    """Return the heading of a container's output."""
    return MARK + container.encode() + b"\n"


def quote(log: bytes) -> bytes:
    """Escape the lines of a container's output that look like headings."""
    return _MARKED.sub(MARK, log)


def unquote(text: bytes) -> bytes:
    """Reverse `quote`."""
    return _QUOTED.sub(b"", text)


def log_file(folder: Path) -> Path:
    """Return the log file of a job's ended containers, which no container can write to.

    `folder` is the job's.
    """
    return folder.with_suffix(".log")


def append_log(path: Path, container: str, log: bytes) -> None:
    """Append what a container printed to its job's log.

    Raises:
        OSError: The storage cannot be written.
    """
    text = make_heading(container) + quote(log[-MOST_BYTES:])
    if path.exists() and path.stat().st_size + len(text) > MOST_BYTES:
        path.replace(path.with_suffix(".log.1"))
    with path.open("ab") as file:
        file.write(text if text.endswith(b"\n") else text + b"\n")


def read_job_log(folder: Path) -> Iterator[bytes]:
    """Yield the logs that `append_log` wrote for the job of a folder, the oldest first."""
    path = log_file(folder)
    for file in (path.with_suffix(".log.1"), path):
        if file.is_file():
            yield file.read_bytes()
