"""Intervals of residual run times, calibrated by the errors of earlier forecasts.

Conformalised quantile regression (Romano, Patterson and Candès, NeurIPS 2019) corrects the
posterior's quantiles. When a job finishes, each of its forecasts gets a *conformity score*:
how far the truth lay beyond the posterior's quantile, in units of the forecast's spread.
Quantiles of the scores move the ends of later intervals. Intervals thereby cover what the
posterior ignores: round boundaries, speeds off the profile, late changes.

Timed jobs are calibrated, with the scores of similar jobs, only if their paces predict them; all
others have conformal intervals already (`predictor.durations`).
"""

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from predictor.belief import Belief
from predictor.durations import has_enough_steps, list_cohorts
from predictor.forecast import HELD, RunTime
from predictor.job import JobSpec, Mode
from predictor.speed_noise import STEADY, SpeedNoise

TENTHS = 10
"""Each forecast is scored once per tenth of a job's epochs. A convention."""

UNCALIBRATED = 1.0
"""Correction, in units, while there are too few scores: a convention that makes the first intervals
a little wide. If speeds vary, the posterior's spread is subtracted; timed jobs get none."""

LEAST_SHARE, LEAST_SECONDS = 0.01, 1.0
"""Share of the residual run time, and seconds, that are added to the spread. They are the unit of
scores if the posterior has no spread. A convention: scores are relative to it."""

LEAST_WIDTH = 1e-6
"""Least half-width, in units, so that no interval is a point. A convention."""

BEYOND = 1.2816
"""Standard deviations from the mean of a normal distribution to the ends of its 80 % interval."""

KEPT = 512
"""Latest scores kept per group. An engineering bound on memory; no sweep is recorded."""

KEPT_TIMED = 128
"""Latest scores kept per group of timed jobs, which has many groups. An engineering bound on
memory; no sweep is recorded."""

KEPT_GROUPS = 1024
"""Latest groups kept of a tenant's timed jobs, as users keep inventing names. An engineering bound
on memory."""

Score = tuple[bool, float]
"""Whether the truth lay below the point forecast, and how far beyond the posterior's quantile on
that side, in units of the forecast; negative inside."""

Kind = tuple[str, ...]
"""Jobs that are scored together: those of an adaptation mode, similar timed jobs, or all adaptive
jobs."""

Group = tuple[Kind, bool, int | None]
"""Kind, whether the posterior has a spread, and the tenth of the epochs; None for all tenths."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A forecast that is scored when its job finishes.

    Attributes:
        tenth: Tenth of the job's epochs in which it was made.
        run_seconds: Run time of the job when it was made, on its reference allocation.
        noise: Half-width of the 80 % interval of the mean time per step in the rest of the job,
            relative to that mean.
    """

    kinds: tuple[Kind, ...]
    tenth: int
    run_seconds: float
    time: RunTime
    noise: float = 0.0

    @classmethod
    def of(cls, belief: Belief, time: RunTime, noise: SpeedNoise = STEADY) -> "Scored":
        """Return the forecast of a job with what scoring needs."""
        spec = belief.spec
        settled = time.low == time.high
        spread = 0.0 if spec.timed else noise.spread(belief, time.remaining, settled=settled)
        run_seconds = belief.reference_seconds
        return cls(kinds(spec), tenth_of(belief), run_seconds, time, BEYOND * spread)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups in which the forecast is scored, the narrowest first."""
        spread, kinds = self.time.high > self.time.low, self.kinds
        return (*[(kind, spread, self.tenth) for kind in kinds], (kinds[-1], spread, None))

    @property
    def calibrating(self) -> tuple[Group, ...]:
        """The groups whose scores calibrate the forecast.

        If speeds vary, the group over all tenths is left out: a slow job is slow in each tenth.
        """
        return self.groups[:-1] if self.noise else self.groups

    @property
    def unit(self) -> float:
        """Unit of the forecast's scores, in seconds."""
        spread = self.time.high - self.time.low
        return spread + max(self.noise, LEAST_SHARE) * self.time.remaining + LEAST_SECONDS

    @property
    def uncalibrated(self) -> float:
        """Correction of both ends while there are too few scores, in units.

        If speeds vary, the spread is subtracted: their variance is measured, not a convention.
        """
        if not self.noise:
            return UNCALIBRATED
        return UNCALIBRATED - (self.time.high - self.time.low) / self.unit

    def score(self, left: float) -> Score:
        """Return the conformity score, given the true residual run time in seconds."""
        time = self.time
        below = left < time.remaining
        return below, (time.low - left if below else left - time.high) / self.unit


@dataclass(frozen=True, slots=True)
class Scores:
    """The latest scores of a group.

    Attributes:
        latest: In the order in which they came.
        below: How far the truths lay below the posterior's quantile, ascending.
        above: How far they lay above it, ascending.
    """

    latest: tuple[Score, ...] = ()
    below: tuple[float, ...] = ()
    above: tuple[float, ...] = ()

    def __len__(self) -> int:
        """Return the number of scores."""
        return len(self.latest)

    def after(self, new: Sequence[Score], kept: int) -> "Scores":
        """Return the scores after further ones; only the latest `kept` are kept."""
        latest, sides = (*self.latest, *new), (list(self.above), list(self.below))
        for is_below, beyond in new:
            insort(sides[is_below], beyond)
        for is_below, beyond in latest[:-kept]:
            del sides[is_below][bisect_left(sides[is_below], beyond)]
        return Scores(latest[-kept:], tuple(sides[True]), tuple(sides[False]))


NO_SCORES = Scores()
"""A group without scores."""


