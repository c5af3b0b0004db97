"""Price GPUs over time: a linear program of all remaining work, solved by an interior point.

Time is divided into intervals. The length h of the last one is a variable, so that all work fits:

    min  Σ c_jkt y_jkt + κ h    s. t.  Σ_kt y_jkt / e_jk = 1,  Σ_k y_jkt ≤ L_t,
                                       Σ_j g_j y_jkt ≤ C_k L_t,  y ≥ 0

y_jkt are seconds of job j on type k in interval t, of which e_jk finish it. The dual has a price
p_kt of a GPU for each type and interval, a premium q_jt for each job whose time in an interval is
scarce, and the cost v_j of a job's work:

    v_j / e_jk − c_jkt ≤ g_j p_kt + q_jt,    Σ_k C_k p_kT + Σ_j q_jT ≤ κ

Further rows for types in intervals (`solver.backends.limits`) add their prices to p.

The solver is a primal-dual interior-point method with Mehrotra's predictor and corrector (SIAM J.
Optimization, 1992), from a point that may violate the constraints. Eliminating the jobs' rows
reduces a step to passes over the table and a system in the prices and h. Prices from the middle of
the optimal face do not jump between rounds, as prices of a vertex would.
"""

from dataclasses import dataclass

import numpy as np

from predictor.arrays import Floats, Ints
from predictor.errors import SolverError
from solver.backends.dense import dot, multiply_over, solve_equations
from solver.backends.limits import Limits

CLOSED = 1e-3
"""Gap at which the search ends, as a share of the optimum. With 300 jobs on 3 types, half of the
bids are then within 0.06 %, and 90 % within 0.5 %, of the bids at a gap of 1e-7."""

STEPS = 80
"""Bound on effort. Most problems took 12 to 20 steps; one of 300 jobs whose run times differ by a
factor of a thousand and more took 57."""

MOST = 128
"""Bound on effort: maximum number of jobs in the program, which samples larger numbers. With 300
jobs on 3 types, clearing the bids of 400 instead of 128 was worth less than 1e-3 more."""

SHORTENED = 0.99
"""Share of the distance to the next constraint that a step covers, so that no variable becomes 0
(Nocedal and Wright, Numerical Optimization, section 14.2). Not swept."""


@dataclass(frozen=True)
class ProgramOverTime:
    """The program as arrays. A cost is c = costs / e + fixed, at least 0.

    Attributes:
        speed: 1 / e by job and type, 0 where a job cannot run, shape (jobs, types).
        costs: Cost of all work of a job in an interval, shape (jobs, intervals).
        fixed: Cost of a second anywhere, shape (jobs,).
        gangs: g, shape (jobs,).
        capacities: C, shape (types,), positive.
        lengths: L, shape (intervals,); the last one is a guess.
        makespan: κ over the number of jobs.
    """

    speed: Floats
    costs: Floats
    fixed: Floats
    gangs: Floats
    capacities: Floats
    lengths: Floats
    makespan: float


@dataclass(frozen=True)
class PricesOverTime:
    """The solution of the search.

    Attributes:
        prices: p, shape (intervals, types).
        last: h, length of the last interval.
        closed: Whether the gap is closed; False if the search reached its bound on effort.
        seconds: y, shape (intervals, types, jobs), of the program's jobs.
        more: Prices of the additional rows, shape (rows,).
    """

    prices: Floats
    last: float
    closed: bool
    seconds: Floats
    limits: Limits
    more: Floats

    def paid(self, gangs: Floats) -> Floats:
        """Return the cost of a second of each job, shape (intervals, types, jobs).

        With limits, `gangs` are those of the program's jobs.
        """
        return _paid(self.prices, gangs, self.limits, self.more)

    def ending(self, capacities: Floats) -> float:
        """Return the cost of a second of the last interval at these prices."""
        last = self.limits.times == len(self.prices) - 1
        return float(capacities @ self.prices[-1]) + dot(self.limits.room[last], self.more[last])


def price_over_time(
    program: ProgramOverTime,
    gap: float = CLOSED,
    *,
    sampled: bool = True,
    limits: Limits | None = None,
) -> PricesOverTime:
    """Solve the program for its prices, to a gap as a share of the optimum.

    If `sampled`, more than `MOST` jobs are reduced to a sample with its share of GPUs; `limits`
    need at most `MOST` jobs.

    Raises:
        SolverError: A step has no direction.
    """
    program = _sampled(program) if sampled else program
    limits = limits or Limits.none(len(program.gangs))
    point = _Point(program, limits)
    steps = 0
    while not (closed := point.closed(gap)) and steps < STEPS:
        point.step()
        steps += 1
    prices, last = point.d.u, float(point.x.all[-1])
    return PricesOverTime(prices, last, closed, point.x.y, limits, point.d.more)


