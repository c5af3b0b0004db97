"""Solve a round in which jobs choose among GPU types, as a transportation problem.

    max  Σ_r U_r x_r    s. t.  Σ_{r on c} g_r x_r ≤ C_c,  Σ_{r of j} x_r ≤ 1,  x_r ∈ {0, 1}

Row r is an allocation that a job bids on. A price p_c ≥ 0 on each GPU type separates the jobs:

    D(p) = Σ_c C_c p_c + Σ_j max(0, max_{r of j} U_r − g_r p_c(r))

bounds every round. D is convex, with one variable per type. Newton's method minimises a smooth
majorant, in which the logarithm of a sum of exponentials replaces each maximum (Nesterov, Smooth
minimization of non-smooth functions, 2005), and which is sharpened step by step.

At these prices each job has a regret: its loss on its second choice against its first. Jobs choose
in order of falling regret among the types with room. Then chains of moves into, between and out of
types are followed while one raises the objective. With gangs of one size these chains are the
augmenting paths of the transportation problem, so the round is optimal. If the prices do not prove
that, prices at which no move gains do: potentials of the same paths (Ahuja, Magnanti and Orlin,
Network Flows, 1993, section 9.3). With gangs of several sizes, the core of each type, the jobs that
run there or wait, is then solved as a knapsack (`solver.backends.core`).
"""

import numpy as np

from predictor.arrays import Bools, Floats, Ints
from solver.backends import RELATIVE_GAP, CountProblem, CountSolution
from solver.backends.core import solve_core

SHARPEST = 1e-4
"""Temperature of the last majorant, as a share of the largest utility per GPU. Chains of moves
settle what it leaves undecided. Not swept."""

NEWTON_STEPS = 12
"""Bound on effort: Newton steps per temperature. Not swept."""

CHAINS = 400
"""Bound on effort: chains of moves that are followed. Not swept."""

OPTIONS = 64
"""Bound on effort: rows in the core of a type, besides those chosen. Not swept."""

KNAPSACK_OPTIONS = (64, 64, 4096)
"""The same bound for successive searches of a round on one type. A better plan leaves more rows out
of the next search."""


def solve_round(problem: CountProblem) -> CountSolution:
    """Solve a round: a problem of a single round without a regulariser, with rows sorted by job."""
    worth = np.where(problem.most > 0, problem.utility[:, -1], 0.0)
    if len(problem.capacities) == 1 and not problem.shared:
        return _solve_one_type(problem, worth)
    tables = _Round(problem, worth)
    prices = tables.prices()
    bound = tables.bound(prices)
    chosen = tables.chosen(prices)
    tables.improve(chosen, bound)
    objective = float(worth[chosen].sum())
    if bound - objective > RELATIVE_GAP * bound:
        exact = tables.potentials(chosen, prices)
        if (lower := tables.bound(exact)) < bound:
            bound, prices = lower, exact
    return CountSolution(
        counts=chosen.astype(np.int64),
        bound=max(bound, objective),
        prices=prices,
        status="optimal" if bound - objective <= RELATIVE_GAP * bound else "work_limit",
    )


def _solve_one_type(problem: CountProblem, worth: Floats) -> CountSolution:
    """Solve a round on one GPU type with one row per job: a knapsack."""
    gangs, capacity = problem.gangs.astype(float), int(problem.capacities[0])
    price, bound, net, order = _relax(worth, gangs, float(capacity))
    chosen = _take_in_order(order, problem.gangs * problem.most, problem.most, capacity)
    value = float(worth @ chosen)
    losses = np.stack([np.maximum(net, 0.0), np.maximum(-net, 0.0)], axis=1)
    losses[problem.most == 0, 1] = np.inf
    for options in KNAPSACK_OPTIONS:
        if bound - value <= RELATIVE_GAP * bound:
            break
        found, complete = solve_core(
            losses, problem.gangs, capacity, price, most_loss=bound - value, options=options
        )
        if float(worth @ found) > value:
            chosen, value = found, float(worth @ found)
        if complete:
            bound = min(bound, value * (1.0 + 2.0**-52 * len(worth)))
    status = "optimal" if bound - value <= RELATIVE_GAP * bound else "work_limit"
    return CountSolution(chosen, max(bound, value), np.array([price]), status)


