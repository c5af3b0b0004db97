"""Audit a round: count jobs for which a guarantee of the Fisher market is violated.

Shockwave (NSDI '23, section 4.2) promises envy-freeness, proportionality and Pareto efficiency for
divisible goods under Nash social welfare. Whole rounds, gangs and other bids can violate these
guarantees, so each round is audited.
"""

from dataclasses import dataclass

import numpy as np

from predictor.arrays import Bools, Floats, Ints
from solver.market import Market

TOLERANCE = 1e-9
"""Numerical tolerance, as a share of a job's utility; well above rounding errors."""


@dataclass(frozen=True, slots=True)
class Guarantees:
    """Numbers of jobs for which a guarantee is violated.

    Attributes:
        envious: Envy: jobs that prefer another job's GPUs, scaled by their budgets. With several
            GPU types: jobs that prefer another type at its price, or nothing.
        below_share: Proportionality: jobs that prefer their budget's share of the GPUs.
        wanting: Pareto efficiency: jobs that would gain from idle GPUs. If there are none, a gap
            of 0 proves efficiency, because the objective is the sum of all utilities.
    """

    envious: int
    below_share: int
    wanting: int


def audit_one_type(market: Market, rows: Ints, budgets: Floats) -> Guarantees:
    """Audit a round with one GPU type; `budgets` has shape (jobs,)."""
    gangs, gains = market.gangs, market.utility > _slack(market.utility)
    runs = _running(market, rows)
    waits = gains & ~runs
    per_budget = gangs * runs / budgets
    own = np.arange(len(runs)) == per_budget.argmax()
    others = np.where(own, 0.0, per_budget.max())
    capacity = int(market.capacities[0])
    share = capacity * budgets / budgets.sum()
    idle = capacity - int(gangs @ runs)
    return Guarantees(
        envious=int((waits & (others * budgets / gangs + TOLERANCE >= 1.0)).sum()),
        below_share=int((waits & (share / gangs + TOLERANCE >= 1.0)).sum()),
        wanting=int((waits & (idle >= gangs)).sum()),
    )


def audit_types(
    market: Market, rows: Ints, budgets: Floats, prices: Floats, loss: float
) -> Guarantees:
    """Audit a round in which jobs choose among GPU types.

    A job is envious if it prefers another type at its price, or nothing, to its own GPUs by more
    than the round's loss against its bound. At the bound's own prices no job is envious: the
    losses of all jobs against their preferences and the price of idle GPUs sum to the loss.

    Args:
        market: The market.
        rows: The rows that run.
        budgets: Budget of each row's job, shape (rows,).
        prices: Price of a GPU of each type, shape (types,).
        loss: Bound less objective.
    """
    runs, firsts, job_of = _running(market, rows), market.jobs, market.job_of
    worth = market.utility
    net = worth - market.gangs * prices[market.type_of]
    has = np.bincount(job_of, np.where(runs, worth, 0.0))
    earns = np.bincount(job_of, np.where(runs, net, 0.0))
    likes = np.maximum(np.maximum.reduceat(net, firsts), 0.0)
    slack = _slack(np.maximum.reduceat(worth, firsts))
    used = np.bincount(market.type_of, market.gangs * runs, len(market.types))
    share = market.capacities[market.type_of] * budgets / budgets[firsts].sum()
    better = worth > (has + slack)[job_of]
    idle = (market.capacities - used)[market.type_of]

    def count_jobs(some: Bools) -> int:
        return int(np.logical_or.reduceat(some & better, firsts).sum())

    return Guarantees(
        envious=int((likes - earns > loss + slack).sum()),
        below_share=count_jobs(share + TOLERANCE >= market.gangs),
        wanting=count_jobs(idle >= market.gangs),
    )


def _running(market: Market, rows: Ints) -> Bools:
    runs = np.zeros(len(market.utility), dtype=bool)
    runs[rows] = True
    return runs


def _slack(utility: Floats) -> Floats:
    slack: Floats = TOLERANCE * np.maximum(utility, 1e-300)
    return slack
