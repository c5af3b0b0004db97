"""The count problem and the solvers that take it.

    max  Σ_j U_j(n_j) − k z    s. t.  Σ_j g_j n_j ≤ C,  n_j ∈ {0…T_j},  z ≥ r_j(n_j)

One integer per job and one epigraph variable, z ≥ 0, above the longest remaining time
that no counts can reduce. A back end answers with counts, a proven bound and the price
of a GPU-round, the dual of the capacity row in its relaxation. Effort is bounded by
deterministic work, not by time.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from solver.market import Floats, Ints


@dataclass(frozen=True)
class CountProblem:
    """What a back end solves, scaled and shifted: no rounds are worth nothing.

    Attributes:
        utility: U_j(n), shape (jobs, T + 1), non-decreasing from 0.
        remaining: r_j(n) above the longest that no counts can reduce, non-increasing and
            convex, shape (jobs, T + 1).
        regularizer: k.
        scale_factors: g_j, shape (jobs,).
        capacity: C, GPU-rounds.
        most: T_j, the count beyond which a job gains nothing, shape (jobs,); there
            r_j is at most 0.
    """

    utility: Floats
    remaining: Floats
    regularizer: float
    scale_factors: Ints
    capacity: int
    most: Ints

    def objective(self, counts: Ints) -> float:
        """Of one count a job, shape (jobs,)."""
        rows = np.arange(len(counts))
        longest = float(self.remaining[rows, counts].max(initial=0.0))
        return float(self.utility[rows, counts].sum()) - self.regularizer * longest


@dataclass(frozen=True)
class CountSolution:
    """What a back end found.

    Attributes:
        counts: n_j, shape (jobs,).
        bound: Proven upper bound on the objective.
        price: Dual of the capacity row in the relaxation: objective per GPU-round.
        status: `optimal` (within the back end's relative gap) or `work_limit`.
    """

    counts: Ints
    bound: float
    price: float
    status: str


class BackendUnavailableError(Exception):
    """The solver is not installed, not licensed, refuses the size, or found nothing."""


class Backend(Protocol):
    """A solver of count problems."""

    name: str

    def solve(self, problem: CountProblem) -> CountSolution:
        """Solve to a relative gap of `RELATIVE_GAP` or until the work limit.

        Raises:
            BackendUnavailableError: It cannot take the problem at all.
        """
        ...


RELATIVE_GAP = 1e-5
"""Relative gap at which a back end may stop."""
