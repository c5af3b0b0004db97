"""Limit the program over time where gangs do not fit beside each other.

The program counts GPUs, so half a gang of four may run beside a gang of two. If all gangs of b or
more GPUs are multiples of b, a type of C GPUs has ⌊C / b⌋ *blocks* of b. Smaller gangs share the
blocks that the others leave, plus the remaining C mod b GPUs. If the remainder is too small for
gang j, it takes a block while it runs, and the large gangs share the other blocks:

    Σ_{g_i ≥ b} g_i y_ikt + b y_jkt ≤ b ⌊C_k / b⌋ L_t

This holds for every timetable. It makes the last gang of two cost as much as a gang of four unless
others run beside it, so the longest of the small gangs start while others are left. There is such a
limit for each b, type, interval and j, and one without j if C mod b is not 0. These are valid
inequalities in the sense of integer programming. Few of them bind, so those that the solution
violates are added as cutting planes (separation by enumeration).
"""

import numpy as np

from solver.backends.limits import Limits
from solver.backends.over_time import PricesOverTime, ProgramOverTime, price_over_time

JOBS = 32
"""Bound on effort: maximum number of jobs for which limits are added. With more jobs, some fit
anywhere: a bound of 64 gave the same results (docs/adr/0042)."""

PASSES = 4
"""Bound on effort: maximum number of solves. Not swept."""

ROWS = 96
"""Bound on effort: maximum number of limits; the most violated are kept. Not swept."""

BROKEN = 0.02
"""Relative violation above which a cut is added. In a limit with j, the use by j itself must exceed
it too, else the limit without j is equivalent. Chosen by hand, not swept."""


def price_with_blocks(program: ProgramOverTime) -> PricesOverTime:
    """Return the prices of the program; add limits if few jobs are left.

    Raises:
        SolverError: A step has no direction.
    """
    found = price_over_time(program)
    if len(program.gangs) > JOBS:
        return found
    every = make_limits(program)
    # Only job j takes more than its GPUs in a limit.
    alone = every._replace(takes=np.where(every.takes > program.gangs, every.takes, 0.0))
    without = ~alone.takes.any(axis=1)
    chosen = np.zeros(len(every.room), dtype=bool)
    for _ in range(PASSES - 1):
        room = np.append(program.lengths[:-1], found.last)[every.times] * every.room
        own = np.where(without, np.inf, alone.taken(found.seconds))
        broken = np.minimum(every.taken(found.seconds) - room, own) / room
        more = np.flatnonzero((broken > BROKEN) & ~chosen)
        most = more[np.argsort(-broken[more], kind="stable")][: ROWS - int(chosen.sum())]
        if not len(most):
            break
        chosen[most] = True
        found = price_over_time(program, limits=every.only(chosen))
    return found


def make_limits(program: ProgramOverTime) -> Limits:
    """Return all limits of the program."""
    gangs, capacities = program.gangs, program.capacities
    intervals, jobs = len(program.lengths), len(gangs)
    found = [Limits.none(jobs)]
    sizes = np.unique(gangs)
    for block in sizes[sizes > 1.0].tolist():
        if (sizes[sizes >= block] % block).any():
            continue
        large, whole = gangs >= block, block * (capacities // block)
        rest = (capacities - whole)[:, None]
        # One row per job j, and a last row for the limit without j.
        limited = np.c_[~large & (gangs > rest), rest > 0.0] & (whole > 0.0)[:, None]
        kinds, which = np.nonzero(limited)
        takes = np.where(large, gangs, 0.0) + block * np.eye(jobs + 1, jobs)[which]
        every = np.repeat(np.arange(intervals), len(kinds))
        kinds, takes = np.tile(kinds, intervals), np.tile(takes, (intervals, 1))
        found.append(Limits(every, kinds, takes, whole[kinds]))
    return Limits(*map(np.concatenate, zip(*found, strict=True)))
