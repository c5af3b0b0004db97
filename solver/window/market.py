"""The market of a window: utilities of all jobs, as tables over the rounds that they get.

A Volatile Fisher Market over the T rounds of a window (Shockwave, NSDI '23, section 4): jobs spend
budgets on GPU-rounds, and the equilibrium maximises Nash social welfare over time. With a
regulariser for the makespan, the window problem is

    max  Σ_j w_j u_j(n_j) − k · max_j r_j(n_j)    s. t.  a timetable for the counts n

n_j rounds give job j the utility u_j(n_j) and leave r_j(n_j) seconds of run time. The objective
depends only on the counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictor.arrays import Floats, Ints

LOG_KNOTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Knots of the published system's piecewise-linear logarithm."""

LOG_ZERO = 1e-6
"""Progress whose logarithm replaces log 0, as in the published system."""


@dataclass(frozen=True, eq=False)
class WindowMarket:
    """A window problem on GPUs of one type.

    Attributes:
        gpus: GPUs in each round.
        window: T, rounds in the window.
        regularizer: k, welfare lost per second of the longest remaining run time.
        gangs: GPUs of each job, shape (jobs,).
        weights: w_j, shape (jobs,).
        utility: Weighted utilities of 0…T rounds, non-decreasing, shape (jobs, T + 1).
        remaining: Residual run times after 0…T rounds in seconds, shape (jobs, T + 1);
            non-increasing and convex, as a round reduces them by at most a round.

    Raises:
        ValueError: A table has the wrong shape or values, or a gang does not fit.
    """

    gpus: int
    window: int
    regularizer: float
    job_ids: Ints
    gangs: Ints
    weights: Floats
    utility: Floats
    remaining: Floats

    def __post_init__(self) -> None:
        shape = len(self.job_ids), self.window + 1
        if self.utility.shape != shape or self.remaining.shape != shape:
            raise ValueError(f"utilities must be tables over 0…{self.window} rounds")
        if (self.gangs > self.gpus).any():
            raise ValueError(f"a job needs more than the {self.gpus} GPUs there are")
        if (np.diff(self.utility) < 0).any():
            raise ValueError("utility must not fall with more rounds")
        scale = 1e-9 * max(1.0, float(self.remaining.max(initial=0.0)))
        slopes = np.diff(self.remaining)
        if (slopes > scale).any() or (np.diff(slopes) < -scale).any():
            raise ValueError("remaining time must be non-increasing and convex in rounds")

    def objective(self, counts: Ints) -> float:
        """Return welfare less the regulariser at counts of rounds, shape (jobs,)."""
        if not len(counts):
            return 0.0
        rows = np.arange(len(counts))
        longest = float(self.remaining[rows, counts].max())
        return float(self.utility[rows, counts].sum()) - self.regularizer * longest


def log_progress(progress: Floats) -> Floats:
    """Return the logarithm of progress in [0, 1], interpolated between `LOG_KNOTS`.

    Piecewise linear, as in the published system; log 0 is log `LOG_ZERO`.
    """
    knots = np.array(LOG_KNOTS)
    logs: Floats = np.interp(progress, knots, np.log(np.maximum(knots, LOG_ZERO)))
    return logs


def make_welfare_market(
    *,
    gpus: int,
    regularizer: float,
    job_ids: Sequence[int],
    gangs: Sequence[int],
    weights: Floats,
    progress: Floats,
    remaining: Floats,
) -> WindowMarket:
    """Return the market of Nash social welfare, averaged over jobs and rounds.

    Its utility is u_j(n) = w_j · log progress_j(n) / (jobs · T), the objective of NSDI '23,
    section 6.

    Args:
        gpus: GPUs in each round.
        regularizer: k, per second of the longest remaining run time.
        job_ids: The jobs.
        gangs: GPUs of each.
        weights: w_j, shape (jobs,).
        progress: Completed share of job j's epochs after n rounds, shape (jobs, T + 1).
        remaining: Residual run time after n rounds in seconds, shape (jobs, T + 1).
    """
    jobs, width = progress.shape
    utility = weights[:, None] * log_progress(progress) / max(jobs * (width - 1), 1)
    return WindowMarket(
        gpus=gpus,
        window=width - 1,
        regularizer=regularizer,
        job_ids=np.array(job_ids, dtype=np.int64),
        gangs=np.array(gangs, dtype=np.int64),
        weights=weights,
        utility=np.maximum.accumulate(utility, axis=1),
        remaining=remaining,
    )
