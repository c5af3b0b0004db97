"""At most one configuration for each job, within the GPUs of each type, by HiGHS."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from predictor.allocation import Allocation
from solver.backends import RELATIVE_GAP
from solver.backends.linear_program import Program, solve_program

NODE_LIMIT = 20_000
"""Bound on effort, in branch-and-bound nodes. An engineering bound, not swept."""


def choose_configurations(
    values: Sequence[Mapping[Allocation, float]], capacities: Mapping[str, int]
) -> tuple[list[Allocation | None], float]:
    """Choose the configurations with the greatest total value.

    Args:
        values: Values of the configurations of each job; those that are not positive are left out.
        capacities: GPUs by type.

    Returns:
        The configuration of each job, None if it gets none; and an upper bound on any total.

    Raises:
        SolverError: HiGHS found no solution.
    """
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
    chosen: list[Allocation | None] = [None] * len(values)
    if not places:
        return chosen, 0.0
    for gpu_type, terms in used.items():
        program.row(terms, 0.0, float(capacities[gpu_type]))
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
    return chosen, figures.mip_dual_bound
