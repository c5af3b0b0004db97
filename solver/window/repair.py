"""Repair a timetable locally: exchange and trade for jobs below their counts, then backfill."""

import heapq

import numpy as np

from predictor.arrays import Bools, Ints
from solver.window.market import WindowMarket

Timetable = Bools
"""Whether each job runs in each round of the window, shape (jobs, T)."""


def exchange(table: Timetable, free: Ints, gangs: Ints, job: int, count: int) -> None:
    """Make room for a job below its count by moving smaller gangs from a round into other rounds.

    Changes the timetable, and the idle GPUs in each round `free`, shape (T,), in place.
    """
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


def trade(
    market: WindowMarket, table: Timetable, free: Ints, job: int, count: int, lacking: Ints
) -> None:
    """Reassign rounds to a job below its count from jobs that together lose less than it gains.

    Changes the timetable, and the idle GPUs in each round `free`, shape (T,), in place. Rounds that
    other jobs still lack, shape (jobs,), count as already given, because the longest residual run
    time falls only once all its jobs have their counts.
    """
    gangs, rows = market.gangs, np.arange(len(table))
    while True:
        counts = table.sum(axis=1) + lacking
        if counts[job] >= count:
            return
        fewer = np.maximum(counts - 1, 0)
        longest = float(market.remaining[rows, counts].max())
        later = np.maximum(market.remaining[rows, fewer] - longest, 0.0)
        loss = market.utility[rows, counts] - market.utility[rows, fewer]
        loss += market.regularizer * later
        cheapest = np.argsort(loss / gangs, kind="stable")
        worth = market.objective(counts)
        best, gain = (0, rows[:0]), 0.0
        for here in np.flatnonzero(~table[job]).tolist():
            running = cheapest[table[cheapest, here]]
            room = free[here] + np.cumsum(np.append(0, gangs[running]))
            leaving = running[: int(np.argmax(room >= gangs[job]))]
            after = counts.copy()
            after[leaving] -= 1
            after[job] += 1
            better = market.objective(after) - worth
            if better > gain:
                best, gain = (here, leaving), better
        if gain <= 0.0:
            return
        here, leaving = best
        table[leaving, here], table[job, here] = False, True
        free[here] += int(gangs[leaving].sum()) - int(gangs[job])


def fill(market: WindowMarket, table: Timetable, free: Ints) -> None:
    """Backfill idle GPUs: the largest gain per GPU first, then the longest residual run time."""
    gangs, window = market.gangs, market.window
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
