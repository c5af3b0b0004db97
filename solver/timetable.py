"""Lay counts of rounds out in time: which job runs in which round of the window.

Not every vector of counts can be laid out: jobs never share a GPU in a round and none
runs twice in one, so big gangs can squeeze out small jobs that want almost every round.
The result is always feasible; what could not be placed is given up and the room left
is filled with what gains most, so the loss is known.
"""

from collections.abc import Sequence

import numpy as np

from solver.market import Floats, Ints, Market
from solver.repair import Timetable, exchange, fill, trade

TRIES = 6
"""Bound on effort: lay-outs tried where one loses more than `ENOUGH`."""

ENOUGH = 1e-4
"""Share of the objective that need not be won back."""


def lay_out(market: Market, counts: Ints, order: Sequence[int]) -> Timetable:
    """Place every job in as many rounds as its count says, or nearly.

    The first round, the one that will be executed, is a list: jobs that need every
    round of the window, then the others in `order`, skipping what does not fit. The
    rest of the counts goes, largest gang first, into the emptiest rounds. What does not
    fit is tried by exchange with rounds that have room, then traded against rounds of
    jobs that lose less by it; room that is left goes to the best increments.

    Where that loses too much it is done again with the jobs that came off badly before
    all others (squeaky wheels: Joslin and Clements, 1999); the best timetable is kept.

    Args:
        market: The window problem.
        counts: n_j, shape (jobs,), within the window's GPU-rounds.
        order: Jobs (rows of the market), the first to run first.

    Returns:
        A feasible timetable: no round uses more GPUs than there are.
    """
    wanted = market.objective(counts)
    blame = np.zeros(len(counts))
    best, worth = np.zeros((len(counts), market.window), dtype=bool), -np.inf
    for _ in range(TRIES):
        table = _placed(market, counts, order, blame)
        found = market.objective(table.sum(axis=1))
        if found > worth:
            best, worth = table, found
        if found >= wanted - ENOUGH * abs(wanted):
            break
        blame = blame + _losses(market, counts, table)
    return best


def _losses(market: Market, counts: Ints, table: Timetable) -> Floats:
    """What is lost by each job that falls short, if all others got their counts; shape (jobs,)."""
    losses = np.zeros(len(counts))
    reached = table.sum(axis=1)
    wanted = market.objective(counts)
    for job in np.flatnonzero(reached < counts).tolist():
        lacking = counts.copy()
        lacking[job] = reached[job]
        losses[job] = wanted - market.objective(lacking)
    return losses


def _placed(market: Market, counts: Ints, order: Sequence[int], blame: Floats) -> Timetable:
    """One lay-out; the more a job is to blame for, shape (jobs,), the earlier it is placed."""
    gangs = market.gangs
    table = np.zeros((len(counts), market.window), dtype=bool)
    pressed = list(zip((-blame).tolist(), (counts < market.window).tolist(), strict=True))
    ranked = sorted(order, key=pressed.__getitem__)
    table[_coming_round(market, counts, ranked), 0] = True
    left = counts - table[:, 0]
    widest = np.lexsort((-left, -gangs, -blame))
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


def _coming_round(market: Market, counts: Ints, ranked: Sequence[int]) -> list[int]:
    """The jobs that run first: as ranked, skipping what does not fit."""
    gangs, wanted = market.gangs.tolist(), counts.tolist()
    free, jobs = market.gpus, list[int]()
    for job in ranked:
        if wanted[job] and gangs[job] <= free:
            jobs.append(job)
            free -= gangs[job]
    return jobs


def _spread(market: Market, left: Ints, ranked: Ints) -> Timetable:
    """Place jobs, as ranked, in the emptiest of the later rounds, as often as they fit."""
    table = np.zeros((len(left), market.window - 1), dtype=bool)
    used = np.zeros(market.window - 1, dtype=np.int64)
    gangs = market.gangs[ranked].tolist()
    for job, gang, wanted in zip(ranked.tolist(), gangs, left[ranked].tolist(), strict=True):
        at = used.argsort(kind="stable")[:wanted]
        at = at[used[at] <= market.gpus - gang]
        table[job, at] = True
        used[at] += gang
    return table
