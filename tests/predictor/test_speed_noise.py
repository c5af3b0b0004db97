"""Uncertainty of speeds: none where they are even, and growing with their variability."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.allocation import Demand
from predictor.belief import Belief
from predictor.forecast import RunTime
from predictor.intervals import Calibration
from predictor.job import EpochReport, JobProgress, JobSpec, Mode
from predictor.posterior import PRIOR_SECONDS
from predictor.speed_noise import SpeedNoise
from predictor.throughput import Profile

ROUND = 100.0
RATE = 10.0
STEPS = 1_000_000
PROFILE = Profile.of_type({("LM", 32, 1): RATE, ("LM", 64, 1): RATE})
JOB = JobSpec(0, "LM", 32, 64, Demand.gang(1), Mode.ACCORDION, STEPS, 32, 0.0)
SURE = RunTime(10 * ROUND, 10 * ROUND, 10 * ROUND, ())


def trajectory(steps: list[int], seconds: float = ROUND) -> list[Belief]:
    """What is believed of a job before and after rounds with so many steps."""
    beliefs, left = [Belief(JOB)], STEPS
    for number, more in enumerate(steps, start=1):
        left -= more
        progress = JobProgress(0, 0, 0.0, 32, seconds, number * seconds, left)
        beliefs.append(beliefs[-1].after((), progress))
    return beliefs


def measure(*trajectories: list[Belief]) -> SpeedNoise:
    found = SpeedNoise()
    for beliefs in trajectories:
        found = found.after(pairwise(beliefs), PROFILE)
    return found


def rounds(logs: list[float]) -> list[int]:
    """Steps of rounds whose time per step is off the profile's by these logs."""
    return [round(RATE * ROUND * math.exp(-log)) for log in logs]


@given(rate=st.floats(0.02, 1e3), number=st.integers(2, 40), carried=st.booleans())
def test_whole_steps_at_an_even_speed_do_not_waver(rate: float, number: int, carried: bool) -> None:
    whole = [int(rate * ROUND * at) for at in range(number + 1)]
    steps = [after - before if carried else whole[1] for before, after in pairwise(whole)]
    even = Profile.of_type({("LM", 32, 1): rate, ("LM", 64, 1): rate})
    found = SpeedNoise().after(pairwise(trajectory(steps)), even)
    assert found.squares == found.offsets == 0.0
    assert found.spread(trajectory(steps)[-1], 10 * ROUND, settled=False) == 0.0
    assert found.prior_seconds == PRIOR_SECONDS


@given(
    found=st.builds(
        SpeedNoise,
        rounds=st.integers(1, 1000),
        seconds=st.floats(1.0, 1e6),
        squares=st.floats(0.0, 100.0),
        products=st.floats(-1.0, 1.0),
        before=st.floats(0.1, 10.0),
        jobs=st.integers(1, 100),
        offsets=st.floats(0.0, 100.0),
    ),
    squares=st.floats(0.0, 100.0),
    offsets=st.floats(0.0, 100.0),
    ran=st.integers(0, 20),
)
def test_the_more_speeds_waver_the_wider_intervals_are(
    found: SpeedNoise, squares: float, offsets: float, ran: int
) -> None:
    belief = trajectory(rounds([0.0] * ran))[-1]
    more = SpeedNoise(
        found.rounds,
        found.seconds,
        found.squares + squares,
        found.products,
        found.before,
        found.jobs,
        found.offsets + offsets,
    )
    widths = []
    for noise in (SpeedNoise(), found, more):
        low, high = Calibration().interval_of(belief, SURE, noise)
        assert low <= SURE.remaining <= high
        widths.append((SURE.remaining - low, high - SURE.remaining))
    for narrow, wide in pairwise(widths):
        assert all(a <= b * (1 + 1e-9) for a, b in zip(narrow, wide, strict=True))


@pytest.mark.parametrize("alike", [0.0, 0.7])
def test_intervals_hold_the_share_of_truths_that_they_say(alike: float) -> None:
    rng, spread, held = np.random.default_rng(0), 0.1, []
    found = SpeedNoise()
    for job in range(200):
        logs = [0.1 * rng.normal() + 0.1]
        noise = spread * rng.normal()
        own = []
        for _ in range(20):
            noise = alike * noise + math.sqrt(1.0 - alike**2) * spread * rng.normal()
            own.append(logs[0] + noise)
        beliefs = trajectory(rounds(own))
        left = STEPS - 10 * RATE * ROUND  # of the second half, at the speed of the first
        assert left > 0.0
        took = sum(pace.seconds for pace in beliefs[10].paces)
        speed = sum(pace.steps for pace in beliefs[10].paces) / took
        steps = beliefs[10].steps_left - beliefs[20].steps_left
        time = RunTime(steps / speed, steps / speed, steps / speed, ())
        if job >= 20:
            low, high = Calibration().interval_of(beliefs[10], time, found)
            held.append(low <= 10 * ROUND <= high)
        found = found.after(pairwise(beliefs), PROFILE)
    assert np.mean(held) == pytest.approx(0.8, abs=0.08)


def test_a_profile_that_is_off_weighs_less_than_what_is_measured() -> None:
    off = measure(*(trajectory(rounds([log] * 5)) for log in (0.5, -0.4, 0.3)))
    assert off.prior_seconds < 0.1 * ROUND
    assert off.spread(Belief(JOB), 10 * ROUND, settled=True) == pytest.approx(0.41, abs=0.02)
    known = trajectory(rounds([0.5] * 5))[-1]
    assert off.spread(known, 10 * ROUND, settled=True) == 0.0
    assert off.spread(known, 10 * ROUND, settled=False) == off.spread(
        Belief(JOB), 0.0, settled=True
    )


def test_a_round_with_two_batch_sizes_tells_no_speed() -> None:
    belief = trajectory(rounds([0.0, 0.0]))[-1]
    report = EpochReport(0, 0, 1, 64, 20.0)
    progress = JobProgress(0, 1, 0.0, 32, ROUND, 3 * ROUND, belief.steps_left - 50)
    after = belief.after([report], progress)
    assert after.rounds == ()
    assert SpeedNoise().after([(belief, after)], PROFILE) == SpeedNoise()
