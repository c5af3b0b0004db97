"""Clearing of a market: solve for counts, lay them out, bound the gap of the plan."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from predictor.arrays import Ints
from solver.backends import RELATIVE_GAP
from solver.counts import Counts, relative_gap, solve_counts
from solver.market import Market, Price
from solver.repair import Timetable
from solver.timetable import lay_out


@dataclass(frozen=True)
class Clearing:
    """A market's plan with its certificate.

    Attributes:
        timetable: The plan, shape (jobs, T).
        objective: Objective of the plan as laid out.
        bound: Proven upper bound on any plan's objective.
        gap: (bound − objective) / max(|bound|, |objective|), 0 where both are 0.
        prices: Dual price of a GPU-round of each GPU type.
        backend: Back end that solved the market; `none` where nothing was left to solve.
        reason: Why this back end.
        status: `optimal`, `work_limit`, or `imprecise` where the back end's bound lay
            below a known plan, so that its proof does not hold.
    """

    timetable: Timetable
    objective: float
    bound: float
    gap: float
    prices: tuple[Price, ...]
    backend: str
    reason: str
    status: str


def clear(
    market: Market,
    order: Sequence[int],
    backend: str = "auto",
    coming: Sequence[int] | None = None,
    counts: Counts | None = None,
) -> Clearing:
    """Clear a market.

    Args:
        market: The window problem.
        order: Jobs (rows of the market) by descending priority.
        backend: A key of `solver.counts.BACKENDS`.
        coming: Jobs of the coming round, where that round is fixed; they must fit.
        counts: The counts, if they are known.

    Raises:
        ShockwaveError: The back end is unknown, or no back end could solve the problem.
    """
    counts = counts or solve_counts(market, backend)
    timetable = _lay_out(market, counts.counts, order, coming)
    objective = market.objective(timetable.sum(axis=1))
    span = float((market.utility[:, -1] - market.utility[:, 0]).sum())
    proven = counts.bound >= objective - RELATIVE_GAP * (span + abs(objective))
    bound = max(counts.bound, objective)
    return Clearing(
        timetable=timetable,
        objective=objective,
        bound=bound,
        gap=relative_gap(bound, objective),
        prices=counts.prices,
        backend=counts.backend,
        reason=counts.reason,
        status=counts.status if proven else "imprecise",
    )


def _lay_out(
    market: Market, counts: Ints, order: Sequence[int], coming: Sequence[int] | None
) -> Timetable:
    """Lay counts out around a coming round that may be fixed."""
    if coming is None:
        return lay_out(market, counts, order)
    table = np.zeros((len(counts), market.window), dtype=bool)
    table[list(coming), 0] = True
    if market.window > 1:
        run = table[:, 0].astype(np.int64)
        columns = np.arange(market.window) + run[:, None]
        rest = replace(
            market,
            window=market.window - 1,
            utility=np.take_along_axis(market.utility, columns, axis=1),
            remaining=np.take_along_axis(market.remaining, columns, axis=1),
        )
        wanted = np.minimum(np.maximum(counts - run, 0), rest.window)
        table[:, 1:] = lay_out(rest, wanted, order)
    return table
