"""Time and gap of clearing a round in which jobs choose among GPU types.

    python -m benchmarks.clearing [--repeats 9] [--markdown]

Jobs are drawn: gangs of 1 to 8 GPUs, utilities from a log-normal distribution, of which each type
gives a share between a tenth and all. Times are processor times, the median of the repeats: `ms` of
`solve_market`, `program ms` of the linear programs of the bids, `arrival ms` of projecting
fair finish times when a job arrives, and those of HiGHS and Gurobi are theirs on the same round,
where they take it. The second table is of rounds with pairs of jobs on the same GPUs: a third of
all pairs fit on a type, with rates that sum up to 1.0 to 1.6 times those alone, and those of at
least 1.15 are candidates.
"""

import argparse
from statistics import median
from time import process_time

import numpy as np

from flows.cli.output import print_table
from harness.markdown import markdown
from predictor.allocation import Allocation
from predictor.arrays import Floats
from predictor.errors import SolverError
from solver.backends.choice import relative_gap
from solver.backends.foresight import measure_savings
from solver.backends.makespan import find_least_makespan
from solver.backends.packing import PairTable, pack
from solver.clearing import solve_market
from solver.market import Market
from solver.policies.shockwave import ENDING, LATE, Shockwave

SHAPES = (
    (100, 3, 16, 1),
    (300, 3, 36, 1),
    (300, 3, 128, 8),
    (10_000, 5, 400, 1),
    (10_000, 5, 800, 8),
)
"""Jobs, types, GPUs of each type, and the largest gang."""


PACKED = ((71, 3, 12), (300, 3, 36))
"""Jobs of one GPU, types, and GPUs of each, where jobs may share."""

GAIN = 1.15
"""Least sum of two jobs' rates over those alone, as `shockwave` has it by default."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--repeats", type=int, default=9, help="rounds of each shape")
    parser.add_argument("--markdown", action="store_true", help="print the tables of the docs")
    options = parser.parse_args()
    heads = ["jobs", "types", "GPUs each", "largest gang", "arrival ms", "program ms", "ms"]
    show(
        [*heads, "largest gap", "HiGHS ms", "Gurobi ms"], cleared(options.repeats), options.markdown
    )
    print()
    heads = ["jobs", "types", "GPUs each", "candidates", "ms"]
    show(heads, packed(options.repeats), options.markdown)


def show(heads: list[str], rows: list[list[float]], as_markdown: bool) -> None:
    """Print a table."""
    if as_markdown:
        shown = [
            ["–" if cell != cell else f"{cell:,}" if cell > 999 else f"{cell:.3g}" for cell in row]
            for row in rows
        ]
        print(markdown(heads, shown), end="")
    else:
        print_table(heads, rows)


def cleared(repeats: int) -> list[list[float]]:
    """A row for each shape of a round without pairs."""
    rows = []
    for jobs, types, gpus, largest in SHAPES:
        markets = [drawn(jobs, types, gpus, largest, seed) for seed in range(repeats)]
        ours = [solved(market, "lagrangian") for market in markets]
        others = [
            solved(markets[0], backend)[0] if jobs <= 1000 else float("nan")
            for backend in ("highs", "gurobi")
        ]
        program = median(bid_for(market) for market in markets)
        ms, gap = median(t for t, _ in ours), max(g for _, g in ours)
        rows.append([jobs, types, gpus, largest, program, ms, gap, *others])
    return rows


def bid_for(market: Market) -> float:
    """Processor time of the programs by which jobs bid, in milliseconds.

    Run times fall as utilities rise, and all jobs are due at the least makespan.
    """
    seconds, jobs = run_times(market), len(market.jobs)
    gangs, asked = market.gangs.astype(float), Shockwave()
    rows = seconds, gangs, market.job_of, market.type_of, market.capacities
    begun = process_time()
    least = find_least_makespan(*rows, exact=False)
    measure_savings(
        *rows,
        weights=np.ones(jobs),
        due=np.full(jobs, least),
        least=least,
        round_seconds=least / 200.0,
        lateness=np.full(jobs, LATE * asked.lateness),
        makespan=ENDING,
    )
    return 1e3 * (process_time() - begun)


def run_times(market: Market) -> Floats:
    """Seconds of each row's job on its type."""
    return 1e4 * market.gangs / market.utility


def packed(repeats: int) -> list[list[float]]:
    """A row for each shape of a round with pairs."""
    rows = []
    for jobs, types, gpus in PACKED:
        results = []
        for seed in range(repeats):
            market, rng = drawn(jobs, types, gpus, 1, seed), np.random.default_rng(seed)
            first_jobs, second_jobs = np.triu_indices(jobs, 1)
            first = np.add.outer(np.arange(types), first_jobs * types).ravel()
            second = np.add.outer(np.arange(types), second_jobs * types).ravel()
            total, part = rng.uniform(1.0, 1.6, len(first)), rng.uniform(0.4, 0.6, len(first))
            taken = (total >= GAIN) & (rng.random(len(first)) < 1.0 / 3.0)
            worth = market.utility
            value = total * (part * worth[first] + (1.0 - part) * worth[second])
            table = PairTable(first[taken], second[taken], value[taken])
            begun = process_time()
            pack(worth, market.gangs, market.job_of, market.type_of, market.capacities, table)
            results.append((1e3 * (process_time() - begun), len(table.value)))
        times, sizes = zip(*results, strict=True)
        rows.append([jobs, types, gpus, int(median(sizes)), median(times)])
    return rows


def drawn(jobs: int, types: int, gpus: int, largest: int, seed: int) -> Market:
    """A round of jobs that bid on every type."""
    rng = np.random.default_rng(seed)
    gangs = 2 ** rng.integers(0, largest.bit_length(), jobs)
    gains = rng.lognormal(size=(jobs, 1)) * rng.uniform(0.1, 1.0, (jobs, types)) * gangs[:, None]
    kinds = tuple(f"type-{number}" for number in range(types))
    return Market(
        types=kinds,
        capacities=np.full(types, gpus),
        job_ids=np.repeat(np.arange(jobs), types),
        allocations=tuple(Allocation(kind, gang) for gang in gangs.tolist() for kind in kinds),
        weights=np.ones(jobs * types),
        utility=gains.ravel(),
    )


def solved(market: Market, backend: str) -> tuple[float, float]:
    """Processor time in milliseconds, and relative gap."""
    begun = process_time()
    try:
        found = solve_market(market, backend)
    except SolverError:  # Gurobi without a licence, beyond its size
        return float("nan"), float("nan")
    taken = 1e3 * (process_time() - begun)
    return taken, relative_gap(found.bound, found.objective)


if __name__ == "__main__":
    main()
