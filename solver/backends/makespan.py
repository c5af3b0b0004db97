"""Compute the least makespan of the remaining work as a linear program.

    min  H    s. t.  Σ_k y_jk / e_jk = 1,  Σ_j g_j y_jk ≤ C_k H,  Σ_k y_jk ≤ H,  y ≥ 0

y_jk are seconds of job j on type k, of which e_jk finish it (Gavel, OSDI '20, section 4.2, solved
exactly instead of by bisection). It is the program over time with a single interval, whose length
is the only cost.
"""

import numpy as np

from predictor.arrays import Floats, Ints
from predictor.errors import SolverError
from solver.backends.over_time import CLOSED, ProgramOverTime, price_over_time

EXACT = 1e-7
"""Gap of an exact search, as a share of H; a numerical tolerance. Constraint violations are
smaller."""


def find_least_makespan(
    seconds: Floats,
    gangs: Floats,
    job_of: Ints,
    type_of: Ints,
    capacities: Ints,
    *,
    exact: bool = True,
) -> float:
    """Return the least makespan of fluid jobs on GPUs of several types, in seconds.

    Rows are as in `solver.backends.foresight.measure_savings`. Unless `exact`, return an estimate
    from a sample of many jobs, to a gap of `CLOSED` if the search reaches it.

    Raises:
        SolverError: An exact search did not end; no such problem is known.
    """
    jobs, there = int(job_of[-1]) + 1, capacities > 0
    firsts = np.flatnonzero(np.diff(job_of, prepend=-1))
    fastest, gang = np.minimum.reduceat(seconds, firsts), gangs[firsts].astype(float)
    alone = float(fastest.max())
    scale = max(alone, float(gang @ fastest) / float(capacities.sum()))
    speed = np.zeros((jobs, len(capacities)))
    speed[job_of, type_of] = scale / seconds
    found = price_over_time(
        ProgramOverTime(
            speed[:, there],
            np.zeros((jobs, 1)),
            np.zeros(jobs),
            gang,
            capacities[there].astype(float),
            np.array([2.0]),
            1.0 / jobs,
        ),
        EXACT if exact else CLOSED,
        sampled=not exact,
    )
    if exact and not found.closed:
        raise SolverError("the least makespan", "was not found", "report it with the run's records")
    return max(scale * found.last, alone)
