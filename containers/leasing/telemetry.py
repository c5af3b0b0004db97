"""Telemetry of a job: its new and plausible reports.

A job appends a line to `telemetry.jsonl` after each epoch and replaces `progress.json` while it
trains (fields: docs/images.md). Lines may be torn, repeated after a kill, or implausible; each
epoch is reported once.
"""

import json
import math
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from predictor.job import LARGEST_LOSS, EpochLoss, EpochReport, JobProgress, JobSpec, add_report

LINES = "telemetry.jsonl"
PROGRESS = "progress.json"
LONGEST_LINE = 1 << 16
"""Most bytes of a line; longer lines are ignored. An engineering bound."""
MOST_BYTES = 1 << 18
"""Most bytes per read; the next read continues. An engineering bound."""
BACKLOG_BYTES = 1 << 24
"""Most bytes of a resumed job's first read and a finished job's last read. An engineering bound."""
MOST_LINES = 100_000
"""Most lines per read; further lines are ignored. An engineering bound."""
MOST_SECONDS = 1e9
"""Longest plausible epoch or run time (about 30 years); longer times are ignored."""


class News(NamedTuple):
    """New telemetry of a job since the last read.

    Attributes:
        reports: Reports of completed epochs, merged by batch size.
        alive: Whether it showed a sign of life.
    """

    reports: tuple[EpochReport, ...]
    progress: JobProgress
    alive: bool = True
    losses: tuple[EpochLoss, ...] = ()


class Log(Protocol):
    """Telemetry of a containerized job, in its folder.

    Attributes:
        went_back: Reported shares of its work before and after the last fall in this lease.
    """

    folder: Path
    spec: JobSpec
    went_back: tuple[float, float] | None

    def begin(self) -> None:
        """Begin a lease."""
        ...

    def read(self, *, trained: bool, held_seconds: float, most_seconds: float) -> News:
        """Return what is new since the last call.

        Args:
            trained: Whether the job finished.
            held_seconds: Seconds of its lease since then.
            most_seconds: Upper bound on its run time since then.
        """
        ...


