"""The least makespan of the work left, as a linear program, with what a job's work costs in it.

    min  H    s. t.  Σ_k y_jk / e_jk = 1,  Σ_j g_j y_jk ≤ C_k H,  Σ_k y_jk ≤ H,  y ≥ 0

y_jk seconds of job j on type k, of which e_jk finish it (Gavel, OSDI '20, section 4.2, solved
exactly in place of a bisection). Its dual has a price p_k for each type, a premium q_j for each job
that can hardly run at more places at once, and what the work of a job costs:

    max  Σ_j v_j    s. t.  v_j / e_jk ≤ g_j p_k + q_j,  Σ_k C_k p_k + Σ_j q_j = 1,  p, q ≥ 0

It is solved by a primal-dual interior-point method with Mehrotra's predictor and corrector (SIAM J.
Optimization, 1992), from a point that satisfies all constraints. Given p and H the rows of a job
are a system of two equations, so that a step costs a pass over the table and a system with a
variable for each type. It ends within the optimal face where that is no point, so that prices do
not jump between rounds as those of a vertex do.
"""

from dataclasses import dataclass

import numpy as np

from predictor.errors import SolverError
from solver.market import Floats, Ints

CLOSED = 1e-7
"""Gap at which the search ends if nothing else is said, as a share of H."""

STEPS = 100
"""Bound on effort; problems of all sizes took 12 to 30."""

SHORTENED = 0.995
"""Of the way to the next constraint that a step goes."""


@dataclass(frozen=True)
class Makespan:
    """The least makespan.

    Attributes:
        seconds: H.
        worth: v, seconds of H that all the work of a job costs, shape (jobs,).
        prices: p, seconds of H that a GPU of each type saves, over H, shape (types,).
    """

    seconds: float
    worth: Floats
    prices: Floats


def least_makespan(
    seconds: Floats,
    gangs: Floats,
    job_of: Ints,
    type_of: Ints,
    capacities: Ints,
    closed: float = CLOSED,
) -> Makespan:
    """The least makespan of fluid jobs on GPUs of several types.

    Args:
        seconds: e, residual run time on each bid row, shape (rows,), positive.
        gangs: g, shape (rows,).
        job_of: Index of each row's job, ascending.
        type_of: Index of each row's GPU type; a job has at most one row of each.
        capacities: C, shape (types,); where a type has none, no job has a row of it.
        closed: Gap at which the search ends, as a share of H.

    Raises:
        SolverError: The search did not end; no such problem is known.
    """
    jobs, there = int(job_of[-1]) + 1, capacities > 0
    firsts = np.flatnonzero(np.diff(job_of, prepend=-1))
    scale = float(seconds.max())
    speed = np.zeros((jobs, len(capacities)))
    speed[job_of, type_of] = scale / seconds
    point = _Point(speed[:, there], gangs[firsts].astype(float), capacities[there].astype(float))
    for _ in range(STEPS):
        if point.gap() <= closed * point.span:
            prices = np.zeros(len(capacities))
            prices[there] = point.p
            return Makespan(scale * point.span, scale * np.maximum(point.v, 0.0), prices)
        point.step()
    raise SolverError("the least makespan", "was not found", "report it with the run's records")


class _Point:
    """A primal and dual point within all constraints.

    Attributes:
        span: H.
        y, z: Seconds on each type and the slack of its dual row, shape (jobs, types); where a job
            cannot run, y is 0 and z is 1.
        t, q: Slack of Σ_k y ≤ H and its dual, shape (jobs,).
        u, p: Slack of Σ_j g y ≤ C H and its dual, shape (types,).
        v: Dual of the work, shape (jobs,).
    """

    def __init__(self, speed: Floats, gangs: Floats, capacities: Floats) -> None:
        self._a, self._g, self._c = speed, gangs, capacities
        self._runs = speed > 0.0
        jobs, types = speed.shape
        seconds = np.divide(1.0, speed, out=np.zeros_like(speed), where=self._runs)
        self.y = seconds / self._runs.sum(axis=1)[:, None]
        used, busy = self._g @ self.y, self.y.sum(axis=1)
        self.span = 2.0 * float(max(busy.max(), (used / self._c).max()))
        self.t, self.u = self.span - busy, self._c * self.span - used
        self.p, self.q = 0.5 / (types * self._c), np.full(jobs, 0.5 / jobs)
        costs = self._costs(self.p, self.q)
        self.v = 0.5 * np.where(self._runs, seconds * costs, np.inf).min(axis=1)
        self.z = np.where(self._runs, costs - speed * self.v[:, None], 1.0)
        self._rows = int(self._runs.sum()) + jobs + types

    def _costs(self, p: Floats, q: Floats) -> Floats:
        """What a second of each job costs on each type: g p + q, shape (jobs, types)."""
        costs: Floats = np.multiply.outer(self._g, p) + q[:, None]
        return costs

    def gap(self) -> float:
        """H less Σ v: the sum of all products of a slack and its dual."""
        return float((self.y * self.z).sum() + self.t @ self.q + self.u @ self.p)

    def step(self) -> None:
        """Go on towards the optimum: a predictor says how far to centre the corrector."""
        gap = self.gap()
        system = _System(self)
        ahead = system.solved(-self.y * self.z, -self.t * self.q, -self.u * self.p)
        first, second = self._reach(ahead)
        near = (
            float(((self.y + first * ahead.y) * (self.z + second * ahead.z))[self._runs].sum())
            + float((self.t + first * ahead.t) @ (self.q + second * ahead.q))
            + float((self.u + first * ahead.u) @ (self.p + second * ahead.p))
        )
        centre = (near / gap) ** 3 * gap / self._rows
        move = system.solved(
            np.where(self._runs, centre - self.y * self.z - ahead.y * ahead.z, 0.0),
            centre - self.t * self.q - ahead.t * ahead.q,
            centre - self.u * self.p - ahead.u * ahead.p,
        )
        first, second = (min(1.0, SHORTENED * far) for far in self._reach(move))
        self.y += first * move.y
        self.t += first * move.t
        self.u += first * move.u
        self.span += first * move.span
        self.z += second * move.z
        self.q += second * move.q
        self.p += second * move.p
        self.v += second * move.v

    def _reach(self, move: "_Move") -> tuple[float, float]:
        """How far primal and dual can go along a move, at most 1 and a little more."""
        first = max(map(steepest, (self.y, self.t, self.u), (move.y, move.t, move.u)))
        second = max(map(steepest, (self.z, self.q, self.p), (move.z, move.q, move.p)))
        return 1.0 / max(first, SHORTENED), 1.0 / max(second, SHORTENED)


