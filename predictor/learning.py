"""Updates of the history with a finished job: its course, counts and conformity scores."""

import math
from bisect import bisect_right
from itertools import accumulate

import numpy as np

from predictor.belief import Belief
from predictor.history import KEPT, History, course
from predictor.job import JobProgress, Mode, Regime
from predictor.posterior import COMPONENTS, PSEUDO_COUNTS, evidence, is_settled, sequences
from predictor.throughput import Throughput, epoch_seconds

POINTS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
"""Shares of a job's epochs at which its forecasts are scored, as in docs/predictor.md."""

HELD = 0.8
"""Nominal coverage of the forecast interval, a definition (docs/glossary.md)."""

EXACT = 1e-9
"""Relative tolerance for rounding in a sum over epochs."""


def learned(history: History, belief: Belief, throughput: Throughput, seed: int) -> History:
    """The history with another finished job.

    Adds the job's final posterior over mixture components to their counts, and the
    conformity score of its residual run time at each of `POINTS`: the distance from the
    median in probability (distributional conformal prediction: Chernozhukov, Wüthrich
    and Zhu, PNAS 2021).

    Args:
        history: The history before the job finished.
        belief: The job's observed trajectory.
        throughput: Throughput model.
        seed: Seed of the draws from the prior.
    """
    spec, mode = belief.spec, belief.spec.mode
    courses = (*history.courses.get(mode, ()), course(belief, throughput))[-KEPT:]
    counts, scores = dict(history.counts), dict(history.scores)
    prefixes = [until(belief, int(point * spec.epochs)) for point in POINTS]
    jobs = [evidence(prefix, throughput, history) for prefix in (*prefixes, belief)]
    if not is_settled(jobs[0], throughput):
        posterior = sequences(jobs, throughput, history, seed)
        components = np.bincount(COMPONENTS, posterior.weights[-1], len(PSEUDO_COUNTS))
        counts[mode] = tuple((components + counts.get(mode, 0.0)).tolist())
        for point, prefix in enumerate(prefixes):
            left = seconds_left(belief, int(prefix.epochs_done), throughput)
            candidates, weights = posterior.seconds[point], posterior.weights[point]
            if is_settled(jobs[point], throughput) or np.ptp(candidates[weights > 0.0]) == 0.0:
                continue
            below = float(weights[candidates < left * (1.0 - EXACT)].sum())
            up_to = float(weights[candidates <= left * (1.0 + EXACT)].sum())
            key, score = (mode, point), max(below - 0.5, 0.5 - up_to, 0.0)
            scores[key] = (*scores.get(key, ()), score)[-KEPT:]
    return History({**history.courses, mode: courses}, counts, scores)


def until(belief: Belief, epochs: int) -> Belief:
    """The belief about a job when it had completed its first epochs.

    Args:
        belief: Its observed trajectory.
        epochs: Length of the prefix, below the job's number of epochs.
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
    """Profiled residual run time of a finished job after its first epochs, in seconds.

    Args:
        belief: Its observed trajectory.
        epochs: Length of the prefix.
        throughput: Throughput model.
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
    """Index of the last of `POINTS` that a job has reached.

    Args:
        share: Completed share of its epochs, in [0, 1].
    """
    return bisect_right(POINTS, share) - 1


def reaches(history: History, mode: Mode) -> tuple[float, ...]:
    """Half-width of the interval about the median at each of `POINTS`, in probability.

    The conformal quantile of n scores is the ⌈0.8 (n + 1)⌉-th smallest. With too few scores
    it is 0.4, which trusts the posterior.
    """
    if mode not in history.reaches:
        history.reaches[mode] = tuple(
            _conformal(history.scores.get((mode, point), ())) for point in range(len(POINTS))
        )
    return history.reaches[mode]


def _conformal(scores: tuple[float, ...]) -> float:
    rank = math.ceil(HELD * (len(scores) + 1))
    return sorted(scores)[rank - 1] if rank <= len(scores) else HELD / 2
