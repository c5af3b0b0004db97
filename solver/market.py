"""The window market: the bids of all jobs, and the objective as a function of counts.

A Volatile Fisher Market over the T rounds of a window (Shockwave, NSDI '23, section 4):
jobs spend budgets on GPU-rounds, and the equilibrium maximises Nash social welfare over
time. With a regulariser for the makespan the window problem is

    max  Σ_j w_j u_j(n_j) − k · max_j r_j(n_j)    s. t.  a timetable for the counts n

where n_j rounds buy job j the utility u_j(n_j) and leave it r_j(n_j) seconds to run.
The objective depends on the rounds' counts alone, so a bid is a table over counts, a row
for each allocation that the job would take.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from predictor.allocation import Allocation
from predictor.arrays import Floats, Ints

LOG_KNOTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Knots of the published system's piecewise-linear logarithm."""

LOG_ZERO = 1e-6
"""Progress whose logarithm stands for log 0, as in the published system."""


@dataclass(frozen=True, slots=True)
class BidRow:
    """A job's utilities of 0…T rounds of the window on an allocation.

    Attributes:
        allocation: Allocation in each of these rounds.
        utility: Weighted utility w_j u_j of 0…T rounds, non-decreasing; T + 1 values.
        remaining_seconds: Residual run time r_j after 0…T rounds, as the regulariser counts
            it; non-increasing and convex (a round reduces it by at most a round); T + 1
            values.
    """

    allocation: Allocation
    utility: tuple[float, ...]
    remaining_seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Bid:
    """A job's bid for rounds of the window.

    Attributes:
        job_id: The job.
        weight: Factor in its utilities: under the published objective budget times
            finish-time-fairness weight, under `shockwave` budget times preemption hysteresis.
        rows: A row per allocation that it bids on; a single row for a gang on one GPU type.
    """

    job_id: int
    weight: float
    rows: tuple[BidRow, ...]


@dataclass(frozen=True, slots=True)
class Price:
    """The dual price of a GPU-round.

    Attributes:
        gpu_type: The GPU type.
        price: Marginal objective of a further GPU-round of this type in the window.
    """

    gpu_type: str
    price: float


