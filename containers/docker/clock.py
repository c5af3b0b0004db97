"""Time as a run on real machines tells it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since a run began."""

    def now(self) -> float:
        """The time."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class WallClock:
    """The machine's time since a moment; steps of the system's clock do not move it.

    Args:
        began: The moment, in seconds since the epoch.
    """

    def __init__(self, began: float) -> None:
        self._offset = time.time() - began - time.monotonic()

    def now(self) -> float:
        """See `Clock.now`."""
        return time.monotonic() + self._offset

    def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        time.sleep(max(seconds, 0.0))
