"""Audit of a plan: violations of the Fisher market's guarantees, counted by job.

Shockwave (NSDI '23, section 4.2) promises envy-freeness, proportionality and Pareto
efficiency over the window, for divisible goods under Nash social welfare. Whole rounds,
gangs and other bids can violate them, so each plan is audited as laid out.
"""

from dataclasses import dataclass

import numpy as np

from predictor.arrays import Bools, Floats, Ints
from solver.market import Market
from solver.repair import Timetable


@dataclass(frozen=True, slots=True)
class Guarantees:
    """Numbers of jobs for which a guarantee is violated.

    Attributes:
        envious: Envy: jobs that prefer another job's GPU-rounds, scaled by their budgets.
        below_share: Proportionality: jobs that prefer their budget's share of the window's
            GPU-rounds.
        wanting: Pareto efficiency: jobs that would gain from GPUs left idle. (Without any, a
            gap of 0 proves efficiency, as the objective is the sum of all utilities.)
    """

    envious: int
    below_share: int
    wanting: int


def guarantees(market: Market, timetable: Timetable, budgets: Floats) -> Guarantees:
    """Audit a plan.

    Args:
        market: The window market.
        timetable: The plan, shape (jobs, T).
        budgets: Budget of each job, shape (jobs,).
    """
    gangs, rows = market.gangs, np.arange(len(market.job_ids))
    if not len(rows):
        return Guarantees(0, 0, 0)
    counts = timetable.sum(axis=1)
    has = market.utility[rows, counts]
    slack = _TOLERANCE * np.maximum(np.ptp(market.utility, axis=1), 1e-300)

    def prefer(rounds: Ints) -> int:
        most = np.clip(rounds, 0, market.window)
        return int((market.utility[rows, most] > has + slack).sum())

    per_budget = gangs * counts / budgets
    others = np.where(rows == per_budget.argmax(), 0.0, per_budget.max())
    share = market.gpus * market.window * budgets / budgets.sum()
    idle = market.gpus - gangs @ timetable
    fits = (~timetable & (idle >= gangs[:, None])).any(axis=1)
    more = market.utility[rows, np.minimum(counts + 1, market.window)]
    return Guarantees(
        envious=prefer((others * budgets / gangs + _TOLERANCE).astype(np.int64)),
        below_share=prefer((share / gangs + _TOLERANCE).astype(np.int64)),
        wanting=int((fits & (more > has + slack)).sum()),
    )


def guarantees_by_type(
    market: Market, timetable: Timetable, budgets: Floats, prices: Floats, loss: float
) -> Guarantees:
    """Audit a round in which jobs choose among GPU types.

    A job is envious if it prefers another (type, price), or nothing, to what it has, by more than
    the round's loss against its bound. At the prices of that bound none is: the losses of all jobs
    against their preferences, and the price of idle GPUs, add up to the loss.

    Args:
        market: The market of the coming round.
        timetable: The rows that run, shape (rows, 1).
        budgets: Budget of each row's job, shape (rows,).
        prices: Price of a GPU of each type, shape (types,).
        loss: Bound less objective.
    """
    runs, firsts, job_of = timetable[:, 0], market.jobs, market.job_of
    worth = market.utility[:, 1] - market.utility[:, 0]
    net = worth - market.gangs * prices[market.type_of]
    has = np.bincount(job_of, np.where(runs, worth, 0.0))
    earns = np.bincount(job_of, np.where(runs, net, 0.0))
    likes = np.maximum(np.maximum.reduceat(net, firsts), 0.0)
    slack = _TOLERANCE * np.maximum(np.maximum.reduceat(worth, firsts), 1e-300)
    capacities = market.capacities[market.type_of]
    used = np.bincount(market.type_of, market.gangs * runs, len(market.types))
    share = capacities * budgets / budgets[firsts].sum()
    better = worth > (has + slack)[job_of]
    idle = (market.capacities - used)[market.type_of]

    def jobs(rows: Bools) -> int:
        return int(np.logical_or.reduceat(rows & better, firsts).sum())

    return Guarantees(
        envious=int((likes - earns > loss + slack).sum()),
        below_share=jobs(share + _TOLERANCE >= market.gangs),
        wanting=jobs(idle >= market.gangs),
    )


_TOLERANCE = 1e-9
"""Numerical tolerance, as a share of a job's range of utilities; well above rounding errors."""
