"""The window market: what every job bids, and what a count of rounds for each is worth.

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
from numpy.typing import NDArray

from predictor.allocation import Allocation

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LOG_KNOTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Where the published system's piecewise-linear logarithm touches the logarithm."""

LOG_ZERO = 1e-6
"""Progress whose logarithm stands in for log 0."""


@dataclass(frozen=True, slots=True)
class BidRow:
    """What 0…T rounds of the window on one allocation are worth to a job.

    Attributes:
        allocation: What it would run on in each of them.
        utility: Weighted utility w_j u_j of 0…T rounds, non-decreasing; T + 1 values.
        remaining_seconds: Run time r_j left after 0…T rounds, as far as the regulariser
            counts it; non-increasing and convex (a round of running takes at most a
            round off it); T + 1 values.
    """

    allocation: Allocation
    utility: tuple[float, ...]
    remaining_seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Bid:
    """What a job offers for rounds of the window.

    Attributes:
        job_id: The job.
        weight: What its utility was multiplied by: under the published objective budget times
            finish-time-fairness weight, under ours budget times preemption hysteresis.
        rows: One for each allocation that it would take; a gang on one GPU type has one.
    """

    job_id: int
    weight: float
    rows: tuple[BidRow, ...]


@dataclass(frozen=True, slots=True)
class Price:
    """What a GPU-round costs.

    Attributes:
        gpu_type: Of which GPU type.
        price: Objective that one more of them in the window would bring.
    """

    gpu_type: str
    price: float


@dataclass(frozen=True, eq=False)
class Market:
    """A window problem, as tables over all jobs; row j is the bid of job j.

    A job bids on one allocation: on several it would need a row of these tables for each.

    Attributes:
        types: GPU types.
        capacities: GPUs of each type in each round, shape (types,).
        window: T, rounds in the window.
        regularizer: k, welfare lost per second of the longest remaining run time.
        job_ids: The jobs, shape (jobs,).
        allocations: What the jobs bid on.
        weights: w_j, shape (jobs,).
        utility: Weighted utilities of 0…T rounds, shape (jobs, T + 1).
        remaining: Remaining run times in seconds, shape (jobs, T + 1).

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

    @classmethod
    def of(
        cls, capacities: Mapping[str, int], window: int, regularizer: float, bids: Sequence[Bid]
    ) -> "Market":
        """The market of bids given one by one.

        Args:
            capacities: GPUs of each type in each round.
            window: T.
            regularizer: k.
            bids: One of each job, with one row.

        Raises:
            ValueError: A bid has several rows, or the wrong length or shape.
        """
        if any(len(bid.rows) != 1 for bid in bids):
            raise ValueError("a job must bid on one allocation")
        rows, shape = [bid.rows[0] for bid in bids], (len(bids), window + 1)
        if any({len(row.utility), len(row.remaining_seconds)} != {window + 1} for row in rows):
            raise ValueError(f"bids must be tables over 0…{window} rounds")
        return cls(
            types=tuple(capacities),
            capacities=np.array(list(capacities.values()), dtype=np.int64),
            window=window,
            regularizer=regularizer,
            job_ids=np.array([bid.job_id for bid in bids], dtype=np.int64),
            allocations=tuple(row.allocation for row in rows),
            weights=np.array([bid.weight for bid in bids], dtype=np.float64),
            utility=np.array([row.utility for row in rows], dtype=np.float64).reshape(shape),
            remaining=np.array([row.remaining_seconds for row in rows], dtype=np.float64).reshape(
                shape
            ),
        )

    @cached_property
    def gangs(self) -> Ints:
        """GPUs that each job holds in a round that it runs in, shape (jobs,)."""
        return np.array([one.gpus for one in self.allocations], dtype=np.int64)

    @cached_property
    def type_of(self) -> Ints:
        """Index of the GPU type that each job bids on, shape (jobs,)."""
        index = {gpu_type: number for number, gpu_type in enumerate(self.types)}
        return np.array([index[one.gpu_type] for one in self.allocations], dtype=np.int64)

    @property
    def gpus(self) -> int:
        """GPUs in each round of a market of one GPU type.

        Raises:
            ValueError: It has several.
        """
        (gpus,) = self.capacities.tolist()
        return int(gpus)

    @cached_property
    def bids(self) -> tuple[Bid, ...]:
        """The rows one by one, as they are recorded."""
        return tuple(
            Bid(job_id, weight, (BidRow(allocation, tuple(utility), tuple(remaining)),))
            for job_id, allocation, weight, utility, remaining in zip(
                self.job_ids.tolist(),
                self.allocations,
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
        allocations: What they bid on.
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
