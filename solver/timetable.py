"""Lay counts of rounds out in time: which job runs in which round of the window.

Not every vector of counts can be laid out: jobs never share a GPU in a round and none
runs twice in one, so big gangs can squeeze out small jobs that want almost every round.
The result is always feasible; what could not be placed is given up and the room left
is filled with what gains most, so the loss is known.
"""

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from solver.market import Ints, Market

Timetable = NDArray[np.bool_]
"""Shape (jobs, T): whether a job runs in a round of the window."""


TRIES = 6
"""Bound on effort: lay-outs tried where one loses more than `ENOUGH`."""

ENOUGH = 1e-5
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
    hard = np.zeros(len(counts), dtype=bool)
    best, worth = np.zeros((len(counts), market.window), dtype=bool), -np.inf
    for _ in range(TRIES):
        table = _placed(market, counts, order, hard)
        reached = table.sum(axis=1)
        found = market.objective(reached)
        if found > worth:
            best, worth = table, found
        short = (reached < counts) & ~hard
        if found >= wanted - ENOUGH * abs(wanted) or not short.any():
            break
        hard |= short
    return best


def _placed(
    market: Market, counts: Ints, order: Sequence[int], hard: NDArray[np.bool_]
) -> Timetable:
    """One lay-out; the jobs that are hard to place, shape (jobs,), go before all others."""
    gangs = market.scale_factors
    table = np.zeros((len(counts), market.window), dtype=bool)
    pressed = np.where(hard, 0, np.where(counts == market.window, 1, 2)).tolist()
    ranked = sorted(order, key=pressed.__getitem__)
    table[_coming_round(market, counts, ranked), 0] = True
    left = counts - table[:, 0]
    widest = np.lexsort((-left, -gangs, ~hard))
    table[:, 1:] = _spread(market, left, widest[left[widest] > 0])
    free = market.gpus - gangs @ table
    for job in np.flatnonzero(table.sum(axis=1) < counts).tolist():
        _exchange(table, free, gangs, job, int(counts[job]))
        _trade(market, table, free, job, int(counts[job]))
    _fill(market, table, free)
    return table


def _coming_round(market: Market, counts: Ints, ranked: Sequence[int]) -> list[int]:
    """The jobs that run first: as ranked, skipping what does not fit."""
    gangs, wanted = market.scale_factors.tolist(), counts.tolist()
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
    gangs = market.scale_factors[ranked].tolist()
    for job, gang, wanted in zip(ranked.tolist(), gangs, left[ranked].tolist(), strict=True):
        at = used.argsort(kind="stable")[:wanted]
        at = at[used[at] <= market.gpus - gang]
        table[job, at] = True
        used[at] += gang
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
        elsewhere = ~table & (free >= gangs[:, None])
        elsewhere[:, here] = False
        movable = np.flatnonzero(table[:, here] & (gangs <= gangs[job]) & elsewhere.any(axis=1))
        for other in movable[np.argsort(-gangs[movable], kind="stable")]:
            if room >= gangs[job]:
                break
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
    counts = table.sum(axis=1)

    def rank(job: int) -> tuple[float, float, int]:
        count = int(counts[job])
        gain = market.utility[job, min(count + 1, window)] - market.utility[job, count]
        return -float(gain) / int(gangs[job]), -float(market.remaining[job, count]), job

    fits = (~table & (free >= gangs[:, None])).any(axis=1)
    waiting = [rank(job) for job in np.flatnonzero(fits).tolist()]
    heapq.heapify(waiting)
    while waiting:
        job = heapq.heappop(waiting)[-1]
        rounds = np.flatnonzero(~table[job] & (free >= gangs[job]))
        if not len(rounds):
            continue
        best = rounds[np.argmax(free[rounds])]
        table[job, best] = True
        free[best] -= gangs[job]
        counts[job] += 1
        heapq.heappush(waiting, rank(job))
