"""Solve linear programs over shares of time by interior-point methods.

Most of these programs have many optima. A simplex method would return a vertex, which gives all
slack to some jobs and none to others. An interior-point method without a crossover returns a point
in the middle of the optimal face, which spreads the slack.

With several GPU types the method must stay near the central path: HiGHS ends far from the middle if
all types are equally good for a job, so Clarabel solves these programs.
"""

from typing import Any

import numpy as np

from predictor.arrays import Floats, Ints
from predictor.errors import SolverError
from solver.backends.linear_program import Program, solve_program


def find_best_shares(
    gangs: Floats,
    gpus: Floats,
    speeds: Floats,
    *,
    value: Floats | None = None,
    least: Floats | None = None,
    floor_weights: Floats | None = None,
) -> Floats:
    """Return shares of time x_jk in [0, 1] of jobs on GPU types, shape (jobs, types).

    Σ_k x_jk ≤ 1 for each job and Σ_j g_j x_jk ≤ c_k for each type (Narayanan et al., Gavel,
    OSDI '20, section 3.1). A job's effective speed is s_j = Σ_k v_jk x_jk.

    Args:
        gangs: g, GPUs that each job holds when it runs, shape (jobs,).
        gpus: c, GPUs of each type, shape (types,).
        speeds: v, relative to the speed on some type, shape (jobs, types); 1 with a single type.
        value: Shape (jobs, types): maximise Σ value_jk x_jk.
        least: Minimum effective speeds, shape (jobs,).
        floor_weights: a, shape (jobs,): maximise min_j a_j s_j over the jobs with a finite a_j.

    Raises:
        SolverError: The solver found no solution.
    """
    jobs, types = speeds.shape
    if types == 1:
        worth = None if value is None else value[:, 0]
        return _of_one_type(gangs, float(gpus[0]), worth, least, floor_weights)[:, None]
    from scipy import sparse

    one_each = sparse.kron(sparse.identity(jobs), np.ones((1, types)), "csr")
    speed = one_each @ sparse.diags(speeds.reshape(-1))
    use = sparse.kron(gangs[None, :], sparse.identity(types))
    worth = None if value is None else value.reshape(-1)
    return _shares(use, one_each, speed, gpus, worth, least, floor_weights).reshape(jobs, types)


def find_best_packed_shares(
    gangs: Floats,
    gpus: Floats,
    members: Ints,
    speeds: Floats,
    *,
    value: Floats | None = None,
    least: Floats | None = None,
    floor_weights: Floats | None = None,
) -> Floats:
    """Return shares of time x_rk in [0, 1] of jobs and pairs on GPU types, shape (rows, types).

    Row r is a job alone, or a pair on the same GPUs, which takes them once. Σ x_rk ≤ 1 over all
    types and rows of a job, and Σ_r g_r x_rk ≤ c_k for each type (Narayanan et al., Gavel,
    OSDI '20, section 4.4). A job's effective speed is the sum of v_rjk x_rk over its rows.

    The arguments are those of `find_best_shares` by row. `members` are the indices of a row's jobs,
    −1 without a second one, shape (rows, 2); `speeds` are those of both jobs on each type, 0 for
    both where a row cannot run, so that its share is 0, shape (rows, 2, types).

    Raises:
        SolverError: The solver found no solution.
    """
    from scipy import sparse

    row, kind = np.nonzero(speeds[:, 0] > 0.0)
    columns, jobs = np.arange(len(row)), int(members.max()) + 1
    shape = jobs, len(row)
    of = [(members[row, n], columns, speeds[row, n, kind]) for n in (0, 1)]
    of = [(job[job >= 0], column[job >= 0], speed[job >= 0]) for job, column, speed in of]
    job, column, rate = (np.concatenate(parts) for parts in zip(*of, strict=True))
    use = sparse.csc_matrix((gangs[row], (kind, columns)), shape=(len(gpus), len(row)))
    time = sparse.csr_matrix((np.ones(len(job)), (job, column)), shape=shape)
    speed = sparse.csr_matrix((rate, (job, column)), shape=shape)
    found = np.zeros((len(gangs), len(gpus)))
    worth = None if value is None else value[row, kind]
    found[row, kind] = _shares(use, time, speed, gpus, worth, least, floor_weights)
    return found