def steepest(at: Floats, move: Floats) -> float:
    """The largest fall along a move over what there is to fall: 1 over how far it can go.

    Args:
        at: Numbers of a point that stay positive, any shape.
        move: By how much each changes, same shape.
    """
    return float(np.divide(-move, at, out=np.zeros_like(at), where=at > 0.0).max(initial=0.0))


@dataclass(frozen=True)
class _Move:
    """A direction; attributes as of `_Point`."""

    span: float
    y: Floats
    z: Floats
    t: Floats
    q: Floats
    u: Floats
    p: Floats
    v: Floats


class _System:
    """Newton's equations at a point, with those of each job eliminated."""

    def __init__(self, point: _Point) -> None:
        self._at = point
        a, g = point._a, point._g[:, None]
        self._ratio = ratio = point.y / point.z
        total, slack = ratio.sum(axis=1), point.t / point.q
        self._s0 = total + slack
        self._s1 = (a * ratio).sum(axis=1)
        self._s2 = (a * a * ratio).sum(axis=1)
        off = ((a - (self._s1 / total)[:, None]) ** 2 * ratio).sum(axis=1)
        self._det = slack * self._s2 + total * off  # s0 s2 - s1², without its cancellation
        s0, s1, s2 = (s[:, None] / self._det[:, None] for s in (self._s0, self._s1, self._s2))
        # How q and v of a job follow the prices, and H.
        self._q_of_p, self._v_of_p = g * ratio * (a * s1 - s2), g * ratio * (a * s0 - s1)
        self._q_of_h, self._v_of_h = -s2[:, 0], -s1[:, 0]
        types = len(point.p)
        weights = g * ratio
        matrix = np.empty((types + 1, types + 1))
        matrix[:types, :types] = weights.T @ self._q_of_p - (a * weights).T @ self._v_of_p
        matrix[range(types), range(types)] += (g * weights).sum(axis=0) + point.u / point.p
        rest = weights.T @ self._q_of_h - (a * weights).T @ self._v_of_h
        matrix[:types, types] = point._c + rest
        matrix[types, :types] = point._c + self._q_of_p.sum(axis=0)
        matrix[types, types] = self._q_of_h.sum()
        self._matrix = matrix

    def solved(self, yz: Floats, tq: Floats, up: Floats) -> _Move:
        """The move that changes each product of a slack and its dual by so much."""
        at, a, g, ratio = self._at, self._at._a, self._at._g, self._ratio
        shift = yz / at.z
        first, second = -(a * shift).sum(axis=1), shift.sum(axis=1) + tq / at.q
        q0 = (self._s2 * second + self._s1 * first) / self._det
        v0 = (self._s1 * second + self._s0 * first) / self._det
        fixed = shift - ratio * (q0[:, None] - a * v0[:, None])
        right = np.append(g @ fixed + up / at.p, -q0.sum())
        found = np.linalg.solve(self._matrix, right)
        p, span = found[:-1], float(found[-1])
        q = q0 + self._q_of_p @ p + self._q_of_h * span
        v = v0 + self._v_of_p @ p + self._v_of_h * span
        z = np.where(at._runs, at._costs(p, q) - a * v[:, None], 0.0)
        y = shift - ratio * z
        return _Move(span, y, z, (tq - at.t * q) / at.q, q, (up - at.u * p) / at.p, p, v)
