"""The text format of a job's logs: the output of each container after a line with its name.

A line of a job that begins like a container's line, with `--- `, gets that beginning twice.
"""

import re
from collections.abc import Iterable, Iterator

from containers.docker.logs import make_heading, quote, unquote


def format_logs(parts: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """Join parts of containers' output into the text format of logs.

    A tail that may still become a container's line, three bytes at most, waits for the next part.

    Args:
        parts: Names of containers, each with the next part of its output.
    """
    latest, before, tail = "", b"\n", b""  # the last byte returned of this line; a newline if none
    for name, text in parts:
        head = b""
        if name != latest:
            head = tail + (b"" if before == b"\n" and not tail else b"\n") + make_heading(name)
            latest, before, tail = name, b"\n", b""
        line = before + tail + text
        tail = found[1] if (found := _OPEN.search(line)) else b""
        line = line[: len(line) - len(tail)]
        yield head + quote(line)[1:]
        before = b"\n" if line.endswith(b"\n") else b" "
    if tail:
        yield tail


_OPEN = re.compile(rb"\n(-{1,3})\Z")
_BEGINS = re.compile(rb"--- (\S+)")


def parse_logs(parts: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Split logs in the text format into lines, each with the name of its container."""
    name, rest = "", b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            if begins := _BEGINS.fullmatch(line):
                name = begins[1].decode(errors="replace")
            else:
                yield name, unquote(line).decode(errors="replace")
    if rest:
        yield name, unquote(rest).decode(errors="replace")
