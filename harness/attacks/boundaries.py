"""A process that kills itself at a chosen boundary: before a call that changes files.

`dying_at` counts the calls of Python code that create, write, flush, rename, truncate or remove
files or folders, and kills the process before one of them, as `kill -9` does. Writes are those of
the operating system, after Python's buffers, and count twice: before, and with half of the bytes.
Of SQLAlchemy's databases it counts statements, commits, and returns after these.
"""

import builtins
import io
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, Pool, event

CALLS = (
    "fsync",
    "rename",
    "replace",
    "unlink",
    "remove",
    "mkdir",
    "rmdir",
    "truncate",
    "ftruncate",
)

STATEMENTS = ((Engine, "before_cursor_execute"), (Engine, "commit"), (Pool, "checkin"))
"""Events of databases: before a statement, before a commit, and once a transaction is over."""


class Boundaries:
    """Counts boundaries.

    Attributes:
        passed: Number of boundaries so far.
    """

    def __init__(self, last: int) -> None:
        self.passed = 0
        self._last = last

    def reached(self) -> None:
        """Count a boundary, and kill the process at the last."""
        if self.passed == self._last:
            os.kill(os.getpid(), signal.SIGKILL)
        self.passed += 1


class Cut(io.FileIO):
    """A file whose writes are boundaries."""

    def __init__(self, boundaries: Boundaries, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._boundaries = boundaries

    def write(self, content: Any) -> int:
        """Write all of the content, in two halves."""
        view = memoryview(content).cast("B")
        half = len(view) // 2
        for part in (view[:half], view[half:]):
            self._boundaries.reached()
            while part:
                part = part[super().write(part) :]
        return len(view)


@contextmanager
def dying_at(last: int) -> Iterator[Boundaries]:
    """Kill this process at a boundary, counted from 0, if there are that many."""
    boundaries = Boundaries(last)
    real_open = io.open
    real = {name: getattr(os, name) for name in CALLS}

    def opened(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if not {*mode} & {*"wax+"}:
            return real_open(file, mode, *arguments, **options)
        boundaries.reached()
        raw = Cut(boundaries, file, mode.replace("b", "").replace("t", ""))
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding="utf-8")

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def calling(*arguments: Any, **options: Any) -> Any:
            boundaries.reached()
            return call(*arguments, **options)

        return calling

    def statement(*arguments: Any) -> None:
        boundaries.reached()

    io.open = builtins.open = opened  # type: ignore[assignment]
    for name, call in real.items():
        setattr(os, name, counted(call))
    for source, happening in STATEMENTS:
        event.listen(source, happening, statement)
    try:
        yield boundaries
    finally:
        for source, happening in STATEMENTS:
            event.remove(source, happening, statement)
        io.open = builtins.open = real_open
        for name, call in real.items():
            setattr(os, name, call)
