"""Solve a market for the number of rounds that each job gets in the window."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from predictor.errors import InputError, SolverError
from solver.backends import Backend, BackendUnavailableError, CountProblem
from solver.backends.gurobi import Gurobi
from solver.backends.highs import Highs
from solver.backends.lagrangian import Lagrangian
from solver.market import Floats, Ints, Market, Price

BACKENDS: dict[str, tuple[Backend, ...]] = {
    "auto": (Lagrangian(), Gurobi(), Highs()),
    "lagrangian": (Lagrangian(),),
    "gurobi": (Gurobi(),),
    "highs": (Highs(),),
}
"""By option: the back ends asked in order; the first that takes the problem solves it, and
the next one refines it if the gap is not `CLOSED`."""

CLOSED = 1e-4
"""Relative gap at which nobody else is asked."""


@dataclass(frozen=True)
class Counts:
    """Rounds per job, before they are laid out in time.

    Attributes:
        counts: n_j, shape (jobs,).
        bound: Proven upper bound on the market's objective.
        prices: Objective per GPU-round of each GPU type: the duals of the capacities in
            the relaxation.
        backend: Which back end solved it; `none` where nothing was left to decide.
        reason: Why that one.
        status: `optimal` or `work_limit`.
    """

    counts: Ints
    bound: float
    prices: tuple[Price, ...]
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
    most = _last_useful(market)
    if (_used(market, most) <= market.capacities * market.window).all():
        free_of_charge = _prices(market, np.zeros(len(market.types)))
        reason = "every job gets all"
        return Counts(most, market.objective(most), free_of_charge, "none", reason, "optimal")
    decided = _decided(market, most)
    free = np.flatnonzero(~decided)
    fixed = np.where(decided, most, 0)
    problem, offset, scale = _reduced(market, most, free, fixed)
    found: Counts | None = None
    notes: list[str] = []
    for asked in backends:
        try:
            solution = asked.solve(problem)
        except BackendUnavailableError as error:
            notes.append(str(error))
            continue
        counts = fixed.copy()
        counts[free] = solution.counts
        answer = Counts(
            counts=counts,
            bound=offset + scale * solution.bound,
            prices=_prices(market, scale * solution.prices),
            backend=asked.name,
            reason="; ".join(notes) or "first choice",
            status=solution.status,
        )
        if found is not None:
            return _better(market, found, answer)
        found = answer
        if relative_gap(found.bound, market.objective(counts)) <= CLOSED:
            break
        notes.append(f"{asked.name} left a gap")
    if found is None:
        raise SolverError("backend", "; ".join(notes), "choose another --backend or fewer jobs")
    return found


def _prices(market: Market, prices: Floats) -> tuple[Price, ...]:
    return tuple(map(Price, market.types, prices.tolist()))


def _better(market: Market, first: Counts, second: Counts) -> Counts:
    """The better counts with the better bound, where the first one's gap was not closed."""
    keep = second if market.objective(second.counts) > market.objective(first.counts) else first
    return replace(
        keep,
        bound=min(first.bound, second.bound),
        reason=f"{second.reason}; {second.backend} was asked too",
        status=second.status,
    )


def relative_gap(bound: float, objective: float) -> float:
    """(bound − objective) / max(|bound|, |objective|), 0 where both are 0."""
    size = max(abs(bound), abs(objective))
    return (bound - objective) / size if size else 0.0


def _last_useful(market: Market) -> Ints:
    """The count beyond which a job gains nothing, shape (jobs,)."""
    useful = (market.utility < market.utility[:, -1:]) | (
        market.remaining > market.remaining[:, -1:]
    )
    counts: Ints = useful.sum(axis=1)
    return counts


def _used(market: Market, counts: Ints) -> Ints:
    """GPU-rounds of each GPU type that counts take, shape (types,)."""
    used = np.zeros(len(market.types), dtype=np.int64)
    np.add.at(used, market.type_of, market.gangs * counts)
    return used


def _decided(market: Market, most: Ints) -> NDArray[np.bool_]:
    """Jobs that get all they can use in every optimum, shape (jobs,).

    A set of jobs is decided if all it can use fits, and taking m rounds from any of its
    jobs loses more than the rest of the market can gain: the m rounds' GPUs, with what
    was left over before (less than the largest gang), bring the rest at most its
    steepest slope per GPU-round and the regulariser its own. The largest such set takes
    weights that differ by 10^21 out of the problem. In a market of several GPU types
    nothing is decided so.
    """
    if len(market.types) > 1:
        return np.zeros(len(most), dtype=bool)
    capacity = market.gpus * market.window
    rows, gangs = np.arange(len(most)), market.gangs[:, None]
    steepest = (np.diff(market.utility, axis=1) / gangs).max(axis=1)
    relief = market.regularizer * float(-np.diff(market.remaining, axis=1).min())
    taken = np.arange(1, market.window + 1)[None, :]
    kept = market.utility[rows[:, None], np.maximum(most[:, None] - taken, 0)]
    loss = (market.utility[:, -1:] - kept) / (taken * gangs + gangs.max() - 1)
    loss = np.where(taken <= most[:, None], loss, np.inf).min(axis=1)
    order = np.argsort(-loss, kind="stable")
    rest = np.maximum.accumulate(np.append(0.0, steepest[order[:0:-1]]))[::-1]
    fits = np.cumsum((market.gangs * most)[order]) <= capacity
    sets = np.flatnonzero(fits & (loss[order] > rest + relief))
    decided = np.zeros(len(most), dtype=bool)
    decided[order[: sets[-1] + 1 if len(sets) else 0]] = True
    return decided


def _reduced(
    market: Market, most: Ints, free: Ints, fixed: Ints
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
    return (
        CountProblem(
            utility=gains / scale,
            remaining=market.remaining[free] - floor,
            regularizer=market.regularizer / scale,
            gangs=market.gangs[free],
            capacities=market.capacities * market.window - _used(market, fixed),
            type_of=market.type_of[free],
            most=most[free],
        ),
        offset,
        scale,
    )
