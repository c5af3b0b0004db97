"""Audit of a plan: violations of the Fisher market's guarantees, counted by job.

Shockwave (NSDI '23, section 4.2) promises envy-freeness, proportionality and Pareto
efficiency over the window, for divisible goods under Nash social welfare. Whole rounds,
gangs and other bids can violate them, so each plan is audited as laid out.
"""

from dataclasses import dataclass

import numpy as np

from solver.market import Floats, Ints, Market
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


_TOLERANCE = 1e-9
"""Numerical tolerance, as a share of a job's range of utilities; well above rounding errors."""
