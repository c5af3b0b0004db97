"""Clear random window problems of several kinds and sizes, each built from NumPy tables.

    python benchmarks/random_windows.py [--backend NAME] [--against NAME] [--seeds N]

Times are CPU times of one process, for the market's tables, the solve and the lay-out;
`against` is the time that another back end takes for the same, as a multiple, on problems of
up to 900 jobs. The worst of the seeds is shown. Gaps are relative, for plans as laid out.
"""

import argparse
import sys
from collections.abc import Callable
from time import process_time

import numpy as np

from predictor.arrays import Floats, Ints
from predictor.errors import SolverError
from solver.backends.choice import BACKENDS, relative_gap
from solver.window.market import WindowMarket, make_welfare_market
from solver.window.timetable import clear_window

ROUND_SECONDS = 120.0

SIZES = ((120, 32, 20), (900, 256, 20), (10_000, 4_096, 20))
"""Jobs, GPUs, rounds."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--backend", choices=BACKENDS, default="lagrangian")
    parser.add_argument("--against", choices=BACKENDS, default=None)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args(arguments)
    print(
        f"{'kind':<12} {'jobs':>6} {'GPUs':>5} {'median ms':>9} {'worst ms':>8} {'gap':>8} against"
    )
    for size in SIZES:
        for kind, make in KINDS.items():
            times, gaps, ratios = [], [], []
            for seed in range(options.seeds):
                ours, gap = timed(make, seed, size, options.backend)
                times.append(1e3 * ours)
                gaps.append(gap)
                if options.against and size[0] <= 900:
                    try:
                        theirs, _ = timed(make, seed, size, options.against)
                    except SolverError:
                        continue
                    ratios.append(theirs / ours)
            print(
                f"{kind:<12} {size[0]:>6} {size[1]:>5} {np.median(times):>9.1f} {max(times):>8.1f} "
                f"{max(gaps):>8.1e} {f'{np.median(ratios):.1f}' if ratios else '-'}",
                flush=True,
            )
    return 0


def timed(make: "Kind", seed: int, size: tuple[int, int, int], backend: str) -> tuple[float, float]:
    """Seconds to build, solve and lay out a problem, shortest job first, and its gap."""
    rng = np.random.default_rng(seed)
    started = process_time()
    market = make(rng, *size)
    order = np.argsort(market.remaining[:, 0], kind="stable").tolist()
    table, found = clear_window(market, order, backend)
    seconds = process_time() - started
    assert (market.gangs @ table <= market.gpus).all()
    return seconds, relative_gap(found.bound, found.objective)


def _gangs(rng: np.random.Generator, jobs: int, largest: int = 8) -> Ints:
    sizes = 2 ** np.arange(int(np.log2(largest)) + 1)
    return rng.choice(sizes, size=jobs, p=_shares(0.6 ** np.arange(len(sizes))))


def _shares(weights: Floats) -> Floats:
    shares: Floats = weights / weights.sum()
    return shares


def published(rng: np.random.Generator, jobs: int, gpus: int, window: int) -> WindowMarket:
    """Log progress, weights ρ^12 and the regulariser, as in the paper's evaluation."""
    return _market(rng, gpus, _gangs(rng, jobs), window, power=12.0)


def gang_heavy(rng: np.random.Generator, jobs: int, gpus: int, window: int) -> WindowMarket:
    """Gangs of any number up to 64 GPUs, all as frequent."""
    gangs = rng.integers(1, min(64, gpus) + 1, size=jobs)
    return _market(rng, gpus, gangs, window, power=2.0)


def speeding_up(rng: np.random.Generator, jobs: int, gpus: int, window: int) -> WindowMarket:
    """Half of the jobs double their speed somewhere in the window: convex, then concave."""
    return _market(rng, gpus, _gangs(rng, jobs), window, power=2.0, speed_up=True)


def concave(rng: np.random.Generator, jobs: int, gpus: int, window: int) -> WindowMarket:
    """Any concave utilities, without a regulariser."""
    steps = -np.sort(-rng.exponential(size=(jobs, window)), axis=1)
    weights = rng.lognormal(0.0, 1.0, size=jobs)
    utility = np.concatenate([np.zeros((jobs, 1)), np.cumsum(steps, axis=1)], axis=1)
    return WindowMarket(
        gpus=gpus,
        window=window,
        regularizer=0.0,
        job_ids=np.arange(jobs),
        gangs=_gangs(rng, jobs, 32),
        weights=weights,
        utility=weights[:, None] * utility,
        remaining=np.zeros_like(utility),
    )


def _market(
    rng: np.random.Generator,
    gpus: int,
    gangs: Ints,
    window: int,
    *,
    power: float,
    speed_up: bool = False,
) -> WindowMarket:
    jobs = len(gangs)
    run = rng.lognormal(8.8, 1.0, size=jobs)  # seconds; median 1.8 hours
    done = rng.uniform(0.0, 0.95, size=jobs)
    remaining = run * (1.0 - done)
    elapsed = np.arange(window + 1) * ROUND_SECONDS
    ran = np.minimum(elapsed, remaining[:, None])
    if speed_up:
        faster = np.maximum(elapsed - rng.uniform(0.0, elapsed[-1], size=(jobs, 1)), 0.0)
        ran = np.minimum(ran + faster * rng.integers(0, 2, size=(jobs, 1)), remaining[:, None])
    weights = rng.lognormal(0.0, 0.3, size=jobs) ** power
    return make_welfare_market(
        gpus=gpus,
        regularizer=float(rng.choice([0.0, 1e-6, 1e-3])),
        job_ids=range(jobs),
        gangs=gangs.tolist(),
        weights=weights,
        progress=done[:, None] + ran / run[:, None],
        remaining=remaining[:, None] - np.minimum(elapsed, remaining[:, None]),
    )


Kind = Callable[[np.random.Generator, int, int, int], WindowMarket]

KINDS: dict[str, Kind] = {
    "published": published,
    "concave": concave,
    "speeding-up": speeding_up,
    "gang-heavy": gang_heavy,
}
"""Problems by kind: generator, jobs, GPUs and rounds to a market."""

if __name__ == "__main__":
    sys.exit(main())
