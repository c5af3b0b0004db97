"""What a round of each job on each GPU type saves of all that is to come.

The first interval of `solver.backends.over_time` is the coming round, and each is longer than the
one before by the same factor. With m_t the middle of an interval and blur over it, work costs

    c_jkt = w_j (m_t / e_jk + ½) + λ_j E[max(0, m_t − due_j)] / e_jk

Σ m_t y / e + ½ y is the completion time of a job that runs without a pause, and else a bound below
it (the mean busy time of Goemans, Queyranne, Schulz, Skutella and Wang, Single machine scheduling
with release dates, SIAM J. Discrete Mathematics 2002). So mean JCT, fair deadlines and, by κ,
makespan are in one program; its prices p_kt are what a GPU of each type is worth in an interval.

At the prices of all later intervals, W_j(x) is the least that the share x of a job's work costs:

    W_j(x) = max_v  v x − Σ_{t>1} L_t max_k (v / e_jk − c_jkt − g_j p_kt)⁺

A round on type k does the share x_jk of the work, and so is worth

    b_jk = W_j(1) − W_j(1 − x_jk) − its cost now

Dual variables alone would be the same for long jobs. But a job that ends within the round would bid
the very price that it has to pay, for the part of the round that it needs, and be left out as often
as not; what it loses by waiting is another number.
"""

import numpy as np

from solver.backends.over_time import Program, prices_over_time
from solver.excess import expected_excess
from solver.market import Floats, Ints

INTERVALS = 10
"""Intervals of time; fewer did worse, and 14 the same (docs/adr/0035)."""

FIXED = 0.8
"""Part of the least makespan before the last interval."""

SPANS, LONGER = 3, 0.1
"""Bound on effort: how often the intervals are laid out, as long as the last one is longer than was
guessed by more than a share of the whole."""

HALVINGS = 24
"""Bisections of what the work of a job costs at given prices. It is sought up to what it costs
beyond the end, which grows with the jobs, and bids are small differences of it: of 120 jobs on 3
types, 16 leave bids off by up to 50 %, and 24 leave 95 % of them within 0.06 %."""

BLUR_SHARE, BLUR = 0.3, 0.01
"""Standard deviation of when work is done about the middle of its interval, in lengths of the
interval and of the least makespan: the penalty rises before a deadline is missed."""


def foresight(
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
) -> Floats:
    """What a second of the coming round on each row saves, shape (rows,), at least 0.

    In seconds of completion.

    Args:
        seconds: e, residual run time on each bid row, shape (rows,), positive.
        gangs: g, shape (rows,).
        job_of: Index of each row's job, ascending.
        type_of: Index of each row's GPU type; a job has at most one row of each.
        capacities: C, shape (types,); where a type has none, no job has a row of it.
        weights: w, shape (jobs,).
        due: When the work of each job is due, in seconds from now, shape (jobs,).
        least: The least makespan, or an estimate of it.
        round_seconds: Length of a round, and of the first interval.
        lateness: λ, penalty of a second that all work of each job is late, in seconds of
            completion, shape (jobs,).
        makespan: What a second of makespan is worth, in seconds of completion of all active jobs.
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
        late = blur * expected_excess((middle - due[:, None] / span) / blur)
        program = Program(
            speed[:, there],
            weights[:, None] * middle + lateness[:, None] * late,
            0.5 * weights,
            gangs[firsts].astype(float),
            capacities[there].astype(float),
            lengths,
            makespan,
        )
        found = prices_over_time(program)
        if found.last <= lengths[-1] + LONGER:
            break
        span *= FIXED + found.last
    bids = np.zeros((jobs, len(capacities)))
    bids[:, there] = _bids(program, found.prices, found.last)
    rows: Floats = bids[job_of, type_of]
    return rows


def _lengths(first: float) -> Floats:
    """The intervals: 1 is the least makespan, the last one is a guess."""
    fixed = INTERVALS - 1
    first = min(first, FIXED / fixed)
    low, high = 1.0, 1.0 / first
    for _ in range(60):
        factor = (low + high) / 2.0
        long = first * float((factor ** np.arange(fixed)).sum()) > FIXED
        low, high = (low, factor) if long else (factor, high)
    return np.append(first * low ** np.arange(fixed), 1.0 - FIXED)


def _bids(program: Program, prices: Floats, last: float) -> Floats:
    """What running through the first interval saves each job, shape (jobs, types), at least 0.

    Args:
        program: The program.
        prices: p, shape (intervals, types).
        last: Length of the last interval.
    """
    first = program.lengths[0]
    lengths = np.append(program.lengths[1:-1], last)
    seconds = program.gangs[:, None, None] * prices[1:] + program.fixed[:, None, None]
    # Beyond the end a job pays for the makespan what others do not.
    whole = program.makespan * len(program.gangs)
    beyond = max(whole - float(program.capacities @ prices[-1]), 0.0)
    runs = program.speed > 0.0
    end = np.divide(
        seconds[:, -1] + beyond, program.speed, out=np.full(runs.shape, np.inf), where=runs
    )
    highest = program.costs[:, -1] + end.min(axis=1)
    rest = 1.0 - np.minimum(first * program.speed, 1.0)
    work = np.column_stack([np.ones(len(rest)), rest])
    later = _later(program, work, seconds, lengths, highest)
    done = 1.0 - rest
    busy = np.divide(done, program.speed, out=np.zeros(runs.shape), where=runs)
    saved = later[:, :1] - later[:, 1:]
    saved -= done * program.costs[:, :1] + busy * program.fixed[:, None]
    found: Floats = np.where(runs, np.maximum(saved, 0.0), 0.0) / first
    return found


def _later(
    program: Program, work: Floats, seconds: Floats, lengths: Floats, highest: Floats
) -> Floats:
    """What so much work of each job costs after the first interval, shape (jobs, amounts).

    Args:
        program: The program.
        work: Shares of a job's work, shape (jobs, amounts).
        seconds: Price of a second by job, later interval and type.
        lengths: Lengths of these intervals.
        highest: What all its work costs beyond them, shape (jobs,).
    """
    low, high = np.zeros(work.shape), np.repeat(highest[:, None], work.shape[1], axis=1)
    for _ in range(HALVINGS):
        worth = (low + high) / 2.0
        _, speed = _best(program, seconds, worth)
        enough = np.einsum("jat,t->ja", speed, lengths) >= work
        low, high = np.where(enough, low, worth), np.where(enough, worth, high)
    earned, _ = _best(program, seconds, high)
    costs: Floats = high * work - np.einsum("jat,t->ja", earned, lengths)
    return np.where(work > 0.0, costs, 0.0)


def _best(program: Program, seconds: Floats, worth: Floats) -> tuple[Floats, Floats]:
    """What a second of each later interval earns on the best type, and the speed there.

    Args:
        program: The program.
        seconds: Price of a second by job, later interval and type.
        worth: What all work is worth, shape (jobs, amounts).

    Returns:
        Two arrays of shape (jobs, amounts, intervals); 0 where nothing is earned.
    """
    above = worth[:, :, None] - program.costs[:, None, 1:]
    earned, speed = np.zeros(above.shape), np.zeros(above.shape)
    for kind, there in enumerate(program.speed.T[:, :, None, None]):
        earns = above * there - seconds[:, None, :, kind]
        better = earns > earned
        np.copyto(earned, earns, where=better)
        np.copyto(speed, np.broadcast_to(there, speed.shape), where=better)
    return earned, speed