@dataclass(frozen=True)
class Calibration:
    """Conformity scores of finished jobs by group, the latest `KEPT` or `KEPT_TIMED` of each."""

    scores: Mapping[Group, Scores] = field(default_factory=dict)

    def after(self, finished: Iterable[tuple[Sequence[Scored], float]]) -> "Calibration":
        """Return the calibration after further jobs finished, in this order.

        Each has its forecasts, and its total run time on its reference allocation in seconds.
        """
        scores = dict(self.scores)
        adaptive: dict[Group, list[Score]] = {}
        for forecasts, run_seconds in finished:
            tenant = _tenant(forecasts[-1].kinds[-1]) if forecasts else Kind()
            found: dict[Group, list[Score]] = {} if tenant else adaptive
            for made in forecasts:
                score = made.score(run_seconds - made.run_seconds)
                for group in made.groups:
                    found[group] = known = found.pop(group, [])  # the latest group is the last
                    known.append(score)
            if tenant:
                _add(scores, found, KEPT_TIMED)
                own = [group for group in scores if _tenant(group[0]) == tenant]
                for group in own[:-KEPT_GROUPS]:  # adaptive jobs have fewer groups than that
                    del scores[group]
        _add(scores, adaptive, KEPT)
        return Calibration(scores)

    def interval_of(
        self, belief: Belief, time: RunTime, noise: SpeedNoise = STEADY
    ) -> tuple[float, float]:
        """Return the interval of a job's residual run time, in seconds; see `interval`."""
        spec = belief.spec
        if noise.is_steady and not spec.timed:  # most jobs; in a third of the time
            group = spec.mode, time.high > time.low, tenth_of(belief)
            ends = self._steady_ends.get(group)
            if ends is None:
                ends = self._steady_ends[group] = self._find_ends(Scored.of(belief, time))
            unit = time.high - time.low + LEAST_SHARE * time.remaining + LEAST_SECONDS
            return _move_ends(time, unit, *ends)
        made = Scored.of(belief, time, noise)
        if not spec.timed:
            return self.interval(made, made.uncalibrated)
        if not is_scored(belief):
            return time.low, time.high
        limit = belief.spec.max_seconds - belief.run_seconds
        low, high = self.interval(made, 0.0)
        return low, min(high, max(limit, time.high))

    def interval(self, made: Scored, begin: float = UNCALIBRATED) -> tuple[float, float]:
        """Return the 80 % interval of a residual run time, in seconds.

        It contains the point forecast. It would have missed a fifth of the truths so far: half of
        them on either side, if both sides have enough. `begin` is the correction, in units, while
        there are too few scores.
        """
        return _move_ends(made.time, made.unit, *self._find_ends(made, begin))

    def _find_ends(self, made: Scored, begin: float = UNCALIBRATED) -> tuple[float, float]:
        """Return the corrections of both ends; see `interval`."""
        for group in made.calibrating:
            if found := self._correction(group):
                return found
        return begin, begin

    def _correction(self, group: Group) -> tuple[float, float] | None:
        """Return the corrections of both ends, in units; None with too few scores.

        Each end is at a rank of its scores, corrected for a finite sample. If a side has no more
        scores than it may miss, there is no such rank, and the point forecast is its end.
        """
        found = self._corrections.get(group, _UNKNOWN)
        if found is _UNKNOWN:
            scores = self.scores.get(group, NO_SCORES)
            below, above = scores.below, scores.above
            missed = _missed(len(scores), ends=2)
            if min(len(below), len(above)) <= max(missed, 0) // 2:
                missed = _missed(len(scores), ends=1)
            under = min(max(missed // 2, missed - len(above)), len(below))
            found = self._corrections[group] = (
                None
                if missed < 0
                else ((-math.inf, *below)[-1 - under], (-math.inf, *above)[under - missed - 1])
            )
        return found

    @cached_property
    def _steady_ends(self) -> dict[tuple[Mode, bool, int], tuple[float, float]]:
        """Corrections of both ends if speeds do not vary, by mode, spread and tenth."""
        return {}

    @cached_property
    def _corrections(self) -> dict[Group, tuple[float, float] | None]:
        return {}


def _move_ends(time: RunTime, unit: float, below: float, above: float) -> tuple[float, float]:
    """Return the interval of a run time after corrections of its ends, in units."""
    least = LEAST_WIDTH * unit
    low = min(time.low - below * unit, time.remaining - least)
    return max(low, 0.0), max(time.high + above * unit, time.remaining + least)


def _add(scores: dict[Group, Scores], found: Mapping[Group, Sequence[Score]], kept: int) -> None:
    """Add scores by group; the groups become the latest ones."""
    for group, new in found.items():
        scores[group] = scores.pop(group, NO_SCORES).after(new, kept)


_UNKNOWN = math.nan, math.nan
"""In place of a correction that was not computed yet."""


def _missed(scores: int, *, ends: int) -> int:
    """Return the number of scores that may lie beyond an interval; negative with too few scores.

    `ends` is the number of the interval's ends that are at a rank of the scores.
    """
    return scores - math.ceil(HELD * (scores + ends))


def kinds(spec: JobSpec) -> tuple[Kind, ...]:
    """Return the kinds of a job, the narrowest first."""
    return list_cohorts(spec) if spec.timed else ((spec.mode.value,), ())


def _tenant(kind: Kind) -> Kind:
    """Return the tenant of a kind of timed jobs; empty for kinds of adaptive jobs."""
    return kind[1:2]


def is_scored(belief: Belief) -> bool:
    """Return whether forecasts of a job are scored; of timed jobs only those from paces."""
    return not belief.spec.timed or has_enough_steps(belief)


def tenth_of(belief: Belief) -> int:
    """Return the tenth of its epochs that a job is in, from 0."""
    return min(int(belief.share_done * TENTHS), TENTHS - 1)
