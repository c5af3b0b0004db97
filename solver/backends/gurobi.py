"""Gurobi; the size-limited licence of its package suffices for hundreds of jobs."""

import atexit
from functools import cache
from threading import get_ident
from typing import Any

import numpy as np

from solver.backends import RELATIVE_GAP, BackendUnavailableError, CountProblem, CountSolution
from solver.backends.linear import make_cuts, make_envelopes

WORK_LIMIT = 2.0
"""Bound on effort in Gurobi's deterministic work units (about a second each). An engineering bound,
not swept; the recorded windows take 30 ms at most (docs/market.md)."""


@cache
def _environment(thread: int) -> Any:
    """Return a thread's environment; Gurobi environments are not thread-safe."""
    try:
        import gurobipy
    except ImportError as error:
        raise BackendUnavailableError("gurobipy is not installed") from error
    try:
        environment = gurobipy.Env(
            params={
                "OutputFlag": 0,
                "Threads": 1,
                "Seed": 0,
                "MIPGap": RELATIVE_GAP,
                "WorkLimit": WORK_LIMIT,
            }
        )
    except gurobipy.GurobiError as error:
        raise BackendUnavailableError(f"Gurobi {error.errno}: {error}") from error
    atexit.register(environment.close)
    return environment


def solve_with_gurobi(problem: CountProblem) -> CountSolution:
    """See `Backend`."""
    environment = _environment(get_ident())
    envelope, utility = make_envelopes(problem)
    import gurobipy
    from gurobipy import GRB

    try:
        with gurobipy.Model(env=environment) as model:
            model.ModelSense = GRB.MAXIMIZE
            counts = model.addMVar(len(problem.most), ub=problem.most)
            longest = model.addVar(obj=-problem.regularizer)
            variables = counts.tolist()
            capacity = [
                model.addConstr((problem.gangs * (problem.type_of == kind)) @ counts <= most)
                for kind, most in enumerate(problem.capacities.tolist())
            ]
            for rows in problem.shared:
                model.addConstr(counts[rows.tolist()].sum() <= problem.window)
            for job, intercept, slope in make_cuts(problem):
                model.addConstr(longest - slope * variables[job] >= intercept)
            _set_utility(model, variables, envelope, problem)
            _optimize(model)
            if model.Status != GRB.OPTIMAL:
                raise BackendUnavailableError(f"Gurobi status {model.Status} on relaxation")
            prices = np.array([abs(row.Pi) for row in capacity])
            relaxed = model.ObjVal
            counts.VType = GRB.INTEGER
            _set_utility(model, variables, utility, problem)
            _optimize(model)
            if not model.SolCount:
                raise BackendUnavailableError(f"Gurobi status {model.Status}")
            return CountSolution(
                counts=np.rint(counts.X).astype(np.int64),
                bound=min(model.ObjBound, relaxed),
                prices=prices,
                status="optimal" if model.Status == GRB.OPTIMAL else "work_limit",
            )
    except gurobipy.GurobiError as error:
        raise BackendUnavailableError(f"Gurobi {error.errno}: {error}") from error


def _optimize(model: Any) -> None:
    """Optimise; re-raise the KeyboardInterrupt that Gurobi swallows."""
    import gurobipy

    model.optimize()
    if model.Status == gurobipy.GRB.INTERRUPTED:
        raise KeyboardInterrupt


def _set_utility(model: Any, variables: list[Any], table: Any, problem: CountProblem) -> None:
    for variable, row, most in zip(variables, table.tolist(), problem.most.tolist(), strict=True):
        if most:
            model.setPWLObj(variable, list(range(most + 1)), row[: most + 1])
