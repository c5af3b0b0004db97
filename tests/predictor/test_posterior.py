"""The restatement rule, told by jobs of 60 epochs that can visit 16, 32 and 64."""

import dataclasses

import pytest
from hypothesis import given

from predictor.job import EpochReport, JobProgress, JobSpec, Mode, Regime
from predictor.posterior import Belief, remaining_regimes
from predictor.profile import Profile
from tests.strategies import batches_of_beliefs

GNS = JobSpec(
    job_id=0,
    model="cnn",
    batch_size=16,
    max_batch_size=64,
    scale_factor=1,
    mode=Mode.GNS,
    epochs=60,
    samples_per_epoch=6_400,
    arrival_seconds=0.0,
)
ACCORDION = dataclasses.replace(GNS, mode=Mode.ACCORDION)
STATIC = dataclasses.replace(GNS, mode=Mode.STATIC)
PROFILE = Profile({("cnn", 16, 1): 8.0, ("cnn", 32, 1): 5.0, ("cnn", 64, 1): 4.0})


def seen(spec: JobSpec, *regimes: tuple[int, int], now: int | None = None) -> Belief:
    """A belief after the job trained (batch size, epochs) in turn and goes on at `now`."""
    reports, epoch = [], 0
    for batch_size, epochs in regimes:
        reports.append(EpochReport(spec.job_id, epoch, epochs, batch_size, 100.0 * epochs))
        epoch += epochs
    batch_size = now or (regimes[-1][0] if regimes else spec.batch_size)
    return Belief(spec).after(
        reports, JobProgress(spec.job_id, epoch, 0.0, batch_size, 0.0, 0.0, 0)
    )


def left(belief: Belief) -> dict[int, float]:
    return {r.batch_size: r.epochs for r in remaining_regimes(belief, PROFILE)}


def test_untouched_the_prior_is_even_over_all_batch_sizes() -> None:
    assert left(Belief(GNS)) == {16: 20.0, 32: 20.0, 64: 20.0}
    assert left(Belief(ACCORDION)) == {16: 30.0, 64: 30.0}
    assert left(Belief(STATIC)) == {16: 60.0}


def test_what_was_seen_of_the_regime_under_way_is_taken_off_its_prior() -> None:
    # 20 - 5 are left of the first regime, and the other two keep their 20.
    assert left(seen(GNS, (16, 5))) == {16: 15.0, 32: 20.0, 64: 20.0}


def test_a_regime_that_lingers_is_expected_to_hold_as_long_again() -> None:
    # 30 epochs seen of an expected 20: masses 30, 20 and 20 share the 30 epochs left.
    expected = {16: 30 * 30 / 70, 32: 30 * 20 / 70, 64: 30 * 20 / 70}
    assert left(seen(GNS, (16, 30))) == pytest.approx(expected)


def test_a_gns_regime_left_is_over_and_the_rest_of_the_prior_is_even_over_those_ahead() -> None:
    # 10 epochs at 16 are over for good; 32 and 64 have (60 - 10) / 2 each.
    assert left(seen(GNS, (16, 10), now=32)) == {32: 25.0, 64: 25.0}
    assert left(seen(GNS, (16, 10), (32, 5))) == {32: 20.0, 64: 25.0}


def test_the_last_gns_regime_takes_all_that_is_left() -> None:
    assert left(seen(GNS, (16, 10), (32, 10), (64, 1))) == {64: 39.0}


def test_an_accordion_regime_left_once_does_not_come_back() -> None:
    assert left(seen(ACCORDION, (16, 10), now=64)) == {64: 50.0}
    assert left(seen(ACCORDION, (16, 10), (64, 20))) == {64: 30.0}


def test_an_accordion_that_came_back_goes_on_in_the_proportion_seen() -> None:
    # Two visits to 16: 20 epochs at 16 and 20 at 64, so the 20 left are split evenly.
    assert left(seen(ACCORDION, (16, 10), (64, 20), (16, 10))) == {16: 10.0, 64: 10.0}


def test_coming_back_counts_from_the_first_epoch_under_way() -> None:
    expected = {16: 30 * 10 / 30, 64: 30 * 20 / 30}
    assert left(seen(ACCORDION, (16, 10), (64, 20), now=16)) == pytest.approx(expected)


def test_a_batch_size_that_cannot_run_gets_no_share() -> None:
    profile = Profile({("cnn", 16, 1): 8.0, ("cnn", 64, 1): 4.0})
    regimes = remaining_regimes(Belief(GNS), profile)
    assert regimes == (Regime(16, 30.0), Regime(64, 30.0))


def test_a_job_past_its_declared_epochs_still_has_the_one_under_way() -> None:
    assert sum(left(seen(GNS, (16, 60))).values()) == pytest.approx(1.0)
    assert left(seen(GNS, (16, 61), now=32)) == {32: 1.0}


def test_reports_of_the_same_batch_size_are_one_regime() -> None:
    belief = seen(GNS, (16, 3), (16, 4), (32, 2))
    assert belief.observed == (Regime(16, 7), Regime(32, 2))
    assert belief.epochs_done == 9


def test_reports_without_progress_leave_the_rest_as_it_was() -> None:
    belief = Belief(GNS).after([], JobProgress(0, 0, 0.5, 16, 90.0, 90.0, 0))
    after = belief.after([EpochReport(0, 0, 1, 16, 80.0)], None)
    assert (after.fraction, after.batch_size, after.run_seconds) == (0.5, 16, 90.0)


@given(batches_of_beliefs())
def test_regimes_sum_to_the_epochs_left_with_the_one_under_way_first(
    case: tuple[tuple[Belief, ...], Profile],
) -> None:
    beliefs, profile = case
    for belief in beliefs:
        regimes = remaining_regimes(belief, profile)
        epochs_left = belief.spec.epochs - sum(r.epochs for r in belief.observed)
        assert sum(r.epochs for r in regimes) == pytest.approx(max(epochs_left, 1))
        assert all(r.epochs > 0 for r in regimes)
        assert regimes[0].batch_size == belief.batch_size
        assert [r.batch_size for r in regimes[1:]] == sorted({r.batch_size for r in regimes[1:]})


@given(batches_of_beliefs())
def test_gns_never_shrinks(case: tuple[tuple[Belief, ...], Profile]) -> None:
    beliefs, profile = case
    for belief in beliefs:
        if belief.spec.mode is Mode.GNS:
            sizes = [r.batch_size for r in remaining_regimes(belief, profile)]
            assert sizes == sorted(sizes)
