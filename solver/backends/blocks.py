"""Gangs that do not fit beside each other, as limits of the program over time.

The program counts GPUs, so half a gang of four may run beside a gang of two. Where gangs of b or
more GPUs all have a multiple of b, a type of C GPUs has ⌊C / b⌋ *blocks* of b. Smaller gangs share
what blocks the others leave, and the rest of C mod b GPUs. If that rest is too small for gang j, it
takes a block for as long as it runs, and the large ones run in what blocks are left:

    Σ_{g_i ≥ b} g_i y_ikt + b y_jkt ≤ b ⌊C_k / b⌋ L_t

That holds for every timetable. By it the last gang of two costs as much as a gang of four, unless
others run beside it: so the longest of the small gangs begin while others are left.
There is such a limit for each b, type, interval and j, and where C mod b is not 0 the same without
j. In the terms of integer programming these are valid inequalities. Few hold anything back, so they
are added as cutting planes: those that the solution breaks (separation by enumeration).
"""

import numpy as np

from solver.backends.limits import Limits
from solver.backends.over_time import PricesOverTime, ProgramOverTime, price_over_time

JOBS = 32
"""Bound on effort: most jobs for which limits are added. Among more, some fit anywhere: 64 did the
same (docs/adr/0042)."""

PASSES = 4
"""Bound on effort: how often the program is solved. No sweep is recorded."""

ROWS = 96
"""Bound on effort: limits, at most; of more the most broken. No sweep is recorded."""

BROKEN = 0.02
"""Share of a limit's room beyond which it counts as broken, by j itself where there is one: else
the limit without j is equivalent. Chosen by hand; no sweep is recorded."""


def price_with_blocks(program: ProgramOverTime) -> PricesOverTime:
    """Prices of the program, with limits where few jobs are left.

    Raises:
        SolverError: A step has no direction.
    """
    found = price_over_time(program)
    if len(program.gangs) > JOBS:
        return found
    every = make_limits(program)
    # Only of j a limit takes more than its GPUs.
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
    """All limits of the program."""
    gangs, capacities = program.gangs, program.capacities
    intervals, jobs = len(program.lengths), len(gangs)
    found = [Limits.none(jobs)]
    sizes = np.unique(gangs)
    for block in sizes[sizes > 1.0].tolist():
        if (sizes[sizes >= block] % block).any():
            continue
        large, whole = gangs >= block, block * (capacities // block)
        rest = (capacities - whole)[:, None]
        # A row for each job, and at the end that of none.
        limited = np.c_[~large & (gangs > rest), rest > 0.0] & (whole > 0.0)[:, None]
        kinds, which = np.nonzero(limited)
        takes = np.where(large, gangs, 0.0) + block * np.eye(jobs + 1, jobs)[which]
        every = np.repeat(np.arange(intervals), len(kinds))
        kinds, takes = np.tile(kinds, intervals), np.tile(takes, (intervals, 1))
        found.append(Limits(every, kinds, takes, whole[kinds]))
    return Limits(*map(np.concatenate, zip(*found, strict=True)))
