"""Telemetry of a job: its new and plausible reports.

A job appends a line to `telemetry.jsonl` for each epoch and replaces `progress.json` while
it trains; docs/images.md gives their fields. Lines may be torn, repeated after a kill, or
implausible; each epoch is reported once.
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
"""Largest size of a line in bytes; longer lines are ignored. An engineering bound."""
MOST_BYTES = 1 << 18
"""Most bytes per read; the next read continues. An engineering bound."""
BACKLOG_BYTES = 1 << 24
"""Most bytes of the first read of a resumed job, and of the last read of a finished job. An
engineering bound."""
MOST_LINES = 100_000
"""Most lines per read; more lines are ignored. An engineering bound."""
MOST_SECONDS = 1e9
"""Longest plausible epoch or run time, some thirty years; longer times are ignored."""


class News(NamedTuple):
    """What a log has of a job since it was read before.

    Attributes:
        reports: Reports of completed epochs, merged by batch size.
        progress: The job's progress.
        alive: Whether it showed a sign of life.
        losses: Training losses of the reported epochs, as far as known.
    """

    reports: tuple[EpochReport, ...]
    progress: JobProgress
    alive: bool = True
    losses: tuple[EpochLoss, ...] = ()


class Log(Protocol):
    """What is known of a job in containers.

    Attributes:
        folder: The job's folder.
        spec: The declared job.
    """

    folder: Path
    spec: JobSpec

    def begin(self) -> None:
        """A lease begins."""
        ...

    def read(self, *, trained: bool, held_seconds: float, most_seconds: float) -> News:
        """What is new since the last call.

        Args:
            trained: Whether the job finished.
            held_seconds: Time for which its lease went on since then.
            most_seconds: Upper bound on its run time since then.
        """
        ...


@dataclass
class JobLog:
    """A job's telemetry, as far as it has been reported; a `Log` of a job that trains.

    Attributes:
        folder: The job's folder.
        spec: The declared job.
        epochs: Completed epochs reported so far.
        run_seconds: Run time, as last reported.
    """

    folder: Path
    spec: JobSpec
    epochs: int = 0
    run_seconds: float = 0.0
    _offset: int = field(default=0, init=False)
    _longest_seconds: float = field(default=0.0, init=False)
    _batch_size: int = field(default=0, init=False)
    _looked: bool = field(default=False, init=False)
    _left: tuple[int, int] | None = field(default=None, init=False)
    _furthest: tuple[int, int] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._longest_seconds = self.run_seconds

    def begin(self) -> None:
        """See `Log.begin`; the job may go back to its last checkpoint."""
        self._left, self._furthest = self._place(self._position()), None

    def read(self, *, trained: bool, held_seconds: float, most_seconds: float) -> News:
        """See `Log.read`; the first call always finds a sign of life.

        Args:
            trained: Whether the job finished. Epochs whose lines were lost are then reported
                as far as its progress implies them.
            held_seconds: Not needed, as the job reports its run time.
            most_seconds: Upper bound on the run time since the last call. An epoch may have
                begun earlier, so that plausible times are bounded by the sum over all calls.
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
            seconds = max(position.run_seconds - self.run_seconds, 0.0) / left
            self._report(
                reports, position.epoch - 1, self._batch_size or position.batch_size, seconds
            )
        alive = self._advanced(position) or bool(reports) or not self._looked
        self._looked = True
        return News(tuple(reports), self._progress(position), alive, tuple(losses))

    def _advanced(self, position: "_Position | None") -> bool:
        """Whether a job stands further than at any call before in its lease.

        Its position before the lease does not count: until its first step it still reports that
        position, and from its checkpoint it may have to train up to it again. Other
        changes of its files are no sign of life, since a job that hangs can make them.
        """
        place = self._place(position)
        if not self._looked:
            self._left = place
        if place is None or place == self._left or (self._furthest and place <= self._furthest):
            return False
        self._furthest = place
        return True

    def _place(self, position: "_Position | None") -> tuple[int, int] | None:
        """Epochs and steps of a position, as far as the job has them."""
        if position is None:
            return None
        steps = self.spec.steps_per_epoch(position.batch_size)
        return min(position.epoch, self.spec.epochs), min(position.step, steps)

    def _report(
        self, reports: list[EpochReport], epoch: int, batch_size: int, seconds: float
    ) -> None:
        """Add a completed epoch to the reports, with previous epochs whose lines were lost."""
        count = epoch + 1 - self.epochs
        if count < 1:
            return  # trained again after a kill, and reported before
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
        """Epoch, batch size, seconds and loss (NaN without one) of a line; None if implausible."""
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
        """The job's last reported position; None if absent or implausible."""
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
    """A part of a file in a job's folder, which the job may have replaced.

    Args:
        path: The file.
        offset: Bytes to skip.
        most_bytes: Most bytes to read.

    Raises:
        OSError: The file cannot be read, or is a link, a pipe or a device.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no file")
        file.seek(offset)
        return file.read(most_bytes)


def read_end(path: Path, most_bytes: int) -> bytes:
    """The last bytes of a file in a job's folder; see `read_part`."""
    return read_part(path, max(os.lstat(path).st_size - most_bytes, 0), most_bytes)


def losses(folder: Path) -> dict[int, float]:
    """The training loss of a job's completed epochs, as it reports them, by index of the epoch.

    Args:
        folder: The job's folder; its last reports are read.
    """
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
