"""Linear programs over shares of time, solved by an interior-point method.

Most of these programs have many optima. A simplex method would return a vertex, which
gives some jobs all the slack and others none; the interior-point method, without a
crossover, returns a point in the middle of the optimal face and so spreads the slack.
"""

from typing import Any

import numpy as np

from predictor.errors import SolverError
from solver.market import Floats


def best_shares(
    gangs: Floats,
    gpus: int,
    *,
    value: Floats | None = None,
    lower: Floats | None = None,
    floor_weights: Floats | None = None,
) -> Floats:
    """Shares of time x in [0, 1] with Σ g_j x_j ≤ G.

    Args:
        gangs: g, GPUs that each job holds when it runs, shape (jobs,).
        gpus: G.
        value: c, shape (jobs,): maximise Σ c_j x_j.
        lower: Least shares, shape (jobs,).
        floor_weights: a, shape (jobs,): maximise min_j a_j x_j.

    Returns:
        x, shape (jobs,), clipped to [0, 1].

    Raises:
        SolverError: HiGHS found no solution.
    """
    import highspy

    jobs = len(gangs)
    floors = jobs if floor_weights is not None else 0
    columns = jobs + (1 if floors else 0)
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = columns, 1 + floors
    cost = np.zeros(columns)
    cost[:jobs] = value if value is not None else 0.0
    column_lower, column_upper = np.zeros(columns), np.ones(columns)
    column_lower[:jobs] = lower if lower is not None else 0.0
    starts, index, entry = [0, jobs], list(range(jobs)), gangs.tolist()
    if floor_weights is not None:
        cost[-1], column_upper[-1] = 1.0, highspy.kHighsInf
        for job, weight in enumerate(floor_weights.tolist()):
            index += [job, jobs]
            entry += [weight, -1.0]
            starts.append(len(index))
    program.col_cost_, program.sense_ = cost, highspy.ObjSense.kMaximize
    program.col_lower_, program.col_upper_ = column_lower, column_upper
    program.row_lower_ = np.append(-highspy.kHighsInf, np.zeros(floors))
    program.row_upper_ = np.append(float(gpus), np.full(floors, highspy.kHighsInf))
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.array(starts)
    program.a_matrix_.index_ = np.array(index)
    program.a_matrix_.value_ = np.array(entry, dtype=np.float64)
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, setting in (
        ("output_flag", False),
        ("threads", 1),
        ("solver", "ipm"),
        ("run_crossover", "off"),
        ("presolve", "off"),
    ):
        solver.setOptionValue(option, setting)
    solver.passModel(program)
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise SolverError(
            "allocation of shares",
            f"HiGHS says {solver.modelStatusToString(status)}",
            "report it with the run's records",
        )
    shares: Floats = np.clip(np.array(solver.getSolution().col_value)[:jobs], 0.0, 1.0)
    return shares
