"""Loss curves, and their forecasts."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from predictor.belief import MOST_LOSSES, Belief
from predictor.job import LARGEST_LOSS, EpochLoss
from predictor.quality import NOISE, fit_curve
from tests.strategies import examples
from warehouse.workloads.generator import generate_workload

KINDS = {
    "sublinear": lambda k: 1.0 / (0.05 * k + 0.3) + 0.5,
    "quadratic": lambda k: 1.0 / (0.01 * k**2 + 0.05 * k + 0.3) + 0.5,
    "linear": lambda k: 2.5 * 0.85**k + 0.3,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", [0.0, 0.005])
def test_losses_are_forecast_from_those_so_far(kind: str, noise: float) -> None:
    true, rng = KINDS[kind], np.random.default_rng(0)
    k = np.arange(1, 31)
    losses = true(k) + noise * rng.standard_normal(30)
    fall = true(1) - true(30)
    for known, ahead, most in ((10, 1, 0.02), (20, 1, 0.02), (20, 10, 0.05)):
        fit = fit_curve(tuple(range(1, known + 1)), tuple(map(float, losses[:known])), 0.9)
        assert abs(fit.at(known + ahead) - true(known + ahead)) < most * fall
    assert fit.sublinear or kind == "linear"


def test_recent_losses_weigh_more() -> None:
    losses = tuple(map(float, [*np.linspace(9.0, 5.0, 10), *(5.0 - 0.01 * np.arange(20))]))
    now = fit_curve(tuple(range(1, 31)), losses, 0.7)
    assert now.at(30) - now.at(31) < 0.05


@examples(25)
@given(
    losses=st.lists(st.floats(0.0, 10.0), min_size=3, max_size=12),
    unit=st.floats(0.5, 100.0),
    shift=st.floats(-10.0, 10.0),
)
def test_a_curve_never_rises_and_is_the_same_in_any_unit(
    losses: list[float], unit: float, shift: float
) -> None:
    at = tuple(range(1, len(losses) + 1))
    fit = fit_curve(at, tuple(losses), 0.9)
    course = [fit.at(k) for k in np.linspace(1.0, 50.0, 30)]
    assert all(a >= b - 1e-9 for a, b in pairwise(course))
    if max(losses) - min(losses) > 1e-3:
        other = fit_curve(at, tuple(unit * loss + shift for loss in losses), 0.9)
        error, its = (
            sum(0.9**-k * (f.at(k) - y) ** 2 for k, y in zip(at, observed, strict=True))
            for f, observed in ((fit, losses), (other, [unit * loss + shift for loss in losses]))
        )
        assert its == pytest.approx(unit**2 * error, rel=1e-3, abs=1e-9 * unit**2)


@examples(25)
@given(
    level=st.floats(-LARGEST_LOSS, LARGEST_LOSS),
    spread=st.sampled_from([0.0, 1e-16, 1e-12, NOISE, 1e-8, 1e-3, 1.0]),
    shape=st.lists(st.floats(0.0, 1.0), min_size=3, max_size=8),
    recency=st.sampled_from([1e-9, 0.01, 0.9, 1.0]),
)
@example(level=1.0, spread=2.3e-16, shape=[0.0, 1.0, 0.0], recency=0.9)
@example(level=LARGEST_LOSS, spread=1.0, shape=[1.0, 0.0, 0.0], recency=0.9)
def test_a_curve_is_finite_whatever_a_job_tells(
    level: float, spread: float, shape: list[float], recency: float
) -> None:
    losses = tuple(level + spread * level * part for part in shape)
    fit = fit_curve(tuple(range(1, len(losses) + 1)), losses, recency)
    size = max(map(abs, losses))
    for k in (1.0, 3.0, 1e3, 1e6):
        assert math.isfinite(fit.at(k))
    if spread * abs(level) <= 0.5 * NOISE * size:
        assert fit.at(5.0) == losses[-1]


@pytest.mark.parametrize("losses", [(1e200, 1.0, 0.5), (1e155, 1.0, 0.9), (5e-324, 0.0, 0.0)])
def test_losses_of_any_size_have_a_curve(losses: tuple[float, ...]) -> None:
    assert math.isfinite(fit_curve((1, 2, 3), losses, 0.9).at(4))
    assert math.isfinite(fit_curve((10**6, 10**6 + 1, 10**6 + 2), losses[::-1], 0.9).at(10**7))


def test_a_belief_keeps_the_latest_losses_and_the_largest_change() -> None:
    (spec,) = generate_workload(1, rng=np.random.default_rng(0)).specs
    losses = [9.0, 5.0, *(4.0 - 0.01 * n for n in range(2 * MOST_LOSSES))]
    reported = [EpochLoss(spec.job_id, n, loss) for n, loss in enumerate(losses)]
    at_once, belief = Belief(spec).with_losses(reported), Belief(spec)
    for loss in reported:
        belief = belief.with_losses([loss])
    assert belief == at_once
    assert belief.losses == tuple(reported[-MOST_LOSSES:])
    assert belief.largest_change == 4.0
    assert Belief(spec).with_losses(reported[::-1]).largest_change == 4.0  # a rise, too
