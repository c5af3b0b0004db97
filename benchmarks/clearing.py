"""Time and gap of clearing a round in which jobs choose among GPU types.

    python -m benchmarks.clearing [--repeats 9]

Jobs are drawn: gangs of 1 to 8 GPUs, utilities from a log-normal distribution, of which each type
gives a share between a tenth and all. The time is the processor time of `solve_counts`, the median
of the repeats; `of HiGHS` and `of Gurobi` are theirs on the same round, where they take it.
"""

import argparse
from statistics import median
from time import process_time

import numpy as np

from flows.cli.terminal import print_table
from predictor.allocation import Allocation
from predictor.errors import SolverError
from solver.counts import relative_gap, solve_counts
from solver.market import Market

SHAPES = (
    (100, 3, 16, 1),
    (300, 3, 36, 1),
    (300, 3, 128, 8),
    (10_000, 5, 400, 1),
    (10_000, 5, 800, 8),
)
"""Jobs, types, GPUs of each type, and the largest gang."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--repeats", type=int, default=9, help="rounds of each shape")
    options = parser.parse_args()
    rows = []
    for jobs, types, gpus, largest in SHAPES:
        markets = [drawn(jobs, types, gpus, largest, seed) for seed in range(options.repeats)]
        ours = [solved(market, "lagrangian") for market in markets]
        others = [
            solved(markets[0], backend)[0] if jobs <= 1000 else float("nan")
            for backend in ("highs", "gurobi")
        ]
        rows.append(
            [
                jobs,
                types,
                gpus,
                largest,
                median(t for t, _ in ours),
                max(g for _, g in ours),
                *others,
            ]
        )
    titles = [
        "jobs",
        "types",
        "GPUs each",
        "largest gang",
        "ms",
        "largest gap",
        "HiGHS ms",
        "Gurobi ms",
    ]
    print_table(titles, rows)


def drawn(jobs: int, types: int, gpus: int, largest: int, seed: int) -> Market:
    """A round of jobs that bid on every type."""
    rng = np.random.default_rng(seed)
    gangs = 2 ** rng.integers(0, largest.bit_length(), jobs)
    gains = rng.lognormal(size=(jobs, 1)) * rng.uniform(0.1, 1.0, (jobs, types)) * gangs[:, None]
    kinds = tuple(f"type-{number}" for number in range(types))
    flat = gains.ravel()
    return Market(
        types=kinds,
        capacities=np.full(types, gpus),
        window=1,
        regularizer=0.0,
        job_ids=np.repeat(np.arange(jobs), types),
        allocations=tuple(Allocation(kind, gang) for gang in gangs.tolist() for kind in kinds),
        weights=np.ones(jobs * types),
        utility=np.stack([np.zeros(len(flat)), flat], axis=1),
        remaining=np.zeros((len(flat), 2)),
    )


def solved(market: Market, backend: str) -> tuple[float, float]:
    """Processor time in milliseconds, and relative gap."""
    begun = process_time()
    try:
        counts = solve_counts(market, backend)
    except SolverError:  # Gurobi without a licence, beyond its size
        return float("nan"), float("nan")
    taken = 1e3 * (process_time() - begun)
    return taken, relative_gap(counts.bound, market.objective(counts.counts))


if __name__ == "__main__":
    main()
