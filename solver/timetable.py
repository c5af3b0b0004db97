"""Lay counts of rounds out in time: which job runs in which round of the window.

Not every vector of counts can be laid out: jobs never share a GPU in a round and none
runs twice in one, so big gangs can squeeze out small jobs that want almost every round.
The result is always feasible; what could not be placed is given up and the room left
is filled with what gains most, so the loss is known.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from solver.market import Ints, Market

Timetable = NDArray[np.bool_]
"""Shape (jobs, T): whether a job runs in a round of the window."""


def lay_out(market: Market, counts: Ints, order: Sequence[int]) -> Timetable:
    """Place every job in as many rounds as its count says, or nearly.

    The first round, the one that will be executed, is a list: jobs that need every
    round of the window, then the others in `order`, skipping what does not fit. The
    rest of the counts goes, largest gang first, into the emptiest rounds. What does not
    fit is tried by exchange with rounds that have room, then traded against rounds of
    jobs that lose less by it; room that is left goes to the best increments.

    Args:
        market: The window problem.
        counts: n_j, shape (jobs,), within the window's GPU-rounds.
        order: Jobs (rows of the market), the first to run first.

    Returns:
        A feasible timetable: no round uses more GPUs than there are.
    """
    gangs = market.scale_factors
    table = np.zeros((len(counts), market.window), dtype=bool)
    free = np.full(market.window, market.gpus, dtype=np.int64)
    for job in sorted(order, key=lambda job: counts[job] < market.window):
        if counts[job] and gangs[job] <= free[0]:
            table[job, 0] = True
            free[0] -= gangs[job]
    left = counts - table[:, 0]
    for job in np.lexsort((-left, -gangs)).tolist():
        rounds = np.argsort(-free, kind="stable")[: left[job] + 1]
        rounds = rounds[(free[rounds] >= gangs[job]) & (rounds > 0)][: left[job]]
        table[job, rounds] = True
        free[rounds] -= gangs[job]
    for job in np.flatnonzero(table.sum(axis=1) < counts).tolist():
        _exchange(table, free, gangs, job, int(counts[job]))
        _trade(market, table, free, job, int(counts[job]))
    _fill(market, table, free)
    return table


def _exchange(table: Timetable, free: Ints, gangs: Ints, job: int, count: int) -> None:
    """Make room for a job by moving smaller ones from one round into another."""
    for here in np.argsort(-free, kind="stable"):
        if table[job].sum() >= count:
            return
        if table[job, here]:
            continue
        moves: list[tuple[int, int]] = []
        room, left = int(free[here]), free.copy()
        for other in np.argsort(-gangs, kind="stable"):
            if room >= gangs[job]:
                break
            if not table[other, here] or gangs[other] > gangs[job]:
                continue
            there = np.flatnonzero(~table[other] & (left >= gangs[other]))
            there = there[there != here]
            if len(there):
                to = int(there[np.argmax(left[there])])
                moves.append((int(other), to))
                left[to] -= gangs[other]
                room += int(gangs[other])
        if room < gangs[job]:
            continue
        for other, to in moves:
            table[other, here], table[other, to] = False, True
            free[here] += gangs[other]
            free[to] -= gangs[other]
        table[job, here] = True
        free[here] -= gangs[job]


def _trade(market: Market, table: Timetable, free: Ints, job: int, count: int) -> None:
    """Take rounds from jobs that together lose less by it than this one gains."""
    gangs, rows = market.scale_factors, np.arange(len(table))
    while True:
        counts = table.sum(axis=1)
        if counts[job] >= count:
            return
        loss = market.utility[rows, counts] - market.utility[rows, np.maximum(counts - 1, 0)]
        cheapest = np.argsort(loss / gangs, kind="stable")
        best, gain = (0, rows[:0]), 0.0
        for here in np.flatnonzero(~table[job]).tolist():
            running = cheapest[table[cheapest, here]]
            room = free[here] + np.cumsum(np.append(0, gangs[running]))
            leaving = running[: int(np.argmax(room >= gangs[job]))]
            after = counts.copy()
            after[leaving] -= 1
            after[job] += 1
            better = market.objective(after) - market.objective(counts)
            if better > gain:
                best, gain = (here, leaving), better
        if gain <= 0.0:
            return
        here, leaving = best
        table[leaving, here], table[job, here] = False, True
        free[here] += int(gangs[leaving].sum()) - int(gangs[job])


def _fill(market: Market, table: Timetable, free: Ints) -> None:
    """Give room that is left to the increments that gain most per GPU, then to the longest."""
    gangs, window = market.scale_factors, market.window
    rows = np.arange(len(gangs))
    while True:
        counts = table.sum(axis=1)
        fits = ((~table) & (free[None, :] >= gangs[:, None])).any(axis=1)
        if not fits.any():
            return
        after = np.minimum(counts + 1, window)
        gain = (market.utility[rows, after] - market.utility[rows, counts]) / gangs
        left = market.remaining[rows, counts]
        job = int(np.lexsort((rows, -left, -gain, ~fits))[0])
        rounds = np.flatnonzero(~table[job] & (free >= gangs[job]))
        best = rounds[np.argmax(free[rounds])]
        table[job, best] = True
        free[best] -= gangs[job]
