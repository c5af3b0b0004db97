"""What is learned from a job once it has finished."""

import math
from bisect import bisect_right
from itertools import accumulate

import numpy as np

from predictor.belief import Belief
from predictor.history import KEPT, History, course
from predictor.job import JobProgress, Mode, Regime
from predictor.posterior import PRIOR, WAYS, is_settled, sequences, standing
from predictor.throughput import Throughput, epoch_seconds

POINTS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
"""Shares of a job's epochs at which its forecasts are judged."""

HELD = 0.8
"""Share of the truths that an interval is to hold."""

EXACT = 1e-9
"""Relative rounding error of a sum over epochs."""


def learned(history: History, belief: Belief, throughput: Throughput, seed: int) -> History:
    """The history with one more finished job.

    The job's posterior, once it has finished, says which ways to make candidates foretold
    it. How far from the median, in probability, its run time left lay at each of `POINTS`
    is kept for later intervals (distributional conformal prediction: Chernozhukov,
    Wüthrich and Zhu, PNAS 2021).

    Args:
        history: What was known when it finished.
        belief: All that was observed of it.
        throughput: How fast jobs train.
        seed: Of the draws from the prior.
    """
    spec, mode = belief.spec, belief.spec.mode
    courses = (*history.courses.get(mode, ()), course(belief, throughput))[-KEPT:]
    foretold, scores = dict(history.foretold), dict(history.scores)
    looks = [until(belief, int(point * spec.epochs)) for point in POINTS]
    standings = [standing(look, throughput, history) for look in (*looks, belief)]
    if not is_settled(standings[0], throughput):
        told = sequences(standings, throughput, history, seed)
        ways = np.bincount(WAYS, told.weights[-1], len(PRIOR))
        foretold[mode] = tuple((ways + foretold.get(mode, 0.0)).tolist())
        for point, look in enumerate(looks):
            left = seconds_left(belief, int(look.epochs_done), throughput)
            candidates, weights = told.seconds[point], told.weights[point]
            if is_settled(standings[point], throughput) or np.ptp(candidates[weights > 0.0]) == 0.0:
                continue
            below = float(weights[candidates < left * (1.0 - EXACT)].sum())
            up_to = float(weights[candidates <= left * (1.0 + EXACT)].sum())
            key, score = (mode, point), max(below - 0.5, 0.5 - up_to, 0.0)
            scores[key] = (*scores.get(key, ()), score)[-KEPT:]
    return History({**history.courses, mode: courses}, foretold, scores)


def until(belief: Belief, epochs: int) -> Belief:
    """What was believed of a job when it had completed its first epochs.

    Args:
        belief: All that was observed of it.
        epochs: How many, fewer than it has.
    """
    observed: list[Regime] = []
    left = epochs
    for regime in belief.observed:
        batch_size, held = regime.batch_size, int(regime.epochs)
        if left < held:
            break
        observed.append(regime)
        left -= held
    if left:
        observed.append(Regime(batch_size, left))
    spec = belief.spec
    return Belief(
        spec, tuple(observed), JobProgress(spec.job_id, epochs, 0.0, batch_size, 0.0, 0.0, 0)
    )


def seconds_left(belief: Belief, epochs: int, throughput: Throughput) -> float:
    """Profiled run time of a finished job after its first epochs.

    Args:
        belief: All that was observed of it.
        epochs: How many.
        throughput: How fast jobs train.
    """
    ends = accumulate(int(regime.epochs) for regime in belief.observed)
    return sum(
        [
            min(int(regime.epochs), max(end - epochs, 0))
            * epoch_seconds(throughput, belief.spec, regime.batch_size)
            for regime, end in zip(belief.observed, ends, strict=True)
        ]
    )


def point_of(share: float) -> int:
    """The last of `POINTS` that a job has come to.

    Args:
        share: Of its epochs, done.
    """
    return bisect_right(POINTS, share) - 1


def reaches(history: History, mode: Mode) -> tuple[float, ...]:
    """How far intervals reach from the median at each of `POINTS`, in probability.

    The conformal quantile of the scores: with n of them, the ⌈0.8 (n + 1)⌉-th smallest;
    0.4, as if the posterior were right, while there are too few to have one.
    """
    if mode not in history.reaches:
        history.reaches[mode] = tuple(
            _conformal(history.scores.get((mode, point), ())) for point in range(len(POINTS))
        )
    return history.reaches[mode]


def _conformal(scores: tuple[float, ...]) -> float:
    rank = math.ceil(HELD * (len(scores) + 1))
    return sorted(scores)[rank - 1] if rank <= len(scores) else HELD / 2
