"""Jobs that are not preempted keep their GPUs under every policy, on every kind of clock."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from containers.runtime import EventKind
from flows.runs.start import make_start
from predictor.job import JobKind
from solver.policies import POLICIES
from tasks.record import RuntimeKind, Start
from tests.kinds import timed, with_jobs
from tests.property.test_policies import starts
from tests.runs import check_sound, make
from tests.strategies import among, examples


@st.composite
def mixed(draw: st.DrawFn, policy: str) -> Start:
    """Starts of runs of adaptive, checkpointing and opaque jobs."""
    start = draw(starts(policy))
    jobs = [
        timed(
            0,
            draw(among(300.0, 2_000.0, 9_000.0)),
            limit=draw(among(1_000.0, 10_000.0)),
            kind=draw(among(JobKind.CHECKPOINTING, JobKind.OPAQUE, JobKind.OPAQUE)),
            gpus=draw(among(1, 2, 4)),
            at=draw(among(0.0, 100.0, 5_000.0)),
        )
        for _ in range(draw(st.integers(1, 6)))
    ]
    runtime = draw(among(RuntimeKind.VIRTUAL, RuntimeKind.FAITHFUL))
    asked = replace(start.header.settings, runtime=runtime)
    return make_start(with_jobs(start.workload, jobs), asked)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@settings(examples(3), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_job_ends_and_opaque_ones_are_never_preempted(
    policy: str, data: st.DataObject
) -> None:
    made = make(data.draw(mixed(policy)))
    check_sound(made)
    opaque = {spec.job_id for spec in made.specs if spec.kind is JobKind.OPAQUE}
    events = [event for record in made.records for event in record.events]
    launched = [event.job_id for event in events if event.job_id in opaque]
    assert sorted(launched) == sorted(opaque), "started once, and nothing else"
    limits = {spec.job_id: spec.max_seconds for spec in made.specs}
    truths = {truth.job_id: truth.isolated_seconds for truth in made.start.workload.truths}
    for record in made.records:
        for event in record.finished:
            if event.kind is EventKind.FAILED:
                slack = made.header.settings.round_seconds + made.header.settings.restart_seconds
                assert truths[event.job_id] > limits[event.job_id] - len(made.records) * slack
