import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.allocation import Allocation, Demand
from predictor.basis import Basis
from predictor.belief import Belief
from predictor.errors import InputError
from predictor.forecast import LEVELS, SAMPLES, Forecast, RunTime, forecast, run_time
from predictor.history import NOTHING
from predictor.job import EpochReport, JobProgress, JobSpec, Mode
from predictor.posterior import Sequences, draw_sequences, gather_evidence
from predictor.published_predictor import ProfiledRegime
from predictor.throughput import UNTYPED, Profile, training_seconds
from tests.strategies import batches_of_beliefs, examples

SPEC = JobSpec(
    job_id=0,
    model="cnn",
    batch_size=16,
    max_batch_size=64,
    demand=Demand.gang(1),
    mode=Mode.ACCORDION,
    epochs=4,
    samples_per_epoch=6_400,
    arrival_seconds=0.0,
)
PROFILE = Profile(
    {
        ("cnn", 16, UNTYPED, 1): 4.0,
        ("cnn", 64, UNTYPED, 1): 2.0,
        ("cnn", 16, "other", 1): 2.0,
        ("cnn", 64, "other", 1): 2.0,
    }
)
"""An epoch takes 100 s at batch size 16 and 50 s at 64; on the other type 200 s and 50 s."""

GPU, OTHER = Allocation(UNTYPED, 1), Allocation("other", 1)

Case = tuple[tuple[Belief, ...], Profile]


def forecast_of(belief: Belief) -> Forecast:
    (result,) = forecast([belief], PROFILE, trajectories=True)
    return result


def on_reference(result: Forecast, belief: Belief, profile: Profile) -> RunTime:
    return run_time(result, belief.spec, profile, profile.reference(belief.spec))


def test_a_job_of_one_regime_is_exact() -> None:
    static = JobSpec(0, "cnn", 16, 16, Demand.gang(1), Mode.STATIC, 10, 6_400, 0.0)
    belief = Belief(static).after(
        [EpochReport(0, 0, 3, 16, 300.0)], JobProgress(0, 3, 0.25, 16, 325.0, 325.0, 2_700)
    )
    assert forecast_of(belief) == Forecast(0, (16,), (0.0,), (6.75,), (6.75,), (6.75,), ((6.75,),))
    assert run_time(forecast_of(belief), static, PROFILE, GPU) == RunTime(
        675.0, 675.0, 675.0, (675.0,)
    )
    twice = RunTime(1_350.0, 1_350.0, 1_350.0, (1_350.0,))
    assert run_time(forecast_of(belief), static, PROFILE, OTHER) == twice
    assert belief.share_done == pytest.approx(0.325, abs=1e-15)


def test_an_oracle_runs_through_the_true_regimes_in_order() -> None:
    schedule = {0: (ProfiledRegime(16, 2, 100.0), ProfiledRegime(64, 2, 50.0))}
    belief = Belief(SPEC).after([], JobProgress(0, 0, 0.5, 16, 0.0, 50.0, 1_400))
    (result,) = forecast(
        [belief], PROFILE, trajectories=True, basis=Basis.ORACLE, schedules=schedule
    )
    work = (1.5, 2.0)
    assert result == Forecast(0, (16, 64), (0.0, 0.0), work, work, work, (work,))
    seconds = 1.5 * 100.0 + 2 * 50.0
    assert run_time(result, SPEC, PROFILE, GPU) == RunTime(seconds, seconds, seconds, (seconds,))
    assert belief.share_done == 0.125


def test_a_reactive_forecast_keeps_the_current_batch_size() -> None:
    (result,) = forecast([Belief(SPEC)], PROFILE, trajectories=True, basis=Basis.REACTIVE)
    assert result == Forecast(0, (16,), (0.0,), (4.0,), (4.0,), (4.0,), ((4.0,),))
    assert run_time(result, SPEC, PROFILE, GPU) == RunTime(400.0, 400.0, 400.0, (400.0,))


def test_without_history_forecasts_follow_the_prior() -> None:
    result = run_time(forecast_of(Belief(SPEC)), SPEC, PROFILE, GPU)
    assert result.samples[0] < 250.0 < result.samples[-1] == 400.0
    assert np.std(result.samples) > 10.0
    assert result.low < np.mean(result.samples) < result.high


def test_the_same_work_takes_another_time_on_another_allocation() -> None:
    result = forecast_of(Belief(SPEC))
    here, there = (run_time(result, SPEC, PROFILE, gpus) for gpus in (GPU, OTHER))
    at_16 = [sum(work[::2]) for work in result.trajectories]
    # Work at batch size 16 takes twice as long; all the rest is as fast.
    for sample, more in zip(sorted(there.samples), sorted(at_16), strict=True):
        assert sample == pytest.approx(4 * 50.0 + 150.0 * more)
    assert here.samples[-1] == 400.0
    assert there.samples[-1] == 800.0


def test_an_allocation_on_which_a_job_cannot_run_is_named() -> None:
    with pytest.raises(InputError, match="on 2 GPUs of type other"):
        run_time(forecast_of(Belief(SPEC)), SPEC, PROFILE, Allocation("other", 2))


def posterior(belief: Belief, profile: Profile) -> Sequences:
    """What the forecast of a job is drawn from."""
    job = gather_evidence(belief, profile, NOTHING)
    if job.is_settled:
        seconds = training_seconds(profile, job.spec, job.batch_size)
        seconds *= math.exp(job.slowness_at(job.batch_size))
        matrix = np.ones((1, 1))
        return Sequences(
            matrix, job.left * matrix[:, :, None], seconds * matrix, ((job.batch_size,),)
        )
    return draw_sequences([job], profile, NOTHING, 0)


