"""Solve a market for the number of rounds that each job gets in the window."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.errors import InputError, SolverError
from solver.backends import Backend, BackendUnavailableError, CountProblem, CountSolution
from solver.backends.gurobi import Gurobi
from solver.backends.highs import Highs
from solver.market import Floats, Ints, Market

BACKENDS: dict[str, tuple[Backend, ...]] = {
    "auto": (Gurobi(), Highs()),
    "gurobi": (Gurobi(),),
    "highs": (Highs(),),
}
"""By option: the back ends tried in order until one takes the problem."""


@dataclass(frozen=True)
class Counts:
    """Rounds per job, before they are laid out in time.

    Attributes:
        counts: n_j, shape (jobs,).
        bound: Proven upper bound on the market's objective.
        price: Objective per GPU-round: the dual of capacity in the relaxation.
        backend: Which back end solved it; `none` where nothing was left to decide.
        reason: Why that one.
        status: `optimal` or `work_limit`.
    """

    counts: Ints
    bound: float
    price: float
    backend: str
    reason: str
    status: str


def choose_backends(name: str) -> tuple[Backend, ...]:
    """The back ends that an option stands for.

    Raises:
        InputError: It stands for none.
    """
    if name not in BACKENDS:
        raise InputError("--backend", f"unknown {name!r}", f"known are {', '.join(BACKENDS)}")
    return BACKENDS[name]


def solve_counts(market: Market, backend: str = "auto") -> Counts:
    """Find the counts that maximise the market's objective.

    The problem is first made small and well scaled: a job gains nothing beyond its
    last useful round, and a job whose every useful round is worth more than all that
    the others could gain is decided (weights differ by up to 10^21).

    Args:
        market: The window problem.
        backend: A key of `BACKENDS`.

    Raises:
        InputError: No such back end.
        SolverError: None of the back ends could take the problem.
    """
    backends = choose_backends(backend)
    capacity = market.gpus * market.window
    most = _last_useful(market)
    if int(market.scale_factors @ most) <= capacity:
        return Counts(most, market.objective(most), 0.0, "none", "every job gets all", "optimal")
    decided = _decided(market, most, capacity)
    free = np.flatnonzero(~decided)
    fixed = np.where(decided, most, 0)
    problem, offset, scale = _reduced(market, most, free, fixed, capacity)
    solution, name, reason = _first(backends, problem)
    counts = fixed.copy()
    counts[free] = solution.counts
    return Counts(
        counts=counts,
        bound=offset + scale * solution.bound,
        price=scale * solution.price,
        backend=name,
        reason=reason,
        status=solution.status,
    )


def _first(backends: Sequence[Backend], problem: CountProblem) -> tuple[CountSolution, str, str]:
    refused: list[str] = []
    for backend in backends:
        try:
            solution = backend.solve(problem)
        except BackendUnavailableError as error:
            refused.append(str(error))
        else:
            return solution, backend.name, "; ".join(refused) or "first choice"
    raise SolverError("backend", "; ".join(refused), "choose another --backend or fewer jobs")


def _last_useful(market: Market) -> Ints:
    """The count beyond which a job gains nothing, shape (jobs,)."""
    useful = (market.utility < market.utility[:, -1:]) | (
        market.remaining > market.remaining[:, -1:]
    )
    counts: Ints = useful.sum(axis=1)
    return counts


def _decided(market: Market, most: Ints, capacity: int) -> NDArray[np.bool_]:
    """Jobs that get all they can use in every optimum, shape (jobs,).

    A set of jobs is decided if all it can use fits, and taking m rounds from any of its
    jobs loses more than the rest of the market can gain: the m rounds' GPUs, with what
    was left over before (less than the largest gang), bring the rest at most its
    steepest slope per GPU-round and the regulariser its own. The largest such set takes
    weights that differ by 10^21 out of the problem.
    """
    rows, gangs = np.arange(len(most)), market.scale_factors[:, None]
    steepest = (np.diff(market.utility, axis=1) / gangs).max(axis=1)
    relief = market.regularizer * float(-np.diff(market.remaining, axis=1).min())
    taken = np.arange(1, market.window + 1)[None, :]
    kept = market.utility[rows[:, None], np.maximum(most[:, None] - taken, 0)]
    loss = (market.utility[:, -1:] - kept) / (taken * gangs + gangs.max() - 1)
    loss = np.where(taken <= most[:, None], loss, np.inf).min(axis=1)
    order = np.argsort(-loss, kind="stable")
    rest = np.maximum.accumulate(np.append(0.0, steepest[order[:0:-1]]))[::-1]
    fits = np.cumsum((market.scale_factors * most)[order]) <= capacity
    sets = np.flatnonzero(fits & (loss[order] > rest + relief))
    decided = np.zeros(len(most), dtype=bool)
    decided[order[: sets[-1] + 1 if len(sets) else 0]] = True
    return decided


def _reduced(
    market: Market, most: Ints, free: Ints, fixed: Ints, capacity: int
) -> tuple[CountProblem, float, float]:
    """The undecided part of a market, shifted and scaled to gains of about one.

    Returns:
        The problem, and offset and scale with objective = offset + scale · reduced.
    """
    rows = np.arange(len(most))
    floor = float(market.remaining[rows, most].max())
    gains = market.utility[free] - market.utility[free, :1]
    offset = float(market.utility[rows, fixed].sum()) - market.regularizer * floor
    reach = float(market.remaining[rows, fixed].max()) - floor
    scale = float(gains.max(initial=0.0)) or market.regularizer * reach or 1.0
    gains = gains / scale
    envelope = np.array([_concave_majorant(row) for row in gains])
    nearly = np.abs(envelope - gains).max(axis=1) <= 1e-9
    return (
        CountProblem(
            utility=np.where(nearly[:, None], envelope, gains),
            envelope=envelope,
            cuts=tuple(
                cut
                for job, row in enumerate(market.remaining[free] - floor)
                for cut in _cuts(job, row)
            ),
            regularizer=market.regularizer / scale,
            scale_factors=market.scale_factors[free],
            capacity=capacity - int(market.scale_factors @ fixed),
            most=most[free],
        ),
        offset,
        scale,
    )


def _concave_majorant(row: Floats) -> Floats:
    """The smallest concave function above a table over 0…T, at the same points."""
    corners = [0]
    for n in range(1, len(row)):
        while (
            len(corners) > 1
            and (row[corners[-1]] - row[corners[-2]]) * (n - corners[-1])
            <= (row[n] - row[corners[-1]]) * (corners[-1] - corners[-2]) + 1e-13
        ):
            corners.pop()
        corners.append(n)
    return np.interp(np.arange(len(row)), corners, row[corners])


def _cuts(job: int, remaining: Floats) -> Iterator[tuple[int, float, float]]:
    """Facets (job, intercept, slope) of a convex table, where it is above zero."""
    slopes = np.diff(remaining)
    previous = -np.inf
    for n, slope in enumerate(slopes.tolist()):
        if remaining[n] > 0.0 and slope > previous + 1e-9 * abs(slope):
            yield job, float(remaining[n]) - slope * n, slope
            previous = slope
