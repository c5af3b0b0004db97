"""The forecasts of a service's active jobs: made once a round, kept in a file, read by everybody.

To simulate the queue takes longer than anybody waits for an answer. While a service runs, a process
of its own (`flows.api.forecaster`) forecasts the newest round, and answers have the latest
forecasts with their age. While none runs, the first to ask makes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from flows.scheduler.process import FOLDER
from predictor.rows import from_json, to_json
from tasks.rollouts import ExpectedTimes, Predicted, find_runnable_jobs, forecast_times
from tasks.round import Round
from tasks.run import Run
from warehouse.store.durable import write_text, writing

FILE = Path(FOLDER) / "forecasts.json"
"""File of a warehouse with the latest forecasts of its service."""


@dataclass(frozen=True, slots=True)
class RoundForecasts:
    """The forecasts of a round.

    Attributes:
        run: The service's run.
        digest: Hash of the round's record.
        clock_seconds: Start of the round on the run's clock.
        times: What is expected of the jobs that can run, by job id.
    """

    run: str
    digest: str
    clock_seconds: float
    times: Mapping[int, ExpectedTimes]

    def are_of(self, digest: str) -> bool:
        """Return whether these are the forecasts of the round whose record has a hash."""
        return self.digest == digest

    def in_round(self, this: Round, round_seconds: float) -> dict[int, ExpectedTimes]:
        """Return what is expected of the jobs that can run in a later round, by job id.

        Jobs of its plan start in it, and others at least half a round later, as in forecasts of
        that round. No job ends before it starts.
        """
        clock, active = this.observation.clock_seconds, find_runnable_jobs(this)
        now, soonest = _at(clock), _at(clock + 0.5 * round_seconds)
        found = {}
        for job_id, times in self.times.items():
            if job_id in active:
                runs = job_id in this.plan.placement
                start = now if runs else _not_before(soonest, times.start)
                found[job_id] = replace(times, start=start, finish=_not_before(start, times.finish))
        return found


def _at(clock: float) -> Predicted:
    return Predicted(clock, clock, clock)


def _not_before(first: Predicted, then: Predicted) -> Predicted:
    return Predicted(
        max(first.median, then.median), max(first.low, then.low), max(first.high, then.high)
    )


def make_round_forecasts(run: Run, this: Round, digest: str) -> RoundForecasts:
    """Forecast all active jobs of a solved round, given the hash of its record."""
    times = forecast_times(run, this, {*this.active})
    return RoundForecasts(run.name, digest, this.observation.clock_seconds, times)


class ForecastFile:
    """The latest forecasts of a warehouse's service, on disk."""

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse
        self._known: tuple[tuple[int, int], RoundForecasts] | None = None

    def read(self, run: str) -> RoundForecasts | None:
        """Return the forecasts of a run; None if there are none, or if the file is damaged.

        Several threads may read at once.
        """
        path, known = self._warehouse / FILE, self._known
        try:
            stat = path.stat()
            version = stat.st_ino, stat.st_mtime_ns
            if known is None or version != known[0]:
                known = version, from_json(RoundForecasts, path.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            known = None
        self._known = known
        return known[1] if known and known[1].run == run else None

    def write(self, forecasts: RoundForecasts) -> None:
        """Replace the forecasts.

        Raises:
            WarehouseError: The warehouse cannot be written.
        """
        with writing(self._warehouse):
            write_text(self._warehouse / FILE, to_json(forecasts))
