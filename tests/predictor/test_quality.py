"""Loss curves, and what they foretell."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.quality import fitted, largest_fall
from tests.strategies import examples

KINDS = {
    "sublinear": lambda k: 1.0 / (0.05 * k + 0.3) + 0.5,
    "quadratic": lambda k: 1.0 / (0.01 * k**2 + 0.05 * k + 0.3) + 0.5,
    "linear": lambda k: 2.5 * 0.85**k + 0.3,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", [0.0, 0.005])
def test_losses_are_foretold_from_those_so_far(kind: str, noise: float) -> None:
    true, rng = KINDS[kind], np.random.default_rng(0)
    k = np.arange(1, 31)
    losses = true(k) + noise * rng.standard_normal(30)
    fall = true(1) - true(30)
    for known, ahead, most in ((10, 1, 0.02), (20, 1, 0.02), (20, 10, 0.05)):
        fit = fitted(tuple(range(1, known + 1)), tuple(map(float, losses[:known])), 0.9)
        assert abs(fit.at(known + ahead) - true(known + ahead)) < most * fall
    assert fit.sublinear or kind == "linear"


def test_recent_losses_weigh_more() -> None:
    losses = tuple(map(float, [*np.linspace(9.0, 5.0, 10), *(5.0 - 0.01 * np.arange(20))]))
    now = fitted(tuple(range(1, 31)), losses, 0.7)
    assert now.at(30) - now.at(31) < 0.05
    assert largest_fall(losses) == pytest.approx(4.0 / 9.0)


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
    fit = fitted(at, tuple(losses), 0.9)
    course = [fit.at(k) for k in np.linspace(1.0, 50.0, 30)]
    assert all(a >= b - 1e-9 for a, b in pairwise(course))
    if max(losses) - min(losses) > 1e-3:
        other = fitted(at, tuple(unit * loss + shift for loss in losses), 0.9)
        error, its = (
            sum(0.9**-k * (f.at(k) - y) ** 2 for k, y in zip(at, told, strict=True))
            for f, told in ((fit, losses), (other, [unit * loss + shift for loss in losses]))
        )
        assert its == pytest.approx(unit**2 * error, rel=1e-3, abs=1e-9 * unit**2)
