"""Solve linear programs whose optimum is part of a policy, by HiGHS."""

from typing import Any

from predictor.errors import SolverError


def solve_program(
    program: Any, what: str, *, limited: bool = False, **options: bool | float | str
) -> Any:
    """Return the optimal solution of a `highspy.HighsLp`; HiGHS runs silently in one thread.

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
    return solver.getSolution()