def _paid(prices: Floats, gangs: Floats, limits: Limits, more: Floats) -> Floats:
    return limits.priced(np.multiply.outer(prices, gangs), more)


def _sampled(program: ProgramOverTime) -> ProgramOverTime:
    """Return the program of `MOST` jobs, sampled evenly by gang and size."""
    jobs = len(program.gangs)
    if jobs <= MOST:
        return program
    sizes = program.speed.max(axis=1)
    order = np.lexsort((sizes, program.gangs))
    some: Ints = order[np.linspace(0, jobs - 1, MOST).astype(np.int64)]
    work = program.gangs / sizes
    return ProgramOverTime(
        program.speed[some],
        program.costs[some],
        program.fixed[some],
        program.gangs[some],
        program.capacities * float(work[some].sum() / work.sum()),
        program.lengths,
        program.makespan,
    )


class _Parts:
    """A vector and views of its parts; its last element belongs to h.

    Attributes:
        y: Part by interval, type and job, shape (intervals, types, jobs).
        s: Part by interval and job, shape (intervals, jobs).
        u: Part by interval and type, shape (intervals, types).
        more: Part by limit, shape (rows,).
        rows: u and more, concatenated.
    """

    def __init__(self, numbers: Floats, shape: tuple[int, int, int]) -> None:
        intervals, types, jobs = shape
        seconds, slack = intervals * types * jobs, intervals * (types + 1) * jobs
        gpus = slack + intervals * types
        self.all = numbers
        self.y = numbers[:seconds].reshape(shape)
        self.s = numbers[seconds:slack].reshape(intervals, jobs)
        self.u = numbers[slack:gpus].reshape(intervals, types)
        self.more, self.rows = numbers[gpus:-1], numbers[slack:-1]


