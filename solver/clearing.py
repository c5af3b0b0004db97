"""Clear the market of the coming round and certify its plan."""

import numpy as np

from predictor.arrays import Ints
from solver.backends import RELATIVE_GAP, CountProblem
from solver.backends.choice import Solution, relative_gap, solve
from solver.backends.transport import solve_round
from solver.guarantees import Guarantees
from solver.market import Market, Price
from solver.plan import SolveReport


def solve_market(market: Market, backend: str = "auto") -> Solution:
    """Find the rows that maximise the round's utility, with a back end of `BACKENDS`.

    Raises:
        InputError: The back end is unknown.
        SolverError: No back end solved the problem.
    """
    useful = (market.utility > 0.0).astype(np.int64)
    used = np.bincount(market.type_of, market.gangs * useful, len(market.types))
    if len(market.jobs) == len(useful) and (used <= market.capacities).all():
        worth, free = float(market.utility.sum()), np.zeros(len(market.types))
        return Solution(useful, worth, worth, free, "none", "every job gets all", "optimal")
    scale = float(market.utility.max(initial=0.0)) or 1.0
    problem = CountProblem(
        utility=np.stack([np.zeros(len(useful)), market.utility / scale], axis=1),
        remaining=np.zeros((len(useful), 2)),
        regularizer=0.0,
        gangs=market.gangs,
        capacities=market.capacities,
        type_of=market.type_of,
        most=useful,
        job_of=market.job_of,
    )
    return solve(problem, backend, solve_round, scale=scale)


def certify(
    policy: str, market: Market, rows: Ints, solution: Solution, kept: Guarantees
) -> SolveReport:
    """Return the certificate of the rows that run, with their gap to a solution's bound.

    The status is `imprecise` if the bound lies below the round's objective, which disproves the
    back end's proof.
    """
    objective = float(market.utility[rows].sum())
    bound = max(solution.bound, objective)
    slack = RELATIVE_GAP * (float(market.utility.sum()) + objective)
    return SolveReport(
        policy=policy,
        backend=solution.backend,
        reason=solution.reason,
        status=solution.status if solution.bound >= objective - slack else "imprecise",
        objective=objective,
        bound=bound,
        gap=relative_gap(bound, objective),
        prices=tuple(map(Price, market.types, solution.prices.tolist())),
        envious=kept.envious,
        below_share=kept.below_share,
        wanting=kept.wanting,
    )
