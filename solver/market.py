"""The market of the coming round: the bids of all jobs for GPUs of each type.

    max  Σ_r U_r x_r    s. t.  Σ_{r on c} g_r x_r ≤ C_c,  Σ_{r of j} x_r ≤ 1,  x_r ∈ {0, 1}

A row r is a job's bid on an allocation: the job values g_r GPUs of type c for the round at U_r.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from predictor.allocation import Allocation
from predictor.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class Bid:
    """A job's bid for the coming round on an allocation; a job bids once on each GPU type.

    Attributes:
        weight: Factor in the utility: budget × preemption hysteresis.
        utility: What the round is worth to the job.
    """

    job_id: int
    allocation: Allocation
    weight: float
    utility: float


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a GPU for a round: what one more GPU of the type adds to the objective."""

    gpu_type: str
    price: float


@dataclass(frozen=True, eq=False)
class Market:
    """The market as arrays over rows; a job's rows are adjacent.

    Attributes:
        capacities: GPUs of each type, shape (types,).
        job_ids: Job of each row, shape (rows,).
        allocations: Allocation of each row.
        weights: Factor in each utility, shape (rows,).
        utility: U, shape (rows,), at least 0.
    """

    types: tuple[str, ...]
    capacities: Ints
    job_ids: Ints
    allocations: tuple[Allocation, ...]
    weights: Floats
    utility: Floats

    @cached_property
    def gangs(self) -> Ints:
        """GPUs of each row, shape (rows,)."""
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
        """Index of the GPU type of each row, shape (rows,)."""
        index = {gpu_type: number for number, gpu_type in enumerate(self.types)}
        types = [index[allocation.gpu_type] for allocation in self.allocations]
        return np.array(types, dtype=np.int64)

    @cached_property
    def rows(self) -> dict[tuple[int, str], int]:
        """Row number by job and GPU type."""
        kinds = (allocation.gpu_type for allocation in self.allocations)
        return {key: row for row, key in enumerate(zip(self.job_ids.tolist(), kinds, strict=True))}

    @cached_property
    def bids(self) -> tuple[Bid, ...]:
        """The bids, as recorded."""
        columns = self.job_ids.tolist(), self.allocations, self.weights.tolist()
        return tuple(map(Bid, *columns, self.utility.tolist()))
