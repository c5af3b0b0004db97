"""The files that the scheduler reads: a line for each epoch, and the progress (docs/images.md)."""

import json
import time
from pathlib import Path
from typing import Any

from trainer import files

LINES = "telemetry.jsonl"
PROGRESS = "progress.json"
SECONDS_BETWEEN = 1.0
"""Least time between writes of the progress within an epoch. An engineering choice."""


def append_epoch(folder: Path, epoch: dict[str, Any]) -> None:
    """Append a completed epoch to the telemetry.

    Raises:
        StorageError: It cannot be written; the previous lines are unharmed.
    """
    line = json.dumps({**epoch, "at": time.time()}, allow_nan=False)
    files.append_line(folder / LINES, line.encode())


def write_progress(folder: Path, progress: dict[str, Any]) -> None:
    """Replace the previous progress.

    Raises:
        StorageError: It cannot be written; the previous progress is unharmed.
    """
    text = json.dumps({**progress, "at": time.time()})
    files.replace(folder / PROGRESS, text.encode(), durable=False)


def read_progress(folder: Path) -> dict[str, Any]:
    """Read the last progress; empty if it is missing or unreadable."""
    try:
        progress = json.loads((folder / PROGRESS).read_bytes())
        return {key: int(progress[key]) for key in ("epoch", "attempt")}
    except (OSError, ValueError, TypeError, KeyError):
        return {}
