"""Prices of GPUs over time: a linear program of all work left, solved by an interior point.

Time is cut into intervals; the length of the last one, h, is a variable, so that all work fits:

    min  Σ c_jkt y_jkt + κ h    s. t.  Σ_kt y_jkt / e_jk = 1,  Σ_k y_jkt ≤ L_t,
                                       Σ_j g_j y_jkt ≤ C_k L_t,  y ≥ 0

y_jkt are seconds of job j on type k in interval t, of which e_jk finish it. The dual has a price
p_kt of a GPU for each type and interval, a premium q_jt of each job that can hardly run at more
places at once, and v_j, what the work of a job costs:

    v_j / e_jk − c_jkt ≤ g_j p_kt + q_jt,    Σ_k C_k p_kT + Σ_j q_jT ≤ κ

It is solved by a primal-dual interior-point method with Mehrotra's predictor and corrector (SIAM J.
Optimization, 1992), from a point that need not satisfy the constraints. The rows of a job are
eliminated, so that a step costs passes over the table and a system of the prices and h. Prices of
the middle of the optimal face do not jump between rounds as those of a vertex do.
"""

from dataclasses import dataclass

import numpy as np

from predictor.errors import SolverError
from solver.backends.makespan import steepest
from solver.market import Floats, Ints

CLOSED = 1e-4
"""Gap at which the search ends, as a share of the optimum. With 1e-6 makespan and mean JCT on
traces of Gavel differ by less than 1 %."""

STEPS = 80
"""Bound on effort; most problems took 12 to 30, one of 300 jobs whose run times differ by a
thousandfold and more 57."""

MOST = 400
"""Bound on effort: jobs of which the program is; where there are more, it is that of a sample."""

SHORTENED = 0.99
"""Of the way to the next constraint that a step goes."""


