"""The files that the scheduler reads: a line for each epoch, and the progress."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainer import files

LINES = "telemetry.jsonl"
PROGRESS = "progress.json"
SECONDS_BETWEEN = 1.0
"""Least time between writes of the progress within an epoch. An engineering choice."""


@dataclass(frozen=True, slots=True)
class EpochLine:
    """A completed epoch.

    Attributes:
        epoch: Index from 0.
        seconds: Training time over all attempts.
        loss: Mean over the samples.
        gradient_norm: Norm of the mean gradient over the samples.
        noise_scale: Noise scale in samples; None if the gradient vanishes in the noise.
        data: "synthetic", or the data set's path in the data folder.
        attempt: Attempt that completed it, from 1.
    """

    epoch: int
    batch_size: int
    samples: int
    steps: int
    seconds: float
    loss: float
    gradient_norm: float
    noise_scale: float | None
    data: str
    attempt: int

    def append(self, folder: Path) -> None:
        """Append the line to the telemetry.

        Raises:
            StorageError: It cannot be written; the previous lines are unharmed.
        """
        line = json.dumps({**asdict(self), "at": time.time()}, allow_nan=False)
        files.append_line(folder / LINES, line.encode())


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """The progress of a job.

    Attributes:
        epoch: Completed epochs.
        step: Steps done in the current epoch.
        steps_per_epoch: Steps of a full epoch at its batch size.
        batch_size: Its samples per step.
        run_seconds: Training time over all attempts.
        attempt: Number of the trainer's starts.
    """

    epoch: int
    step: int
    steps_per_epoch: int
    batch_size: int
    run_seconds: float
    attempt: int

    def write(self, folder: Path) -> None:
        """Replace the previous progress.

        Raises:
            StorageError: It cannot be written; the previous progress is unharmed.
        """
        text = json.dumps({**asdict(self), "at": time.time()})
        files.replace(folder / PROGRESS, text.encode(), durable=False)


def read_progress(folder: Path) -> dict[str, Any]:
    """Read the last progress; empty if it is missing or unreadable."""
    try:
        progress = json.loads((folder / PROGRESS).read_bytes())
        return {key: int(progress[key]) for key in ("epoch", "attempt")}
    except (OSError, ValueError, TypeError, KeyError):
        return {}