def _take_in_order(order: Ints, needs: Ints, most: Ints, capacity: int) -> Ints:
    """Return the rows that fit in order, with backfilling, as counts."""
    counts, needed = np.zeros_like(most), needs[order].tolist()
    for row, gpus in zip(order.tolist(), needed, strict=True):
        if 0 < gpus <= capacity:
            counts[row] = 1
            capacity -= gpus
    return counts


def _relax(worth: Floats, gangs: Floats, capacity: float) -> tuple[float, float, Floats, Ints]:
    """Find the price at which the best rows per GPU fill a capacity.

    Returns the price, the bound (raised by its rounding error), net worths at that price, and the
    rows by descending worth per GPU.
    """
    ratios = worth / gangs
    order = np.argsort(-ratios, kind="stable")
    beyond = np.cumsum(gangs[order]) > capacity
    price = float(ratios[order[int(beyond.argmax())]]) if beyond.any() else 0.0
    net: Floats = gangs * (ratios - price)  # this form makes its sign exact
    bound = price * capacity + float(np.maximum(net, 0.0).sum())
    return price, bound * (1.0 + 2.0**-52 * len(worth)), net, order


class _Round:
    """The rows of a round as arrays.

    Attributes:
        worth: U, shape (rows,).
        kind: Index of each row's GPU type.
        first: First row of each job.
        job: Index of each row's job.
    """

    def __init__(self, problem: CountProblem, worth: Floats) -> None:
        self.worth, self.kind = worth, problem.type_of
        self.gangs = problem.gangs.astype(float)
        self.capacities = problem.capacities.astype(float)
        self.types = len(problem.capacities)
        self.first = np.flatnonzero(np.diff(problem.job_of, prepend=-1))
        self.job = np.repeat(np.arange(len(self.first)), np.diff(self.first, append=len(worth)))
        self.cell = self.job * self.types + self.kind
        self.largest = np.maximum.reduceat(self.gangs, self.first)

    def bound(self, prices: Floats) -> float:
        """Return D at prices, shape (types,), raised by its rounding error."""
        net = self.worth - self.gangs * prices[self.kind]
        gains = np.maximum(np.maximum.reduceat(net, self.first), 0.0)
        worth = float(self.capacities @ prices) + float(gains.sum())
        return worth * (1.0 + 2.0**-52 * (len(net) + self.types))

    def prices(self) -> Floats:
        """Return prices near the minimum of D, shape (types,)."""
        prices = np.zeros(self.types)
        dearest = float((self.worth / self.gangs).max(initial=0.0))
        if dearest <= 0.0:
            return prices
        heat = dearest / 8.0
        while True:
            prices = self._newton(prices, heat, dearest)
            if heat <= SHARPEST * dearest:
                return prices
            heat = max(heat / 8.0, SHARPEST * dearest)

    def _newton(self, prices: Floats, heat: float, dearest: float) -> Floats:
        """Minimise the majorant at a temperature, starting from these prices."""
        value, slope, curve = self._smooth(prices, heat)
        for _ in range(NEWTON_STEPS):
            free = (prices > 0.0) | (slope < 0.0)
            if not free.any() or np.abs(slope[free]).max() <= 1e-2 * self.capacities.min():
                break
            bend = curve[np.ix_(free, free)]
            bend += np.eye(len(bend)) * (1e-9 + 1e-7 * float(np.trace(bend)))
            step = np.zeros(self.types)
            step[free] = -np.linalg.solve(bend, slope[free])
            step *= min(1.0, dearest / float(np.abs(step).max()))
            for halvings in range(20):
                there = np.clip(prices + step / 2.0**halvings, 0.0, dearest)
                found = self._smooth(there, heat)
                if found[0] <= value - 1e-4 * abs(float(slope @ (there - prices))):
                    break
            else:
                break
            gain = value - found[0]
            prices, (value, slope, curve) = there, found
            if gain <= 1e-7 * abs(value):
                break
        return prices

    def _smooth(self, prices: Floats, heat: float) -> tuple[float, Floats, Floats]:
        """Return the majorant of D, its gradient, and its Hessian."""
        scale = heat * self.largest
        net = (self.worth - self.gangs * prices[self.kind]) / scale[self.job]
        top = np.maximum(np.maximum.reduceat(net, self.first), 0.0)
        share = np.exp(net - top[self.job])
        total = np.add.reduceat(share, self.first) + np.exp(-top)
        share *= self.gangs / total[self.job]
        value = float(self.capacities @ prices + scale @ (top + np.log(total)))
        size = len(self.first) * self.types
        wanted = np.bincount(self.cell, share, size).reshape(-1, self.types)
        spread = np.bincount(self.kind, share * self.gangs / scale[self.job], self.types)
        curve = np.diag(spread) - wanted.T @ (wanted / scale[:, None])
        return value, self.capacities - wanted.sum(axis=0), curve

    def chosen(self, prices: Floats) -> Bools:
        """Choose rows by job, in order of falling regret; shape (rows,)."""
        net = self.worth - self.gangs * prices[self.kind]
        ranked = np.lexsort((-net, self.job))
        best = net[ranked[self.first]]
        second = np.full(len(self.first), 0.0)
        several = np.diff(self.first, append=len(net)) > 1
        second[several] = np.maximum(net[ranked[self.first[several] + 1]], 0.0)
        regret = (best - second) / self.largest
        ends = np.append(self.first[1:], len(net)).tolist()
        starts, order = self.first.tolist(), ranked.tolist()
        kind, gangs, gain = self.kind.tolist(), self.gangs.tolist(), net.tolist()
        free = self.capacities.tolist()
        runs = np.zeros(len(net), dtype=bool)
        for job in np.argsort(-regret, kind="stable").tolist():
            for row in order[starts[job] : ends[job]]:
                if gain[row] < 0.0:
                    break
                if gangs[row] <= free[kind[row]]:
                    runs[row] = True
                    free[kind[row]] -= gangs[row]
                    break
        return runs

    def improve(self, runs: Bools, bound: float) -> None:
        """Follow chains of moves, and refill types, while that raises the objective.

        Stops near the bound. Changes `runs`, shape (rows,), in place.
        """
        used = np.bincount(self.kind, np.where(runs, self.gangs, 0.0), self.types)
        free: Floats = self.capacities - used
        least = 1e-12 * bound
        sizes: list[float] = np.unique(self.gangs)[::-1].tolist()
        for _ in range(CHAINS):
            if bound - float(self.worth[runs].sum()) <= RELATIVE_GAP / 10.0 * bound:
                return
            at_row = np.full(len(self.first), -1)
            at_row[self.job[runs]] = np.flatnonzero(runs)
            best = max((self._chain(at_row, free, size) for size in sizes), key=lambda c: c[0])
            gain, size, came, went = best
            if gain > least:
                for off, on in zip(came, went, strict=True):
                    if off >= 0:
                        runs[off] = False
                        free[self.kind[off]] += size
                    if on >= 0:
                        runs[on] = True
                        free[self.kind[on]] -= size
            elif len(sizes) < 2 or not any(
                [self._refill(runs, free, kind, least) for kind in range(self.types)]
            ):
                return

    def potentials(self, runs: Bools, prices: Floats) -> Floats:
        """Return prices, starting from `prices`, at which no job prefers another type or waiting.

        They exist if gangs have one size and no chain of moves gains. D then equals the utility of
        the running rows, except for GPUs that are too few for a gang. With several gang sizes, the
        given prices are returned.
        """
        size = float(self.gangs[0])
        if (self.gangs != size).any():
            return prices
        at_row = np.full(len(self.first), -1)
        at_row[self.job[runs]] = np.flatnonzero(runs)
        apart, _ = self._moves(at_row, size)  # minimum price differences of two types
        used = np.bincount(self.kind[runs], self.gangs[runs], self.types)
        np.fill_diagonal(apart, 0.0)
        apart[-1] = np.maximum(apart[-1], 0.0)
        free = np.flatnonzero(self.capacities - used >= size)
        apart[free, -1] = np.maximum(apart[free, -1], 0.0)
        for by in range(self.types + 1):
            apart = np.maximum(apart, apart[:, [by]] + apart[by])
        most = -apart[:, -1]
        started = np.minimum(np.append(prices * size, 0.0), most)
        found: Floats = (started[:, None] + apart).max(axis=0)[:-1] / size
        return np.maximum(found, 0.0)

    def _refill(self, runs: Bools, free: Floats, kind: int, least: float) -> bool:
        """Solve the core of a type among its running jobs and the waiting jobs.

        Returns whether the objective rose by more than `least`.
        """
        busy = np.zeros(len(self.first), dtype=bool)
        busy[self.job[runs]] = True
        rows = np.flatnonzero((self.kind == kind) & (runs | ~busy[self.job]))
        _, single = np.unique(self.job[rows], return_index=True)
        if len(single) < len(rows) or not len(rows):
            return False  # a job has several gang sizes on this type
        worth, gangs = self.worth[rows], self.gangs[rows]
        capacity = free[kind] + float(gangs[runs[rows]].sum())
        order = np.argsort(-worth / gangs, kind="stable")
        fits = np.cumsum(gangs[order]) <= capacity
        if fits.all():
            return False
        critical = order[int(fits.argmin())]
        price = float(worth[critical] / gangs[critical])
        net = worth - price * gangs
        losses = np.stack([np.maximum(net, 0.0), np.maximum(-net, 0.0)], axis=1)
        value = float(worth[runs[rows]].sum())
        counts, _ = solve_core(
            losses,
            gangs.astype(np.int64),
            int(capacity),
            price,
            most_loss=price * capacity + float(np.maximum(net, 0.0).sum()) - value,
            options=OPTIONS,
        )
        if float(worth @ counts) <= value + least:
            return False
        runs[rows] = counts > 0
        free[kind] = capacity - float(gangs @ counts)
        return True

    def _chain(
        self, at_row: Ints, free: Floats, size: float
    ) -> tuple[float, float, list[int], list[int]]:
        """Find the best chain of moves of gangs of a size, each into GPUs that the next one leaves.

        `at_row` is the row that each job runs on, −1 for none. Returns the gain, the size, and for
        each move the row that stops and the row that starts, −1 for none.
        """
        waiting = self.types
        gain, mover = self._moves(at_row, size)
        reach = np.where(np.append(free >= size, True), 0.0, -np.inf)
        nexts: list[Ints] = []
        best: tuple[float, list[int]] = (0.0, [])
        for length in range(1, waiting + 2):
            through = gain + reach
            nexts.append(through.argmax(axis=1))
            reach = through.max(axis=1)
            for start in np.flatnonzero(reach > best[0]).tolist():
                path = [start]
                for step in range(length):
                    path.append(int(nexts[length - 1 - step][path[-1]]))
                inner = path[:-1] if path[0] == path[-1] else path
                if len(set(inner)) == len(inner):
                    best = float(reach[start]), path
        came, went = [], []
        for off, on in zip(best[1], best[1][1:], strict=False):
            row = int(mover[off, on])
            came.append(int(at_row[self.job[row]]))
            went.append(-1 if on == waiting else row)
        return best[0], size, came, went

    def _moves(self, at_row: Ints, size: float) -> tuple[Floats, Ints]:
        """Return the best moves of gangs of a size from each type to each other, as in `_chain`.

        Nodes are the types and, last, waiting; a move is an edge. Returns each move's gain, −∞ if
        there is none, and the row that it starts, or stops if the move is to waiting; both of shape
        (types + 1, types + 1).
        """
        waiting = self.types
        rows = np.flatnonzero(self.gangs == size)
        now = at_row[self.job[rows]]
        movable = (now < 0) | (self.gangs[now] == size)
        rows, now = rows[movable], now[movable]
        held = np.where(now < 0, 0.0, self.worth[now])
        source = np.where(now < 0, waiting, self.kind[now])
        gain = np.full((waiting + 1, waiting + 1), -np.inf)
        mover = np.full((waiting + 1, waiting + 1), -1)
        edges = source * (waiting + 1) + self.kind[rows]
        better = self.worth[rows] - held
        np.maximum.at(gain.ravel(), edges, better)
        # Reversed, so that the first of equally good rows is assigned last and wins.
        ends = np.flatnonzero(better == gain.ravel()[edges])[::-1]
        mover.ravel()[edges[ends]] = rows[ends]
        for kind in range(waiting):  # moves to waiting: the least valuable gang stops
            there = rows[(now == rows) & (self.kind[rows] == kind)]
            if len(there):
                least = there[self.worth[there].argmin()]
                gain[kind, waiting], mover[kind, waiting] = -self.worth[least], least
        np.fill_diagonal(gain, -np.inf)
        return gain, mover
