"""The count problem and the protocol of its solvers.

    max  Σ_j U_j(n_j) − k z    s. t.  Σ_{j on c} g_j n_j ≤ C_c,  n_j ∈ {0…T_j},  z ≥ r_j(n_j)

Each bid row, a job and an allocation that it bids on, has one integer; the rows of a job have at
most T rounds together. The single epigraph variable z ≥ 0 is measured from the longest remaining
time that no counts can reduce. C_c is the capacity of GPU type c. A back end returns counts, a
proven bound and the price of a GPU-round of each type: the dual of its capacity row in the
relaxation. Deterministic work, not time, bounds the effort.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from predictor.arrays import Floats, Ints


class BackendUnavailableError(Exception):
    """The solver is not installed, not licensed, refuses the size, or found no solution."""


@dataclass(frozen=True)
class CountProblem:
    """The count problem of a window, scaled, and shifted so that 0 rounds have utility 0.

    Attributes:
        utility: U_j(n), shape (jobs, T + 1), non-decreasing from 0.
        remaining: r_j(n) less the longest remaining time that no counts can reduce,
            non-increasing and convex, shape (jobs, T + 1).
        regularizer: k.
        gangs: g_j, shape (jobs,).
        capacities: C, GPU-rounds of each GPU type, shape (types,).
        type_of: Index of the GPU type of each bid row, shape (jobs,).
        most: T_j, the last useful round of each job, shape (jobs,); r_j(T_j) is at most 0.
        job_of: Job of each row, ascending, shape (jobs,); by default each row is a job.
    """

    utility: Floats
    remaining: Floats
    regularizer: float
    gangs: Ints
    capacities: Ints
    type_of: Ints
    most: Ints
    job_of: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        if len(self.job_of) != len(self.most):
            object.__setattr__(self, "job_of", np.arange(len(self.most)))

    @property
    def window(self) -> int:
        """T, the number of rounds in the window."""
        return int(self.utility.shape[1]) - 1

    @cached_property
    def shared(self) -> tuple[Ints, ...]:
        """The rows of each job that bids on several allocations."""
        starts = np.flatnonzero(np.diff(self.job_of, prepend=-1))
        return tuple(
            rows for rows in np.split(np.arange(len(self.most)), starts[1:]) if len(rows) > 1
        )

    @property
    def capacity(self) -> int:
        """GPU-rounds of the only GPU type.

        Raises:
            BackendUnavailableError: The problem has several GPU types.
        """
        if len(self.capacities) != 1:
            raise BackendUnavailableError("the problem has several GPU types")
        return int(self.capacities[0])

    def objective(self, counts: Ints) -> float:
        """Return the objective at counts n_j, shape (jobs,)."""
        rows = np.arange(len(counts))
        longest = float(self.remaining[rows, counts].max(initial=0.0))
        return float(self.utility[rows, counts].sum()) - self.regularizer * longest


@dataclass(frozen=True)
class CountSolution:
    """The solution of a back end.

    Attributes:
        counts: n_j, shape (jobs,).
        bound: Proven upper bound on the objective.
        prices: Duals of the capacity rows in the relaxation: objective per GPU-round of
            each GPU type, shape (types,).
        status: `optimal` (within the back end's relative gap) or `work_limit`.
    """

    counts: Ints
    bound: float
    prices: Floats
    status: str


Backend = Callable[[CountProblem], CountSolution]
"""Solves a count problem to a relative gap of `RELATIVE_GAP`, or until its work limit.

Raises `BackendUnavailableError` if it cannot solve the problem.
"""

RELATIVE_GAP = 1e-5
"""Relative gap at which a back end may stop: a tenth of the gap that `auto` accepts
(`solver.backends.choice.CLOSED`). Not swept."""
