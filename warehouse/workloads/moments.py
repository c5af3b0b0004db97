"""Times and durations as logs write them, in seconds."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from itertools import product
from zoneinfo import ZoneInfo

from predictor.errors import InputError

UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
"""Units of numeric times, in seconds."""

SLACK_SECONDS = 60.0
"""Most by which a run time and the time from start to end differ of a job that ran once. A change
of the clocks is half an hour or more. An engineering bound."""

LATEST = 2**53
"""Latest time in seconds: floats represent all integers up to it."""

MISSING = frozenset(
    ("", "none", "null", "nan", "nat", "na", "n/a", "unknown", "none assigned", "invalid", "-")
)
"""Words for a missing value, in lower case. `sacct` writes Unknown for what has not happened yet,
and None for what never will."""

LONGEST_MISSING = max(map(len, MISSING))

_CLOCK = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Moments:
    """How the times of a log are read: the zone of those without one."""

    zone: tzinfo = UTC

    @classmethod
    def of(cls, zone: str) -> "Moments":
        """Return the reader of times of a zone, by its name in the IANA database; empty for UTC.

        Raises:
            InputError: There is no such zone.
        """
        try:
            return cls(ZoneInfo(zone)) if zone else cls()
        except (OSError, ValueError, LookupError):
            remedy = "give one like Europe/Berlin or UTC"
            raise InputError("zone", f"{zone!r} is not a time zone", remedy) from None

    def parse(self, text: str, unit: float = 1.0) -> "float | datetime":
        """Parse a number of units, or an ISO date and time.

        Returns:
            Seconds; or the date and time, without a zone, if the text has none.

        Raises:
            ValueError: The text is neither.
        """
        try:
            seconds = float(text) * unit
        except ValueError:
            moment = datetime.fromisoformat(text)
            return moment if moment.tzinfo is None else moment.timestamp()
        if "_" in text or not 0 <= seconds <= LATEST:
            raise ValueError(text)
        return seconds

    def place(
        self, moments: "list[float | datetime | None]", run_seconds: float | None
    ) -> list[float | None]:
        """Return times that a job passes in this order, in seconds since 1970.

        A local hour that a change of the clocks repeats is ambiguous. Of the readings in which the
        times ascend, the first wins in which the last two, a start and an end, are `run_seconds`
        apart; or else the first.
        """
        readings = [self._readings(moment) for moment in moments]
        first = [options[0] for options in readings]
        if all(len(options) == 1 for options in readings):
            return first
        ascending = [
            [*chosen]
            for chosen in product(*readings)
            if _ascends(seconds for seconds in chosen if seconds is not None)
        ]
        if run_seconds is not None:
            for chosen in ascending:
                start, end = chosen[-2:]
                if start is None or end is None or abs(end - start - run_seconds) < SLACK_SECONDS:
                    return chosen
        return next(iter(ascending), first)

    def _readings(self, moment: "float | datetime | None") -> list[float | None]:
        if not isinstance(moment, datetime):
            return [moment]
        early = moment.replace(tzinfo=self.zone).timestamp()
        if self.zone is UTC:
            return [early]
        late = moment.replace(tzinfo=self.zone, fold=1).timestamp()
        return [early, late] if late > early else [early]


def clean(text: str) -> str:
    """Return a field without surrounding spaces; empty if it says that its value is missing."""
    text = text.strip()
    return "" if len(text) <= LONGEST_MISSING and text.lower() in MISSING else text


def parse_clock(text: str) -> float:
    """Parse a duration in Slurm's notation, `[DAYS-]HOURS:MINUTES:SECONDS`, or plain seconds.

    Raises:
        ValueError: The text is neither.
    """
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        return float(text)
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return days * 86_400 + hours * 3_600 + minutes * 60 + seconds


def _ascends(seconds: Iterable[float]) -> bool:
    last = float("-inf")
    for moment in seconds:
        if moment < last:
            return False
        last = moment
    return True
