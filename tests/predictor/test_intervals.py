"""Calibrated intervals have their nominal coverage, whatever the posterior."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.forecast import RunTime
from predictor.intervals import KEPT, KEPT_GROUPS, KEPT_TIMED, Calibration, Scored
from predictor.job import Mode

SURE = RunTime(1_000.0, 1_000.0, 1_000.0, ())
OPEN = RunTime(1_000.0, 800.0, 1_300.0, ())


def made(time: RunTime, mode: Mode = Mode.GNS, tenth: int = 3) -> Scored:
    return Scored(((mode.value,), ()), tenth, 500.0, time)


def taught(lefts: list[float], forecast: Scored) -> Calibration:
    return Calibration().after([([forecast], forecast.run_seconds + left) for left in lefts])


@pytest.mark.parametrize("time", [SURE, OPEN])
@pytest.mark.parametrize(("bias", "spread"), [(0.0, 1.0), (40.0, 3.0), (-300.0, 200.0)])
def test_intervals_hold_the_share_of_truths_that_they_say(
    time: RunTime, bias: float, spread: float
) -> None:
    rng = np.random.default_rng(0)
    before, after = np.maximum(time.remaining + bias + spread * rng.normal(size=(2, 500)), 0.0)
    low, high = taught(before.tolist(), made(time)).interval(made(time))
    assert np.mean((low <= after) & (after <= high)) == pytest.approx(0.8, abs=0.05)


def test_as_many_truths_are_missed_on_either_side() -> None:
    lefts = [1_000.0 + offset for offset in range(-100, 101)]
    low, high = taught(lefts, made(SURE)).interval(made(SURE))
    assert sum(left < low for left in lefts) == pytest.approx(sum(left > high for left in lefts), 1)


def test_truths_on_a_single_side_move_a_single_end() -> None:
    lefts = [1_000.0 + offset for offset in range(1, 101)]
    low, high = taught(lefts, made(SURE)).interval(made(SURE))
    assert low == pytest.approx(1_000.0, abs=0.1)
    assert sum(left <= high for left in lefts) == pytest.approx(80, abs=3)


@pytest.mark.parametrize(("first", "held"), [(1, 16), (-9, 17)])
def test_each_end_at_a_rank_is_corrected_for_the_finite_sample(first: int, held: int) -> None:
    """⌈0.8 (19 + ends)⌉ of 19 truths, of which all or half lie above the forecast."""
    lefts = [1_000.5 + offset for offset in range(first, first + 19)]
    low, high = taught(lefts, made(SURE)).interval(made(SURE))
    assert sum(low <= left <= high for left in lefts) == held


def test_little_known_groups_take_the_scores_of_wider_ones() -> None:
    lefts = [1_050.0 + offset for offset in range(20)]
    calibration = taught(lefts, made(SURE))
    expected = calibration.interval(made(SURE))
    assert calibration.interval(made(SURE, Mode.ACCORDION)) == expected
    assert calibration.interval(made(SURE, tenth=7)) == expected
    assert calibration.interval(made(OPEN)) == Calibration().interval(made(OPEN))


@given(
    ends=st.lists(st.floats(0.0, 1e6), min_size=3, max_size=3).map(sorted),
    lefts=st.lists(st.floats(0.0, 1e6), max_size=30),
)
def test_an_interval_holds_its_point_forecast_and_has_a_width(
    ends: list[float], lefts: list[float]
) -> None:
    time = RunTime(ends[1], ends[0], ends[2], ())
    low, high = taught(lefts, made(time)).interval(made(time))
    assert 0.0 <= low <= time.remaining < high


def of_name(name: str, tenant: str, tenth: int = 3) -> Scored:
    return Scored(((name, tenant, "image"), ("", tenant, "image")), tenth, 500.0, SURE)


def test_names_of_a_tenant_push_out_no_calibration_of_others_or_of_its_image() -> None:
    lefts = [1_050.0 + offset for offset in range(20)]
    calibration, others = Calibration(), (made(SURE), of_name("nightly", "b"))
    for left in lefts:
        for forecast in others:
            calibration = calibration.after([([forecast], forecast.run_seconds + left)])
    expected = [calibration.interval(forecast) for forecast in others]
    names = KEPT_GROUPS // 10 + 20
    for number in range(names):
        of_job = [of_name(f"job-{number}", "a", tenth) for tenth in range(10)]
        calibration = calibration.after([(of_job, 1_600.0)])
    assert [calibration.interval(forecast) for forecast in others] == expected
    own = {kind[0] for kind, _, _ in calibration.scores if kind[1:2] == ("a",)}
    assert {"", f"job-{names - 1}"} < own
    assert "job-0" not in own
    assert sum(kind[1:2] == ("a",) for kind, _, _ in calibration.scores) == KEPT_GROUPS


def test_the_latest_scores_are_kept_and_fewer_of_timed_jobs() -> None:
    lefts = [1_000.0 + offset for offset in range(KEPT + 10)]
    for forecast, kept in ((made(SURE), KEPT), (of_name("nightly", "b"), KEPT_TIMED)):
        scores = taught(lefts, forecast).scores
        assert {len(found) for found in scores.values()} == {kept}
        for found in scores.values():
            assert found.latest[-1] == forecast.score(lefts[-1])
            sides = [
                sorted(far for is_below, far in found.latest if is_below is side)
                for side in (True, False)
            ]
            assert [list(found.below), list(found.above)] == sides
