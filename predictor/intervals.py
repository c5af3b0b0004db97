"""Intervals of residual run times, calibrated by what earlier forecasts missed.

The posterior's quantiles are corrected by conformalised quantile regression (Romano, Patterson
and Candès, NeurIPS 2019). When a job finishes, each of its forecasts has a *conformity score*:
how far the truth lay beyond the posterior's quantile, in units of the forecast's spread.
Quantiles of the scores move the ends of later intervals, which so cover what the posterior leaves
out: round boundaries, speeds off the profile, changes that come late.

Of timed jobs only those forecast by their paces are calibrated, with the scores of jobs alike: all
others have conformal intervals (`predictor.durations`).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from predictor.belief import Belief
from predictor.durations import has_enough_steps, list_cohorts
from predictor.forecast import HELD, RunTime
from predictor.job import JobSpec
from predictor.speed_noise import STEADY, SpeedNoise

TENTHS = 10
"""Forecasts are scored once in each tenth of a job's epochs. A convention."""

UNCALIBRATED = 1.0
"""Correction without enough scores, in units: a convention, so that intervals begin a little wide.
Where speeds vary, the posterior's spread is subtracted; timed jobs have none."""

LEAST_SHARE, LEAST_SECONDS = 0.01, 1.0
"""Added to the spread, as a share of the residual run time and in seconds: the unit of the scores
of forecasts that the posterior is sure of. A convention: scores are relative to it."""

LEAST_WIDTH = 1e-6
"""Least half-width, in units, so that no interval is a point. A convention."""

BEYOND = 1.2816
"""Standard deviations from the mean to either end of the interval that holds 80 % of a normal
distribution."""

KEPT = 512
"""Latest scores kept in a group. An engineering bound on memory; no sweep is recorded."""

KEPT_TIMED = 128
"""The same in a group of timed jobs, of which there are many. An engineering bound on memory; no
sweep is recorded."""

KEPT_GROUPS = 1024
"""Latest groups kept of a tenant's timed jobs, as users make ever new names. An engineering bound
on memory."""

Score = tuple[bool, float]
"""Whether the truth lay below the point forecast, and how far beyond the posterior's quantile on
that side, in units of the forecast; negative inside."""

Kind = tuple[str, ...]
"""Jobs that are scored together: those of a mode, timed ones alike, or all others."""

