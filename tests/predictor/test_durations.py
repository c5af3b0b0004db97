"""Durations of timed jobs, by their limits and by jobs like them."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.arrays import Floats
from predictor.basis import Basis
from predictor.belief import MILESTONES, Belief
from predictor.durations import (
    ENOUGH,
    KEPT,
    KEPT_ALIKE,
    add_share,
    choose_shares,
    compute_quantiles,
    extrapolate_steps,
    find_gaps,
    find_interval,
)
from predictor.forecast import HELD, RunTime, forecast, run_time
from predictor.history import NOTHING, History
from predictor.intervals import Calibration, Scored
from predictor.job import JobProgress, JobSpec
from predictor.posterior import learn
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
    return learn(NOTHING, [ran(spec, seconds, ended=True) for spec, seconds in ends], PROFILE, 0)


@given(st.lists(SHARES, min_size=2, max_size=40, unique=True), st.floats(0.0, 0.9))
def test_an_interval_holds_at_least_as_often_as_it_says(shares: list[float], done: float) -> None:
    """Each is equally likely the next, as they are exchangeable."""
    longer = [share for share in shares if share > done]
    held = 0
    for coming in longer:
        others = [share for share in shares if share != coming]
        low, high = find_interval(find_gaps(others, done), HELD)
        held += low <= coming <= high
    assert held >= HELD * len(longer) - 1e-9


@given(st.lists(SHARES, max_size=30), st.floats(0.0, 1.5))
def test_quantiles_are_within_what_is_left(shares: list[float], done: float) -> None:
    ends = find_gaps(shares, done)
    found = compute_quantiles(ends, np.linspace(0.0, 1.0, 33))
    assert (np.diff(found) >= 0.0).all()
    assert (found[0], found[-1]) == (min(done, 1.0), 1.0)
    low, high = find_interval(ends, HELD)
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
    assert len(choose_shares(fewer.shares, spec)) == 28, "with the tenant's other jobs of the image"


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


def test_names_are_bounded_in_all_and_pushed_out_of_the_tenant_with_the_most() -> None:
    nightly = job("nightly")
    history = after(*[(replace(nightly, tenant="b"), 300.0)] * ENOUGH, (nightly, 500.0))
    shares, last = history.shares, f"job-{KEPT_ALIKE + 9}"
    for number in range(KEPT_ALIKE + 10):
        shares = add_share(shares, ran(job(f"job-{number}"), 250.0, ended=True))
    assert choose_shares(shares, replace(nightly, tenant="b")) == (0.3,) * ENOUGH
    own = {name for name, tenant, _ in shares if tenant == nightly.tenant}
    assert len(shares) == KEPT_ALIKE
    assert {"", last} < own
    assert not own & {"nightly", "job-0"}
    # However many tenants there are: each has a name, and all together no more than before.
    for number in range(200):
        newcomer = replace(job("once"), tenant=f"tenant-{number}")
        shares = add_share(shares, ran(newcomer, 250.0, ended=True))
    assert len(shares) == KEPT_ALIKE
    assert len({tenant for _, tenant, _ in shares}) == 202
    assert choose_shares(shares, replace(nightly, tenant="b")) == (0.3,) * ENOUGH


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
    found = add_share(shares, ran(job(), 250.0, ended=True))
    assert found["", "default", "a"][-2:] == (0.5, 0.25)
    assert len(found["", "default", "a"]) == KEPT
    assert add_share({}, Belief(job())) == {}


def reporting(spec: JobSpec, *milestones: tuple[float, float]) -> Belief:
    """A job that reported these shares at these run times."""
    belief = Belief(spec)
    for share, seconds in milestones:
        left = int(spec.max_seconds - seconds)
        entry = JobProgress(0, 0, 0.0, 1, seconds - belief.run_seconds, seconds, left, share=share)
        belief = belief.after((), entry)
    return belief


def time_of(belief: Belief, history: History = NOTHING) -> RunTime:
    spec = belief.spec
    (found,) = forecast([belief], PROFILE, history, trajectories=True)
    return run_time(found, spec, PROFILE, PROFILE.reference(spec))


def outside(time: RunTime) -> tuple[int, int]:
    """Samples below and above the interval."""
    below = sum(sample < time.low for sample in time.samples)
    return below, sum(sample > time.high for sample in time.samples)


def test_what_a_job_reports_says_how_long_it_takes() -> None:
    belief = reporting(job(), (0.25, 50.0))
    time = time_of(belief)
    assert (belief.share_done, time.remaining) == (0.25, pytest.approx(150.0))
    assert (time.low, time.high) == pytest.approx((0.0, 950.0), abs=1e-3)  # of a single step
    nine = reporting(job(), *((0.05 * n, 10.0 * n) for n in range(1, ENOUGH + 1)))
    time = time_of(nine)
    assert time.remaining == pytest.approx(110.0)
    assert 103.0 < time.low < 107.0 < 113.0 < time.high < 117.0, "within a step of 10 s"
    assert len(time.samples) == 32


def test_until_it_has_reported_enough_the_interval_is_that_of_jobs_like_it() -> None:
    history = after(*((job(), 100.0 + n) for n in range(ENOUGH)))
    time = time_of(reporting(job(), (0.25, 26.0)), history)
    assert time.remaining == pytest.approx(78.0)
    assert (time.low, time.high) == pytest.approx((74.0, 82.0))
    assert outside(time) == (3, 3)


def test_a_job_that_goes_back_to_a_checkpoint_or_stands_still_is_believed_no_more() -> None:
    belief = reporting(job(), (0.2, 20.0), (0.4, 40.0), (0.3, 60.0), (0.4, 70.0))
    assert extrapolate_steps(belief) == pytest.approx((0.13, 0.13, 0.13))  # 10 s for each tenth
    still = reporting(job(), (0.2, 20.0), (0.4, 40.0), (0.4, 100.1))
    assert extrapolate_steps(still) == ()  # it would have ended by now
    assert time_of(still).remaining == pytest.approx((1000.0 - 100.1) / 2)
    assert time_of(reporting(job(), (1.0, 500.0))).remaining == pytest.approx(5.0)  # of a hundredth
    slow = reporting(job(), (0.01, 500.0))
    assert time_of(slow).remaining == pytest.approx(500.0)  # it is ended at its limit
    many = reporting(job(), *((0.001 * n, 1.0 * n) for n in range(1, 100)))
    assert len(many.milestones) == MILESTONES
    assert len(extrapolate_steps(many)) == MILESTONES - 1, (
        "what it did before is not known by steps"
    )
    again = reporting(job(), (0.2, 20.0), (0.4, 40.0), (0.0, 50.0))
    assert again.share_done == 0.0
    assert extrapolate_steps(again) == pytest.approx((0.15, 0.15))
    ended = again.after((), JobProgress(0, 1, 0.0, 1, 5.0, 55.0, 0))
    assert ended.milestones == again.milestones


def test_no_interval_of_a_job_is_a_point() -> None:
    slow = reporting(job(), *((0.005 * n, 50.0 * n) for n in range(1, ENOUGH + 2)))
    time = time_of(slow)
    assert time.remaining == pytest.approx(500.0)  # it is ended at its limit
    assert (time.low, time.high) == pytest.approx((497.5, 502.5))
    equal = after(*[(job(), 300.0)] * 20)
    time = time_of(ran(job(), 100.0), equal)
    assert (time.low, time.remaining, time.high) == pytest.approx((199.0, 200.0, 201.0))
    late = time_of(ran(job(), 1_200.0))
    assert late.low < late.high


def test_a_job_that_reports_nothing_new_for_long_is_forecast_as_jobs_like_it() -> None:
    steps = [(0.05 * n, 10.0 * n) for n in range(1, 11)]
    assert time_of(reporting(job(), *steps, (0.5, 190.0))).remaining < 25.0
    still = time_of(reporting(job(), *steps, (0.5, 230.0)))
    assert (still.low, still.remaining) == pytest.approx((0.0, 385.0), abs=1e-3)


def draw_ends(rng: np.random.Generator, kept: float, spread: float) -> Floats:
    """Times at which a job ends each of forty equal steps, whose logs are autocorrelated."""
    logs = list[float]()
    for new in rng.normal(size=40):
        logs.append(kept * logs[-1] + math.sqrt(1.0 - kept**2) * new if logs else new)
    ends: Floats = np.exp(3.0 + spread * np.array(logs)).cumsum()
    return ends


def milestones(ends: Floats, now: int) -> Iterator[tuple[float, float]]:
    """The shares and times of its first steps."""
    return zip((np.arange(1, now + 1) / 40).tolist(), ends[:now].tolist(), strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.9])
def test_intervals_of_jobs_that_report_hold_about_as_often_as_they_say(kept: float) -> None:
    """Also where slow steps follow slow steps."""
    rng, beyond = np.random.default_rng(1), []
    for _ in range(250):
        ends, now = draw_ends(rng, kept, 0.5), rng.integers(ENOUGH, 36)
        time = time_of(reporting(job(limit=1e6), *milestones(ends, now)))
        left = ends[-1] - ends[now - 1]
        beyond.append((left < time.low, left > time.high))
        assert all(2 <= number <= 4 for number in outside(time))
    assert 0.74 <= 1.0 - np.sum(beyond) / 250 <= 0.90


@pytest.mark.parametrize(("kept", "spread"), [(0.0, 0.1), (0.9, 1.0)])
@pytest.mark.slow
def test_intervals_of_jobs_that_report_are_calibrated_by_those_of_their_name(
    kept: float, spread: float
) -> None:
    """Where intervals by paces alone cover too much, and where too little."""
    rng, known = np.random.default_rng(2), Calibration()
    held = dict[bool, list[tuple[bool, bool]]]({False: [], True: []})
    for number in range(160):
        ends, made = draw_ends(rng, kept, spread), list[Scored]()
        for now in (12, 20, 28):
            belief = reporting(job(limit=1e6), *milestones(ends, now))
            time, left = time_of(belief), ends[-1] - ends[now - 1]
            low, high = known.interval_of(belief, time)
            made.append(Scored.of(belief, time))
            if number >= 40:
                held[False].append((left < time.low, left > time.high))
                held[True].append((left < low, left > high))
        known = known.after([(made, float(ends[-1]))])
    shown = {how: 1.0 - np.sum(missed) / len(missed) for how, missed in held.items()}
    assert abs(shown[False] - 0.8) > 0.05
    assert 0.76 <= shown[True] <= 0.84
    below, above = np.mean(held[True], axis=0)
    assert abs(below - above) < 0.06, "as often on either side"
