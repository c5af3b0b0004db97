"""Intervals of residual run times, calibrated by what earlier forecasts missed.

The posterior's quantiles are corrected by conformalised quantile regression (Romano, Patterson
and Candès, NeurIPS 2019). When a job finishes, each of its forecasts has a *conformity score*:
how far the truth lay beyond the posterior's quantile, in units of the forecast's spread.
Quantiles of the scores move the ends of later intervals, which so are about what is measured:
round boundaries, speeds off the profile, changes that come late.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from predictor.belief import Belief
from predictor.forecast import HELD, RunTime
from predictor.job import Mode

TENTHS = 10
"""Forecasts are scored once in each tenth of a job's epochs."""

UNCALIBRATED = 1.0
"""Correction without enough scores, in spreads. A convention: intervals begin a little wide."""

LEAST_SHARE, LEAST_SECONDS = 0.01, 1.0
"""Added to the spread, as a share of the residual run time and in seconds: the unit of the scores
of forecasts that the posterior is sure of. A convention: scores are relative to it."""

LEAST_WIDTH = 1e-6
"""Least half-width, in units, so that no interval is a point. A convention."""

KEPT = 512
"""Latest scores kept in a group. An engineering bound on memory; no sweep is recorded."""

Score = tuple[bool, float]
"""Whether the truth lay below the point forecast, and how far beyond the posterior's quantile on
that side, in units of the forecast; negative inside."""

Group = tuple[Mode | None, bool, int | None]
"""Mode, whether the posterior has a spread, and tenth of the epochs; None for all."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A forecast whose truth is awaited.

    Attributes:
        mode: Adaptation mode of the job.
        tenth: Tenth of its epochs in which it was made.
        run_seconds: Run time of the job by then, on its reference allocation.
        time: The residual run time as forecast, with the posterior's quantiles.
    """

    mode: Mode
    tenth: int
    run_seconds: float
    time: RunTime

    @classmethod
    def of(cls, belief: Belief, time: RunTime) -> "Scored":
        """The forecast of a job.

        Args:
            belief: What was believed of the job.
            time: The forecast.
        """
        return cls(belief.spec.mode, tenth_of(belief), belief.reference_seconds, time)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Groups that it is scored in, the narrowest first."""
        spread = self.time.high > self.time.low
        return (self.mode, spread, self.tenth), (None, spread, self.tenth), (None, spread, None)

    @property
    def unit(self) -> float:
        """Unit of its scores, in seconds."""
        spread = self.time.high - self.time.low
        return spread + LEAST_SHARE * self.time.remaining + LEAST_SECONDS

    def score(self, left: float) -> Score:
        """Conformity score: whether the truth lay below the point forecast, and how far outside.

        Args:
            left: True residual run time, in seconds.
        """
        time = self.time
        below = left < time.remaining
        return below, (time.low - left if below else left - time.high) / self.unit


@dataclass(frozen=True)
class Calibration:
    """Conformity scores of finished jobs.

    Attributes:
        scores: By group, the latest `KEPT`.
    """

    scores: Mapping[Group, tuple[Score, ...]] = field(default_factory=dict)

    def after(self, forecasts: Iterable[Scored], run_seconds: float) -> "Calibration":
        """The calibration with the forecasts of another finished job.

        Args:
            forecasts: Forecasts that were made of it.
            run_seconds: Its whole run time, on its reference allocation.
        """
        scores = dict(self.scores)
        for made in forecasts:
            found = made.score(run_seconds - made.run_seconds)
            for group in made.groups:
                scores[group] = (*scores.get(group, ()), found)[-KEPT:]
        return Calibration(scores)

    def interval_of(self, belief: Belief, time: RunTime) -> tuple[float, float]:
        """The interval of a job's residual run time, in seconds: see `interval`.

        That of a timed job is left as it is: `predictor.durations` has conformal ones.

        Args:
            belief: What is believed of the job.
            time: The forecast.
        """
        return (
            (time.low, time.high) if belief.spec.timed else self.interval(Scored.of(belief, time))
        )

    def interval(self, made: Scored) -> tuple[float, float]:
        """The interval of 80 % nominal coverage of a residual run time, in seconds.

        It holds the point forecast, and would have missed a fifth of the truths so far: as many
        on either side, where as many lay there.

        Args:
            made: The forecast.
        """
        below, above = next(
            filter(None, map(self._correction, made.groups)), (UNCALIBRATED, UNCALIBRATED)
        )
        time, least = made.time, LEAST_WIDTH * made.unit
        low = min(time.low - below * made.unit, time.remaining - least)
        return max(low, 0.0), max(time.high + above * made.unit, time.remaining + least)

    def _correction(self, group: Group) -> tuple[float, float] | None:
        """Corrections of both ends, in units; None with too few scores."""
        if group not in self._corrections:
            scores = self.scores.get(group, ())
            # Each tail has its own correction for a finite sample.
            missed = len(scores) - math.ceil(HELD * (len(scores) + 2))
            below = sorted((beyond for is_below, beyond in scores if is_below), reverse=True)
            above = sorted((beyond for is_below, beyond in scores if not is_below), reverse=True)
            under = min(max(missed // 2, missed - len(above)), len(below))
            self._corrections[group] = (
                None
                if missed < 0
                else ((*below, -math.inf)[under], (*above, -math.inf)[missed - under])
            )
        return self._corrections[group]

    @cached_property
    def _corrections(self) -> dict[Group, tuple[float, float] | None]:
        return {}


def tenth_of(belief: Belief) -> int:
    """The tenth of its epochs that a job is in, from 0."""
    return min(int(belief.share_done * TENTHS), TENTHS - 1)
