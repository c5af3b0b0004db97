"""Differences over pairs are those of the paired t-test."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import examples
from warehouse.analytics.paired import difference

figures = st.floats(1.0, 1e5)


@pytest.mark.slow
@examples(40)
@given(st.lists(st.tuples(figures, figures), min_size=2, max_size=20))
def test_the_interval_is_that_of_the_paired_t_test(pairs: list[tuple[float, float]]) -> None:
    from scipy.stats import ttest_rel  # costs half a second to import

    found = difference(pairs)
    assert found is not None
    values, references = zip(*pairs, strict=True)
    if len({a - b for a, b in pairs}) > 1:
        low, high = ttest_rel(values, references).confidence_interval(0.95)
        assert (found.change.low, found.change.high) == pytest.approx((low, high), abs=1e-5)
    assert found.less == sum(a < b for a, b in pairs)
    assert found.more == sum(a > b for a, b in pairs)


def test_pairs_that_lack_a_figure_are_left_out() -> None:
    found = difference([(90.0, 100.0), (None, 1.0), (1.0, None), (2.0, 0.0)], percent=True)
    assert found is not None
    assert (found.pairs, found.less, found.more) == (1, 1, 0)
    assert found.change.mean == pytest.approx(-10.0)
    assert found.change.half_width is None
    assert difference([(None, 1.0)]) is None
