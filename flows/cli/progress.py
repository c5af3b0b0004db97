"""Progress of a command on stderr: a bar on a terminal, else a line every few seconds.

A command, and each long call of the library, runs within `working`, its imports included, and
reports its tasks to `progress()`. A thread shows them by the clock, so that no command is silent
for long, whatever it waits for. The time left is estimated from the recent pace of the work: over
the second half of the time that has passed.
"""

import math
import os
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from flows.cli.errors import printable
from predictor.errors import InputError

if TYPE_CHECKING:  # not needed by commands that run nothing
    from flows.runs.simulation import Progress as RoundCallback
    from tasks.record import Start
    from tasks.round import Run
    from warehouse.store.files import CellRow


class Count(Protocol):
    """Takes how much is done, of how much if that is known, and its share of the work."""

    def __call__(self, done: int, total: int | None, share: float | None = None) -> None:
        """Report progress; the share is done / total by default."""


SAY_SECONDS = 5.0
"""Time between two lines: half of the ten seconds after which a command seems to hang, as a busy
machine may delay a line by as much again. A choice of layout."""

FIRST_SECONDS = 3.0
"""Time until the first line: shorter work needs none. A choice of layout."""

VARIABLE = "SHOCKWAVE_PROGRESS"
"""Environment variable with another time between lines, in seconds; 0 for no progress at all."""

DRAW_SECONDS = 0.2
"""Time between two states of the bar. A choice of layout."""

PATIENCE_SECONDS = 1.0
"""Time after which the bar appears. A choice of layout."""

SAMPLES = 256
"""Samples of the work done that are kept, at least half of them. An engineering choice."""


def _to_stderr(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)


class Pace:
    """Estimates the time left of work from its pace.

    Args:
        at: Time at which it begins, in seconds.
        share: Share of the work that was done before.
    """

    def __init__(self, at: float, share: float) -> None:
        self._times, self._shares = [at], [share]

    def note(self, at: float, share: float) -> None:
        """Note the share of the work that is done at a time; it never shrinks."""
        if len(self._times) == SAMPLES:
            self._times, self._shares = self._times[::2], self._shares[::2]
        self._times.append(at)
        self._shares.append(max(share, self._shares[-1]))

    def left(self, at: float, until: float = 1.0) -> float | None:
        """Seconds until a share is done, by the pace since half of the time; None if unknown.

        If nothing was done since then, as with a few long cells, the pace of the whole time counts.
        """
        half = bisect_right(self._times, (self._times[0] + at) / 2) - 1
        if self._shares[half] == self._shares[-1]:
            half = 0
        done = self._shares[-1] - self._shares[half]
        if done <= 0.0:
            return None
        return (at - self._times[half]) / done * (until - self._shares[-1])


class Task:
    """A part of the work.

    Attributes:
        name: Its name.
        unit: The unit of its count.
        total: How much there is to do; None if that is not known.
        done: How much of it is done.
        state: More about its state, in words.
        share: Completed share, in [0, 1].
    """

    def __init__(self, name: str, unit: str, total: int | None) -> None:
        self.name, self.unit, self.total = name, unit, total
        self.done, self.state, self.share = 0, "", 0.0

    def __str__(self) -> str:
        """The task and how far it is, in words."""
        counted = f"{self.done:,}{f' of {self.total:,}' if self.total else ''} {self.unit}"
        parts = ", ".join(filter(None, [counted if self.unit else "", self.state]))
        return f"{self.name}: {parts}" if parts else self.name


