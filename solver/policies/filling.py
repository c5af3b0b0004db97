"""Water filling: max-min fairness among the jobs or tenants that can still gain."""

from enum import IntEnum

import numpy as np

from predictor.arrays import Bools, Floats
from solver.backends.interior import find_best_shares
from solver.policies.contenders import Contenders

FULL = 1e-3
"""Relative distance from the least level within which a job cannot gain: in the middle of the
optimal face, all jobs that can gain are above it. A numerical tolerance, well above a solver's
precision."""

SLACK = 1e-4
"""Relative loss allowed to jobs that cannot gain: slack for the solver. A numerical tolerance."""


class Filling(IntEnum):
    """The entities whose levels are raised: jobs, or tenants."""

    NONE = 0
    JOBS = 1
    TENANTS = 2
    TENANTS_IN_ORDER = 3


def fill(jobs: Contenders, weights: Floats, filling: Filling) -> Floats:
    """Return shares of time x_jk by water filling, shape (jobs, types).

    Maximise the least level a_j Σ_k v_jk x_jk. Jobs at that level that cannot gain keep it, and the
    levels of the others are raised in turn until no job can gain, by at most one linear program per
    job. Narayanan et al., Gavel (OSDI '20), section 4.3, find the jobs that cannot gain by an
    integer program; here the middle of the optimal face shows them.

    Args:
        jobs: The jobs.
        weights: a, shape (jobs,).
        filling: `JOBS`, or how to divide a tenant's weight, equal for all tenants, among its jobs
            that can still gain: in proportion to budgets, or all to the first that arrived.

    Raises:
        SolverError: A program has no solution, although the previous shares always are one.
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
        ):  # otherwise they fill only the solver's slack
            least[full] = speeds[full]
        can_gain &= ~full
        if not can_gain.any():
            return shares


def _level_weights(jobs: Contenders, weights: Floats, among: Bools, filling: Filling) -> Floats:
    """Return the weights of the levels, shape (jobs,); infinite for jobs that are not raised."""
    if filling is Filling.JOBS:
        return np.where(among, weights, np.inf)
    found = np.full(len(weights), np.inf)
    for tenant in dict.fromkeys(jobs.tenants):
        members = np.flatnonzero(among & (np.array(jobs.tenants) == tenant))
        if filling is Filling.TENANTS_IN_ORDER:
            members = members[np.argsort(-jobs.ages[members], kind="stable")[:1]]
        found[members] = weights[members] * jobs.weights[members].sum()
    return found
