"""Arrivals to come are drawn from the posterior given those so far."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from predictor.allocation import Demand
from predictor.arrivals import COUNTED, add_arrivals, arrivals_after, arrivals_left
from predictor.job import JobSpec, Mode
from predictor.options import JobOptions, parse_tasks


def last_arrivals(now: float, arrived: list[float], draws: int = 2_000) -> list[float]:
    """The last arrival of each draw, 0 where none follows; of the first 500."""
    rng = np.random.default_rng(0)
    return [max(islice(arrivals_after(now, arrived, rng), 500), default=0.0) for _ in range(draws)]


STEADY = [10.0 * number for number in range(1, 101)]
"""A hundred jobs, ten seconds apart."""


def test_jobs_that_came_at_once_say_nothing_of_others() -> None:
    assert last_arrivals(0.0, [0.0, 0.0]) == [0.0] * 2_000
    assert last_arrivals(50.0, []) == [0.0] * 2_000


def test_a_process_goes_on_as_long_again_with_probability_one_half() -> None:
    beyond = [last > 2_000.0 for last in last_arrivals(1_000.0, STEADY)]
    assert np.mean(beyond) == pytest.approx(0.5, abs=0.05)


def test_arrivals_come_after_now_in_order_and_at_the_rate_seen() -> None:
    counts = []
    for seed in range(300):
        times = list(islice(arrivals_after(1_005.0, STEADY, np.random.default_rng(seed)), 500))
        assert times == sorted(times)
        assert all(time > 1_005.0 for time in times)
        if len(times) > 20:
            counts.append((times[20] - times[0]) / 20)
    assert np.mean(counts) == pytest.approx(10.0, rel=0.1)


def test_a_long_silence_is_an_end() -> None:
    assert np.mean([last > 0.0 for last in last_arrivals(1_300.0, STEADY)]) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("now", [1_000.0, 1_030.0, 1_060.0, 1_300.0])
def test_arrivals_are_expected_to_go_on_as_often_as_draws_do(now: float) -> None:
    goes_on = np.mean([last > 0.0 for last in last_arrivals(now, STEADY)])
    assert arrivals_left(now, STEADY) == pytest.approx(now * goes_on, abs=0.04 * now)


def test_nobody_is_expected_after_jobs_that_came_at_once() -> None:
    assert arrivals_left(0.0, [0.0] * 3) == arrivals_left(500.0, [0.0] * 3) == 0.0


def test_what_is_expected_does_not_grow_with_the_age_of_a_cluster() -> None:
    months = [10.0 * number for number in range(1, 100_001)]
    now, span = months[-1], 10.0 * COUNTED
    assert arrivals_left(now, months) == arrivals_left(now, months[-COUNTED - 1 :]) == span
    assert arrivals_left(now + 100.0, months) < 0.1 * span
    beyond = [last > now + span for last in last_arrivals(now, months)]
    assert np.mean(beyond) == pytest.approx(0.5, abs=0.05)


def test_a_burst_after_quiet_months_is_forecast_by_its_own_rate() -> None:
    burst = [1e7 + 10.0 * number for number in range(COUNTED + 1)]
    seldom = [1e5 * number for number in range(1, 60)]
    assert arrivals_left(burst[-1], [*seldom, *burst]) == 10.0 * COUNTED


def test_an_array_counts_once_and_does_not_hide_the_arrivals_before() -> None:
    def spec(job_id: int, arrival: float) -> JobSpec:
        return JobSpec(job_id, "cnn", 16, 16, Demand.gang(2), Mode.STATIC, 10, 1_008, arrival)

    arrived = add_arrivals((), [spec(n, 3_600.0 * n) for n in range(COUNTED + 1)])
    clock = arrived[-1]
    array = [
        replace(spec(1_000 + task.place, clock + 60.0), options=JobOptions(task=task))
        for task in parse_tasks("0-299%4")
    ]
    after = add_arrivals(arrived, array)
    assert after == (*arrived[1:], clock + 60.0)
    left = arrivals_left(clock + 60.0, after)
    assert left == pytest.approx(arrivals_left(clock, arrived), rel=0.01) == 3_600.0 * COUNTED