class _Point:
    """A primal and dual point, all positive.

    Attributes:
        a, f: 1 / e, shape (types, jobs), and c, shape (intervals, types, jobs).
        x: Primal: seconds y, the slack s of Σ_k y ≤ L, the slack u of Σ_j g y ≤ C L, and h.
        d: Dual: the slack of the rows of y, q, p, and the slack of the row of h. Where a job
            cannot run, x is 0 and d is 1.
        runs: 1 where a job can run, else 0, shape (types, jobs).
        dual, last: Residuals of the dual rows of y and h.
        work, time, room, spare: Residuals of the primal constraints, by job; interval and job;
            interval and type; limit.
        ends: Room that a second of the last interval adds to each limit.
        gap: The sum of all products of x and d.
    """

    def __init__(self, table: ProgramOverTime, limits: Limits | None = None) -> None:
        self.limits = limits = limits or Limits.none(len(table.gangs))
        self.a, lengths = np.ascontiguousarray(table.speed.T), table.lengths
        self.runs = runs = (self.a > 0.0).astype(float)
        self.kappa = table.makespan * len(table.gangs)
        self.f = table.costs.T[:, None] * self.a + table.fixed
        self.g, self.c, self._lengths = table.gangs, table.capacities, lengths
        fair = self.kappa / (float(self.c.sum()) + len(self.g))
        self._size = size = max(float((self.f * runs).max()), fair)
        shape = len(lengths), *self.a.shape
        pairs = len(lengths) * (self.a.size + len(table.gangs) + len(self.c)) + 1
        pairs += len(limits.room)
        self.x, self.d, self._positive = (_Parts(np.ones(pairs), shape) for _ in range(3))
        even = 1.0 / np.where(self.a > 0.0, self.a * runs.sum(axis=0), 1.0)
        even = np.multiply.outer(lengths / lengths.sum(), even)
        self.x.y[:] = np.maximum(even, 1e-3 * lengths[:, None, None]) * runs
        self.x.s[:] = lengths[:, None] - self.x.y.sum(axis=1)
        np.maximum(self.x.s, 0.3 * lengths[:, None], out=self.x.s)
        self.x.u[:] = 0.3 * np.multiply.outer(lengths, self.c)
        self.x.more[:] = 0.3 * lengths[limits.times] * limits.room
        self.x.all[-1] = lengths[-1]
        self.d.y[:] = np.where(runs > 0.0, size, 1.0)
        self.d.s[:] = self.d.rows[:] = 0.3 * size
        self.d.all[-1] = self.kappa
        self._positive.y[:] = runs
        self._holes, self._pairs = 1.0 - self._positive.all, int(self._positive.all.sum())
        self.dual = self.f + self.d.s[:, None] + self.paid(self.d) - self.d.y
        self.dual *= runs
        self.ends = np.where(limits.times == len(lengths) - 1, limits.room, 0.0)
        self.last = -float(self.c @ self.d.u[-1]) - float(self.d.s[-1].sum())
        self.last -= dot(self.ends, self.d.more)
        self._look()
        lacks = self.work, self.time, self.room / self.c, self.spare / limits.room
        self._lack = max(float(np.abs(lack).max(initial=0.0)) for lack in lacks)
        self._wrong = max(float(np.abs(self.dual).max()), abs(self.last) * size / self.kappa)

    def paid(self, prices: "_Parts") -> Floats:
        """Return the cost of a second of each job at prices, shape (intervals, types, jobs)."""
        return _paid(prices.u, self.g, self.limits, prices.more)

    def _look(self) -> None:
        """Compute the residuals of the primal constraints, and the gap."""
        lengths = np.append(self._lengths[:-1], self.x.all[-1])[:, None]
        self.work = 1.0 - np.einsum("kj,tkj->j", self.a, self.x.y)
        self.time = lengths - self.x.y.sum(axis=1) - self.x.s
        self.room = lengths * self.c - self.x.u - np.einsum("tkj,j->tk", self.x.y, self.g)
        limits = self.limits
        self.spare = lengths[limits.times, 0] * limits.room - self.x.more
        self.spare -= limits.taken(self.x.y)
        self.gap = dot(self.x.all, self.d.all)

    def closed(self, gap: float) -> bool:
        """Return whether gap and residuals are within a share of the optimum."""
        value = dot(self.f.ravel(), self.x.y.ravel()) + self.kappa * float(self.x.all[-1])
        near = self._lack <= 0.01 * gap and self._wrong <= 0.1 * gap * self._size
        return near and self.gap <= gap * value

    def step(self) -> None:
        """Step towards the optimum: the predictor decides how far to centre the corrector."""
        x, d, system = self.x.all, self.d.all, _System(self)
        ahead, dual = system.solved(-x)
        # The predictor aims at products x · d = 0, so x falls by as much as d does not.
        falls = dual / d
        first = min(1.0, 1.0 / max(1.0 + float(falls.max()), 1e-9))
        second = min(1.0, 1.0 / max(-float(falls.min()), 1e-9))
        both = ahead * dual
        near = (1.0 - first) * self.gap + (second - first) * dot(x, dual)
        near += first * second * float(both.sum())
        # Mehrotra's centring: the cube of the predicted reduction of the gap.
        centre = (max(near, 0.0) / self.gap) ** 3 * self.gap / self._pairs
        move, dual = system.solved((centre * self._positive.all - both) / d - x)
        first = min(1.0, SHORTENED / max(-float((move / (x + self._holes)).min()), 1e-9))
        second = min(1.0, SHORTENED / max(-float((dual / d).min()), 1e-9))
        x += first * move
        d += second * dual
        self.dual *= 1.0 - second
        self.last *= 1.0 - second
        self._wrong *= 1.0 - second
        self._lack *= 1.0 - first
        self._look()


