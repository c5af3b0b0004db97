"""What a cleared window keeps of a market's guarantees, job by job.

Shockwave (NSDI '23, section 4.2) promises envy-freeness, proportionality and Pareto
efficiency over the window, of divisible goods and under Nash social welfare. Whole rounds,
gangs and other bids can break them, so they are counted for each plan as laid out.
"""

from dataclasses import dataclass

import numpy as np

from solver.market import Floats, Ints, Market
from solver.repair import Timetable


@dataclass(frozen=True, slots=True)
class Guarantees:
    """Jobs for which a guarantee does not hold.

    Attributes:
        envious: They would rather have the GPU-rounds of another job, in proportion to
            their budgets.
        below_share: They would rather have the share of the window's GPU-rounds that
            their budget is of all budgets.
        wanting: They would gain by GPUs that the plan leaves idle: it is not Pareto
            efficient. (Where there are none, a gap of 0 proves that it is: the objective is
            a sum of all jobs' utilities.)
    """

    envious: int
    below_share: int
    wanting: int


def guarantees(market: Market, timetable: Timetable, budgets: Floats) -> Guarantees:
    """Hold a plan against the guarantees.

    Args:
        market: The window market.
        timetable: The plan, shape (jobs, T).
        budgets: What each job has to spend, shape (jobs,).
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
"""What rounding may hide."""