@dataclass
class JobLog:
    """The `Log` of a job that trains: the telemetry reported so far.

    Attributes:
        went_back: Always None: reported epochs count, even if they are trained again.
    """

    folder: Path
    spec: JobSpec
    epochs: int = 0
    run_seconds: float = 0.0
    went_back: tuple[float, float] | None = field(default=None, init=False)
    _offset: int = field(default=0, init=False)
    _longest_seconds: float = field(default=0.0, init=False)
    _batch_size: int = field(default=0, init=False)
    _looked: bool = field(default=False, init=False)
    _left: tuple[int, int] | None = field(default=None, init=False)
    _furthest: tuple[int, int] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._longest_seconds = self.run_seconds

    def begin(self) -> None:
        """See `Log.begin`; the job may return to its last checkpoint."""
        self._left, self._furthest = self._place(self._position()), None

    def read(self, *, trained: bool, held_seconds: float, most_seconds: float) -> News:
        """See `Log.read`; the first call always finds a sign of life.

        The progress of a job that finished implies the epochs whose lines were lost. An epoch may
        have begun before the last call, so the sum of `most_seconds` bounds plausible times.
        """
        self._longest_seconds += most_seconds
        losses, reports = list[EpochLoss](), list[EpochReport]()
        resumed = not self._looked and self.epochs > 0
        most = BACKLOG_BYTES if trained or resumed else MOST_BYTES
        for epoch, batch_size, seconds, loss in self._new_lines(most):
            if epoch >= self.epochs and abs(loss) <= LARGEST_LOSS:
                losses.append(EpochLoss(self.spec.job_id, epoch, loss))
            self._report(reports, epoch, batch_size, seconds)
        position = self._position()
        if trained and position and position.epoch == self.spec.epochs:
            left = max(self.spec.epochs - self.epochs, 1)
            # Epochs whose lines were lost share the unreported time evenly.
            seconds = max(position.run_seconds - self.run_seconds, 0.0) / left
            self._report(
                reports, position.epoch - 1, self._batch_size or position.batch_size, seconds
            )
        alive = self._advanced(position) or bool(reports) or not self._looked
        self._looked = True
        return News(tuple(reports), self._progress(position), alive, tuple(losses))

    def _advanced(self, position: "_Position | None") -> bool:
        """Return whether a job is further than at any earlier call in its lease.

        Its position before the lease does not count: it still reports that position before its
        first step, and may have to repeat steps since its checkpoint. Other changes of its files
        are no sign of life, since a hung job can make them.
        """
        place = self._place(position)
        if not self._looked:
            self._left = place
        if place is None or place == self._left or (self._furthest and place <= self._furthest):
            return False
        self._furthest = place
        return True

    def _place(self, position: "_Position | None") -> tuple[int, int] | None:
        """Return the epochs and steps of a position, capped at the job's own."""
        if position is None:
            return None
        steps = self.spec.steps_per_epoch(position.batch_size)
        return min(position.epoch, self.spec.epochs), min(position.step, steps)

    def _report(
        self, reports: list[EpochReport], epoch: int, batch_size: int, seconds: float
    ) -> None:
        """Report a completed epoch, and previous epochs whose lines were lost."""
        count = epoch + 1 - self.epochs
        if count < 1:
            return  # trained again after a kill, and already reported
        new = EpochReport(self.spec.job_id, self.epochs, count, batch_size, count * seconds)
        add_report(reports, new)
        self.epochs, self._batch_size = epoch + 1, batch_size

    def _new_lines(self, most_bytes: int) -> list[tuple[int, int, float, float]]:
        try:
            data = read_part(self.folder / LINES, self._offset, most_bytes)
        except OSError:
            return []
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) > LONGEST_LINE:
            whole = len(data)
        self._offset += whole  # the rest is an incomplete line
        lines = []
        for text in filter(None, data[:whole].split(b"\n", MOST_LINES)[:MOST_LINES]):
            line = self._line(text)
            if line is not None:
                lines.append(line)
        return lines

    def _line(self, text: bytes) -> tuple[int, int, float, float] | None:
        """Parse epoch, batch size, seconds and loss (NaN without one); None if implausible."""
        try:
            line = json.loads(text)
            epoch, size, seconds = line["epoch"], line["batch_size"], float(line["seconds"])
            loss = float(line.get("loss", math.nan))
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
            return None
        sound = (
            type(epoch) is int
            and 0 <= epoch < self.spec.epochs
            and type(size) is int
            and self.spec.batch_size <= size <= self.spec.max_batch_size
            and 0 <= seconds <= min(self._longest_seconds, MOST_SECONDS)
        )
        return (epoch, size, seconds, loss) if sound else None

    def _progress(self, position: "_Position | None") -> JobProgress:
        epochs, size, step = self.epochs, self._batch_size or self.spec.batch_size, 0
        run_seconds = self.run_seconds
        if position:
            run_seconds = max(run_seconds, position.run_seconds)
            if position.epoch == epochs:
                size, step = position.batch_size, position.step
        steps_per_epoch = self.spec.steps_per_epoch(size)
        step = min(step, steps_per_epoch) if epochs < self.spec.epochs else 0
        seconds, self.run_seconds = run_seconds - self.run_seconds, run_seconds
        return JobProgress(
            job_id=self.spec.job_id,
            epochs=epochs,
            fraction=step / steps_per_epoch,
            batch_size=size,
            seconds=seconds,
            run_seconds=run_seconds,
            steps_left=max(self.spec.steps_after(epochs, size) - step, 0),
        )

    def _position(self) -> "_Position | None":
        """Return the job's last reported position; None if absent or implausible."""
        try:
            fields = json.loads(read_part(self.folder / PROGRESS, 0, LONGEST_LINE))
            position = _Position(
                int(fields["epoch"]),
                int(fields["step"]),
                int(fields["batch_size"]),
                float(fields["run_seconds"]),
            )
        except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None
        sound = (
            position.epoch >= 0
            and position.step >= 0
            and self.spec.batch_size <= position.batch_size <= self.spec.max_batch_size
            and 0 <= position.run_seconds <= min(self._longest_seconds, MOST_SECONDS)
        )
        return position if sound else None


def read_part(path: Path, offset: int, most_bytes: int) -> bytes:
    """Read up to `most_bytes` of a file in a job's folder, from an offset in bytes.

    Raises:
        OSError: The file cannot be read, or the job replaced it by a link, a pipe or a device.
    """
    # Without O_NONBLOCK, opening a pipe that has no writer would hang.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a file")
        file.seek(offset)
        return file.read(most_bytes)


def read_end(path: Path, most_bytes: int) -> bytes:
    """Read the last bytes of a file in a job's folder; see `read_part`."""
    return read_part(path, max(os.lstat(path).st_size - most_bytes, 0), most_bytes)


def read_losses(folder: Path) -> dict[int, float]:
    """Return a job's last reported training losses, by index of the completed epoch."""
    found = dict[int, float]()
    try:
        data = read_end(folder / LINES, MOST_BYTES)
    except OSError:
        return found
    for text in data.split(b"\n", MOST_LINES)[:MOST_LINES]:
        with suppress(ValueError, TypeError, KeyError, OverflowError, RecursionError):
            fields = json.loads(text)
            epoch, loss = int(fields["epoch"]), float(fields["loss"])
            if epoch >= 0 and abs(loss) <= LARGEST_LOSS:
                found[epoch] = loss
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class _Position:
    """A job's position, as in `progress.json`."""

    epoch: int
    step: int
    batch_size: int
    run_seconds: float
