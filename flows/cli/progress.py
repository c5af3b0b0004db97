"""Progress of a command on stderr: a bar on a terminal, else a line every few seconds.

A command runs within `show_progress` and reports its tasks to `get_progress()`. A thread shows
them, so that no command is silent for long. Rich estimates the time left.
"""

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from flows.cli.errors import escape
from predictor.errors import InputError

if TYPE_CHECKING:  # not needed by commands that run nothing
    from rich.progress import Progress as Bar

    from flows.runs.simulation import Progress as RoundCallback
    from tasks.record import Start
    from tasks.run import Run


class Count(Protocol):
    """Receives how much is done, how much there is to do if known, and the share of the work."""

    def __call__(
        self,
        done: int,
        total: int | None,
        share: float | None = None,
        left: float | None = None,
    ) -> None:
        """Report progress.

        The share is done / total by default, and the seconds left follow from its pace.
        """


LINE_SECONDS = 5.0
"""Time between two lines. A choice of layout."""

FIRST_SECONDS = 3.0
"""Time until the first line: shorter work needs none. A choice of layout."""

BAR_SECONDS = 1.0
"""Time until the bar appears. A choice of layout."""

UPDATE_SECONDS = 0.2
"""Shortest time between two updates by a run, whose rounds may take milliseconds. A choice of
layout."""

PACE_SECONDS = 600.0
"""Period of the pace from which the time left is estimated. An engineering choice."""

VARIABLE = "SHOCKWAVE_PROGRESS"
"""Environment variable with the seconds between two lines; 0 for no progress at all."""


class CommandProgress:
    """The progress of a command; `clock` returns the time in seconds."""

    def __init__(self, command: str, clock: Callable[[], float] = monotonic) -> None:
        self._clock, self._began = clock, clock()
        self._expected = self._begun = 0
        self._name, self._count = f"{command}: running", ""
        self._share: float | None = None
        self._left: float | None = None
        self._bar: Bar | None = None
        self._lock, self._ended = Lock(), Event()

    def expect(self, tasks: int) -> None:
        """Announce how many counted tasks there will be."""
        self._expected = tasks

    def begin(self, name: str) -> None:
        """Begin a task without a count."""
        self._name, self._count, self._share, self._left = name, "", None, None
        if self._bar is not None:
            (task,) = self._bar.tasks
            self._bar.reset(task.id, description=self.text)
            task.total = None  # which `reset` keeps if it is given None

    def count(self, name: str, unit: str) -> Count:
        """Return the callback of a counted task, which begins with the first call."""
        begun = False

        def show(
            done: int,
            total: int | None,
            share: float | None = None,
            left: float | None = None,
        ) -> None:
            nonlocal begun
            if not begun:
                begun = True
                self._begun += 1
                number = f"{self._begun} of {self._expected}, " if self._expected > 1 else ""
                self.begin(number + name)
            self._count = f": {done:,}{f' of {total:,}' if total else ''} {unit}"
            self._share = done / total if total and share is None else share
            self._left = left
            if self._bar is not None:
                (task,), known = self._bar.task_ids, None if self._share is None else 1.0
                self._bar.update(task, total=known, completed=self._share, description=self.text)

        return show

    def count_jobs(self, start: "Start") -> "RoundCallback":
        """Begin a run as a task, counted in ended jobs; returns its callback for rounds."""
        jobs, shown_at = len(start.workload.specs), -math.inf
        show = self.count(start.header.settings.policy, "jobs")

        def after_round(run: "Run") -> None:
            nonlocal shown_at
            now, state = self._clock(), run.state
            done = state.arrived - len(state.beliefs)
            if now - shown_at >= UPDATE_SECONDS or done == jobs:
                shown_at = now
                partial = sum(belief.share_done for belief in state.beliefs.values())
                show(done, jobs, (done + partial) / max(jobs, 1))

        return after_round

    @property
    def text(self) -> str:
        """What the command is doing, with an estimate of the time left."""
        left = self._left
        if left is None and self._bar:
            left = self._bar.tasks[0].time_remaining
        about = f", about {timedelta(seconds=round(left))} left" if left else ""
        return f"{self._name}{self._count}{about}"

    def show(self, every: float, bar: bool) -> None:
        """Show the progress until it ends: as a bar, or as a line `every` so many seconds."""
        wait = BAR_SECONDS if bar else min(every, FIRST_SECONDS)
        while not self._ended.wait(wait):
            with self._lock:
                if self._ended.is_set():
                    return
                if self._bar is None:
                    self._bar = self._make_bar()
                if bar:
                    self._bar.start()  # Rich refreshes it from now on
                    return
                line = f"{self._clock() - self._began:5.0f} s  {self.text}"
                print(escape(line), file=sys.stderr, flush=True)
            wait = every

    def end(self) -> None:
        """Remove the bar and print no more lines."""
        with self._lock:
            self._ended.set()
            if self._bar is not None and self._bar.live.is_started:
                self._bar.stop()

    def _make_bar(self) -> "Bar":
        """Make the bar, which also estimates the time left for lines."""
        from rich.console import Console  # costs a tenth of a second to import
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column

        column = Column(no_wrap=True, overflow="ellipsis")
        text = TextColumn("{task.description}", markup=False, table_column=column)
        bar = Progress(
            BarColumn(16),
            TimeElapsedColumn(),
            text,
            console=Console(stderr=True),
            get_time=self._clock,
            speed_estimate_period=PACE_SECONDS,
            transient=True,
        )
        known = None if self._share is None else 1.0
        bar.add_task(self.text, total=known, completed=self._share or 0.0)  # type: ignore[arg-type]
        return bar


_current: list[CommandProgress] = []


def get_progress() -> CommandProgress:
    """Return the progress of the running command; outside a command, an invisible one."""
    return _current[-1] if _current else CommandProgress("shockwave")


def wait_for_prefect() -> None:
    """Import Prefect, then say that the running command waits for its server."""
    get_progress().begin("importing Prefect")
    from flows.prefect_server.prefect_driver import describe_wait

    get_progress().begin(describe_wait())


def end_progress() -> None:
    """Remove the bar and stop progress lines, before results are printed."""
    for running in _current:
        running.end()


@contextmanager
def show_progress(command: str, *, lines: bool = False) -> Iterator[None]:
    """Show a command's progress within the context; with `lines`, as lines on a terminal as well.

    Raises:
        InputError: The environment variable is not a number of seconds.
    """
    every = _read_seconds()
    running = CommandProgress(command)
    bar = sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not lines
    thread = Thread(target=running.show, args=(every, bar), daemon=True)
    _current.append(running)
    try:
        if every:
            thread.start()
        yield
    finally:
        _current.remove(running)
        running.end()
        if every:
            thread.join()


def _read_seconds() -> float:
    """Read the seconds between two lines from the environment."""
    text = os.environ.get(VARIABLE, "")
    try:
        seconds = float(text or LINE_SECONDS)
    except ValueError:
        seconds = math.nan
    if not 0.0 <= seconds < math.inf:
        problem = f"{text!r} is not a number of seconds"
        raise InputError(VARIABLE, problem, "give one, or 0 for none")
    return seconds
