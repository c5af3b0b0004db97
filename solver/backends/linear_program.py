"""Linear programs for HiGHS, and the solution of those whose optimum is part of a policy."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from predictor.errors import SolverError


class Program:
    """A linear program to maximise, under construction: columns with bounds, sparse rows."""

    def __init__(self) -> None:
        self._columns: list[tuple[float, float, float, bool]] = []
        self._bounds: list[tuple[float, float]] = []
        self._starts = [0]
        self._entries: list[tuple[int, float]] = []

    def column(self, cost: float, upper: float, lower: float = 0.0, *, whole: bool = False) -> int:
        """Add a column; return its index."""
        self._columns.append((cost, lower, upper, whole))
        return len(self._columns) - 1

    def row(self, terms: Sequence[tuple[int, float]], lower: float, upper: float) -> None:
        """Add a row, with terms by column."""
        self._entries += terms
        self._starts.append(len(self._entries))
        self._bounds.append((lower, upper))

    def model(self, *, integer: bool = False) -> Any:
        """Return the program as a `highspy.HighsLp`; whole columns are integer if `integer`."""
        import highspy

        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self._columns), len(self._bounds)
        cost, lower, upper, whole = zip(*self._columns, strict=True)
        model.col_cost_, model.col_lower_, model.col_upper_ = map(np.array, (cost, lower, upper))
        model.row_lower_, model.row_upper_ = map(np.array, zip(*self._bounds, strict=True))
        model.sense_ = highspy.ObjSense.kMaximize
        index, value = zip(*self._entries, strict=True)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.array(self._starts)
        model.a_matrix_.index_, model.a_matrix_.value_ = np.array(index), np.array(value)
        if integer:
            kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
            model.integrality_ = [kinds[each] for each in whole]
        return model


def solve_program(
    program: Any, what: str, *, limited: bool = False, **options: bool | float | str
) -> tuple[Any, Any]:
    """Return the optimal solution of a `highspy.HighsLp`, and HiGHS' figures about it.

    HiGHS runs silently in one thread.

    If `limited`, return the best solution within a limit of the options. `what` names the program
    in the error.

    Raises:
        SolverError: HiGHS found no solution.
    """
    import highspy

    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, setting in {"output_flag": False, "threads": 1, **options}.items():
        solver.setOptionValue(option, setting)
    solver.passModel(program)
    solver.run()
    status = solver.getModelStatus()
    enough = {highspy.HighsModelStatus.kOptimal}
    if limited:
        enough.add(highspy.HighsModelStatus.kSolutionLimit)
    if status not in enough:
        raise SolverError(
            what,
            f"HiGHS says {solver.modelStatusToString(status)}",
            "report it with the run's records",
        )
    return solver.getSolution(), solver.getInfo()
