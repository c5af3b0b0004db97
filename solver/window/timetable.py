"""Lay counts out in time: choose the rounds of the window in which each job runs.

Not every vector of counts has a timetable: GPUs are not shared and a job runs at most once per
round, so large gangs can crowd out small jobs that need almost every round. The timetable is
always feasible: rounds without room are dropped, idle GPUs are backfilled, and the plan's gap
includes the loss.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from predictor.arrays import Floats, Ints
from solver.backends.choice import CLOSED, Solution
from solver.window.counts import solve_counts
from solver.window.market import WindowMarket
from solver.window.repair import Timetable, exchange, fill, trade

TRIES = 6
"""Bound on effort: layouts tried while the loss exceeds `CLOSED` (docs/market.md). An engineering
bound, not swept."""


def clear_window(
    market: WindowMarket, order: Sequence[int], backend: str = "auto"
) -> tuple[Timetable, Solution]:
    """Solve a window problem and lay the solution out, with jobs in `order` of descending priority.

    Returns:
        The timetable, shape (jobs, T), and the solution with the timetable's counts and objective.

    Raises:
        ShockwaveError: The back end is unknown, or no back end solved the problem.
    """
    found = solve_counts(market, backend)
    table = lay_out(market, found.counts, order)
    counts = table.sum(axis=1)
    objective = market.objective(counts)
    bound = max(found.bound, objective)
    return table, replace(found, counts=counts, objective=objective, bound=bound)


def lay_out(market: WindowMarket, counts: Ints, order: Sequence[int]) -> Timetable:
    """Lay counts out as a feasible timetable, shape (jobs, T).

    The coming round is list-scheduled: jobs that need every round of the window, then the others in
    `order`, with backfilling. The remaining counts go, largest gang first, into the emptiest
    rounds. Jobs below their counts are repaired by exchange with rounds that have room, then by
    trade against rounds of jobs that lose less; idle GPUs go to the best increments.

    If the loss exceeds `CLOSED`, the layout is repeated with squeaky-wheel penalties (Joslin and
    Clements, 1999): the more a job lost, the earlier it is placed. The best timetable is kept.

    Args:
        market: The window problem.
        counts: n_j, shape (jobs,), within the window's GPU-rounds.
        order: Jobs (rows of the market) by descending priority.
    """
    wanted = market.objective(counts)
    penalties = np.zeros(len(counts))
    best, worth = np.zeros((len(counts), market.window), dtype=bool), -np.inf
    for _ in range(TRIES):
        table = _placed(market, counts, order, penalties)
        found = market.objective(table.sum(axis=1))
        if found > worth:
            best, worth = table, found
        if found >= wanted - CLOSED * abs(wanted):
            break
        penalties = penalties + _losses(market, counts, table)
    return best


def _losses(market: WindowMarket, counts: Ints, table: Timetable) -> Floats:
    """Return each job's loss if only it were below its count, shape (jobs,)."""
    losses = np.zeros(len(counts))
    reached = table.sum(axis=1)
    wanted = market.objective(counts)
    for job in np.flatnonzero(reached < counts).tolist():
        lacking = counts.copy()
        lacking[job] = reached[job]
        losses[job] = wanted - market.objective(lacking)
    return losses


def _placed(
    market: WindowMarket, counts: Ints, order: Sequence[int], penalties: Floats
) -> Timetable:
    """Lay out with squeaky-wheel penalties, shape (jobs,): larger ones are placed earlier."""
    gangs = market.gangs
    table = np.zeros((len(counts), market.window), dtype=bool)
    ranks = list(zip((-penalties).tolist(), (counts < market.window).tolist(), strict=True))
    ranked = sorted(order, key=ranks.__getitem__)
    table[_coming_round(market, counts, ranked), 0] = True
    left = counts - table[:, 0]
    widest = np.lexsort((-left, -gangs, -penalties))
    table[:, 1:] = _spread(market, left, widest[left[widest] > 0])
    free = market.gpus - gangs @ table
    lacking = np.maximum(counts - table.sum(axis=1), 0)
    worst = np.argsort(-_losses(market, counts, table), kind="stable")
    for job in worst[lacking[worst] > 0].tolist():
        lacking[job] = 0
        exchange(table, free, gangs, job, int(counts[job]))
        trade(market, table, free, job, int(counts[job]), lacking)
    fill(market, table, free)
    return table


def _coming_round(market: WindowMarket, counts: Ints, ranked: Sequence[int]) -> list[int]:
    gangs, wanted = market.gangs.tolist(), counts.tolist()
    free, jobs = market.gpus, list[int]()
    for job in ranked:
        if wanted[job] and gangs[job] <= free:
            jobs.append(job)
            free -= gangs[job]
    return jobs


def _spread(market: WindowMarket, left: Ints, ranked: Ints) -> Timetable:
    """Place jobs, as ranked, in the emptiest later rounds if they fit."""
    table = np.zeros((len(left), market.window - 1), dtype=bool)
    used = np.zeros(market.window - 1, dtype=np.int64)
    gangs = market.gangs[ranked].tolist()
    for job, gang, wanted in zip(ranked.tolist(), gangs, left[ranked].tolist(), strict=True):
        at = used.argsort(kind="stable")[:wanted]
        at = at[used[at] <= market.gpus - gang]
        table[job, at] = True
        used[at] += gang
    return table
