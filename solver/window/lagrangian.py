"""Solve a window: a Lagrangian bound in NumPy, and an exact search of the core.

A price λ ≥ 0 on GPU-rounds relaxes the capacity row (Everett, 1963) and separates the jobs,
except for the longest remaining time z that the regulariser charges:

    D(λ, z) = λC − kz + Σ_j max {U_j(n) − λ g_j n : r_j(n) ≤ z}

bounds every plan whose longest remaining time is at most z; only the z among the r_j(n) matter.
So max_z min_λ D(λ, z), with the minimum over any prices, bounds all plans. One sort of the r_j(n)
gives D(λ, z) for all z by a cumulative sum. D is convex and piecewise linear in λ; its slope is
the capacity C less the demand in GPU-rounds. Its minimum lies between a price at which demand
exceeds capacity and a price at which demand fits.

`solver.backends.core` closes the duality gap that remains at the best price, level z by level z,
the largest bound first.
"""

from dataclasses import dataclass

import numpy as np

from predictor.arrays import Floats, Ints
from solver.backends import RELATIVE_GAP, CountProblem, CountSolution
from solver.backends.core import solve_core

TARGET_GAP = 1e-7
"""Gap at which the search ends, as a share of the stake: a hundredth of `RELATIVE_GAP`. Not swept;
`tests/solver/window/test_lagrangian.py` checks plans against twice this gap."""

TANGENTS = 30
"""Bound on effort: prices tried between two neighbouring slopes of the tables. Concave tables need
none (docs/market.md); an engineering bound for other tables, not swept."""

FIRST_OPTIONS, MOST_OPTIONS = 128, 4096
"""Maximum number of counts in the core besides the jobs' best, at first and if a gap remains. An
engineering bound, not swept."""

CORE_SOLVES = 40
"""Bound on effort: maximum number of core solves. An engineering bound, not swept."""


def solve_window(problem: CountProblem) -> CountSolution:
    """Solve a problem with one GPU type, to a gap relative to the stake (`_Dual`).

    Raises:
        BackendUnavailableError: The problem has several GPU types.
    """
    dual = _Dual(problem)
    at = dual.minimise()
    price = at.price
    best, value = np.zeros_like(problem.most), -np.inf
    options = FIRST_OPTIONS
    for _ in range(CORE_SOLVES):
        level = int(dual.bounds.argmax())
        enough = value + TARGET_GAP * float(dual.stakes[level])
        if dual.bounds[level] <= enough:
            break
        at = dual.minimise(level, price)
        if dual.bounds[level] <= enough:
            continue
        plan, complete = solve_core(
            at.losses(dual.floors(level)),
            problem.gangs,
            problem.capacity,
            at.price,
            most_loss=float(at.worth[level]) - value,
            options=options,
        )
        found = problem.objective(plan)
        improved = found > value
        if improved:
            best, value = plan, found
        if complete:
            dual.bounds[level] = min(float(dual.bounds[level]), value + float(at.rounding[level]))
        elif not improved:
            if options == MOST_OPTIONS or dual.near(value):
                break
            options = MOST_OPTIONS
    status = "optimal" if dual.near(value) else "work_limit"
    bound = max(float(dual.bounds.max()), value)
    return CountSolution(best, bound, np.array([price]), status)


@dataclass(frozen=True)
class _Demands:
    """The jobs' demand at a price.

    Attributes:
        net: Net utility U_j(n) − λ g_j n, shape (jobs, T + 1); −inf above T_j.
        best: The largest net utility of n and more rounds, same shape.
        worth: D(λ, z) for every level z, rounded up.
        rounding: Amount of this rounding, by level.
    """

    price: float
    net: Floats
    best: Floats
    worth: Floats
    rounding: Floats

    def losses(self, floors: Ints) -> Floats:
        """Return the loss d_j(n) of n rounds against the best count; inf below the floors."""
        rows, rounds = np.arange(len(floors)), np.arange(self.net.shape[1])
        losses = self.best[rows, floors][:, None] - self.net
        return np.where(rounds >= floors[:, None], losses, np.inf)

    def counts(self, floors: Ints) -> Ints:
        """Return the least counts without loss, shape (jobs,)."""
        allowed = np.arange(self.net.shape[1]) >= floors[:, None]
        counts: Ints = ((self.net >= self.best) & allowed).argmax(axis=1)
        return counts


@dataclass(frozen=True)
class _Point:
    """D at a price and a level, and its slope: capacity less demand, in GPU-rounds."""

    demands: _Demands
    worth: float
    slope: int

    @property
    def price(self) -> float:
        """λ."""
        return self.demands.price

    def along(self, price: float) -> float:
        """Return the tangent at another price: a lower bound on D there."""
        return self.worth + self.slope * (price - self.price)

    def crossing(self, other: "_Point") -> float:
        """Return the price at which two tangents cross."""
        rise = other.along(0.0) - self.along(0.0)
        return rise / (self.slope - other.slope)


