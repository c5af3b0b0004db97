"""Policies: invariants of every plan, and the plans of simple policies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.allocation import Allocation, Demand
from predictor.belief import Belief
from predictor.errors import InputError
from predictor.job import JobProgress, JobSpec, Mode
from predictor.published_predictor import ProfiledRegime
from predictor.throughput import UNTYPED, Profile
from solver.even_cluster import Arrival, find_fair_finishes
from solver.plan import ActiveJob, Plan, Situation
from solver.policies import POLICIES, make_policy
from solver.policies.plugged import find_problems
from tests.strategies import among, certain, cluster, examples

ROUND_SECONDS = 100.0
WINDOW = 6


def job(
    job_id: int,
    rounds_left: float,
    *,
    gang: int = 1,
    arrival: float = 0.0,
    gpus: tuple[int, ...] = (),
    lease_rounds: int = 0,
    rounds_run: float = 0.0,
    budget: float = 1.0,
) -> ActiveJob:
    """A job of one regime, of 10 epochs of 63 steps, forecast to need so many rounds more."""
    demand, total = Demand.gang(gang), rounds_left + rounds_run
    spec = JobSpec(job_id, "cnn", 16, 16, demand, Mode.STATIC, 10, 1_008, arrival, budget=budget)
    progress = JobProgress(
        job_id=job_id,
        epochs=int(10 * rounds_run / total),
        fraction=10 * rounds_run / total % 1,
        batch_size=16,
        seconds=ROUND_SECONDS,
        run_seconds=rounds_run * ROUND_SECONDS,
        steps_left=round(630 * rounds_left / total),
    )
    epoch_seconds = total * ROUND_SECONDS / 10
    return ActiveJob(
        belief=Belief(spec, (), progress if rounds_run else None),
        forecast=certain(job_id, 10 * rounds_left / total),
        gpus=gpus,
        lease_rounds=lease_rounds or int(bool(gpus)),
        menu=(Allocation(UNTYPED, gang),),
        throughput=Profile.of_type({("cnn", 16, gang): 63 / epoch_seconds}),
        schedule=(ProfiledRegime(16, 10, epoch_seconds),),
        held=Allocation(UNTYPED, gang, gang) if gpus else None,
    )


def situation(
    *jobs: ActiveJob, gpus: int = 4, now: float = 1_000.0, slower: float | None = None
) -> Situation:
    """Jobs in an even cluster of their own, or in one that slows all of them down alike."""
    seconds = {job.job_id: job.belief.run_seconds + job.run_time(job.own).remaining for job in jobs}
    specs = [job.spec for job in jobs]
    fair = {
        spec.job_id: spec.arrival_seconds + (slower or 1.0) * seconds[spec.job_id] for spec in specs
    }
    if slower is None:
        arrivals = [
            Arrival(spec.job_id, spec.arrival_seconds, spec.demand.least, spec.budget)
            for spec in specs
        ]
        fair = find_fair_finishes(arrivals, seconds, gpus)
    arrived = tuple(sorted(spec.arrival_seconds for spec in specs))
    return Situation(now, cluster(gpus), ROUND_SECONDS, WINDOW, jobs, fair, arrived)


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """Up to twelve jobs on a small cluster, some of them running."""
    jobs, free = [], list(range(8))
    for job_id in range(draw(st.integers(0, 12))):
        gang = draw(among(1, 1, 2, 4, 8))
        runs = draw(st.booleans()) and gang <= len(free)
        held, free = (tuple(free[:gang]), free[gang:]) if runs else ((), free)
        jobs.append(
            job(
                job_id,
                draw(st.integers(1, 400)) / 10,
                gang=gang,
                arrival=float(draw(st.integers(0, 1_000))),
                gpus=held,
                rounds_run=draw(st.integers(0, 100)) / 10,
                budget=draw(among(0.5, 1.0, 4.0)),
            )
        )
    return situation(*jobs, gpus=8, slower=draw(among(None, 1.0, 1.2, 4.0)))


def running(plan: Plan) -> list[int]:
    return sorted(plan.placement)


@pytest.mark.parametrize("name", POLICIES)
@examples(25)
@given(inputs=situations())
def test_every_policy_plans_a_round_that_can_run(name: str, inputs: Situation) -> None:
    assert list(find_problems(inputs, make_policy(name).plan(inputs))) == []


@pytest.mark.parametrize("name", [name for name in POLICIES if POLICIES[name].work_conserving])
@examples(25)
@given(inputs=situations())
def test_no_gpu_idles_that_a_waiting_job_could_use(name: str, inputs: Situation) -> None:
    plan = make_policy(name).plan(inputs)
    free = inputs.inventory.gpus - sum(len(gpus) for gpus in plan.placement.values())
    waiting = [job for job in inputs.jobs if job.spec.job_id not in plan.placement]
    assert all(job.gang > free for job in waiting)


@pytest.mark.parametrize("name", POLICIES)
@examples(15)
@given(inputs=situations())
def test_every_policy_is_pure(name: str, inputs: Situation) -> None:
    policy = make_policy(name)
    first, second = policy.plan(inputs), policy.plan(inputs)
    assert first == second == make_policy(name).plan(inputs)


@pytest.mark.parametrize("name", POLICIES)
@examples(25)
@given(inputs=situations())
def test_a_job_that_goes_on_keeps_its_gpus(name: str, inputs: Situation) -> None:
    plan = make_policy(name).plan(inputs)
    for active in inputs.jobs:
        if active.gpus and active.spec.job_id in plan.placement:
            assert plan.placement[active.spec.job_id] == active.gpus


@pytest.mark.parametrize("name", POLICIES)
def test_the_registry_makes_policies_that_introduce_themselves(name: str) -> None:
    policy = make_policy(name)
    assert policy.name == name


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"choose from .*shockwave"):
        make_policy("lottery")


def test_fifo_serves_by_arrival_and_backfills() -> None:
    inputs = situation(
        job(0, 5, gang=2, arrival=20.0), job(1, 5, gang=4, arrival=10.0), job(2, 5, gang=1), gpus=4
    )
    # 2 came first; 1 does not fit beside it; 0 does.
    assert running(make_policy("fifo").plan(inputs)) == [0, 2]


def test_srtf_preempts_for_a_shorter_job() -> None:
    inputs = situation(job(0, 9, gpus=(0,)), job(1, 2), job(2, 3), gpus=2)
    assert make_policy("srtf").plan(inputs).placement == {1: (0,), 2: (1,)}