def forecasts(case: Case) -> Iterator[tuple[Belief, Forecast, RunTime]]:
    """Each belief of a case with its forecast, also as run times on its reference."""
    beliefs, profile = case
    results = forecast(beliefs, profile, trajectories=True)
    for belief, result in zip(beliefs, results, strict=True):
        yield belief, result, on_reference(result, belief, profile)


@given(batches_of_beliefs())
def test_every_trajectory_fills_the_epochs_left(case: Case) -> None:
    for belief, result, _ in forecasts(case):
        assert result.job_id == belief.spec.job_id
        assert result.batch_sizes[0] == belief.batch_size
        works = (result.median, result.low, result.high, *result.trajectories)
        for work in works:
            assert len(work) == len(result.batch_sizes) == len(result.slowness)
            assert min(work) >= 0.0
            assert sum(work) == pytest.approx(belief.epochs_left)
        # No regime without epochs is listed.
        assert len(result.batch_sizes) == 1 or max(work[-1] for work in works) > 0.0
        done = belief.epochs_done
        assert belief.share_done == pytest.approx(done / (done + sum(result.median)))


@given(batches_of_beliefs())
def test_a_run_time_is_the_sum_over_the_regimes_of_its_work(case: Case) -> None:
    for belief, result, time in forecasts(case):
        each = np.exp(result.slowness) * [
            training_seconds(case[1], belief.spec, size) for size in result.batch_sizes
        ]
        assert time.remaining == pytest.approx(float(each @ result.median))
        assert time.low == pytest.approx(min(float(each @ result.low), time.remaining))
        assert time.high == pytest.approx(max(float(each @ result.high), time.remaining))
        assert time.samples == pytest.approx(np.array(result.trajectories) @ each)
        samples, slack = time.samples, 1e-9 * time.samples[-1]
        assert list(samples) == sorted(samples)
        certain = gather_evidence(belief, case[1], NOTHING).is_settled
        assert len(samples) == (1 if certain else SAMPLES)
        assert time.low <= time.remaining <= time.high
        assert samples[0] - slack <= time.remaining <= samples[-1] + slack
        assert samples[0] > 0.0


@examples(50)
@given(batches_of_beliefs())
def test_samples_are_quantiles_of_the_posterior_and_the_forecast_is_its_closest(case: Case) -> None:
    for belief, _, time in forecasts(case):
        mixture = posterior(belief, case[1])
        seconds, weights = mixture.seconds[0], mixture.weights[0]
        levels = LEVELS[0] if len(time.samples) > 1 else np.array([0.5])
        for sample, level in zip(time.samples, levels.tolist(), strict=True):
            assert weights[seconds < sample * (1.0 - 1e-9)].sum() <= level + 1e-9
            assert weights[seconds <= sample * (1.0 + 1e-9)].sum() >= level - 1e-9
        guesses = np.append(seconds, time.remaining)[:, None]
        errors = (weights * np.abs(guesses - seconds) / seconds).sum(axis=1)
        assert errors[-1] <= errors[:-1].min() + 1e-9


@examples(100)
@given(batches_of_beliefs())
def test_a_batch_forecasts_as_one_by_one_to_the_last_bit(case: Case) -> None:
    beliefs, profile = case
    together = forecast(beliefs, profile, trajectories=True)
    apart = [forecast([belief], profile, trajectories=True)[0] for belief in beliefs]
    assert list(together) == apart


@given(batches_of_beliefs())
def test_without_trajectories_the_rest_of_the_forecast_is_the_same(case: Case) -> None:
    beliefs, profile = case
    without = forecast(beliefs, profile, trajectories=False)
    for belief, bare, full in zip(
        beliefs, without, forecast(beliefs, profile, trajectories=True), strict=True
    ):
        assert bare.trajectories == ()
        ours, theirs = (on_reference(result, belief, profile) for result in (bare, full))
        assert replace(theirs, samples=()) == ours
        assert bare.batch_sizes == full.batch_sizes[: len(bare.batch_sizes)]
        for some, all_ in ((bare.median, full.median), (bare.high, full.high)):
            assert some == all_[: len(some)]
            assert not any(all_[len(some) :])


def on_two_types(case: Case, other: Callable[[float], float]) -> Profile:
    """The profile of a case, with the rates of a second GPU type."""
    _, profile = case
    rates = dict(profile.rates)
    for (model, size, _, gpus), rate in profile.rates.items():
        rates[model, size, "other", gpus] = other(rate)
    return Profile(rates)


@given(batches_of_beliefs(), st.sampled_from((0.25, 2.0, 64.0)), st.floats(0.1, 10.0))
def test_rates_of_one_allocation_change_no_seconds_of_another(
    case: Case, factor: float, change: float
) -> None:
    beliefs, _ = case
    profile = on_two_types(case, lambda rate: rate * factor)
    changed = on_two_types(case, lambda rate: rate * factor * change + (rate > 0.0) * change)
    results = forecast(beliefs, profile, trajectories=True)
    # Work is measured by the reference: it does not change either.
    assert forecast(beliefs, changed, trajectories=True) == results
    for belief, result in zip(beliefs, results, strict=True):
        gpus = belief.spec.demand.least
        here = run_time(result, belief.spec, profile, Allocation(UNTYPED, gpus))
        assert run_time(result, belief.spec, changed, Allocation(UNTYPED, gpus)) == here
        # Nodes make no difference to a table; a rate so many times as high does.
        there = run_time(result, belief.spec, profile, Allocation("other", gpus, nodes=gpus))
        assert there == RunTime(
            here.remaining / factor,
            here.low / factor,
            here.high / factor,
            tuple(seconds / factor for seconds in here.samples),
        )
