"""SIGTERM and SIGINT, as a request to stop after the current step."""

import signal
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """A request to stop."""

    def __init__(self) -> None:
        self.requested = False

    def listen(self) -> "Stop":
        """Handle the signals from now on."""
        for number in SIGNALS:
            signal.signal(number, self._take)
        return self

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
