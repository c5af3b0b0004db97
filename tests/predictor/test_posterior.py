"""The posterior of jobs of 60 epochs that can visit batch sizes 16, 32 and 64."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given

from predictor.allocation import Demand
from predictor.belief import Belief, Pace, find_changes
from predictor.forecast import forecast, run_time
from predictor.history import NOTHING, History
from predictor.job import EpochReport, JobProgress, JobSpec, Mode, Regime
from predictor.posterior import Sequences, draw_sequences, gather_evidence, learn
from predictor.throughput import Profile, reachable_batch_sizes
from tests.strategies import batches_of_beliefs

GNS = JobSpec(
    job_id=0,
    model="cnn",
    batch_size=16,
    max_batch_size=64,
    demand=Demand.gang(1),
    mode=Mode.GNS,
    epochs=60,
    samples_per_epoch=6_400,
    arrival_seconds=0.0,
)
ACCORDION = dataclasses.replace(GNS, mode=Mode.ACCORDION)
STATIC = dataclasses.replace(GNS, mode=Mode.STATIC)
PROFILE = Profile.of_type({("cnn", 16, 1): 8.0, ("cnn", 32, 1): 5.0, ("cnn", 64, 1): 4.0})


def seen(spec: JobSpec, *regimes: tuple[int, int], now: int | None = None) -> Belief:
    """A belief after the job trained (batch size, epochs) in turn and goes on at `now`."""
    reports, epoch = [], 0
    for batch_size, epochs in regimes:
        reports.append(EpochReport(spec.job_id, epoch, epochs, batch_size, 100.0 * epochs))
        epoch += epochs
    batch_size = now or (regimes[-1][0] if regimes else spec.batch_size)
    left = spec.steps_after(epoch, batch_size)
    return Belief(spec).after(
        reports, JobProgress(spec.job_id, epoch, 0.0, batch_size, 0.0, 0.0, left)
    )


def finished(spec: JobSpec, *regimes: tuple[int, int]) -> Belief:
    """All that was observed of a job that went through (batch size, epochs) in turn."""
    return Belief(spec, tuple(Regime(size, epochs) for size, epochs in regimes))


def after(*beliefs: Belief) -> History:
    """What is learned from finished jobs."""
    return learn(NOTHING, beliefs, PROFILE, 0)


def posterior(belief: Belief, history: History = NOTHING) -> Sequences:
    return draw_sequences([gather_evidence(belief, PROFILE, history)], PROFILE, history, 0)


def expected(belief: Belief, history: History = NOTHING) -> list[float]:
    """Expected epochs by stage."""
    mixture = posterior(belief, history)
    left: list[float] = (mixture.weights[:, :, None] * mixture.epochs).sum(axis=1)[0].tolist()
    return left


def test_changes_are_the_epochs_at_which_regimes_begin() -> None:
    assert find_changes(
        GNS, [Regime(16, 10), Regime(32, 5), Regime(64, 1)], reachable_batch_sizes(PROFILE, GNS)
    ) == (10, 15)
    back = [Regime(16, 10), Regime(64, 5), Regime(16, 1)]
    assert find_changes(ACCORDION, back, reachable_batch_sizes(PROFILE, ACCORDION)) == (10, 15)
    assert find_changes(GNS, back, reachable_batch_sizes(PROFILE, GNS)) == (
        10,
        10,
    )  # skips a size, and never changes back
    assert find_changes(STATIC, [Regime(16, 10)], reachable_batch_sizes(PROFILE, STATIC)) == ()


def test_under_the_prior_every_number_of_changes_is_equally_likely() -> None:
    # Means of Dirichlet shares over one, two or three regimes: 60 (1 + 1/2 + 1/3) / 3 at 16.
    assert expected(Belief(GNS))[0] == pytest.approx(60 * (1 + 1 / 2 + 1 / 3) / 3, rel=0.2)
    assert sum(expected(Belief(GNS))) == pytest.approx(60.0)


def test_a_longer_regime_is_more_likely_to_be_the_last() -> None:
    shares = [expected(seen(GNS, (16, epochs)))[0] / (60 - epochs) for epochs in (1, 20, 40, 55)]
    assert shares == sorted(shares)
    assert shares[-1] > 0.8


def test_a_regime_left_is_over_and_the_last_one_takes_all_that_is_left() -> None:
    assert gather_evidence(seen(GNS, (16, 10), (32, 10), (64, 1)), PROFILE, NOTHING).is_settled
    assert not gather_evidence(seen(GNS, (16, 10), now=32), PROFILE, NOTHING).is_settled
    assert posterior(seen(GNS, (16, 10), now=32)).sizes == ((32, 64),)


def test_a_job_is_expected_to_change_where_one_of_its_kind_did() -> None:
    history = after(finished(GNS, (16, 12), (32, 18), (64, 30)))
    mixture = posterior(Belief(GNS), history)
    median = mixture.quantiles(mixture.weights, np.array([[0.5]]))[0, 0]
    assert mixture.epochs[0, median].tolist()[:3] == [12.0, 18.0, 30.0]


def test_mixture_components_distinguish_changes_by_shares_and_by_epochs() -> None:
    specs = [dataclasses.replace(ACCORDION, epochs=n, total_steps=0) for n in (20, 50, 100, 140)]
    by_share = after(*[finished(s, (16, s.epochs // 5), (64, s.epochs * 4 // 5)) for s in specs])
    by_epoch = after(*[finished(s, (16, 15), (64, s.epochs - 15)) for s in specs])
    long = Belief(dataclasses.replace(ACCORDION, epochs=200, total_steps=0))
    for history, first in ((by_share, 40.0), (by_epoch, 15.0)):
        mixture = posterior(long, history)
        values, groups = np.unique(mixture.epochs[0, :, 0], return_inverse=True)
        assert values[np.bincount(groups, mixture.weights[0]).argmax()] == first


def test_the_likelihood_outweighs_the_prior() -> None:
    history = after(*[finished(GNS, (16, 12), (32, 18), (64, 30))] * 3)
    lingers = posterior(seen(GNS, (16, 30)), history)
    assert (lingers.weights * lingers.epochs[:, :, 0]).sum() > 3.0


def test_jobs_that_end_together_teach_the_same_as_one_after_another() -> None:
    short = dataclasses.replace(ACCORDION, epochs=20, total_steps=0)
    ended = [
        finished(GNS, (16, 12), (32, 18), (64, 30)),
        finished(STATIC, (16, 60)),
        finished(short, (16, 4), (64, 10), (16, 6)),
        finished(GNS, (16, 30), (32, 30)),
        finished(ACCORDION, (16, 60)),
    ]
    history = NOTHING
    for belief in ended:
        history = learn(history, [belief], PROFILE, 0)
    assert after(*ended) == history
    assert sum(history.of_mode(Mode.GNS).counts) == pytest.approx(2.0)


def test_a_course_is_censored_at_its_largest_batch_size() -> None:
    low = dataclasses.replace(GNS, batch_size=32, total_steps=0)
    history = after(*[finished(low, (32, 12), (64, 48))] * 5)
    assert expected(seen(GNS, (16, 12), now=32), history)[1] > 3.0


def test_speed_measured_is_believed_the_more_the_longer_it_was() -> None:
    def timed(seconds: float) -> Belief:
        steps = round(seconds * 4.0)  # half of what the profile has at 16
        return Belief(GNS).after(
            [], JobProgress(0, 0, 0.5, 16, seconds, seconds, GNS.total_steps - steps)
        )

    slow = [
        gather_evidence(timed(s), PROFILE, NOTHING).slowness[16] for s in (10.0, 100.0, 10_000.0)
    ]
    assert slow == sorted(slow)
    assert slow[-1] == pytest.approx(math.log(2.0), rel=0.05)
    elsewhere = gather_evidence(timed(10_000.0), PROFILE, NOTHING).slowness_elsewhere
    assert elsewhere == pytest.approx(math.log(2.0), rel=0.05)


def test_speed_measured_of_a_model_is_believed_of_its_next_job() -> None:
    paces = (Pace(16, 4_000, 1_000.0),)
    history = after(Belief(GNS, (Regime(16, 60),), None, paces))
    new = gather_evidence(Belief(GNS), PROFILE, history)
    assert new.slowness_elsewhere == pytest.approx(math.log(2.0), rel=0.1)


def test_a_batch_size_met_again_is_as_fast_as_over_all_its_visits() -> None:
    belief = Belief(ACCORDION)
    for size, seconds in ((16, 10.0), (64, 40.0), (16, 20.0)):
        at = JobProgress(0, 1, 0.0, size, 0.0, 0.0, 1_000)
        belief = belief.after([], at).after(
            [], dataclasses.replace(at, seconds=seconds, steps_left=900)
        )
    assert belief.paces == (Pace(16, 200, 30.0), Pace(64, 100, 40.0))


def test_courses_without_measurements_have_no_slowness() -> None:
    course = Belief(GNS, (Regime(16, 60),))
    timed = dataclasses.replace(course, paces=(Pace(16, 4_000, 1_000.0),))
    assert after(course).slowness("cnn") == 0.0
    assert after(timed, course, course).slowness("cnn") == after(timed).slowness("cnn")
    assert after(timed).slowness("cnn") == pytest.approx(math.log(2.0))


def test_a_finished_job_teaches_the_same_with_and_without_where_it_stood() -> None:
    bare = finished(ACCORDION, (16, 20), (64, 40))
    stood = dataclasses.replace(bare, progress=JobProgress(0, 60, 0.0, 64, 0.0, 0.0, 0))
    assert find_changes(
        ACCORDION,
        (*bare.observed, Regime(bare.batch_size, 0)),
        reachable_batch_sizes(PROFILE, ACCORDION),
    ) == (20,)
    assert after(bare) == after(stood)


def test_a_job_at_the_end_of_its_last_epoch_is_forecast_without_a_warning() -> None:
    belief = seen(ACCORDION, (16, 59))
    assert belief.progress
    at_end = dataclasses.replace(
        belief, progress=dataclasses.replace(belief.progress, fraction=1.0, steps_left=0)
    )
    (expected,) = forecast([at_end], PROFILE, trajectories=True)
    time = run_time(expected, ACCORDION, PROFILE, PROFILE.reference(ACCORDION))
    assert 0.0 <= time.remaining < 1e-6
    assert 0.0 <= time.samples[-1] < 1e-6


def test_reports_without_progress_leave_the_rest_as_it_was() -> None:
    belief = Belief(GNS).after([], JobProgress(0, 0, 0.5, 16, 90.0, 90.0, 0))
    after = belief.after([EpochReport(0, 0, 1, 16, 80.0)], None)
    assert (after.fraction, after.batch_size, after.run_seconds) == (0.5, 16, 90.0)


@given(batches_of_beliefs())
def test_every_candidate_fills_the_epochs_left(case: tuple[tuple[Belief, ...], Profile]) -> None:
    beliefs, profile = case
    for belief in beliefs:
        job = gather_evidence(belief, profile, NOTHING)
        if job.is_settled:
            continue
        mixture = draw_sequences([job], profile, NOTHING, 0)
        assert mixture.weights.sum() == pytest.approx(1.0)
        assert (mixture.weights >= 0.0).all()
        assert (mixture.epochs >= 0.0).all()
        assert mixture.epochs.sum(axis=2) == pytest.approx(job.left)
        assert mixture.sizes[0][0] == belief.batch_size
        if belief.spec.mode is Mode.GNS:
            assert list(mixture.sizes[0]) == sorted(mixture.sizes[0])