class Progress:
    """The progress of a command.

    Args:
        command: Its name.
        clock: Returns the time, in seconds.
        say: Takes a line.
    """

    def __init__(
        self,
        command: str,
        clock: Callable[[], float] = monotonic,
        say: Callable[[str], None] = _to_stderr,
    ) -> None:
        self._command, self._clock, self._say = command, clock, say
        self._began = clock()
        self._said_at: float | None = None
        self._pace: Pace | None = None
        self._tasks: list[Task] = []
        self._expected = 0
        self._noted_at = -math.inf
        self._over = False

    def expect(self, tasks: int) -> None:
        """Announce how many tasks there will be, for the estimate."""
        self._expected = tasks

    def task(self, name: str, unit: str = "", total: int | None = None) -> Task:
        """Begin a task."""
        task = Task(name, unit, total)
        self._tasks.append(task)
        self._over = False
        return task

    def results(self) -> None:
        """Note that results are printed: no more lines before the next task."""
        self._over, self._said_at = True, self._clock()

    def stage(self, name: str) -> None:
        """Begin a task without a count."""
        self.task(name)

    def counted(self, name: str, unit: str) -> Count:
        """A callback that takes how much of a task is done, which begins with the first call."""
        begun: list[Task] = []

        def show(done: int, total: int | None, share: float | None = None) -> None:
            task = begun[0] if begun else self.task(name, unit, total)
            begun[:] = [task]
            task.done, task.total = done, total
            task.share = (done / total if total else 0.0) if share is None else share
            self._noted(self._clock())

        return show

    def cells(self, name: str) -> "Callable[[Sequence[CellRow], float], None]":
        """A callback that takes the cells of a campaign, and the share of the work that is done."""
        show = self.counted(name, "cells")
        return lambda rows, share: show(
            sum(row.status != "pending" for row in rows), len(rows), share
        )

    def run(self, start: "Start") -> "RoundCallback":
        """Begin a run as a task, counted in finished jobs; returns its callback for rounds."""
        jobs = len(start.workload.specs)
        task = self.task(start.header.settings.policy, "jobs", jobs)

        def show(run: "Run") -> None:
            now, state = self._clock(), run.state
            task.done, task.state = state.arrived - len(state.beliefs), f"round {state.round}"
            if now - self._noted_at >= DRAW_SECONDS or task.done == jobs:
                begun = sum(belief.share_done for belief in state.beliefs.values())
                task.share = (task.done + begun) / max(jobs, 1)
                self._noted(now)

        return show

    def _noted(self, now: float) -> None:
        self._noted_at, self._over = now, False
        if self._pace is None:
            self._pace = Pace(now, self.share)
        self._pace.note(now, self.share)

    @property
    def share(self) -> float:
        """Completed share of all tasks that are counted, in [0, 1]."""
        counted = self._counted
        return sum(task.share for task in counted) / max(self._expected, len(counted), 1)

    @property
    def _counted(self) -> list[Task]:
        return [task for task in self._tasks if task.unit]

    @property
    def text(self) -> str:
        """What the command does now, in words, with an estimate of the time left."""
        if not self._tasks:
            return f"{self._command}: under way"
        now = self._tasks[-1]
        several = now.unit and self._expected > 1
        whole = f"{len(self._counted)} of {self._expected}, " if several else ""
        return f"{whole}{now}{self.left}"

    @property
    def left(self) -> str:
        """The estimate of the time left, in words; empty if there is none.

        During the first of several tasks, the others are unknown: the estimate is of it alone.
        """
        first = self._expected > 1 and len(self._counted) == 1
        until = 1.0 / self._expected if first else 1.0
        seconds = self._pace.left(self._clock(), until) if self._pace else None
        return f", about {_duration(seconds)} left{' of this one' * first}" if seconds else ""

    @property
    def elapsed(self) -> float:
        """Seconds since the command began."""
        return self._clock() - self._began

    def tick(self, every: float = SAY_SECONDS) -> None:
        """Print a line on the present task, if none was printed for a while."""
        now = self._clock()
        since, patience = self._said_at, every
        if since is None:
            since, patience = self._began, min(every, FIRST_SECONDS)
        if now - since >= patience and not self._over:
            self._said_at = now
            self._say(f"{self.elapsed:5.0f} s  {self.text}")


class _Bar:
    """The progress as a bar on a terminal, from `PATIENCE_SECONDS` on until results are printed."""

    def __init__(self, shown: Progress) -> None:
        self._shown, self._lock = shown, Lock()
        self._bar: Any = None
        self._ended = False

    def draw(self) -> None:
        """Show the present state."""
        with self._lock:
            if self._ended or self._shown.elapsed < PATIENCE_SECONDS:
                return
            if self._bar is None:
                self._bar = _new_bar()
                self._bar.start()
                self._bar.add_task("", total=1.0)
            seconds = f"{self._shown.elapsed:.0f} s"
            text, share = f"{seconds}  {self._shown.text}", self._shown.share
            self._bar.update(0, description=text, completed=share, total=1.0 if share else None)
            self._bar.refresh()

    def end(self) -> None:
        """Remove it, for good."""
        with self._lock:
            self._ended = True
            if self._bar is not None:
                self._bar.stop()
                self._bar = None


def _new_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    text = TextColumn(
        "{task.description}",
        markup=False,
        table_column=Column(no_wrap=True, overflow="ellipsis"),
    )
    console = Console(stderr=True)
    return Progress(BarColumn(16), text, console=console, auto_refresh=False, transient=True)


_current: list[tuple[Progress, _Bar | None]] = []


def progress() -> Progress:
    """The progress of the running command; in a program without a command, an invisible one."""
    return _current[-1][0] if _current else Progress("shockwave")


def end_bar() -> None:
    """Remove the bar and stop progress lines, before results are printed."""
    for shown, bar in _current:
        shown.results()
        if bar is not None:
            bar.end()


@contextmanager
def working(command: str, *, lines: bool = False) -> Iterator[None]:
    """Show a command's progress within the context.

    Args:
        command: Its name.
        lines: Whether to write lines on a terminal as well.

    Raises:
        InputError: The environment has no number of seconds.
    """
    every = _seconds()
    shown = Progress(command)
    at_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    bar = _Bar(shown) if at_terminal and every and not lines else None
    ended = Event()

    def show() -> None:
        while not ended.wait(DRAW_SECONDS if bar else min(every / 2, 0.5)):
            if bar is None:
                shown.tick(every)
            else:
                bar.draw()

    thread, own = Thread(target=show, daemon=True), (shown, bar)
    _current.append(own)
    try:
        if every:
            thread.start()
        yield
    finally:
        _current.remove(own)  # not pop(): other threads have theirs
        ended.set()
        if bar is not None:
            bar.end()
        if every:
            thread.join()


def _seconds() -> float:
    """Seconds between lines, as the environment says."""
    text = os.environ.get(VARIABLE, "")
    try:
        seconds = float(text or SAY_SECONDS)
    except ValueError:
        seconds = math.nan
    if not 0.0 <= seconds < math.inf:
        raise InputError(VARIABLE, f"{text!r} is no number of seconds", "give one, or 0 for none")
    return seconds


def _duration(seconds: float) -> str:
    """A duration in two digits or so."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.0f} h"
