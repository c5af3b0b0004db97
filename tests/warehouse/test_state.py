from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from containers.runtime import ContainerEvent, EventKind, Observation
from predictor.allocation import Demand
from predictor.job import EpochReport, JobProgress
from tasks.record import Fork, make_pool
from tasks.state import RunState, advance
from tests.runs import POLICIES, make, tiny
from tests.strategies import examples


def test_a_fork_with_other_gpus_has_the_even_cluster_of_the_rounds_that_it_took_over() -> None:
    made = make(tiny("shockwave", jobs=5))
    settings = made.header.settings
    fork = Fork("run", "0" * 64, 4, settings.pools, settings.policy, settings.parameters)
    other = replace(settings, pools=make_pool(1), forked=(fork,))
    header = replace(made.header, settings=other)
    state = RunState.initial(made.start)
    for (record, digest, _), after in zip(made.rounds[:5], made.states[1:6], strict=True):
        state = advance(header, state, record, digest)
        assert (state.fair_finishes == after.fair_finishes) is (record.round < fork.round)


@examples(15)
@given(st.sampled_from(POLICIES), st.integers(1, 5), st.integers(0, 1000))
def test_the_live_state_is_a_fold_over_the_records(policy: str, jobs: int, seed: int) -> None:
    made = make(tiny(policy, jobs=jobs, seed=seed))
    state = RunState.initial(made.start)
    for (record, digest, _), live, after in zip(
        made.rounds, made.states[:-1], made.states[1:], strict=True
    ):
        assert state == live
        state = advance(made.header, state, record, digest)
        assert state == after
    assert state.is_finished(made.start.workload.trace)


def test_the_state_tells_what_is_active_and_who_holds_what() -> None:
    made = make(tiny())
    for record, state in zip(made.records, made.states[1:], strict=True):
        assert {forecast.job_id for forecast in record.forecasts} <= state.beliefs.keys()
        assert state.beliefs.keys() == state.forecasts.keys()
        assert state.leases == {lease.job_id: lease.gpus for lease in record.leases}
        assert state.round == record.round + 1
        assert state.arrived == sum(len(r.arrivals) for r in made.records[: state.round])
        for estimate in record.estimates:
            assert state.beliefs[estimate.job_id].run_seconds == estimate.run_seconds


def test_gpu_time_is_that_of_the_gpus_that_a_job_held() -> None:
    start = tiny(jobs=1)
    (spec,) = start.workload.specs
    elastic = replace(spec, demand=Demand(spec.demand.least, 4))
    state, _ = RunState.initial(start).observe(
        start.header, Observation(0.0, (), (), ()), [elastic]
    )
    job, epochs, size, gpus = spec.job_id, spec.epochs, spec.batch_size, (0, 1, 2, 3)
    seen = Observation(
        600.0,
        (ContainerEvent(job, EventKind.FINISHED, 500.0, gpus),),
        (EpochReport(job, 0, epochs, size, 500.0),),
        (JobProgress(job, epochs, 0.0, size, 500.0, 500.0, 0),),
    )
    state, _ = replace(state, leases={job: gpus}).observe(start.header, seen, ())
    assert state.learning.gpu_seconds == (4 * 500.0,)
