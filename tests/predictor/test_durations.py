"""How long timed jobs take, by their limits and by jobs like them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.basis import Basis
from predictor.belief import Belief
from predictor.durations import ENOUGH, KEPT, gaps, interval, quantiles, shares_of, with_share
from predictor.forecast import HELD, forecast, run_time
from predictor.history import NOTHING, History
from predictor.job import JobProgress, JobSpec
from predictor.learning import learned
from predictor.published_predictor import ProfiledRegime
from predictor.throughput import Profile
from tests.kinds import timed

PROFILE = Profile({})
SHARES = st.floats(0.0, 1.0, exclude_min=True, exclude_max=True)


def job(name: str = "", image: str = "a", limit: float = 1_000.0) -> JobSpec:
    return timed(0, 1.0, limit=limit, image=image, name=name)[0]


def ran(spec: JobSpec, seconds: float, *, ended: bool = False) -> Belief:
    left = 0 if ended else int(spec.max_seconds - seconds)
    entry = JobProgress(0, int(ended), 0.0, 1, seconds, seconds, left)
    return Belief(spec).after((), entry)


def after(*ends: tuple[JobSpec, float]) -> History:
    """What is known after jobs of these lengths."""
    history = NOTHING
    for spec, seconds in ends:
        history = learned(history, ran(spec, seconds, ended=True), PROFILE, 0)
    return history


@given(st.lists(SHARES, min_size=2, max_size=40, unique=True), st.floats(0.0, 0.9))
def test_an_interval_holds_at_least_as_often_as_it_says(shares: list[float], done: float) -> None:
    """Each of them is as likely the one to come, as they are exchangeable."""
    longer = [share for share in shares if share > done]
    held = 0
    for coming in longer:
        others = [share for share in shares if share != coming]
        low, high = interval(gaps(others, done), HELD)
        held += low <= coming <= high
    assert held >= HELD * len(longer) - 1e-9


@given(st.lists(SHARES, max_size=30), st.floats(0.0, 1.5))
def test_quantiles_are_within_what_is_left(shares: list[float], done: float) -> None:
    ends = gaps(shares, done)
    found = quantiles(ends, np.linspace(0.0, 1.0, 33))
    assert (np.diff(found) >= 0.0).all()
    assert (found[0], found[-1]) == (min(done, 1.0), 1.0)
    low, high = interval(ends, HELD)
    assert min(done, 1.0) <= low <= high <= 1.0


def test_without_jobs_like_it_nothing_is_known_but_the_limit() -> None:
    spec = job()
    (found,) = forecast([ran(spec, 200.0)], PROFILE, trajectories=True)
    time = run_time(found, spec, PROFILE, PROFILE.reference(spec))
    assert (time.remaining, time.high) == pytest.approx((400.0, 800.0))
    assert time.low == pytest.approx(0.0, abs=1e-3)
    assert time.samples == pytest.approx((np.arange(32) + 0.5) / 32 * 800.0)


def test_jobs_of_the_same_name_tenant_and_image_say_how_long_it_takes() -> None:
    spec = job("nightly", limit=1_000.0)
    nights = [(job("nightly", limit=2_000.0), 800.0 + 2.0 * n) for n in range(ENOUGH)]
    others = [(job("other"), 100.0)] * 20
    history = after(*nights, *others, *[(job("nightly", image="b"), 5.0)] * 20)
    (found,) = forecast([Belief(spec)], PROFILE, history, trajectories=False)
    time = run_time(found, spec, PROFILE, PROFILE.reference(spec))
    assert (time.low, time.remaining, time.high) == pytest.approx((400.0, 404.0, 408.0))
    assert time.samples == ()
    fewer = after(*nights[1:], *others)
    assert len(shares_of(fewer.shares, spec)) == 28, "with the tenant's other jobs of the image"


def test_of_a_job_that_ran_longer_than_most_only_the_longest_are_asked() -> None:
    spec = job()
    history = after(*[(spec, 100.0)] * 50, *[(spec, 900.0)] * 3)
    (found,) = forecast([ran(spec, 500.0)], PROFILE, history, trajectories=False)
    time = run_time(found, spec, PROFILE, PROFILE.reference(spec))
    assert time.remaining == pytest.approx(400.0)


def test_a_job_beyond_its_limit_is_about_to_end() -> None:
    spec = job()
    (found,) = forecast([ran(spec, 1_200.0)], PROFILE, trajectories=True)
    time = run_time(found, spec, PROFILE, PROFILE.reference(spec))
    assert 0.0 < time.low <= time.remaining <= time.high < 1e-3


def test_other_bases_know_the_limit_or_the_truth() -> None:
    spec, truth = job(), {0: (ProfiledRegime(1, 1, 300.0),)}
    for basis, left in ((Basis.REACTIVE, 900.0), (Basis.ORACLE, 200.0)):
        (found,) = forecast(
            [ran(spec, 100.0)], PROFILE, trajectories=True, basis=basis, schedules=truth
        )
        time = run_time(found, spec, PROFILE, PROFILE.reference(spec))
        assert (time.low, time.remaining, time.high) == pytest.approx((left,) * 3)
        assert time.samples == pytest.approx((left,))


def test_the_latest_shares_are_kept_and_an_unmeasured_job_says_nothing() -> None:
    shares = {("", "default", "a"): tuple([0.5] * KEPT)}
    found = with_share(shares, ran(job(), 250.0, ended=True))
    assert found["", "default", "a"][-2:] == (0.5, 0.25)
    assert len(found["", "default", "a"]) == KEPT
    assert with_share({}, Belief(job())) == {}