@dataclass(frozen=True, eq=False)
class Market:
    """A window problem, as tables over rows: an allocation that a job bids on.

    The rows of a job follow each other; together they run at most once in a round. In the text
    below a row is a job wherever each job bids on a single allocation.

    Attributes:
        types: GPU types.
        capacities: GPUs of each type in each round, shape (types,).
        window: T, rounds in the window.
        regularizer: k, welfare lost per second of the longest remaining run time.
        job_ids: The job of each row, shape (jobs,).
        allocations: The allocation that each row is for.
        weights: w_j, shape (jobs,).
        utility: Weighted utilities of 0…T rounds, shape (jobs, T + 1).
        remaining: Residual run times in seconds, shape (jobs, T + 1).

    Raises:
        ValueError: A table has the wrong length or shape.
    """

    types: tuple[str, ...]
    capacities: Ints
    window: int
    regularizer: float
    job_ids: Ints
    allocations: tuple[Allocation, ...]
    weights: Floats
    utility: Floats
    remaining: Floats

    def __post_init__(self) -> None:
        shape = (len(self.job_ids), self.window + 1)
        if self.utility.shape != shape or self.remaining.shape != shape:
            raise ValueError(f"bids must be tables over 0…{self.window} rounds")
        if (self.gangs > self.capacities[self.type_of]).any():
            raise ValueError(f"a job needs more than the {self.capacities.tolist()} GPUs there are")
        if (np.diff(self.utility) < 0).any():
            raise ValueError("utility must not fall with more rounds")
        scale = 1e-9 * max(1.0, float(self.remaining.max(initial=0.0)))
        slopes = np.diff(self.remaining)
        if (slopes > scale).any() or (np.diff(slopes) < -scale).any():
            raise ValueError("remaining time must be non-increasing and convex in rounds")
        distinct = len(np.unique(self.job_ids))
        if distinct < len(self.jobs):
            raise ValueError("the rows of a job must follow each other")
        if distinct < len(self.job_ids) and self.regularizer:
            raise ValueError("with several rows a job nothing is charged for the longest one")

    @cached_property
    def gangs(self) -> Ints:
        """GPUs of each job's gang, shape (jobs,)."""
        return np.array([allocation.gpus for allocation in self.allocations], dtype=np.int64)

    @cached_property
    def jobs(self) -> Ints:
        """First row of each job, shape (jobs,)."""
        return np.flatnonzero(np.diff(self.job_ids, prepend=self.job_ids[:1] - 1))

    @cached_property
    def job_of(self) -> Ints:
        """Index of the job of each row, ascending, shape (rows,)."""
        return np.repeat(np.arange(len(self.jobs)), np.diff(self.jobs, append=len(self.job_ids)))

    @cached_property
    def type_of(self) -> Ints:
        """Index of the GPU type that each job bids on, shape (jobs,)."""
        index = {gpu_type: number for number, gpu_type in enumerate(self.types)}
        types = [index[allocation.gpu_type] for allocation in self.allocations]
        return np.array(types, dtype=np.int64)

    @property
    def gpus(self) -> int:
        """GPUs in each round of a market with a single GPU type.

        Raises:
            ValueError: The market has several.
        """
        (gpus,) = self.capacities.tolist()
        return int(gpus)

    @cached_property
    def bids(self) -> tuple[Bid, ...]:
        """The bids, as recorded."""
        rows = [
            BidRow(allocation, tuple(utility), tuple(remaining))
            for allocation, utility, remaining in zip(
                self.allocations, self.utility.tolist(), self.remaining.tolist(), strict=True
            )
        ]
        firsts = [*self.jobs.tolist(), len(rows)]
        job_ids = self.job_ids[self.jobs].tolist()
        weights = np.maximum.reduceat(self.weights, self.jobs).tolist() if rows else []
        return tuple(
            Bid(job_id, weight, tuple(rows[first:end]))
            for job_id, weight, first, end in zip(
                job_ids, weights, firsts, firsts[1:], strict=False
            )
        )

    def objective(self, counts: Ints) -> float:
        """Welfare less the regulariser at counts of rounds, shape (jobs,)."""
        if not len(counts):
            return 0.0
        rows = np.arange(len(counts))
        longest = float(self.remaining[rows, counts].max())
        return float(self.utility[rows, counts].sum()) - self.regularizer * longest


def log_progress(progress: Floats) -> Floats:
    """Logarithm of progress in [0, 1], interpolated between `LOG_KNOTS`.

    Piecewise linear, as in the published system; log 0 is log `LOG_ZERO`.
    """
    knots = np.array(LOG_KNOTS)
    logs: Floats = np.interp(progress, knots, np.log(np.maximum(knots, LOG_ZERO)))
    return logs


def welfare_market(
    *,
    capacities: Mapping[str, int],
    regularizer: float,
    job_ids: Sequence[int],
    allocations: Sequence[Allocation],
    weights: Floats,
    progress: Floats,
    remaining: Floats,
) -> Market:
    """Nash social welfare over the window, averaged over jobs and rounds.

    Args:
        capacities: GPUs of each type in each round.
        regularizer: k, per second of the longest remaining run time.
        job_ids: The jobs.
        allocations: The allocation that each bids on.
        weights: w_j, shape (jobs,).
        progress: Completed share of job j's epochs after n rounds, shape (jobs, T + 1).
        remaining: Residual run time after n rounds in seconds, shape (jobs, T + 1).

    Returns:
        The market with u_j(n) = w_j · log progress_j(n) / (jobs · T), the objective of
        NSDI '23, section 6.
    """
    jobs, width = progress.shape
    utility = weights[:, None] * log_progress(progress) / max(jobs * (width - 1), 1)
    return Market(
        types=tuple(capacities),
        capacities=np.array(list(capacities.values()), dtype=np.int64),
        window=width - 1,
        regularizer=regularizer,
        job_ids=np.array(job_ids, dtype=np.int64),
        allocations=tuple(allocations),
        weights=weights,
        utility=np.maximum.accumulate(utility, axis=1),
        remaining=remaining,
    )
