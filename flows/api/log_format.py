"""The text format of a job's logs: a heading with a container's name, then its output.

A job's line that looks like a heading, with `--- ` at its start, gets that prefix twice.
"""

import re
from collections.abc import Iterable, Iterator

from containers.docker.logs import make_heading, quote, unquote


def format_logs(parts: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """Join parts of output, each with its container's name, into the text format of logs.

    A tail of up to three bytes that may be the start of a heading waits for the next part.
    """
    latest, before, tail = "", b"\n", b""  # before: the last byte of the line; a newline if none
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
    """Split logs in the text format into lines, each with its container's name."""
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
