"""A driver of rounds for services: rounds go on while Prefect's server does not answer."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from time import monotonic

from flows.prefect_server.own_server import send_pending
from flows.prefect_server.prefect_driver import (
    PrefectDriver,
    embedded_prefect,
    open_prefect_driver,
)
from flows.prefect_server.round_deployment import RoundRequest
from predictor.errors import first_line
from tasks.round import RecordedRound, run_round
from tasks.run import Run

SHARE, LEAST_SECONDS = 1 / 8, 5.0
"""Timeout of a request to Prefect's server, as a share of a round's wall time, and its minimum. A
request is sent twice, and at most two are waited for before a round runs without Prefect: half a
round, in which the containers train anyway. Engineering choices."""

FIRST_PAUSE, LAST_PAUSE = 10.0, 300.0
"""Seconds until the server is tried again: doubled after each failure in a row. Engineering
choices."""

END_SECONDS = 10.0
"""Timeout for sending pending events when the service stops. An engineering bound."""


class FallbackDriver:
    """Runs rounds as flow runs while Prefect's server answers, and plainly while it does not.

    Rounds take `seconds` of wall time. `report` is called with the state of the server, once per
    change.
    """

    def __init__(self, seconds: float, report: Callable[[str], None]) -> None:
        self._seconds, self._report = seconds, report
        self._driver: PrefectDriver | None = None
        self._opened = ExitStack()
        self._away_since: datetime | None = None
        self._missed, self._pause, self._again_at = 0, FIRST_PAUSE, 0.0

    def __call__(self, run: Run) -> RecordedRound:
        """Run the next round.

        Raises:
            Exception: The round failed; a failure of Prefect is reported only.
        """
        driver = self._driver or self._open()
        if driver is None:
            self._missed += 1
            return run_round(run)
        outcome, failure = driver.attempt(run)
        if failure:
            self._leave(failure)
        elif self._away_since:
            self._report(f"answers again; {self._missed} rounds ran without it")
            self._away_since, self._missed, self._pause = None, 0, FIRST_PAUSE
        if failure and not (outcome.running() or outcome.done()):
            self._missed += 1
            return run_round(run)
        return outcome.result()

    def read_request(self) -> RoundRequest | None:
        """Return what users ask of the rounds; None while the server does not answer."""
        driver = self._driver or self._open()
        if driver is None or driver.deployment is None:
            return None
        try:
            return driver.deployment.read_request()
        except Exception as error:
            self._leave(error)
            return None

    def _open(self) -> PrefectDriver | None:
        """Return a new driver; None if the server does not answer, or is not to be tried yet."""
        if monotonic() < self._again_at:
            return None
        try:
            self._driver = self._opened.enter_context(open_prefect_driver(self._seconds))
        except Exception as error:
            self._leave(error)
        return self._driver

    def _leave(self, error: BaseException) -> None:
        if self._driver:
            self._driver.abandon()
            self._driver = None
        with suppress(Exception):
            self._opened.close()
        self._again_at = monotonic() + self._pause
        self._pause = min(2.0 * self._pause, LAST_PAUSE)
        if not self._away_since:
            self._away_since = datetime.now(UTC)
            since = self._away_since.isoformat(timespec="seconds")
            reason = first_line(error)
            self._report(f"has not answered since {since} ({reason}); rounds run without it")

    def close(self) -> None:
        """Send what is pending, while the server answers."""
        self._opened.close()
        send_pending(END_SECONDS)


@contextmanager
def open_fallback_driver(seconds: float, report: Callable[[str], None]) -> Iterator[FallbackDriver]:
    """Open the driver of rounds that take `seconds` of wall time; see `FallbackDriver`."""
    with embedded_prefect(max(SHARE * seconds, LEAST_SECONDS), retries=1), ExitStack() as opened:
        driver = FallbackDriver(seconds, report)
        opened.callback(driver.close)
        yield driver
