"""Solve a market for the number of rounds that each job gets in the window."""

from dataclasses import dataclass, replace

import numpy as np

from predictor.arrays import Bools, Floats, Ints
from predictor.errors import InputError, SolverError, meant
from solver.backends import Backend, BackendUnavailableError, CountProblem, CountSolution
from solver.backends.gurobi import Gurobi
from solver.backends.highs import Highs
from solver.backends.lagrangian import solve_window
from solver.backends.transport import solve_round
from solver.market import Market, Price


class Lagrangian:
    """Our own `Backend`: of a window on one GPU type, or of a round in which jobs choose types."""

    name = "lagrangian"

    def solve(self, problem: CountProblem) -> CountSolution:
        """See `Backend.solve`."""
        chooses = len(problem.capacities) > 1 or problem.shared
        if chooses and problem.window == 1 and not problem.regularizer:
            return solve_round(problem)
        return solve_window(problem)


BACKENDS: dict[str, tuple[Backend, ...]] = {
    "auto": (Lagrangian(), Gurobi(), Highs()),
    "lagrangian": (Lagrangian(),),
    "gurobi": (Gurobi(),),
    "highs": (Highs(),),
}
"""Back ends by name, in order of preference. The first that accepts the problem solves it;
the next refines the solution if the gap exceeds `CLOSED`."""

CLOSED = 1e-4
"""Relative gap that needs no refinement by another back end (docs/market.md, Back ends). An
engineering choice; no sweep is recorded."""


@dataclass(frozen=True)
class Counts:
    """Rounds per job, before they are laid out in time.

    Attributes:
        counts: n_j, shape (jobs,).
        bound: Proven upper bound on the market's objective.
        prices: Dual prices of a GPU-round of each GPU type, in the relaxation.
        backend: Back end that solved the market; `none` where nothing was left to decide.
        reason: Why this back end.
        status: `optimal` or `work_limit`.
    """

    counts: Ints
    bound: float
    prices: tuple[Price, ...]
    backend: str
    reason: str
    status: str


def choose_backends(name: str) -> tuple[Backend, ...]:
    """The back ends of a name.

    Raises:
        InputError: The name is not a key of `BACKENDS`.
    """
    if name not in BACKENDS:
        raise InputError("backend", f"unknown {name!r}", meant(name, BACKENDS))
    return BACKENDS[name]


def solve_counts(market: Market, backend: str = "auto") -> Counts:
    """Find the counts that maximise the market's objective.

    Presolve makes the problem small and well scaled: counts end at a job's last useful
    round, and jobs whose useful rounds dominate the rest of the market are decided
    (weights differ by up to 10^21).

    Args:
        market: The window problem.
        backend: A key of `BACKENDS`.

    Raises:
        InputError: The back end is unknown.
        SolverError: No back end could solve the problem.
    """
    backends = choose_backends(backend)
    most = _last_useful(market)
    several = len(market.jobs) < len(most)
    if not several and (_used(market, most) <= market.capacities * market.window).all():
        prices = _prices(market, np.zeros(len(market.types)))
        reason = "every job gets all"
        return Counts(most, market.objective(most), prices, "none", reason, "optimal")
    decided = _decided(market, most)
    free = np.flatnonzero(~decided)
    fixed = np.where(decided, most, 0)
    problem, offset, scale = _reduced(market, most, free, fixed)
    found: Counts | None = None
    notes: list[str] = []
    for candidate in backends:
        try:
            solution = candidate.solve(problem)
        except BackendUnavailableError as error:
            notes.append(str(error))
            continue
        counts = fixed.copy()
        counts[free] = solution.counts
        answer = Counts(
            counts=counts,
            bound=offset + scale * solution.bound,
            prices=_prices(market, scale * solution.prices),
            backend=candidate.name,
            reason="; ".join(notes) or "first choice",
            status=solution.status,
        )
        if found is not None:
            return _better(market, found, answer)
        found = answer
        if relative_gap(found.bound, market.objective(counts)) <= CLOSED:
            break
        notes.append(f"{candidate.name} left a gap")
    if found is None:
        raise SolverError("backend", "; ".join(notes), "choose another back end or fewer jobs")
    return found


def _prices(market: Market, prices: Floats) -> tuple[Price, ...]:
    return tuple(map(Price, market.types, prices.tolist()))


def _better(market: Market, first: Counts, second: Counts) -> Counts:
    """The better counts with the tighter bound."""
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
    """The last useful round of each job: further rounds gain nothing; shape (jobs,)."""
    useful = (market.utility < market.utility[:, -1:]) | (
        market.remaining > market.remaining[:, -1:]
    )
    counts: Ints = useful.sum(axis=1)
    return counts


def _used(market: Market, counts: Ints) -> Ints:
    """GPU-rounds of each GPU type that counts use, shape (types,)."""
    used = np.zeros(len(market.types), dtype=np.int64)
    np.add.at(used, market.type_of, market.gangs * counts)
    return used


def _decided(market: Market, most: Ints) -> Bools:
    """Jobs that get all their useful rounds in every optimum, shape (jobs,).

    A set of jobs is decided if its useful rounds fit the capacity, and m rounds fewer for
    any of its jobs lose more than the rest of the market can gain. The freed GPU-rounds,
    with slack below the largest gang, gain at most the rest's steepest slope each, plus the
    relief of the regulariser. The largest such set removes weights that differ by 10^21
    from the problem (docs/market.md, Jobs that are decided). With several GPU types no job
    is decided.
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
    """The market of the undecided jobs, shifted and scaled to gains of about 1.

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
            job_of=market.job_of[free],
        ),
        offset,
        scale,
    )
