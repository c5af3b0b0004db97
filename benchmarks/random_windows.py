"""Random window problems of any size, as NumPy tables."""

from collections.abc import Callable

import numpy as np

from solver.market import Floats, Ints, Market, welfare_market

ROUND_SECONDS = 120.0


def _gangs(rng: np.random.Generator, jobs: int, largest: int = 8) -> Ints:
    sizes = 2 ** np.arange(int(np.log2(largest)) + 1)
    return rng.choice(sizes, size=jobs, p=_shares(0.6 ** np.arange(len(sizes))))


def _shares(weights: Floats) -> Floats:
    shares: Floats = weights / weights.sum()
    return shares


def published(rng: np.random.Generator, jobs: int, gpus: int, window: int) -> Market:
    """Log progress, weights ρ^12 and the regulariser, as in the paper's evaluation."""
    return _market(rng, gpus, _gangs(rng, jobs), window, power=12.0)


def gang_heavy(rng: np.random.Generator, jobs: int, gpus: int, window: int) -> Market:
    """The same with as many gangs of 64 GPUs as of one."""
    gangs = 2 ** rng.integers(0, 7, size=jobs)
    return _market(rng, gpus, np.minimum(gangs, gpus), window, power=2.0)


def speeding_up(rng: np.random.Generator, jobs: int, gpus: int, window: int) -> Market:
    """Half of the jobs double their speed somewhere in the window: convex, then concave."""
    return _market(rng, gpus, _gangs(rng, jobs), window, power=2.0, speed_up=True)


def concave(rng: np.random.Generator, jobs: int, gpus: int, window: int) -> Market:
    """Any concave utilities, without a regulariser."""
    steps = -np.sort(-rng.exponential(size=(jobs, window)), axis=1)
    weights = rng.lognormal(0.0, 1.0, size=jobs)
    utility = np.concatenate([np.zeros((jobs, 1)), np.cumsum(steps, axis=1)], axis=1)
    return Market(
        gpus=gpus,
        window=window,
        regularizer=0.0,
        job_ids=np.arange(jobs),
        scale_factors=_gangs(rng, jobs, 32),
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
) -> Market:
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
    return welfare_market(
        gpus=gpus,
        regularizer=1e-3,
        job_ids=range(jobs),
        scale_factors=gangs,
        weights=weights,
        progress=done[:, None] + ran / run[:, None],
        remaining=remaining[:, None] - np.minimum(elapsed, remaining[:, None]),
    )


KINDS: dict[str, Callable[[np.random.Generator, int, int, int], Market]] = {
    "published": published,
    "concave": concave,
    "speeding-up": speeding_up,
    "gang-heavy": gang_heavy,
}
"""Problems by kind: generator, jobs, GPUs and rounds to a market."""
