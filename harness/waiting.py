"""Waiting for a condition, with timeouts that only a hang reaches."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")

HANG_SECONDS = 600.0
"""Timeout, far above any wait on a busy machine."""

POLL_SECONDS = 0.02


def wait_for(
    ask: Callable[[], Found],
    ready: Callable[[Found], bool] = bool,
    seconds: float = HANG_SECONDS,
    *,
    every: float = POLL_SECONDS,
) -> Found:
    """Ask until the answer is ready; returns it."""
    deadline = time.monotonic() + seconds
    while not ready(answer := ask()):
        assert time.monotonic() < deadline, answer
        time.sleep(every)
    return answer


def handles(process: int, number: int) -> bool:
    """Whether a process has a handler of its own for a signal."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False
