"""Water filling: max-min fairness among the jobs, or tenants, that can still gain."""

from enum import IntEnum

import numpy as np

from predictor.arrays import Bools, Floats
from solver.backends.interior import find_best_shares
from solver.policies.contenders import Contenders

FULL = 1e-3
"""A job whose level is within this of the least level cannot gain: in the middle of the optimal
face all jobs that can gain are above it. Relative, well above a solver's precision. A numerical
tolerance."""

SLACK = 1e-4
"""Relative loss allowed to jobs that cannot gain: the solver needs some slack. A numerical
tolerance."""


class Filling(IntEnum):
    """The entities whose levels are raised: jobs, or tenants."""

    NONE = 0
    JOBS = 1
    TENANTS = 2
    TENANTS_IN_ORDER = 3


def fill(jobs: Contenders, weights: Floats, filling: Filling) -> Floats:
    """Shares of time x_jk by water filling.

    The least level a_j Σ_k v_jk x_jk is maximised; jobs at that level that cannot gain keep it, and
    the levels of the others are raised in turn until no job can gain, by at most one linear program
    a job. Narayanan et al., Gavel (OSDI '20),
    section 4.3, where an integer program finds which jobs cannot have more: here the middle of the
    optimal face shows it.

    Args:
        jobs: The jobs.
        weights: a, shape (jobs,).
        filling: `JOBS`, or how a tenant's weight, the same for all, goes to its jobs that can
            still gain: in parts by budget, or all to the first that arrived.

    Returns:
        x, shape (jobs, types).

    Raises:
        SolverError: A program has no solution, though the shares before always are one.
    """
    least, can_gain = np.zeros(len(weights)), np.ones(len(weights), dtype=np.bool_)
    fastest = jobs.speeds.max(axis=1)
    relative, weights = jobs.speeds / fastest[:, None], weights * fastest
    while True:
        floors = _level_weights(jobs, weights, can_gain, filling)
        floor = least * (1.0 - SLACK)
        shares = find_best_shares(
            jobs.gangs, jobs.gpus, relative, least=floor, floor_weights=floors
        )
        speeds = (relative * shares).sum(axis=1)
        levels = np.multiply(floors, speeds, out=floors.copy(), where=np.isfinite(floors))
        full = levels <= levels.min() * (1.0 + FULL)
        gpus = jobs.gangs * shares.sum(axis=1)
        if (
            gpus[full].sum() > 2.0 * SLACK * gpus[~can_gain].sum()
        ):  # else they fill only the solver's slack
            least[full] = speeds[full]
        can_gain &= ~full
        if not can_gain.any():
            return shares


def _level_weights(jobs: Contenders, weights: Floats, among: Bools, filling: Filling) -> Floats:
    """Weights of the levels, shape (jobs,); infinite for jobs whose levels are not raised."""
    if filling is Filling.JOBS:
        return np.where(among, weights, np.inf)
    found = np.full(len(weights), np.inf)
    for tenant in dict.fromkeys(jobs.tenants):
        members = np.flatnonzero(among & (np.array(jobs.tenants) == tenant))
        if filling is Filling.TENANTS_IN_ORDER:
            members = members[np.argsort(-jobs.ages[members], kind="stable")[:1]]
        found[members] = weights[members] * jobs.weights[members].sum()
    return found