class _Dual:
    """D(λ, z) over all longest remaining times z that some counts within capacity reach.

    Level i is z = `longest[i]`: the first i of the `steps` are taken, in descending order of
    remaining time. The stake of a level is the largest total utility plus the charge k z.
    """

    def __init__(self, problem: CountProblem) -> None:
        self.problem = problem
        width = problem.utility.shape[1]
        rounds = np.arange(width)
        self.gains = np.where(rounds <= problem.most[:, None], problem.utility, -np.inf)
        self.use = problem.gangs[:, None] * rounds
        left = problem.remaining.ravel()
        steps = np.flatnonzero(left > 0.0) if problem.regularizer else np.zeros(0, dtype=np.int64)
        steps = steps[np.argsort(-left[steps], kind="stable")]
        fits = np.cumsum(problem.gangs[steps // width]) <= problem.capacity
        self.steps = steps[fits]
        self.longest = np.append(left[steps], 0.0)[: len(self.steps) + 1]
        self.bounds = np.full(len(self.longest), np.inf)
        slopes = np.diff(problem.utility, axis=1) / problem.gangs[:, None]
        dearest = 2.0 * slopes.max(initial=0.0)  # at this price demand is at the floors
        self.prices = np.unique(np.concatenate([[0.0], slopes[slopes > 0.0], [dearest]]))
        self.stakes = float(problem.utility[:, -1].sum()) + problem.regularizer * self.longest

    def near(self, value: float) -> bool:
        """Return whether a plan's value is within the relative gap of the bound."""
        level = int(self.bounds.argmax())
        return float(self.bounds[level]) <= value + RELATIVE_GAP * float(self.stakes[level])

    def floors(self, level: int) -> Ints:
        """Return the minimum rounds of each job at a level, shape (jobs,)."""
        jobs, width = self.gains.shape
        floors: Ints = np.bincount(self.steps[:level] // width, minlength=jobs)
        return floors

    def at(self, price: float) -> _Demands:
        """Return the demand at a price; lowers the bounds."""
        problem = self.problem
        net = self.gains - price * self.use
        best = np.maximum.accumulate(net[:, ::-1], axis=1)[:, ::-1]
        paid = price * problem.capacity
        worth = float(best[:, 0].sum()) + paid - problem.regularizer * self.longest
        flat = best.ravel()
        worth[1:] -= np.cumsum(flat[self.steps] - flat[self.steps + 1])
        spent = self.stakes + price * float(problem.gangs @ problem.most) + paid
        rounding = ROUNDING * (len(self.steps) + len(net)) * spent
        worth += rounding
        np.minimum(self.bounds, worth, out=self.bounds)
        return _Demands(price, net, best, worth, rounding)

    def point(self, price: float, level: int | None) -> "_Point":
        """Return D and its slope at a price, at a level or (None) at the level of the largest D."""
        demands = self.at(price)
        level = int(demands.worth.argmax()) if level is None else level
        use = int(self.problem.gangs @ demands.counts(self.floors(level)))
        return _Point(demands, float(demands.worth[level]), self.problem.capacity - use)

    def minimise(self, level: int | None = None, near: float | None = None) -> _Demands:
        """Minimise D over prices at a level, and tighten the bounds of all levels.

        Without a level, use the level of the largest D at each price; `near` is the starting price.
        Return the demand at the lowest price found whose demand fits the capacity.
        """
        low, high = 0, len(self.prices) - 1
        index, step = (low + high) // 2, high + 1
        if near is not None:
            index, step = min(int(np.searchsorted(self.prices, near)), high), 1
        below = above = None
        while low < high:
            point = self.point(float(self.prices[index]), level)
            if point.slope < 0:
                below, low = point, index + 1
            else:
                above, high = point, index
            middle = (low + high) // 2
            if below is None:
                index = max(middle, high - step)
            elif above is None:
                index = min(middle, low + step - 1)
            else:
                index = middle
            step *= 2
        above = above or self.point(float(self.prices[high]), level)
        for _ in range(TANGENTS if below else 0):
            assert below is not None
            price = below.crossing(above)
            if not below.price < price < above.price:
                break
            point = self.point(price, level)
            reached = point.worth <= below.along(price) + ROUNDING * abs(below.worth)
            below, above = (point, above) if point.slope < 0 else (below, point)
            if reached:
                break
        return above.demands


ROUNDING = 2.0**-52
"""Relative rounding error of a double, for each number summed; raises the bounds."""
