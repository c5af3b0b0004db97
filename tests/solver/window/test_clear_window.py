"""Markets of hundreds of jobs, given as tables, cleared and certified as laid out."""

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.window import timetable
from solver.window.counts import solve_counts
from solver.window.market import WindowMarket
from solver.window.timetable import clear_window, lay_out
from tests.strategies import gang_heavy_windows, windows


def tables(
    seed: int, jobs: int, gpus: int, gangs: Sequence[int], regularizer: float
) -> WindowMarket:
    """Jobs under way that bid the logarithm of their progress; some speed up."""
    rng = np.random.default_rng(seed)
    rounds, window = np.arange(21), 20
    left = rng.uniform(1.0, 60.0, size=(jobs, 1))
    speed = 1.0 + rng.integers(0, 2, size=(jobs, 1)) * (rounds > rng.integers(0, 20, (jobs, 1)))
    ran = np.minimum(np.cumsum(speed, axis=1) - speed[:, :1], left)
    weights = rng.lognormal(0.0, 1.0, size=jobs)
    return WindowMarket(
        gpus=gpus,
        window=window,
        regularizer=regularizer,
        job_ids=np.arange(jobs),
        gangs=rng.choice(gangs, size=jobs),
        weights=weights,
        utility=weights[:, None] * np.log(0.05 + (60.0 - left + ran) / 60.0),
        remaining=np.maximum(left - rounds, 0.0),
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("regularizer", [0.0, 0.5])
@pytest.mark.parametrize(
    ("jobs", "gpus", "gangs"),
    [(120, 32, (1, 1, 2, 4, 8)), (300, 128, tuple(range(1, 33))), (300, 128, (1, 4, 16))],
)
def test_plans_are_certified_as_laid_out(
    seed: int, regularizer: float, jobs: int, gpus: int, gangs: tuple[int, ...]
) -> None:
    market = tables(seed, jobs, gpus, gangs, regularizer)
    order = np.argsort(market.remaining[:, 0], kind="stable").tolist()
    table, cleared = clear_window(market, order, "lagrangian")
    assert (market.gangs @ table <= market.gpus).all()
    assert cleared.objective == market.objective(table.sum(axis=1))
    assert cleared.bound >= cleared.objective
    assert cleared.bound - cleared.objective <= 1e-3 * abs(cleared.bound)


@given(st.one_of(windows(), gang_heavy_windows), st.randoms(use_true_random=False))
def test_any_market_is_cleared_feasibly_below_its_bound(
    market: WindowMarket, random: Random
) -> None:
    order = list(range(len(market.job_ids)))
    random.shuffle(order)
    table, cleared = clear_window(market, order, "lagrangian")
    assert (market.gangs @ table <= market.gpus).all()
    assert cleared.objective <= cleared.bound
    assert cleared.status in ("optimal", "work_limit")


@pytest.mark.slow
def test_squeaky_wheel_penalties_place_jobs_earlier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gains = []
    for seed in range(40):
        market = tables(seed, 40, 16, (1, 2, 4, 8, 16), 0.5)
        counts = solve_counts(market, "lagrangian").counts
        worths = []
        for tries in (1, 6):
            monkeypatch.setattr(timetable, "TRIES", tries)
            worths.append(market.objective(lay_out(market, counts, range(40)).sum(axis=1)))
        gains.append(worths[1] - worths[0])
    assert min(gains) >= 0.0
    assert max(gains) > 0.0
