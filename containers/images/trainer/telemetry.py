"""What the scheduler reads: a line for each epoch, and where the job stands."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainer import files

LINES = "telemetry.jsonl"
PROGRESS = "progress.json"
SECONDS_BETWEEN = 1.0
"""Least time between two writes of the progress inside an epoch. An engineering choice."""


@dataclass(frozen=True, slots=True)
class EpochLine:
    """A completed epoch.

    Attributes:
        epoch: Its index from 0.
        batch_size: Samples per step.
        samples: Samples trained.
        steps: Steps trained.
        seconds: Time of training it over all attempts.
        loss: Mean over the samples.
        gradient_norm: Norm of the mean gradient over the samples.
        noise_scale: In samples; None where no gradient shows above the noise.
        data: "synthetic", or the data set's path in the data folder.
        attempt: Start of the trainer that completed it, from 1.
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
        """Write the line.

        Raises:
            StorageError: It cannot be written; the lines before are unharmed.
        """
        line = json.dumps({**asdict(self), "at": time.time()}, allow_nan=False)
        files.append_line(folder / LINES, line.encode())


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """Where a job stands.

    Attributes:
        epoch: Epochs completed.
        step: Steps of the epoch under way.
        steps_per_epoch: Steps of a whole epoch at its batch size.
        batch_size: Samples per step in it.
        run_seconds: Time of training over all attempts.
        attempt: Starts of the trainer.
    """

    epoch: int
    step: int
    steps_per_epoch: int
    batch_size: int
    run_seconds: float
    attempt: int

    def write(self, folder: Path) -> None:
        """Replace what was written before.

        Raises:
            StorageError: It cannot be written; what was written before is still there.
        """
        text = json.dumps({**asdict(self), "at": time.time()})
        files.replace(folder / PROGRESS, text.encode(), durable=False)


def read_progress(folder: Path) -> dict[str, Any]:
    """What was written last; empty if there is none, or none that can be read."""
    try:
        progress = json.loads((folder / PROGRESS).read_bytes())
        return {key: int(progress[key]) for key in ("epoch", "attempt")}
    except (OSError, ValueError, TypeError, KeyError):
        return {}
