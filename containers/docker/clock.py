"""The wall clock of runs on real machines."""

import time
from typing import Protocol


class Clock(Protocol):
    """A clock that starts with the run."""

    def now(self) -> float:
        """Return the seconds since the run began."""
        ...

    def sleep(self, seconds: float) -> None:
        """Sleep for some seconds."""
        ...


class WallClock:
    """Monotonic time since the beginning of a run, unaffected by steps of the system clock.

    Args:
        began: Unix time of the run's beginning, in seconds.
    """

    def __init__(self, began: float) -> None:
        self._offset = time.time() - began - time.monotonic()

    def now(self) -> float:
        """See `Clock.now`."""
        return time.monotonic() + self._offset

    def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        time.sleep(max(seconds, 0.0))
