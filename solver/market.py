"""The window market: what every job bids, and what a count of rounds for each is worth.

A Volatile Fisher Market over the T rounds of a window (Shockwave, NSDI '23, section 4):
jobs spend budgets on GPU-rounds, and the equilibrium maximises Nash social welfare over
time. With a regulariser for the makespan the window problem is

    max  Σ_j w_j u_j(n_j) − k · max_j r_j(n_j)    s. t.  a timetable for the counts n

where n_j rounds buy job j the utility u_j(n_j) and leave it r_j(n_j) seconds to run.
The objective depends on the rounds' counts alone, so a bid is a table over counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LOG_KNOTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Where the published system's piecewise-linear logarithm touches the logarithm."""

LOG_ZERO = 1e-6
"""Progress whose logarithm stands in for log 0."""


@dataclass(frozen=True, slots=True)
class Bid:
    """What a job offers for 0…T rounds of the window.

    Attributes:
        job_id: The job.
        scale_factor: GPUs that it needs in each round it runs.
        weight: Its weight w_j: budget times finish-time-fairness weight.
        utility: Weighted utility w_j u_j of 0…T rounds, non-decreasing; T + 1 values.
        remaining_seconds: Run time r_j left after 0…T rounds, as far as the regulariser
            counts it; non-increasing and convex (a round of running takes at most a
            round off it); T + 1 values.
    """

    job_id: int
    scale_factor: int
    weight: float
    utility: tuple[float, ...]
    remaining_seconds: tuple[float, ...]


@dataclass(frozen=True)
class Market:
    """A window problem.

    Attributes:
        gpus: GPUs in each round.
        window: T, rounds in the window.
        regularizer: k, welfare lost per second of the longest remaining run time.
        bids: One per job.

    Raises:
        ValueError: A table has the wrong length or shape.
    """

    gpus: int
    window: int
    regularizer: float
    bids: tuple[Bid, ...]

    def __post_init__(self) -> None:
        shape = (len(self.bids), self.window + 1)
        if self.utility.shape != shape or self.remaining.shape != shape:
            raise ValueError(f"bids must be tables over 0…{self.window} rounds")
        if (self.scale_factors > self.gpus).any():
            raise ValueError(f"a job needs more than the {self.gpus} GPUs there are")
        if (np.diff(self.utility) < 0).any():
            raise ValueError("utility must not fall with more rounds")
        scale = 1e-9 * max(1.0, float(self.remaining.max(initial=0.0)))
        slopes = np.diff(self.remaining)
        if (slopes > scale).any() or (np.diff(slopes) < -scale).any():
            raise ValueError("remaining time must be non-increasing and convex in rounds")

    @cached_property
    def utility(self) -> Floats:
        """Weighted utilities, shape (jobs, T + 1)."""
        rows = [bid.utility for bid in self.bids]
        return np.array(rows, dtype=np.float64).reshape(len(rows), -1 if rows else self.window + 1)

    @cached_property
    def remaining(self) -> Floats:
        """Remaining run times in seconds, shape (jobs, T + 1)."""
        rows = [bid.remaining_seconds for bid in self.bids]
        return np.array(rows, dtype=np.float64).reshape(len(rows), -1 if rows else self.window + 1)

    @cached_property
    def scale_factors(self) -> Ints:
        """GPUs per job, shape (jobs,)."""
        return np.array([bid.scale_factor for bid in self.bids], dtype=np.int64)

    def objective(self, counts: Ints) -> float:
        """Welfare less the regulariser for one count of rounds per job, shape (jobs,)."""
        if not self.bids:
            return 0.0
        rows = np.arange(len(self.bids))
        longest = float(self.remaining[rows, counts].max())
        return float(self.utility[rows, counts].sum()) - self.regularizer * longest


def log_progress(progress: Floats) -> Floats:
    """Logarithm of progress in [0, 1], interpolated between `LOG_KNOTS`.

    Piecewise linear, as the published system has it; log 0 is log `LOG_ZERO`.
    """
    knots = np.array(LOG_KNOTS)
    logs: Floats = np.interp(progress, knots, np.log(np.maximum(knots, LOG_ZERO)))
    return logs


def welfare_market(
    *,
    gpus: int,
    regularizer: float,
    job_ids: Sequence[int],
    scale_factors: Sequence[int],
    weights: Floats,
    progress: Floats,
    remaining: Floats,
) -> Market:
    """Nash social welfare over the window, averaged over jobs and rounds.

    Args:
        gpus: GPUs in each round.
        regularizer: k, per second of the longest remaining run time.
        job_ids: The jobs.
        scale_factors: GPUs per job.
        weights: w_j, shape (jobs,).
        progress: Share of its epochs that job j has done after n rounds, shape
            (jobs, T + 1).
        remaining: Run time left after n rounds in seconds, shape (jobs, T + 1).

    Returns:
        The market with u_j(n) = w_j · log progress_j(n) / (jobs · T), the objective of
        NSDI '23, section 6.
    """
    jobs, width = progress.shape
    utility = weights[:, None] * log_progress(progress) / max(jobs * (width - 1), 1)
    bids = tuple(
        Bid(job_id, scale_factor, weight, tuple(row), tuple(left))
        for job_id, scale_factor, weight, row, left in zip(
            job_ids,
            scale_factors,
            weights.tolist(),
            np.maximum.accumulate(utility, axis=1).tolist(),
            remaining.tolist(),
            strict=True,
        )
    )
    return Market(gpus=gpus, window=width - 1, regularizer=regularizer, bids=bids)
