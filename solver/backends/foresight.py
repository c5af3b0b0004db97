"""Compute the future cost that a round of each job on each GPU type saves.

The first interval of `solver.backends.over_time` is the coming round; the intervals grow by a
constant factor. Where m_t is the middle of an interval and the expectation is over its blur, work
costs

    c_jkt = w_j (m_t / e_jk + ½) + λ_j E[max(0, m_t − due_j)] / e_jk

Σ m_t y / e + ½ y is the completion time of a job that runs without a pause, and otherwise a lower
bound (the mean busy time of Goemans, Queyranne, Schulz, Skutella and Wang, Single machine
scheduling with release dates, SIAM J. Discrete Mathematics 2002). So one program covers mean JCT,
due dates and, by κ, makespan. Its prices p_kt are the worth of a GPU of each type in an
interval.

At the prices of all later intervals, W_j(x) is the minimum cost of the share x of a job's work:

    W_j(x) = max_v  v x − Σ_{t>1} L_t max_k (v / e_jk − c_jkt − g_j p_kt)⁺

A round on type k does the share x_jk of the work, so it is worth

    b_jk = W_j(1) − W_j(1 − x_jk) − its cost now

For long jobs, dual variables alone would give the same bids. A job that ends within the round would
then bid exactly its price for the part of the round that it needs, and lose every other time; but
waiting costs it a different amount.
"""

import math
from typing import NamedTuple

import numpy as np

from predictor.arrays import Floats, Ints
from predictor.normal import ndtr
from solver.backends.blocks import price_with_blocks
from solver.backends.over_time import PricesOverTime, ProgramOverTime

INTERVALS = 18
"""Maximum number of intervals; ten raise makespan by 0.2 to 1.5 % on drawn traces
(docs/adr/0035)."""

FIXED = 0.8
"""Share of the least makespan before the last interval, unless the last would be shorter than a
round. Chosen by hand, not swept."""

SPANS, LONGER = 3, 0.1
"""Bound on effort: maximum number of layouts of the intervals. The layout is repeated while the
last interval exceeds its guess by more than a share `LONGER` of the whole. Not swept."""

BLUR_SHARE, BLUR = 0.3, 0.01
"""Standard deviation of the time at which work is done about the middle of its interval, in lengths
of the interval and of the least makespan; so the penalty rises before a deadline is missed. Chosen
by hand, not swept; work spread evenly over an interval has 0.29 of it."""


class Foresight(NamedTuple):
    """Savings per second of the coming round.

    Attributes:
        saved: Savings in seconds of completion, at least 0, shape (rows,).
        closed: Whether the program over time was solved to its gap.
    """

    saved: Floats
    closed: bool


def measure_savings(
    seconds: Floats,
    gangs: Floats,
    job_of: Ints,
    type_of: Ints,
    capacities: Ints,
    *,
    weights: Floats,
    due: Floats,
    least: float,
    round_seconds: float,
    lateness: Floats,
    makespan: float,
) -> Foresight:
    """Return the savings per second of the coming round on each row.

    Args:
        seconds: e, residual run time on each bid row, shape (rows,), positive.
        gangs: g, shape (rows,).
        job_of: Index of each row's job, ascending.
        type_of: Index of each row's GPU type; a job has at most one row of each.
        capacities: C, shape (types,); no job has a row of a type without GPUs.
        weights: w, shape (jobs,).
        due: Due date of each job's work, in seconds from now, shape (jobs,).
        least: The least makespan or an estimate of it, in seconds.
        round_seconds: Length of a round, and of the first interval.
        lateness: λ, penalty per second that all work of each job is late, in seconds of
            completion, shape (jobs,).
        makespan: Worth of a second of makespan, in seconds of completion of all active jobs.
    """
    jobs, there = int(job_of[-1]) + 1, capacities > 0
    firsts = np.flatnonzero(np.diff(job_of, prepend=-1))
    span = max(least, 2.0 * round_seconds)
    for _ in range(SPANS):
        lengths = _lengths(round_seconds / span)
        speed = np.zeros((jobs, len(capacities)))
        speed[job_of, type_of] = span / seconds
        middle = np.cumsum(lengths) - lengths / 2.0
        blur = BLUR_SHARE * lengths + BLUR
        late = blur * expect_excess((middle - due[:, None] / span) / blur)
        program = ProgramOverTime(
            speed[:, there],
            weights[:, None] * middle + lateness[:, None] * late,
            0.5 * weights,
            gangs[firsts].astype(float),
            capacities[there].astype(float),
            lengths,
            makespan,
        )
        found = price_with_blocks(program)
        if found.last <= lengths[-1] + LONGER:
            break
        span *= float(lengths[:-1].sum()) + found.last
    bids = np.zeros((jobs, len(capacities)))
    bids[:, there] = _bids(program, found)
    return Foresight(bids[job_of, type_of], found.closed)


