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
        weight: What its utility was multiplied by: under the published objective budget times
            finish-time-fairness weight, under ours budget times the favour for running jobs.
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


@dataclass(frozen=True, eq=False)
class Market:
    """A window problem, as tables over all jobs; row j is the bid of job j.

    Attributes:
        gpus: GPUs in each round.
        window: T, rounds in the window.
        regularizer: k, welfare lost per second of the longest remaining run time.
        job_ids: The jobs, shape (jobs,).
        scale_factors: GPUs per job, shape (jobs,).
        weights: w_j, shape (jobs,).
        utility: Weighted utilities of 0…T rounds, shape (jobs, T + 1).
        remaining: Remaining run times in seconds, shape (jobs, T + 1).

    Raises:
        ValueError: A table has the wrong length or shape.
    """

    gpus: int
    window: int
    regularizer: float
    job_ids: Ints
    scale_factors: Ints
    weights: Floats
    utility: Floats
    remaining: Floats

    def __post_init__(self) -> None:
        shape = (len(self.job_ids), self.window + 1)
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

    @classmethod
    def of(cls, gpus: int, window: int, regularizer: float, bids: Sequence[Bid]) -> "Market":
        """The market of bids given one by one.

        Raises:
            ValueError: A bid has the wrong length or shape.
        """
        shape = (len(bids), window + 1)
        if any({len(bid.utility), len(bid.remaining_seconds)} != {window + 1} for bid in bids):
            raise ValueError(f"bids must be tables over 0…{window} rounds")
        return cls(
            gpus=gpus,
            window=window,
            regularizer=regularizer,
            job_ids=np.array([bid.job_id for bid in bids], dtype=np.int64),
            scale_factors=np.array([bid.scale_factor for bid in bids], dtype=np.int64),
            weights=np.array([bid.weight for bid in bids], dtype=np.float64),
            utility=np.array([bid.utility for bid in bids], dtype=np.float64).reshape(shape),
            remaining=np.array([bid.remaining_seconds for bid in bids], dtype=np.float64).reshape(
                shape
            ),
        )

    @cached_property
    def bids(self) -> tuple[Bid, ...]:
        """The rows one by one, as they are recorded."""
        return tuple(
            Bid(job_id, scale_factor, weight, tuple(utility), tuple(remaining))
            for job_id, scale_factor, weight, utility, remaining in zip(
                self.job_ids.tolist(),
                self.scale_factors.tolist(),
                self.weights.tolist(),
                self.utility.tolist(),
                self.remaining.tolist(),
                strict=True,
            )
        )

    def objective(self, counts: Ints) -> float:
        """Welfare less the regulariser for one count of rounds per job, shape (jobs,)."""
        if not len(counts):
            return 0.0
        rows = np.arange(len(counts))
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
    return Market(
        gpus=gpus,
        window=width - 1,
        regularizer=regularizer,
        job_ids=np.array(job_ids, dtype=np.int64),
        scale_factors=np.array(scale_factors, dtype=np.int64),
        weights=weights,
        utility=np.maximum.accumulate(utility, axis=1),
        remaining=remaining,
    )
