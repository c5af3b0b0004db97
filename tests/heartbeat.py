"""Prints a line if tests, run by several workers, have printed nothing for a while."""

from threading import Event, Thread
from time import monotonic

import pytest

SAY_SECONDS = 5.0
"""Time after which a line comes. A choice of layout."""


class Heartbeat:
    """The plugin of the process that has the workers.

    Args:
        config: Whose reporter prints.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager
        self._began = self._said = monotonic()
        self._ended = 0
        self._over, self._thread = Event(), Thread(target=self._watch, daemon=True)

    def pytest_sessionstart(self) -> None:
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            self.tick(monotonic())

    def pytest_sessionfinish(self) -> None:
        self._over.set()
        self._thread.join()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._said = monotonic()
        self._ended += report.when == "teardown"

    def tick(self, now: float) -> None:
        """Say how far the tests are, if nothing was said for a while."""
        if now - self._said >= SAY_SECONDS:
            self._said = now
            reporter = self._plugins.get_plugin("terminalreporter")
            reporter.ensure_newline()
            reporter.write_line(f"{now - self._began:5.0f} s  {self._ended:,} tests ended")
