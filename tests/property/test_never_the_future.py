"""The predictor sees the past only: the unobserved future changes no forecast."""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from containers.runtime import Lease, ResumePoint, Terms
from containers.virtual.truth import GroundTruth
from containers.virtual.virtual_cluster import VirtualFactory
from predictor.allocation import Demand
from predictor.belief import Belief
from predictor.forecast import Forecast, forecast
from predictor.job import TABLE_MODES, JobSpec, Mode, Regime
from predictor.throughput import Profile
from tests.strategies import examples

EPOCHS = 30
ROUND_SECONDS = 200.0
PROFILE = Profile.of_type({("cnn", size, gpus): 4.0 for size in (16, 32, 64) for gpus in (1, 2)})
"""An epoch takes 100, 50 or 25 s."""


def spec(mode: Mode) -> JobSpec:
    return JobSpec(0, "cnn", 16, 64, Demand.gang(1), mode, EPOCHS, 6_400, 0.0)


def truth(targets: list[int], isolated_seconds: float) -> GroundTruth:
    regimes = tuple(Regime(size, 1) for size in targets)
    return GroundTruth(0, isolated_seconds, regimes, regimes)


def forecasts(job: JobSpec, real: GroundTruth) -> list[tuple[int, Forecast]]:
    """At every round boundary, the epochs begun and what is expected of the job."""
    bystander = replace(job, job_id=1, mode=Mode.STATIC, demand=Demand.gang(2))
    truths = [real, GroundTruth(1, 1.0, (Regime(16, 1),), (Regime(16, 1),))]
    terms = Terms("", ROUND_SECONDS, 20.0, PROFILE)
    cluster = VirtualFactory(truths).open(terms, ResumePoint(jobs=(job, bystander)))
    beliefs, forecasts = [Belief(job), Belief(bystander)], []
    for number in range(100):
        expected, _ = forecast(beliefs, PROFILE, trajectories=True)
        forecasts.append((math.ceil(beliefs[0].epochs_done), expected))
        if number % 4 == 3:  # preempted now and then, so that restarts are seen too
            cluster.preempt({0: ""})
        else:
            cluster.launch(0, [Lease(0, (0,))])
        cluster.launch(0, [Lease(1, (1, 2))])
        cluster.advance(None)
        seen = cluster.observe()
        if any(event.job_id == 0 for event in seen.finished):
            return forecasts
        progress = {entry.job_id: entry for entry in seen.progress}
        beliefs = [
            belief.after(
                [report for report in seen.reports if report.job_id == belief.spec.job_id],
                progress.get(belief.spec.job_id),
            )
            for belief in beliefs
        ]
    raise AssertionError("the job never ends")


sizes = st.lists(st.sampled_from((16, 64)), min_size=EPOCHS + 1, max_size=EPOCHS + 1)


@examples(40)
@given(
    mode=st.sampled_from(TABLE_MODES),
    past=sizes,
    future=sizes,
    common=st.integers(1, EPOCHS),
    isolated=st.floats(1.0, 1e6),
)
def test_another_future_gives_the_same_forecasts_until_it_is_met(
    mode: Mode, past: list[int], future: list[int], common: int, isolated: float
) -> None:
    job = spec(mode)
    if mode is Mode.GNS:  # never shrinks
        past, future = sorted(past), sorted(future)
    if mode is Mode.STATIC:
        past = future = [16] * (EPOCHS + 1)
    ours = forecasts(job, truth(past, 3_000.0))
    theirs = forecasts(job, truth(past[:common] + future[common:], isolated))
    untouched = sum(begun < common for begun, _ in ours)
    assert untouched > 0
    # The first boundary beyond the common past was reached before its target was read.
    assert ours[: untouched + 1] == theirs[: untouched + 1]


def test_a_future_that_is_met_does_change_the_forecast() -> None:
    stays, doubles = truth([16], 3_000.0), truth([16] * 10 + [64], 3_000.0)
    ours, theirs = (forecasts(spec(Mode.GNS), real) for real in (stays, doubles))
    assert ours != theirs