Group = tuple[Kind, bool, int | None]
"""Kind, whether the posterior has a spread, and tenth of the epochs; None for all."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A forecast whose truth is awaited.

    Attributes:
        kinds: The kinds of the job, the narrowest first.
        tenth: Tenth of its epochs in which it was made.
        run_seconds: Run time of the job by then, on its reference allocation.
        time: The residual run time as forecast, with the posterior's quantiles.
        noise: Half-width of the interval of 80 % nominal coverage of the job's mean time per
            step in what is left of it, as a share of that.
    """

    kinds: tuple[Kind, ...]
    tenth: int
    run_seconds: float
    time: RunTime
    noise: float = 0.0

    @classmethod
    def of(cls, belief: Belief, time: RunTime, noise: SpeedNoise = STEADY) -> "Scored":
        """The forecast of a job.

        Args:
            belief: What was believed of the job.
            time: The forecast.
            noise: Variability of speeds.
        """
        spec = belief.spec
        settled = time.low == time.high
        spread = 0.0 if spec.timed else noise.spread(belief, time.remaining, settled=settled)
        run_seconds = belief.reference_seconds
        return cls(kinds(spec), tenth_of(belief), run_seconds, time, BEYOND * spread)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups in which it is scored, the narrowest first."""
        spread = self.time.high > self.time.low
        return *((kind, spread, self.tenth) for kind in self.kinds), (self.kinds[-1], spread, None)

    @property
    def calibrating(self) -> tuple[Group, ...]:
        """The groups whose scores calibrate it.

        Where speeds vary, the group over all tenths is left out: a slow job is slow in each tenth.
        """
        return self.groups[:-1] if self.noise else self.groups

    @property
    def unit(self) -> float:
        """Unit of its scores, in seconds."""
        spread = self.time.high - self.time.low
        return spread + max(self.noise, LEAST_SHARE) * self.time.remaining + LEAST_SECONDS

    @property
    def uncalibrated(self) -> float:
        """Correction of both ends without enough scores, in units.

        Where speeds vary, the spread is left out: their variance is measured, not a convention.
        """
        spread = self.time.high - self.time.low if self.noise else 0.0
        return UNCALIBRATED - spread / self.unit

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
        scores: By group, the latest `KEPT`, or `KEPT_TIMED`.
    """

    scores: Mapping[Group, tuple[Score, ...]] = field(default_factory=dict)

    def after(self, forecasts: Iterable[Scored], run_seconds: float) -> "Calibration":
        """The calibration with the forecasts of another finished job.

        Args:
            forecasts: Forecasts that were made of it.
            run_seconds: Its whole run time, on its reference allocation.
        """
        scores, tenant = dict(self.scores), Kind()
        for made in forecasts:
            found, tenant = made.score(run_seconds - made.run_seconds), _tenant(made.kinds[-1])
            kept = KEPT_TIMED if tenant else KEPT
            for group in made.groups:
                scores[group] = (*scores.pop(group, ()), found)[-kept:]
        own = [group for group in scores if _tenant(group[0]) == tenant]
        for group in own[:-KEPT_GROUPS]:  # of other jobs there are fewer
            del scores[group]
        return Calibration(scores)

    def interval_of(
        self, belief: Belief, time: RunTime, noise: SpeedNoise = STEADY
    ) -> tuple[float, float]:
        """The interval of a job's residual run time, in seconds: see `interval`.

        Args:
            belief: What is believed of the job.
            time: The forecast.
            noise: Variability of speeds.
        """
        made = Scored.of(belief, time, noise)
        limit = belief.spec.max_seconds - belief.run_seconds
        if not belief.spec.timed:
            return self.interval(made, made.uncalibrated)
        if not is_scored(belief):
            return time.low, time.high
        low, high = self.interval(made, 0.0)
        return low, min(high, max(limit, time.high))

    def interval(self, made: Scored, begin: float = UNCALIBRATED) -> tuple[float, float]:
        """The interval of 80 % nominal coverage of a residual run time, in seconds.

        It holds the point forecast, and would have missed a fifth of the truths so far: half of
        them on either side, as far as there are as many.

        Args:
            made: The forecast.
            begin: Correction without enough scores, in units.
        """
        below, above = next(filter(None, map(self._correction, made.calibrating)), (begin, begin))
        time, least = made.time, LEAST_WIDTH * made.unit
        low = min(time.low - below * made.unit, time.remaining - least)
        return max(low, 0.0), max(time.high + above * made.unit, time.remaining + least)

    def _correction(self, group: Group) -> tuple[float, float] | None:
        """Corrections of both ends, in units; None with too few scores.

        Each end is at a rank of its scores, which is corrected for a finite sample. A side with no
        more scores than it may miss has no such rank: its end is the point forecast.
        """
        if group not in self._corrections:
            scores = self.scores.get(group, ())
            below = sorted((beyond for is_below, beyond in scores if is_below), reverse=True)
            above = sorted((beyond for is_below, beyond in scores if not is_below), reverse=True)
            missed = _missed(len(scores), ends=2)
            if min(len(below), len(above)) <= max(missed, 0) // 2:
                missed = _missed(len(scores), ends=1)
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


def _missed(scores: int, *, ends: int) -> int:
    """Number of scores that may lie beyond an interval; negative with too few scores.

    Args:
        scores: Number of scores.
        ends: Ends of the interval at a rank of the scores.
    """
    return scores - math.ceil(HELD * (scores + ends))


def kinds(spec: JobSpec) -> tuple[Kind, ...]:
    """The kinds of a job, the narrowest first."""
    return list_cohorts(spec) if spec.timed else ((spec.mode.value,), ())


def _tenant(kind: Kind) -> Kind:
    """The tenant of timed jobs alike; nothing of other jobs, whose kinds are of all tenants."""
    return kind[1:2]


def is_scored(belief: Belief) -> bool:
    """Whether forecasts of a job are scored: of a timed job, only those made from its paces."""
    return not belief.spec.timed or has_enough_steps(belief)


def tenth_of(belief: Belief) -> int:
    """The tenth of its epochs that a job is in, from 0."""
    return min(int(belief.share_done * TENTHS), TENTHS - 1)
