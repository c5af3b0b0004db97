import numpy as np
import pytest
from hypothesis import given

from predictor.basis import Basis
from predictor.belief import Belief
from predictor.forecast import SAMPLES, Forecast, forecast
from predictor.job import EpochReport, JobProgress, JobSpec, Mode, Regime
from predictor.profile import Profile
from predictor.published_predictor import ProfiledRegime
from tests.strategies import batches_of_beliefs, examples

SPEC = JobSpec(
    job_id=0,
    model="cnn",
    batch_size=16,
    max_batch_size=64,
    scale_factor=1,
    mode=Mode.ACCORDION,
    epochs=4,
    samples_per_epoch=6_400,
    arrival_seconds=0.0,
)
PROFILE = Profile({("cnn", 16, 1): 4.0, ("cnn", 64, 1): 2.0})
"""An epoch takes 100 s at batch size 16 and 50 s at 64."""

Case = tuple[tuple[Belief, ...], Profile]


def one(belief: Belief, *, window: int = 4, round_seconds: float = 100.0) -> Forecast:
    (result,) = forecast([belief], PROFILE, window=window, round_seconds=round_seconds)
    return result


def test_a_job_of_one_regime_is_exact() -> None:
    static = JobSpec(0, "cnn", 16, 16, 1, Mode.STATIC, 10, 6_400, 0.0)
    belief = Belief(static).after(
        [EpochReport(0, 0, 3, 16, 300.0)], JobProgress(0, 3, 0.25, 16, 325.0, 325.0, 2_700)
    )
    result = one(belief, window=8)
    assert result.remaining_seconds == 675.0
    expected = [0.325, 0.425, 0.525, 0.625, 0.725, 0.825, 0.925, 1.0, 1.0]
    assert result.progress == pytest.approx(expected, abs=1e-15)


def test_an_oracle_runs_through_the_true_regimes_in_order() -> None:
    schedule = {0: (ProfiledRegime(16, 2, 100.0), ProfiledRegime(64, 2, 50.0))}
    belief = Belief(SPEC).after([], JobProgress(0, 0, 0.5, 16, 0.0, 50.0, 0))
    (result,) = forecast(
        [belief],
        PROFILE,
        window=4,
        round_seconds=100.0,
        basis=Basis.ORACLE,
        schedules=schedule,
    )
    assert result.regimes == (Regime(16, 1.5), Regime(64, 2))
    assert result.remaining_seconds == 1.5 * 100.0 + 2 * 50.0
    assert result.progress == (0.125, 0.375, 0.75, 1.0, 1.0)
    assert result.run_seconds == 50.0


def test_a_reactive_forecast_goes_on_as_it_is() -> None:
    (result,) = forecast(
        [Belief(SPEC)], PROFILE, window=1, round_seconds=100.0, basis=Basis.REACTIVE
    )
    assert result.regimes == (Regime(16, 4),)
    assert (result.low_seconds, result.high_seconds) == (400.0, 400.0)


def test_nothing_known_every_sequence_counts() -> None:
    result = one(Belief(SPEC))
    assert result.samples[0] < 250.0 < result.samples[-1] == 400.0
    assert result.spread_seconds > 10.0
    assert result.low_seconds < result.mean_seconds < result.high_seconds


def test_no_jobs_have_no_forecasts() -> None:
    assert forecast([], PROFILE, window=3, round_seconds=60.0) == ()


@given(batches_of_beliefs())
def test_the_mean_is_the_sum_over_expected_regimes(case: Case) -> None:
    beliefs, profile = case
    results = forecast(beliefs, profile, window=2, round_seconds=120.0)
    for belief, result in zip(beliefs, results, strict=True):
        seconds = [
            regime.epochs * profile.epoch_seconds(belief.spec, regime.batch_size)
            for regime in result.regimes
        ]
        slowest = max(
            profile.epoch_seconds(belief.spec, size)
            for size in belief.spec.batch_sizes
            if profile.can_run(belief.spec.model, size, belief.spec.scale_factor)
        )
        # Regimes of less than a hundredth of an epoch are not told.
        assert result.mean_seconds == pytest.approx(sum(seconds), abs=0.2 * slowest)


@given(batches_of_beliefs())
def test_samples_ascend_and_hold_what_is_told_of_them(case: Case) -> None:
    beliefs, profile = case
    for result in forecast(beliefs, profile, window=2, round_seconds=120.0):
        samples, slack = result.samples, 1e-9 * result.samples[-1]
        assert list(samples) == sorted(samples)
        assert len(samples) == SAMPLES
        assert result.low_seconds <= result.remaining_seconds <= result.high_seconds
        assert samples[0] - slack <= result.remaining_seconds <= samples[-1] + slack
        assert samples[0] > 0.0


@given(batches_of_beliefs())
def test_progress_rises_from_what_is_done_to_one(case: Case) -> None:
    beliefs, profile = case
    results = forecast(beliefs, profile, window=20, round_seconds=120.0)
    for belief, result in zip(beliefs, results, strict=True):
        assert len(result.progress) == 21
        assert list(result.progress) == sorted(result.progress)
        assert result.progress[0] >= 0.0
        assert result.progress[-1] <= 1.0
        assert result.progress[0] == pytest.approx(belief.epochs_done / belief.spec.epochs)


@given(batches_of_beliefs())
def test_progress_is_one_exactly_when_the_longest_sample_is_covered(case: Case) -> None:
    beliefs, profile = case
    for belief in beliefs:
        (result,) = forecast([belief], profile, window=1, round_seconds=120.0)
        covered = result.samples[-1]
        for share, done in ((1.0 + 1e-9, True), (0.99, False)):
            (probe,) = forecast([belief], profile, window=1, round_seconds=covered * share)
            assert (probe.progress[1] == pytest.approx(1.0, abs=1e-12)) is done


@examples(200)
@given(batches_of_beliefs())
def test_a_batch_forecasts_as_one_by_one_to_the_last_bit(case: Case) -> None:
    beliefs, profile = case
    together = forecast(beliefs, profile, window=7, round_seconds=120.0)
    apart = [forecast([belief], profile, window=7, round_seconds=120.0)[0] for belief in beliefs]
    assert list(together) == apart


@given(batches_of_beliefs())
def test_longer_windows_only_go_on(case: Case) -> None:
    beliefs, profile = case
    short = forecast(beliefs, profile, window=3, round_seconds=120.0)
    long = forecast(beliefs, profile, window=9, round_seconds=120.0)
    assert np.array_equal([f.progress for f in short], [f.progress[:4] for f in long])
