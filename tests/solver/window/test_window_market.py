import numpy as np
import pytest
from hypothesis import given

from solver.window.market import (
    LOG_KNOTS,
    LOG_ZERO,
    WindowMarket,
    log_progress,
    make_welfare_market,
)
from tests.strategies import WindowJob, window_of, windows


def test_the_objective_is_welfare_less_the_longest_remaining_time() -> None:
    bids = (
        WindowJob(1, (0.0, 3.0, 4.0), (8.0, 4.0, 0.0)),
        WindowJob(1, (1.0, 2.0, 9.0), (6.0,) * 3),
    )
    market = window_of(2, 2, 0.5, bids)
    assert market.objective(np.array([1, 2])) == 3.0 + 9.0 - 0.5 * 6.0
    assert market.objective(np.array([0, 0])) == 0.0 + 1.0 - 0.5 * 8.0


def test_an_empty_market_is_worth_nothing() -> None:
    assert window_of(2, 3, 1.0, ()).objective(np.array([], dtype=np.int64)) == 0.0


@pytest.mark.parametrize(
    ("utility", "remaining", "says"),
    [
        ((0.0, 1.0), (9.0, 8.0, 7.0), "utilities must be tables over 0…2 rounds"),
        ((0.0, 1.0, 2.0), (9.0,), "utilities must be tables over 0…2 rounds"),
        ((0.0, 2.0, 1.0), (9.0, 8.0, 7.0), "utility must not fall"),
        ((0.0, 1.0, 2.0), (7.0, 8.0, 9.0), "non-increasing"),
        ((0.0, 1.0, 2.0), (9.0, 8.0, 3.0), "convex"),
    ],
)
def test_a_table_that_is_no_bid_is_refused(
    utility: tuple[float, ...], remaining: tuple[float, ...], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        window_of(1, 2, 0.0, (WindowJob(1, utility, remaining),))


def test_a_gang_larger_than_the_cluster_is_refused() -> None:
    with pytest.raises(ValueError, match="more than the 2 GPUs"):
        window_of(2, 1, 0.0, [WindowJob(4, (0.0, 1.0))])


def test_log_progress_touches_the_logarithm_at_the_knots() -> None:
    knots = np.array(LOG_KNOTS)
    assert log_progress(knots[1:]) == pytest.approx(np.log(knots[1:]))
    assert log_progress(knots[:1]) == pytest.approx(np.log(LOG_ZERO))
    assert log_progress(np.array([0.3])) == pytest.approx((np.log(0.2) + np.log(0.4)) / 2)


def test_welfare_is_averaged_over_jobs_and_rounds() -> None:
    market = make_welfare_market(
        gpus=4,
        regularizer=0.01,
        job_ids=[3, 8],
        gangs=[1, 4],
        weights=np.array([1.0, 2.0]),
        progress=np.array([[0.2, 0.6, 1.0], [0.4, 0.4, 0.8]]),
        remaining=np.array([[240.0, 120.0, 0.0], [360.0, 240.0, 120.0]]),
    )
    expected = np.log([[0.2, 0.6, 1.0], [0.4, 0.4, 0.8]]) * [[1.0], [2.0]] / (2 * 2)
    assert market.utility == pytest.approx(expected)
    assert market.job_ids.tolist() == [3, 8]
    assert market.gangs.tolist() == [1, 4]
    assert market.window == 2


@given(windows())
def test_more_rounds_never_hurt(market: WindowMarket) -> None:
    none = np.zeros(len(market.job_ids), dtype=np.int64)
    worths = [market.objective(none + rounds) for rounds in range(market.window + 1)]
    assert worths == sorted(worths)
