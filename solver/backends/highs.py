"""HiGHS: the model of `gurobi`, with segments in place of the piecewise-linear objective."""

from typing import Any

import numpy as np

from predictor.arrays import Floats
from solver.backends import RELATIVE_GAP, BackendUnavailableError, CountProblem, CountSolution
from solver.backends.linear import make_cuts, make_envelopes
from solver.backends.linear_program import Program

NODE_LIMIT = 20_000
"""Bound on effort, in branch-and-bound nodes. An engineering bound, not swept; the recorded windows
take 35 ms at most (docs/market.md)."""

SLOPE_TOLERANCE = 1e-12
"""Tolerance for equal slopes of the scaled utility; above the rounding error of their differences,
so that rounding adds no segment."""


def solve_with_highs(problem: CountProblem) -> CountSolution:
    """See `Backend`."""
    try:
        import highspy
    except ImportError as error:
        raise BackendUnavailableError("highspy is not installed") from error
    envelope, utility = make_envelopes(problem)
    relaxed = _run(highspy, problem, envelope, integer=False)
    whole = _run(highspy, problem, utility, integer=True)
    return CountSolution(
        counts=whole.counts,
        bound=min(whole.bound, relaxed.bound),
        prices=relaxed.prices,
        status=whole.status,
    )


def _run(highspy: Any, problem: CountProblem, table: Floats, *, integer: bool) -> CountSolution:
    solver = highspy.Highs()
    for option, value in (
        ("output_flag", False),
        ("threads", 1),
        ("random_seed", 0),
        ("mip_rel_gap", RELATIVE_GAP),
        ("mip_max_nodes", NODE_LIMIT),
    ):
        solver.setOptionValue(option, value)
    solver.passModel(_model(problem, table, integer=integer))
    solver.run()
    status, info = solver.getModelStatus(), solver.getInfo()
    optimal = status == highspy.HighsModelStatus.kOptimal
    if info.primal_solution_status != 2 or not (optimal or integer):  # 2: feasible
        raise BackendUnavailableError(f"HiGHS: {solver.modelStatusToString(status)}")
    solution = solver.getSolution()
    jobs = len(problem.most)
    return CountSolution(
        counts=np.rint(solution.col_value[:jobs]).astype(np.int64),
        bound=info.mip_dual_bound if integer else info.objective_function_value,
        prices=np.abs(solution.row_dual[: len(problem.capacities)]),
        status="optimal" if optimal else "work_limit",
    )


def _model(problem: CountProblem, table: Floats, *, integer: bool) -> Any:
    """Build the columns: counts by job, longest remaining time z, segments with their binaries."""
    rows = Program()
    for most in problem.most.tolist():
        rows.column(0.0, float(most), whole=True)
    longest = rows.column(-problem.regularizer, np.inf)
    gangs, type_of = problem.gangs.tolist(), problem.type_of.tolist()
    for kind, most in enumerate(problem.capacities.tolist()):
        use = [(job, float(gang)) for job, gang in enumerate(gangs) if type_of[job] == kind]
        rows.row(use, -np.inf, most)
    for shared in problem.shared:
        rows.row([(row, 1.0) for row in shared.tolist()], -np.inf, float(problem.window))
    for job, intercept, slope in make_cuts(problem):
        rows.row([(longest, 1.0), (job, -slope)], intercept, np.inf)
    for job, most in enumerate(problem.most.tolist()):
        row = table[job, : most + 1]
        bends = np.abs(np.diff(np.diff(row), append=np.inf)) > SLOPE_TOLERANCE
        ends = np.flatnonzero(bends) + 1
        lengths = np.diff(ends, prepend=0)
        heights = np.diff(row[ends], prepend=row[0]) / lengths
        segments = [
            rows.column(height, float(length))
            for height, length in zip(heights.tolist(), lengths.tolist(), strict=True)
        ]
        rows.row([(job, -1.0), *((segment, 1.0) for segment in segments)], 0.0, 0.0)
        if integer and (np.diff(heights) > SLOPE_TOLERANCE).any():
            # Not concave: a segment opens only when the one before it is full.
            for left, right, a, b in zip(
                segments, segments[1:], lengths.tolist(), lengths[1:].tolist(), strict=False
            ):
                opened = rows.column(0.0, 1.0, whole=True)
                rows.row([(left, 1.0), (opened, -float(a))], 0.0, np.inf)
                rows.row([(right, 1.0), (opened, -float(b))], -np.inf, 0.0)
    return rows.model(integer=integer)