class _System:
    """Newton's equations at a point after eliminating the jobs: definite except for h."""

    def __init__(self, at: _Point) -> None:
        intervals, types, jobs = at.x.y.shape
        limits = at.limits
        base, size = intervals * types, intervals * types + len(limits.room)
        self._at = at
        self._ratios = _Parts(at.x.all / at.d.all, at.x.y.shape)
        ratio = self._ratios.y
        self._total = total = ratio.sum(axis=1) + self._ratios.s
        # Sensitivity of q to v, and of a job's work to the prices.
        self._share = np.einsum("kj,tkj->tj", at.a, ratio) / total
        off = at.a - self._share[:, None]
        bends = ratio * off
        stiff = np.einsum("tkj,tkj->j", bends, off)
        self._stiff = stiff + np.einsum("tj,tj->j", self._ratios.s * self._share, self._share)
        self._weights = weights = at.g * ratio
        self._parts = weights / total[:, None]
        self._more = limits.takes * ratio[limits.times, limits.kinds]
        limited = limits.takes * bends[limits.times, limits.kinds]
        bends *= at.g
        self._flat = np.concatenate([bends.reshape(base, jobs), limited])
        matrix = np.zeros((size + 1, size + 1))
        blocks = weights @ self._parts.transpose(0, 2, 1)
        for t in range(intervals):
            there = slice(t * types, (t + 1) * types)
            matrix[there, there] = -blocks[t]
        matrix[:size, :size] -= multiply_over(self._flat, self._stiff)
        across = np.einsum("tkj,j->tk", weights, at.g) + self._ratios.u
        matrix[range(base), range(base)] += across.ravel()
        self._end = end = self._share[-1]
        border = np.einsum("aj,j->a", self._flat, end / self._stiff)
        border[base - types : base] += at.c - self._parts[-1].sum(axis=1)
        if size > base:
            border[base:] += self._limit(matrix[:size, :size])
        matrix[:size, size] = matrix[size, :size] = border
        within = float((end * end / self._stiff).sum() + (1.0 / total[-1]).sum())
        matrix[size, size] = -within - 1.0 / self._ratios.all[-1]
        self._matrix = matrix

    def _limit(self, matrix: Floats) -> Floats:
        """Add the rows of limits to the prices' system; return their coupling with h."""
        limits, more, types = self._at.limits, self._more, len(self._at.c)
        shares = more / self._total[limits.times]
        rows = np.arange(len(matrix) - len(more), len(matrix))
        time, place = limits.times[:, None], limits.times * types + limits.kinds
        with_limits = np.where(
            place[:, None] == place, np.einsum("aj,bj->ab", more, limits.takes), 0.0
        )
        with_limits -= np.where(time == limits.times, np.einsum("aj,bj->ab", more, shares), 0.0)
        matrix[np.ix_(rows, rows)] += with_limits
        matrix[rows, rows] += self._ratios.more
        with_gpus = -np.einsum("aj,akj->ak", more, self._parts[limits.times])
        with_gpus[np.arange(len(rows)), limits.kinds] += np.einsum("aj,j->a", more, self._at.g)
        there = time * types + np.arange(types)
        matrix[rows[:, None], there] += with_gpus
        matrix[there, rows[:, None]] += with_gpus
        last = limits.times == len(self._total) - 1
        return np.where(last, limits.room - shares.sum(axis=1), 0.0)

    def solved(self, plain: Floats) -> tuple[Floats, Floats]:
        """Return the primal and the dual step; `plain` is the primal change with a fixed dual.

        Raises:
            SolverError: The equations are singular.
        """
        at, shape = self._at, self._at.x.y.shape
        step = _Parts(plain, shape)
        y = step.y - self._ratios.y * at.dual
        rest = y.sum(axis=1) + step.s - at.time
        spread = rest / self._total
        work = at.work - np.einsum("kj,tkj->j", at.a, y)
        work += np.einsum("tj,tj->j", self._share, rest)
        eased = work / self._stiff
        right = np.einsum("tkj,j->tk", y, at.g) - np.einsum("tkj,tj->tk", self._weights, spread)
        right += step.u - at.room
        more = at.limits.taken(y) - np.einsum("aj,aj->a", self._more, spread[at.limits.times])
        more += step.more - at.spare
        right = np.append(right, more) + np.einsum("aj,j->a", self._flat, eased)
        end = at.last - dot(self._end, eased) - float(spread[-1].sum())
        end -= float(plain[-1] / self._ratios.all[-1])
        try:
            found = solve_equations(self._matrix, np.append(right, end))
        except np.linalg.LinAlgError as error:
            raise SolverError(
                "program over time", f"a step fails: {error}", "report it with the run's records"
            ) from None
        dual = _Parts(np.empty(len(plain)), shape)
        dual.rows[:] = found[:-1]
        v = (
            work + np.einsum("aj,a->j", self._flat, found[:-1]) - self._end * found[-1]
        ) / self._stiff
        dual.s[:] = self._share * v + spread - np.einsum("tkj,tk->tj", self._parts, dual.u)
        if len(dual.more):
            times, parts = at.limits.times, self._more / self._total[at.limits.times]
            np.subtract.at(dual.s, times, parts * dual.more[:, None])
        dual.s[-1] -= found[-1] / self._total[-1]
        dual.y[:] = at.paid(dual)
        dual.y += dual.s[:, None]
        dual.y -= at.a * v
        dual.y += at.dual
        dual.y *= at.runs
        dual.all[-1] = (plain[-1] - found[-1]) / self._ratios.all[-1]
        return plain - self._ratios.all * dual.all, dual.all
