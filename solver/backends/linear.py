"""Prepare a count problem's tables for linear and integer programs."""

from collections.abc import Iterator

import numpy as np

from predictor.arrays import Floats
from solver.backends import CountProblem


def make_envelopes(problem: CountProblem) -> tuple[Floats, Floats]:
    """Return the smallest concave majorants, and the utilities without rounding errors.

    A table that only rounding keeps from being concave is replaced by its majorant, so that the
    integer program needs no binaries for it. Both have shape (jobs, T + 1).
    """
    utility = problem.utility
    majorants = np.array([_concave_majorant(row) for row in utility]).reshape(utility.shape)
    nearly = np.abs(majorants - utility).max(axis=1, initial=0.0) <= 1e-9
    return majorants, np.where(nearly[:, None], majorants, utility)


def make_cuts(problem: CountProblem) -> Iterator[tuple[int, float, float]]:
    """Yield lines (job, intercept, slope) with z ≥ intercept + slope · n_j.

    They are the facets of the convex r_j that can bind.
    """
    for job, row in enumerate(problem.remaining):
        slopes = np.diff(row)
        previous = -np.inf
        for n, slope in enumerate(slopes.tolist()):
            if row[n] > 0.0 and slope > previous + 1e-9 * abs(slope):
                yield job, float(row[n]) - slope * n, slope
                previous = slope


def _concave_majorant(row: Floats) -> Floats:
    """Return the smallest concave function above a table over 0…T, at the same points."""
    corners = [0]
    for n in range(1, len(row)):
        while (
            len(corners) > 1
            and (row[corners[-1]] - row[corners[-2]]) * (n - corners[-1])
            <= (row[n] - row[corners[-1]]) * (corners[-1] - corners[-2]) + 1e-13
        ):
            corners.pop()
        corners.append(n)
    return np.interp(np.arange(len(row)), corners, row[corners])
