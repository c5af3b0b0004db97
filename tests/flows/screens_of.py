"""Output on a simulated terminal, while all clocks stand."""

import io
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

import tasks.round
import warehouse.store.writer
from containers.clock import RunClock
from flows.cli import simulate
from flows.runs import code_version
from flows.scheduler import scheduler
from tests.flows.test_terminal import ESCAPES

CONTROLS = re.compile(r"\x1b\[(?:\?\d+[hl]|\d*[ABCDHJK])")


class Terminal(io.StringIO):
    """Captures output as on a terminal."""

    def isatty(self) -> bool:
        return True


class File(io.TextIOWrapper):
    """Captures output as into a file."""

    def getvalue(self) -> str:
        self.seek(0)
        return self.read()


class Clock:
    """A clock that is moved by hand, from a moment on."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def time(self) -> float:
        return 1_790_000_000.0 + self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def date(self, zone: object) -> datetime:
        return datetime.fromtimestamp(self.time(), UTC)


@contextmanager
def still() -> Iterator[Clock]:
    """All clocks stand, so that nothing printed has taken time."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time, "time", clock.time)
        patched.setattr(tasks.round, "perf_counter", clock.time)
        patched.setattr(simulate, "perf_counter", clock.time)
        patched.setattr(code_version, "version", lambda package: "1.0")
        patched.setattr(code_version.platform, "python_version", lambda: "3.0")
        dates = type("Dates", (), {"now": staticmethod(clock.date)})
        patched.setattr(warehouse.store.writer, "datetime", dates)
        patched.setattr(
            scheduler,
            "RunClock",
            lambda at, speed, on_late: RunClock(at, speed, clock.now, clock.sleep, on_late),
        )
        yield clock


@dataclass(frozen=True)
class Shown:
    """Output on stdout, of a terminal or, without a width, of a file."""

    folder: Path

    def at(self, width: int | None, call: Callable[[], object], *, colour: bool = False) -> str:
        """What a call prints."""
        out = Terminal() if width else File(io.BytesIO(), encoding="utf-8")
        with pytest.MonkeyPatch.context() as patched, still():
            patched.chdir(self.folder)
            patched.setattr(sys, "stdout", out)
            patched.setattr(sys, "stderr", io.StringIO())
            for name, value in (
                ("COLUMNS", str(width or 200)),
                ("LINES", "1000"),
                ("TERM", "xterm-256color"),
                ("SHOCKWAVE_WAREHOUSE", "w"),
                ("NO_COLOR", "" if colour else "1"),
            ):
                patched.setenv(name, value)
            call()
        text = out.getvalue()
        assert colour or not re.search(r"\x1b\[[349]\d", text)
        if CONTROLS.search(text):  # of a screen that is drawn again and again
            text = CONTROLS.sub("", text).strip() + "\n"
        return text if colour else uncoloured(text)


def uncoloured(text: str) -> str:
    """The text without colours, and without spaces at the ends of lines."""
    return "".join(f"{line.rstrip()}\n" for line in ESCAPES.sub("", text).splitlines())