def _shares(
    use: Any,
    time: Any,
    speed: Any,
    gpus: Floats,
    value: Floats | None,
    least: Floats | None,
    floor_weights: Floats | None,
) -> Floats:
    """Return shares in the middle of the optimal face, clipped to [0, 1], shape (shares,).

    `use` (types, shares), `time` and `speed` (jobs, shares) are the GPUs and the job's time that a
    share takes, and the speed that it gives; the rest is as in `find_best_shares`.
    """
    from scipy import sparse

    (jobs, shares), floors = time.shape, floor_weights is not None
    rows = [use, time, -sparse.identity(shares)]
    most = [gpus, np.ones(jobs), np.zeros(shares)]
    if least is not None:
        needy = least > 0.0
        rows.append(-speed[needy])
        most.append(-least[needy])
    if floor_weights is not None:
        finite = np.isfinite(floor_weights)
        rows.append(-sparse.diags(floor_weights[finite]) @ speed[finite])
        most.append(np.zeros(int(finite.sum())))
    matrix = sparse.vstack(rows, "csc")
    cost = np.zeros(shares) if value is None else -value
    if floors:  # the last column is the minimum over jobs, as an epigraph variable
        floor = np.zeros(matrix.shape[0])
        floor[matrix.shape[0] - int(finite.sum()) :] = 1.0
        matrix = sparse.hstack([matrix, floor[:, None]], "csc")
        cost = np.append(cost, -1.0)
    solution = _central(cost, matrix, np.concatenate(most))
    return np.clip(solution[:shares], 0.0, 1.0)


def _central(cost: Floats, matrix: Any, most: Floats) -> Floats:
    """Minimise cost · x subject to matrix · x ≤ most; x is in the middle of the optimal face."""
    import clarabel
    from scipy import sparse

    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    columns, cones = len(cost), [clarabel.NonnegativeConeT(len(most))]
    quadratic = sparse.csc_matrix((columns, columns))
    solution = clarabel.DefaultSolver(quadratic, cost, matrix, most, cones, settings).solve()
    if solution.status not in (clarabel.SolverStatus.Solved, clarabel.SolverStatus.AlmostSolved):
        raise SolverError(
            "allocation of shares",
            f"Clarabel says {solution.status}",
            "report it with the run's records",
        )
    return np.array(solution.x)


def _of_one_type(
    gangs: Floats,
    gpus: float,
    value: Floats | None,
    lower: Floats | None,
    floor_weights: Floats | None,
) -> Floats:
    """Return the shares on a single type, by HiGHS; arrays have shape (jobs,)."""
    program, jobs = Program(), len(gangs)
    bounds = np.zeros(jobs) if lower is None else lower
    worth = np.zeros(jobs) if value is None else value
    for cost, least in zip(worth.tolist(), bounds.tolist(), strict=True):
        program.column(cost, 1.0, least)
    program.row([*enumerate(gangs.tolist())], -np.inf, gpus)
    if floor_weights is not None and np.isfinite(floor_weights).any():
        floor = program.column(1.0, np.inf)
        for job in np.flatnonzero(np.isfinite(floor_weights)).tolist():
            program.row([(job, float(floor_weights[job])), (floor, -1.0)], 0.0, np.inf)
    found, _ = solve_program(
        program.model(), "allocation of shares", solver="ipm", run_crossover="off", presolve="off"
    )
    shares: Floats = np.clip(np.array(found.col_value)[:jobs], 0.0, 1.0)
    return shares
