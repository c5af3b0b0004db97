"""Choose a back end by name."""

from dataclasses import dataclass

from predictor.arrays import Floats, Ints
from predictor.errors import InputError, SolverError, meant
from solver.backends import Backend, BackendUnavailableError, CountProblem
from solver.backends.gurobi import solve_with_gurobi
from solver.backends.highs import solve_with_highs

BACKENDS = ("auto", "lagrangian", "gurobi", "highs")
"""Names of back ends. `auto` tries the others in this order until one accepts the problem; if its
gap exceeds `CLOSED`, the next one refines the solution."""

CLOSED = 1e-4
"""Relative gap that needs no refinement by another back end (docs/market.md, Back ends). An
engineering choice, not swept."""


@dataclass(frozen=True)
class Solution:
    """The solution of a problem, in the problem's own units.

    Attributes:
        counts: n, shape (rows,).
        bound: Proven upper bound on the objective.
        prices: Price of a GPU-round of each GPU type, shape (types,).
        backend: Back end that solved the problem; `none` if nothing was left to decide.
        status: `optimal` or `work_limit`.
    """

    counts: Ints
    bound: float
    objective: float
    prices: Floats
    backend: str
    reason: str
    status: str


def check_backend(name: str) -> None:
    """Check the name of a back end.

    Raises:
        InputError: The name is not in `BACKENDS`.
    """
    if name not in BACKENDS:
        raise InputError("backend", f"unknown {name!r}", meant(name, BACKENDS))


def solve(
    problem: CountProblem, backend: str, own: Backend, *, offset: float = 0.0, scale: float = 1.0
) -> Solution:
    """Solve a problem with the named back end, or with several under `auto`.

    The objective is `offset` + `scale` times the problem's, which is scaled. `own` is our own
    solver of such problems, `lagrangian`.

    Raises:
        InputError: The back end is unknown.
        SolverError: No back end solved the problem.
    """
    check_backend(backend)
    solvers = {"lagrangian": own, "gurobi": solve_with_gurobi, "highs": solve_with_highs}
    found: Solution | None = None
    notes: list[str] = []
    for name in solvers if backend == "auto" else [backend]:
        try:
            solved = solvers[name](problem)
        except BackendUnavailableError as error:
            notes.append(str(error))
            continue
        answer = Solution(
            counts=solved.counts,
            bound=offset + scale * solved.bound,
            objective=offset + scale * problem.objective(solved.counts),
            prices=scale * solved.prices,
            backend=name,
            reason="; ".join(notes) or "first choice",
            status=solved.status,
        )
        if found is not None:
            return _combine(found, answer)
        found = answer
        if relative_gap(found.bound, found.objective) <= CLOSED:
            break
        notes.append(f"{name} left a gap")
    if found is None:
        raise SolverError("backend", "; ".join(notes), "choose another back end or fewer jobs")
    return found


def _combine(first: Solution, second: Solution) -> Solution:
    best = second if second.objective > first.objective else first
    return Solution(
        counts=best.counts,
        bound=min(first.bound, second.bound),
        objective=best.objective,
        prices=best.prices,
        backend=best.backend,
        reason=f"{second.reason}; {second.backend} was asked too",
        status=second.status,
    )


def relative_gap(bound: float, objective: float) -> float:
    """Return (bound − objective) / max(|bound|, |objective|), 0 if both are 0."""
    size = max(abs(bound), abs(objective))
    return (bound - objective) / size if size else 0.0
