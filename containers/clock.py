"""The clock of runs in real time."""

import time
from collections.abc import Callable

LATE_SECONDS = 1.0
"""Delay of a round beyond which the clock is set back. An engineering choice."""

LATE_SHARE = 0.1
"""Delay, as a share of a round, above which the next round counts as late. A convention."""


class RunClock:
    """Seconds since a run began, unaffected by steps of the system clock.

    It is `speed` times as fast as the monotonic clock `now`. `on_late` is called when `reach` finds
    that a round begins late.
    """

    def __init__(
        self,
        clock_seconds: float = 0.0,
        speed: float = 1.0,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        on_late: Callable[[], None] = lambda: None,
    ) -> None:
        self.speed = speed
        self._now, self._sleep, self._on_late = now, sleep, on_late
        self._clock, self._at = clock_seconds, now()

    def now(self) -> float:
        """Return the run's clock."""
        return self._clock + (self._now() - self._at) * self.speed

    def wait_for(self, clock_seconds: float) -> None:
        """Wait until the run's clock reaches a time."""
        while (left := (clock_seconds - self.now()) / self.speed) > 0.0:
            self._sleep(left)

    def reach(self, clock_seconds: float, round_seconds: float) -> None:
        """Wait until a time; if it is long past, set the clock back so that no round is skipped."""
        if self.now() - clock_seconds > LATE_SHARE * round_seconds:
            self._on_late()
        self.wait_for(clock_seconds)
        if (self.now() - clock_seconds) / self.speed > LATE_SECONDS:
            self._clock, self._at = clock_seconds, self._now()