@dataclass(frozen=True)
class Program:
    """The program as arrays; a cost is c = costs / e + fixed.

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
    """Where the search ended.

    Attributes:
        prices: p, shape (intervals, types).
        last: h, length of the last interval.
        closed: Whether the gap is; not where the search came to its bound on effort.
    """

    prices: Floats
    last: float
    closed: bool


def prices_over_time(program: Program) -> PricesOverTime:
    """Prices of the program, and those of a sample of more than `MOST` jobs with its share of GPUs.

    Raises:
        SolverError: A step has no direction.
    """
    point = _Point(_sampled(program))
    steps = 0
    while not (closed := point.closed()) and steps < STEPS:
        point.step()
        steps += 1
    return PricesOverTime(point.p, point.h, closed)


def _sampled(program: Program) -> Program:
    """The program of some jobs of each size."""
    jobs = len(program.gangs)
    if jobs <= MOST:
        return program
    sizes = program.speed.max(axis=1)
    some: Ints = np.argsort(sizes, kind="stable")[np.linspace(0, jobs - 1, MOST).astype(np.int64)]
    work = program.gangs / sizes
    return Program(
        program.speed[some],
        program.costs[some],
        program.fixed[some],
        program.gangs[some],
        program.capacities * float(work[some].sum() / work.sum()),
        program.lengths,
        program.makespan,
    )


class _Point:
    """A primal and dual point, all of it positive.

    Attributes:
        y, z: Seconds by job, interval and type, and the slack of their dual rows, shape (jobs,
            intervals, types); where a job cannot run, y is 0 and z is 1.
        s, q: Slack of Σ_k y ≤ L and its dual, shape (jobs, intervals).
        u, p: Slack of Σ_j g y ≤ C L and its dual, shape (intervals, types).
        h, r: Length of the last interval and the slack of its dual row.
        v: Dual of the work, shape (jobs,).
    """

    def __init__(self, table: Program) -> None:
        speed, lengths = table.speed[:, None, :], table.lengths
        kappa = table.makespan * len(table.gangs)
        costs = table.costs[:, :, None] * speed + table.fixed[:, None, None]
        self.a, self.f, self.c, self.kappa = speed, costs, table.capacities, kappa
        self.g = table.gangs[:, None, None]
        self._lengths = lengths
        self.runs = np.broadcast_to(speed > 0.0, costs.shape)
        size = float(costs[self.runs].max())
        types = (speed > 0.0).sum(axis=2, keepdims=True)
        even = lengths[:, None] / lengths.sum() / np.where(self.runs, speed * types, 1.0)
        self.y = np.where(self.runs, np.maximum(even, 1e-3 * lengths[:, None]), 0.0)
        self.z = np.where(self.runs, size, 1.0)
        self.s = np.maximum(0.3 * lengths, lengths - self.y.sum(axis=2))
        self.q = np.full(self.s.shape, 0.3 * size)
        self.u = 0.3 * np.multiply.outer(lengths, self.c)
        self.p = np.full(self.u.shape, 0.3 * size)
        self.v = np.zeros(len(table.gangs))
        self.h, self.r = float(lengths[-1]), kappa
        self._size = size
        self._pairs = int(self.runs.sum()) + self.s.size + self.u.size + 1
        self._look()

    def _look(self) -> None:
        """Work out what the constraints lack, and the gap."""
        lengths = np.append(self._lengths[:-1], self.h)
        self.work = 1.0 - (self.a * self.y).sum(axis=(1, 2))
        self.time = lengths - self.y.sum(axis=2) - self.s
        self.room = lengths[:, None] * self.c - self.u - (self.g * self.y).sum(axis=0)
        value = self.a * self.v[:, None, None] - self.q[:, :, None] - self.g * self.p
        self.dual = np.where(self.runs, self.f - value - self.z, 0.0)
        self.last = self.kappa - self.r - float(self.c @ self.p[-1]) - float(self.q[:, -1].sum())
        self.gap = (
            float((self.y * self.z).sum())
            + float((self.s * self.q).sum())
            + float((self.u * self.p).sum())
            + self.h * self.r
        )

    def closed(self) -> bool:
        """Whether the search is at its end."""
        value = float((self.f * self.y).sum()) + self.kappa * self.h
        lack = max(
            float(np.abs(self.work).max()),
            float(np.abs(self.time).max()),
            float(np.abs(self.room / self.c).max()),
        )
        wrong = max(float(np.abs(self.dual).max()), abs(self.last) * self._size / self.kappa)
        return self.gap <= CLOSED * value and lack <= 1e-5 and wrong <= 1e-4 * self._size

    def step(self) -> None:
        """Go on towards the optimum: a predictor says how far to centre the corrector."""
        system = _System(self)
        ahead = system.solved(
            -self.y * self.z, -self.s * self.q, -self.u * self.p, -self.h * self.r
        )
        first, second = (min(1.0, far) for far in self._reach(ahead))
        near = (
            float(((self.y + first * ahead.y) * (self.z + second * ahead.z))[self.runs].sum())
            + float(((self.s + first * ahead.s) * (self.q + second * ahead.q)).sum())
            + float(((self.u + first * ahead.u) * (self.p + second * ahead.p)).sum())
            + (self.h + first * ahead.h) * (self.r + second * ahead.r)
        )
        centre = (max(near, 0.0) / self.gap) ** 3 * self.gap / self._pairs
        move = system.solved(
            np.where(self.runs, centre - self.y * self.z - ahead.y * ahead.z, 0.0),
            centre - self.s * self.q - ahead.s * ahead.q,
            centre - self.u * self.p - ahead.u * ahead.p,
            centre - self.h * self.r - ahead.h * ahead.r,
        )
        first, second = (min(1.0, SHORTENED * far) for far in self._reach(move))
        self.y += first * move.y
        self.s += first * move.s
        self.u += first * move.u
        self.h += first * move.h
        self.z += second * move.z
        self.q += second * move.q
        self.p += second * move.p
        self.r += second * move.r
        self.v += second * move.v
        self._look()

    def _reach(self, move: "_Move") -> tuple[float, float]:
        """How far primal and dual can go along a move."""
        first = max(map(steepest, (self.y, self.s, self.u), (move.y, move.s, move.u)))
        second = max(map(steepest, (self.z, self.q, self.p), (move.z, move.q, move.p)))
        first, second = max(first, -move.h / self.h), max(second, -move.r / self.r)
        return 1.0 / max(first, 1e-9), 1.0 / max(second, 1e-9)


@dataclass(frozen=True)
class _Move:
    """A direction; attributes as of `_Point`."""

    h: float
    r: float
    y: Floats
    z: Floats
    s: Floats
    q: Floats
    u: Floats
    p: Floats
    v: Floats


class _System:
    """Newton's equations at a point, with those of each job eliminated.

    Sums over jobs are NumPy's own: BLAS adds up in another order with other numbers of threads.
    """

    def __init__(self, at: _Point) -> None:
        self._at = at
        ratio = at.y / at.z
        slack = at.s / at.q
        self._ratio, self._total = ratio, ratio.sum(axis=2) + slack
        # How q follows v, and how the work of a job follows the prices.
        self._share = (at.a * ratio).sum(axis=2) / self._total
        off = at.a - self._share[:, :, None]
        bends = at.g * ratio * off
        self._stiff = (ratio * off * off).sum(axis=(1, 2)) + (slack * self._share**2).sum(axis=1)
        jobs, intervals, types = ratio.shape
        size = intervals * types
        weights = at.g * ratio
        matrix = np.zeros((size + 1, size + 1))
        blocks = np.einsum("jtk,jtl->tkl", weights, weights / self._total[:, :, None])
        for t in range(intervals):
            matrix[t * types : (t + 1) * types, t * types : (t + 1) * types] = -blocks[t]
        flat = bends.reshape(jobs, size)
        matrix[:size, :size] -= np.einsum("ja,jb->ab", flat / self._stiff[:, None], flat)
        matrix[range(size), range(size)] += (at.g * weights).sum(axis=0).ravel()
        matrix[range(size), range(size)] += (at.u / at.p).ravel()
        end = self._share[:, -1]
        border = np.einsum("j,ja->a", end / self._stiff, flat)
        border[-types:] += at.c - (weights[:, -1] / self._total[:, -1:]).sum(axis=0)
        matrix[:size, size] = matrix[size, :size] = border
        matrix[size, size] = (
            -float((end**2 / self._stiff).sum() + (1.0 / self._total[:, -1]).sum()) - at.r / at.h
        )
        self._flat, self._weights = flat, weights
        try:
            self._inverse = np.linalg.inv(matrix)
        except np.linalg.LinAlgError as error:
            raise SolverError(
                "program over time", f"a step fails: {error}", "report it with the run's records"
            ) from None

    def solved(self, yz: Floats, sq: Floats, up: Floats, hr: float) -> _Move:
        """The move that changes each product of a slack and its dual by so much."""
        at = self._at
        fixed = np.where(at.runs, yz / at.z - self._ratio * at.dual, 0.0)
        rest = fixed.sum(axis=2) + sq / at.q - at.time
        work = at.work - (at.a * fixed).sum(axis=(1, 2)) + (self._share * rest).sum(axis=1)
        right = (at.g * fixed - self._weights * (rest / self._total)[:, :, None]).sum(axis=0)
        right = (right - at.room + up / at.p).ravel()
        right += np.einsum("j,ja->a", work / self._stiff, self._flat)
        end = float((self._share[:, -1] * work / self._stiff).sum())
        end += float((rest[:, -1] / self._total[:, -1]).sum())
        found = self._inverse @ np.append(right, at.last - hr / at.h - end)
        p, h = found[:-1].reshape(at.p.shape), float(found[-1])
        v = work + np.einsum("ja,a->j", self._flat, found[:-1])
        v = (v - self._share[:, -1] * h) / self._stiff
        q = self._share * v[:, None] + rest / self._total
        q -= (self._weights * p).sum(axis=2) / self._total
        q[:, -1] -= h / self._total[:, -1]
        z = at.dual - at.a * v[:, None, None] + q[:, :, None] + at.g * p
        z = np.where(at.runs, z, 0.0)
        y = np.where(at.runs, (yz - at.y * z) / at.z, 0.0)
        s, u = (sq - at.s * q) / at.q, (up - at.u * p) / at.p
        return _Move(h, (hr - at.r * h) / at.h, y, z, s, q, u, p, v)
