"""Compute the number of rounds that each job gets in a window.

Presolve makes the problem small and well scaled: counts end at a job's last useful round, and jobs
whose useful rounds dominate the rest of the market are decided (weights differ by up to 10^21).
"""

from dataclasses import replace

import numpy as np

from predictor.arrays import Bools, Ints
from solver.backends import CountProblem
from solver.backends.choice import Solution, check_backend, solve
from solver.window.lagrangian import solve_window
from solver.window.market import WindowMarket


def solve_counts(market: WindowMarket, backend: str = "auto") -> Solution:
    """Find the counts that maximise the market's objective.

    Raises:
        InputError: The back end is not in `solver.backends.choice.BACKENDS`.
        SolverError: No back end solved the problem.
    """
    check_backend(backend)
    most = find_last_useful(market)
    if market.gangs @ most <= market.gpus * market.window:
        worth, reason = market.objective(most), "every job gets all"
        return Solution(most, worth, worth, np.zeros(1), "none", reason, "optimal")
    decided = find_decided(market, most)
    free, fixed = np.flatnonzero(~decided), np.where(decided, most, 0)
    problem, offset, scale = _reduce(market, most, free, fixed)
    found = solve(problem, backend, solve_window, offset=offset, scale=scale)
    counts = fixed.copy()
    counts[free] = found.counts
    return replace(found, counts=counts, objective=market.objective(counts))


def find_last_useful(market: WindowMarket) -> Ints:
    """Return the last useful round of each job, shape (jobs,): further rounds gain nothing."""
    useful = (market.utility < market.utility[:, -1:]) | (
        market.remaining > market.remaining[:, -1:]
    )
    counts: Ints = useful.sum(axis=1)
    return counts


def find_decided(market: WindowMarket, most: Ints) -> Bools:
    """Return which jobs get all their useful rounds in every optimum, shape (jobs,).

    A set of jobs is decided if its useful rounds fit the capacity, and taking m rounds from any of
    its jobs loses more than the rest of the market can gain. Each freed GPU-round, with slack below
    the largest gang, gains at most the rest's steepest slope, plus the relief of the regulariser.
    Removing the largest such set removes weights that differ by 10^21 from the problem
    (docs/market.md, Jobs that are decided).
    """
    capacity = market.gpus * market.window
    rows, gangs = np.arange(len(most)), market.gangs[:, None]
    steepest = (np.diff(market.utility, axis=1) / gangs).max(axis=1)
    relief = market.regularizer * float(-np.diff(market.remaining, axis=1).min())
    taken = np.arange(1, market.window + 1)[None, :]
    kept = market.utility[rows[:, None], np.maximum(most[:, None] - taken, 0)]
    loss = (market.utility[:, -1:] - kept) / (taken * gangs + gangs.max() - 1)
    loss = np.where(taken <= most[:, None], loss, np.inf).min(axis=1)
    order = np.argsort(-loss, kind="stable")
    rest = np.maximum.accumulate(np.append(0.0, steepest[order[:0:-1]]))[::-1]
    fits = np.cumsum((market.gangs * most)[order]) <= capacity
    sets = np.flatnonzero(fits & (loss[order] > rest + relief))
    decided = np.zeros(len(most), dtype=bool)
    decided[order[: sets[-1] + 1 if len(sets) else 0]] = True
    return decided


def _reduce(
    market: WindowMarket, most: Ints, free: Ints, fixed: Ints
) -> tuple[CountProblem, float, float]:
    """Reduce the market to the undecided jobs, shifted and scaled to gains of about 1.

    Returns the problem, offset and scale; objective = offset + scale · reduced.
    """
    rows = np.arange(len(most))
    floor = float(market.remaining[rows, most].max())
    gains = market.utility[free] - market.utility[free, :1]
    offset = float(market.utility[rows, fixed].sum()) - market.regularizer * floor
    reach = float(market.remaining[rows, fixed].max()) - floor
    scale = float(gains.max(initial=0.0)) or market.regularizer * reach or 1.0
    return (
        CountProblem(
            utility=gains / scale,
            remaining=market.remaining[free] - floor,
            regularizer=market.regularizer / scale,
            gangs=market.gangs[free],
            capacities=np.array([market.gpus * market.window - int(market.gangs @ fixed)]),
            type_of=np.zeros(len(free), dtype=np.int64),
            most=most[free],
        ),
        offset,
        scale,
    )
