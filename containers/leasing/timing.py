"""Telemetry of a timed job: its run time, and the share of its work that it reports.

The job may report that share in its `progress.json`.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from containers.leasing.telemetry import LONGEST_LINE, PROGRESS, News, read_part
from predictor.job import EpochReport, JobProgress, JobSpec


@dataclass
class TimedLog:
    """The `Log` of a timed job, whose run time the scheduler measures.

    Attributes:
        epochs: 1 after its end, else 0.
        went_back: See `Log`.
    """

    folder: Path
    spec: JobSpec
    epochs: int = 0
    run_seconds: float = 0.0
    share: float = 0.0
    went_back: tuple[float, float] | None = None

    def begin(self) -> None:
        """See `Log.begin`."""
        self.went_back = None

    def read(self, *, trained: bool, held_seconds: float, most_seconds: float) -> News:
        """See `Log.read`; a timed job reports a single epoch, at its end.

        `most_seconds` is unused, since the scheduler measures the time.
        """
        spec, whole = self.spec, self.spec.total_steps
        self.run_seconds += held_seconds
        reports: tuple[EpochReport, ...] = ()
        if trained and not self.epochs:
            self.epochs = 1
            reports = (EpochReport(spec.job_id, 0, 1, spec.batch_size, self.run_seconds),)
        left = 0 if self.epochs else max(whole - int(self.run_seconds), 0)
        stands = JobProgress(
            job_id=spec.job_id,
            epochs=self.epochs,
            fraction=0.0 if self.epochs else 1.0 - left / whole,
            batch_size=spec.batch_size,
            seconds=held_seconds,
            run_seconds=self.run_seconds,
            steps_left=left,
            share=0.0 if self.epochs else self._share(),
        )
        return News(reports, stands)

    def _share(self) -> float:
        """Return the reported share: 0 without a file, the last share if it is implausible."""
        try:
            share = float(json.loads(read_part(self.folder / PROGRESS, 0, LONGEST_LINE))["share"])
        except FileNotFoundError:
            share = 0.0
        except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            share = self.share
        if not 0.0 <= share <= 1.0:
            return self.share
        if share < self.share:
            self.went_back = self.share, share
        self.share = share
        return self.share
