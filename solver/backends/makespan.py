"""The least makespan of the work left, as a linear program, with what a job's work costs in it.

    min  H    s. t.  Σ_{r of j} y_r / e_r ≥ 1,  Σ_{r on c} g_r y_r ≤ C_c H,  Σ_{r of j} y_r ≤ H

y_r seconds on bid row r, of which e_r finish its job (Gavel, OSDI '20, section 4.2, solved exactly
in place of a bisection). The dual of a job's first row says how much of the makespan its work is
worth; those of the capacities are the long-run prices of GPU types.
"""

from dataclasses import dataclass

import numpy as np

from solver.backends.linear_program import solved
from solver.market import Floats, Ints


@dataclass(frozen=True)
class Makespan:
    """The least makespan.

    Attributes:
        seconds: H.
        worth: Seconds of H that all the work of a job costs, shape (jobs,).
        prices: Seconds of H that a GPU of each type saves, over H, shape (types,).
    """

    seconds: float
    worth: Floats
    prices: Floats


def least_makespan(
    seconds: Floats, gangs: Floats, job_of: Ints, type_of: Ints, capacities: Ints
) -> Makespan:
    """The least makespan of fluid jobs on GPUs of several types.

    Args:
        seconds: e, residual run time on each bid row, shape (rows,).
        gangs: g, shape (rows,).
        job_of: Index of each row's job, ascending.
        type_of: Index of each row's GPU type.
        capacities: C, shape (types,).

    Raises:
        SolverError: HiGHS found no solution.
    """
    import highspy

    rows, jobs, types = len(seconds), int(job_of[-1]) + 1, len(capacities)
    scale = float(seconds.max())
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = rows + 1, 2 * jobs + types
    program.col_cost_ = np.append(np.zeros(rows), 1.0)
    program.col_lower_ = np.zeros(rows + 1)
    program.col_upper_ = np.full(rows + 1, highspy.kHighsInf)
    program.row_lower_ = np.append(np.ones(jobs), np.full(jobs + types, -highspy.kHighsInf))
    program.row_upper_ = np.append(np.full(jobs, highspy.kHighsInf), np.zeros(jobs + types))
    index = np.stack([job_of, jobs + job_of, 2 * jobs + type_of], axis=1)
    entry = np.stack([scale / seconds, np.ones(rows), gangs], axis=1)
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.append(np.arange(0, 3 * rows + 1, 3), 3 * rows + jobs + types)
    program.a_matrix_.index_ = np.append(index, np.arange(jobs, 2 * jobs + types))
    program.a_matrix_.value_ = np.concatenate(
        [entry.ravel(), np.full(jobs, -1.0), -capacities.astype(float)]
    )
    found = solved(program, "the least makespan", random_seed=0)
    duals = np.array(found.row_dual)
    return Makespan(
        seconds=scale * float(found.col_value[-1]),
        worth=scale * np.maximum(duals[:jobs], 0.0),
        prices=np.maximum(-duals[2 * jobs :], 0.0),
    )
