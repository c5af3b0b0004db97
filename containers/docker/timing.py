"""Telemetry of a timed job: its run time, and the share of its work that it reports.

It may replace `progress.json` in its folder by an object with that share.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from containers.docker.telemetry import LONGEST_LINE, PROGRESS, News, read_part
from predictor.job import EpochReport, JobProgress, JobSpec


@dataclass
class TimedLog:
    """The time for which a timed job ran, as the scheduler measures it: its `Log`.

    Attributes:
        folder: The job's folder.
        spec: The declared job.
        epochs: 1 once it ended.
        run_seconds: Time for which its containers ran.
        share: The share of its work that it reported last.
    """

    folder: Path
    spec: JobSpec
    epochs: int = 0
    run_seconds: float = 0.0
    share: float = 0.0

    def begin(self) -> None:
        """See `Log.begin`."""

    def read(self, *, trained: bool, held_seconds: float, most_seconds: float) -> News:
        """See `Log.read`: a report of its only epoch when it ends, its progress up to its limit.

        Args:
            trained: Whether it ended.
            held_seconds: Time for which its containers ran since then.
            most_seconds: Unused, since the time is measured, not reported by the job.
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
        """The share that the job reports: 0 without a file, the last share if it is implausible."""
        try:
            share = float(json.loads(read_part(self.folder / PROGRESS, 0, LONGEST_LINE))["share"])
        except FileNotFoundError:
            share = 0.0
        except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            share = self.share
        self.share = share if 0.0 <= share <= 1.0 else self.share
        return self.share
