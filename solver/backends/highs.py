"""HiGHS: the model of `gurobi`, with segments in place of the piecewise-linear objective."""

from typing import Any

import numpy as np

from predictor.arrays import Floats
from solver.backends import RELATIVE_GAP, BackendUnavailableError, CountProblem, CountSolution
from solver.backends.linear import make_cuts, make_envelopes

NODE_LIMIT = 20_000
"""Bound on effort, in branch-and-bound nodes. An engineering bound, not swept; the recorded windows
take 35 ms at most (docs/market.md)."""

SLOPE_TOLERANCE = 1e-12
"""Tolerance for equal slopes of the scaled utility; above the rounding error of their differences,
so that rounding adds no segment."""


class _Rows:
    """A linear program under construction: columns with bounds and cost, sparse rows."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.upper: list[float] = []
        self.whole: list[bool] = []
        self.row_lower: list[float] = []
        self.row_upper: list[float] = []
        self.starts: list[int] = [0]
        self.index: list[int] = []
        self.value: list[float] = []

    def column(self, cost: float, upper: float, *, whole: bool = False) -> int:
        self.cost.append(cost)
        self.upper.append(upper)
        self.whole.append(whole)
        return len(self.cost) - 1

    def row(self, terms: list[tuple[int, float]], lower: float, upper: float) -> None:
        self.index += [column for column, _ in terms]
        self.value += [value for _, value in terms]
        self.starts.append(len(self.index))
        self.row_lower.append(lower)
        self.row_upper.append(upper)


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
    rows = _model(problem, table, integer=integer)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(rows.cost), len(rows.row_lower)
    lp.col_cost_ = np.array(rows.cost)
    lp.col_lower_, lp.col_upper_ = np.zeros(lp.num_col_), np.array(rows.upper)
    lp.row_lower_, lp.row_upper_ = np.array(rows.row_lower), np.array(rows.row_upper)
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.array(rows.starts)
    lp.a_matrix_.index_ = np.array(rows.index)
    lp.a_matrix_.value_ = np.array(rows.value)
    if integer:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[whole] for whole in rows.whole]
    solver = highspy.Highs()
    for option, value in (
        ("output_flag", False),
        ("threads", 1),
        ("random_seed", 0),
        ("mip_rel_gap", RELATIVE_GAP),
        ("mip_max_nodes", NODE_LIMIT),
    ):
        solver.setOptionValue(option, value)
    solver.passModel(lp)
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


def _model(problem: CountProblem, table: Floats, *, integer: bool) -> _Rows:
    """Build the columns: counts by job, longest remaining time z, segments with their binaries."""
    rows = _Rows()
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
    return rows