def expect_excess(mean: Floats) -> Floats:
    """Return E[max(0, X)] for normal X with this mean and standard deviation 1."""
    density = np.exp(-0.5 * mean * mean) / math.sqrt(2.0 * math.pi)
    excess: Floats = density + mean * ndtr(mean)
    return excess


def _lengths(first: float) -> Floats:
    """Return the interval lengths in units of the least makespan; the last one is a guess.

    Near the end of all work there are fewer intervals, so that none is shorter than a round.
    `first` is the length of a round, at most ½.
    """
    before = min(FIXED, 1.0 - first)
    fixed = min(INTERVALS - 1, int(before / first))
    low, high = 1.0, 1.0 / first
    for _ in range(60):
        factor = (low + high) / 2.0
        long = first * sum(factor**n for n in range(fixed)) > before
        low, high = (low, factor) if long else (factor, high)
    lengths = first * low ** np.arange(fixed)
    return np.append(lengths, 1.0 - lengths.sum())


def _bids(program: ProgramOverTime, at: PricesOverTime) -> Floats:
    """Return each job's savings by running through the first interval, shape (jobs, types)."""
    first, lengths = program.lengths[0], np.append(program.lengths[1:-1], at.last)
    seconds = at.paid(program.gangs)[1:] + program.fixed
    # Only a job that runs beyond the end pays for the makespan.
    whole = program.makespan * len(program.gangs)
    beyond = max(whole - at.ending(program.capacities), 0.0)
    speed = np.ascontiguousarray(program.speed.T)
    runs = speed > 0.0
    end = np.divide(seconds[-1] + beyond, speed, out=np.full(runs.shape, np.inf), where=runs)
    most = program.costs[:, -1] + end.min(axis=0)
    price, amount = _offers(speed, seconds, lengths[:, None])
    price += program.costs.T[1:]
    price, amount = (table.reshape(-1, table.shape[-1]).T for table in (price, amount))
    order = np.argsort(price, axis=1)
    price = np.minimum(np.take_along_axis(price, order, axis=1), most[:, None])
    upto = np.minimum(np.cumsum(np.take_along_axis(amount, order, axis=1), axis=1), 1.0)
    found = np.zeros(program.speed.shape)
    for kind, there in enumerate(speed):
        done = np.minimum(first * there, 1.0)
        lost = np.maximum(upto, (1.0 - done)[:, None])
        saved = most * (1.0 - lost[:, -1])
        saved += (price * np.diff(lost, axis=1, prepend=1.0 - done[:, None])).sum(axis=1)
        busy = np.divide(done, there, out=np.zeros(len(done)), where=runs[kind])
        saved -= done * program.costs[:, 0] + busy * program.fixed
        found[:, kind] = np.where(runs[kind], np.maximum(saved, 0.0), 0.0) / first
    return found


def _offers(speed: Floats, seconds: Floats, lengths: Floats) -> tuple[Floats, Floats]:
    """Return a job's supply curve: shares of its work in later intervals, by the work's price.

    As the price rises, a job starts to run in an interval and then changes to faster types: its
    gain is the upper envelope of one line per type.

    Args:
        speed: 1 / e by type and job.
        seconds: Cost of a second by later interval, type and job.
        lengths: Lengths of these intervals, a column.

    Returns:
        Two arrays of shape (types, intervals, jobs): prices beyond the cost of the work, infinite
        without an offer, and shares of a job's work.
    """
    intervals, types, jobs = seconds.shape
    price, amount = np.full((types, intervals, jobs), np.inf), np.zeros((types, intervals, jobs))
    pace, paid = np.zeros((intervals, 1, jobs)), np.zeros((intervals, 1, jobs))
    for offer in range(types):
        faster = speed - pace
        rises = np.divide(
            seconds - paid, faster, out=np.full(seconds.shape, np.inf), where=faster > 0.0
        )
        best = np.argmin(rises, axis=1, keepdims=True)
        price[offer] = np.take_along_axis(rises, best, axis=1)[:, 0]
        there = np.isfinite(price[offer])
        gained = np.take_along_axis(faster, best, axis=1)
        amount[offer] = np.where(there, lengths * gained[:, 0], 0.0)
        pace = np.where(there[:, None], pace + gained, pace)
        paid = np.where(there[:, None], np.take_along_axis(seconds, best, axis=1), paid)
    return price, amount
