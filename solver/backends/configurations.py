"""At most one configuration for each job, within the GPUs of each type."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from predictor.allocation import Allocation
from solver.backends import RELATIVE_GAP
from solver.backends.linear_program import Program, solve_program

NODE_LIMIT = 20_000
"""Bound on effort, in branch-and-bound nodes. An engineering bound, not swept."""


MANY = 5_000
"""Configurations above which only some are weighed. An engineering bound."""

LEAST_LOSS = 1e-5
"""Configurations that would lose more than this share of the round's value are left out. An
engineering bound: rounds report the gap."""


def choose_configurations(
    values: Sequence[Mapping[Allocation, float]],
    capacities: Mapping[str, int],
    priced: tuple[Mapping[str, float], float] | None = None,
) -> tuple[list[Allocation | None], float]:
    """Choose the configurations with the greatest total value.

    Args:
        values: Values of the configurations of each job; those that are not positive are left out.
        capacities: GPUs by type.
        priced: What `price_gpus` returns of these, if it is known.

    Returns:
        The configuration of each job, None if it gets none; and an upper bound on any total.

    Raises:
        SolverError: HiGHS found no solution.
    """
    bound = np.inf
    if sum(map(len, values)) > MANY:
        prices, bound = priced or price_gpus(values, capacities)
        values = [_keep_best(options, prices, LEAST_LOSS * bound) for options in values]
    program, places = _make_program(values, capacities)
    chosen: list[Allocation | None] = [None] * len(values)
    if not places:
        return chosen, 0.0
    solution, figures = solve_program(
        program.model(integer=True),
        "the configurations of a round",
        limited=True,
        mip_rel_gap=RELATIVE_GAP,
        mip_max_nodes=NODE_LIMIT,
        random_seed=0,
    )
    for (job, found), share in zip(places, solution.col_value, strict=True):
        if share > 0.5:
            chosen[job] = found
    # The bound holds for all configurations, HiGHS' for those that were kept.
    return chosen, bound if np.isfinite(bound) else figures.mip_dual_bound


def _keep_best(
    options: Mapping[Allocation, float], prices: Mapping[str, float], loss: float
) -> dict[Allocation, float]:
    """Return a job's configurations that are worth the most at some prices, but for a loss."""
    net = {found: value - found.gpus * prices[found.gpu_type] for found, value in options.items()}
    least = max(0.0, *net.values()) - loss
    return {found: options[found] for found, gain in net.items() if gain >= least}


def choose_on_one_type(
    values: Sequence[Mapping[Allocation, float]], gpus: int
) -> tuple[list[Allocation | None], float]:
    """Choose the configurations with the greatest total value on one GPU type, exactly.

    A dynamic programme over jobs and GPUs. Arguments and results are those of
    `choose_configurations`; the bound is the total.
    """
    best, picks = np.zeros(gpus + 1), []
    for options in values:
        after, pick = best.copy(), np.full(gpus + 1, -1)
        for number, (found, value) in enumerate(options.items()):
            if value > 0.0 and found.gpus <= gpus:
                total = best[: gpus + 1 - found.gpus] + value
                better = total > after[found.gpus :]
                after[found.gpus :][better] = total[better]
                pick[found.gpus :][better] = number
        picks.append(pick)
        best = after
    chosen: list[Allocation | None] = []
    free = gpus
    for options, pick in zip(reversed(values), reversed(picks), strict=True):
        number = int(pick[free])
        chosen.append([*options][number] if number >= 0 else None)
        free -= chosen[-1].gpus if chosen[-1] else 0
    return chosen[::-1], float(best[gpus])


def price_gpus(
    values: Sequence[Mapping[Allocation, float]], capacities: Mapping[str, int]
) -> tuple[dict[str, float], float]:
    """Return the price of a GPU of each type, and the total value, if jobs may take parts.

    Parts are those of configurations; a price is the dual of a type's capacity. Arguments and
    errors are those of `choose_configurations`.
    """
    # A configuration below its hull is never needed: two hull points, mixed to as many GPUs, are
    # worth at least as much.
    program, places = _make_program([_keep_hulls(options) for options in values], capacities)
    if not places:
        return dict.fromkeys(capacities, 0.0), 0.0
    solution, figures = solve_program(program.model(), "the prices of a round")
    duals = solution.row_dual[-len(capacities) :]
    prices = {kind: abs(dual) for kind, dual in zip(capacities, duals, strict=True)}
    return prices, figures.objective_function_value


def _keep_hulls(options: Mapping[Allocation, float]) -> dict[Allocation, float]:
    """Return a job's configurations on the concave hulls of value over GPUs of each type.

    A hull begins at no GPUs without value.
    """
    hulls: defaultdict[str, list[tuple[int, float, Allocation | None]]] = defaultdict(
        lambda: [(0, 0.0, None)]
    )
    for found, value in sorted(options.items(), key=lambda option: option[0].gpus):
        hull, gpus = hulls[found.gpu_type], found.gpus
        if value <= hull[-1][1]:
            continue
        while len(hull) > 1:
            (first, least, _), (last, most, _) = hull[-2:]
            if (most - least) * (gpus - last) > (value - most) * (last - first):
                break
            hull.pop()
        hull.append((gpus, value, found))
    return {found: value for hull in hulls.values() for _, value, found in hull if found}


def _make_program(
    values: Sequence[Mapping[Allocation, float]], capacities: Mapping[str, int]
) -> tuple[Program, list[tuple[int, Allocation]]]:
    """Return the program, whose last rows are the capacities, and what its columns stand for."""
    program = Program()
    places: list[tuple[int, Allocation]] = []
    used: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for job, options in enumerate(values):
        columns = []
        for found, value in options.items():
            if value > 0.0:
                column = program.column(value, 1.0, whole=True)
                columns.append((column, 1.0))
                used[found.gpu_type].append((column, float(found.gpus)))
                places.append((job, found))
        if columns:
            program.row(columns, 0.0, 1.0)
    for gpu_type, gpus in capacities.items():
        program.row(used[gpu_type], 0.0, float(gpus))
    return program, places
