"""How shares of time become rounds."""

from dataclasses import replace

import pytest

from predictor.job import JobProgress
from predictor.rows import from_json
from predictor.throughput import Profile
from solver.fidelity import Fidelity
from solver.plan import ActiveJob, Plan, Situation
from solver.policies import make_policy
from solver.policies.ledger import Ledger
from tests.solver.test_policies import job
from tests.strategies import cluster

ROUND_SECONDS = 100.0


def ran(active: ActiveJob, gpus: tuple[int, ...], seconds: float) -> ActiveJob:
    """The job a round later, having run or not."""
    belief = active.belief
    if gpus:
        progress = JobProgress(active.job_id, 0, 0.0, 16, seconds, seconds, 500)
        belief = belief.after([], progress)
    return replace(active, belief=belief, gpus=gpus)


def go_on(inputs: Situation, plan: Plan, *more: ActiveJob) -> Situation:
    """The situation after one round of the plan, and after more jobs came."""
    jobs = [ran(active, plan.placement.get(active.job_id, ()), 100.0) for active in inputs.jobs]
    return replace(
        inputs,
        clock_seconds=inputs.clock_seconds + ROUND_SECONDS,
        jobs=(*jobs, *more),
        memory=plan.memory,
    )


def start(*jobs: ActiveJob, gpus: int = 1, clock: float = 2_000.0) -> Situation:
    return Situation(clock, cluster(gpus), ROUND_SECONDS, 6, jobs)


def turns(policy_name: str, inputs: Situation, rounds: int) -> list[list[int]]:
    policy, taken = make_policy(policy_name), []
    for _ in range(rounds):
        plan = policy.plan(inputs)
        taken.append(sorted(plan.placement))
        inputs = go_on(inputs, plan)
    return taken


def test_jobs_with_equal_shares_take_turns() -> None:
    assert turns("gandiva-fair", start(job(0, 9), job(1, 9)), 4) == [[0], [1], [0], [1]]


@pytest.mark.parametrize("fidelity", Fidelity)
def test_an_arrival_has_no_share_until_the_next_computation(fidelity: Fidelity) -> None:
    policy = make_policy("gandiva-fair", fidelity=fidelity)
    inputs = start(job(0, 9), gpus=2)
    inputs = go_on(inputs, policy.plan(inputs), job(1, 9))
    plan = policy.plan(inputs)
    if fidelity is Fidelity.FAIR:
        assert sorted(plan.placement) == [0, 1]
        assert plan.report.status == "optimal"
        return
    for _ in range(9):  # until 1,000 s have passed, its GPU idles
        assert sorted(plan.placement) == [0]
        assert plan.report.status == "kept"
        inputs = go_on(inputs, plan)
        plan = policy.plan(inputs)
    assert sorted(plan.placement) == [0, 1]


def test_gpus_that_a_consolidated_gang_cannot_use_go_to_others() -> None:
    strict = job(0, 9, gang=3)
    strict = replace(
        strict, belief=replace(strict.belief, spec=replace(strict.spec, consolidate=True))
    )
    others = [job(j, 9, gang=gang) for j, gang in ((1, 2), (2, 1), (3, 1))]
    inputs = Situation(2_000.0, cluster(4, 2), ROUND_SECONDS, 6, (strict, *others))
    # Three GPUs of two nodes of two: alone it fits, and nobody idles a GPU beside it.
    assert sum(map(len, make_policy("gandiva-fair").plan(inputs).placement.values())) == 4


def test_as_published_the_computation_after_clock_0_comes_at_once() -> None:
    policy = make_policy("gandiva-fair", fidelity=Fidelity.REFERENCE)
    inputs = start(job(0, 9), gpus=2, clock=0.0)
    inputs = go_on(inputs, policy.plan(inputs), job(1, 9))
    assert sorted(policy.plan(inputs).placement) == [0, 1]


def test_missing_run_time_is_a_deficit() -> None:
    policy = make_policy("gandiva-fair")
    inputs = start(job(0, 9), job(1, 9))
    inputs = go_on(inputs, policy.plan(inputs))  # 0 ran 100 s, 1 nothing; each was to get half
    inputs = go_on(inputs, policy.plan(inputs), job(2, 9))  # then 1 ran
    inputs = replace(inputs, clock_seconds=inputs.clock_seconds - 60.0)
    accounts = from_json(Ledger, policy.plan(inputs).memory).accounts
    assert [kept.deficit for kept in accounts.values()] == [(-30.0,), (-30.0,), (0.0,)]
    assert [kept.received for kept in accounts.values()] == [(50.0,)] * 3


def test_a_round_without_a_step_makes_the_shares_stale() -> None:
    policy = make_policy("gandiva-fair")
    inputs = start(job(0, 9), job(1, 9), gpus=2)
    plan = policy.plan(inputs)
    inputs = go_on(inputs, plan)
    assert policy.plan(inputs).report.status == "kept"
    stalled = replace(inputs, jobs=(ran(inputs.jobs[0], (0,), 0.0), inputs.jobs[1]))
    assert policy.plan(stalled).report.status == "optimal"


def test_a_change_of_speed_makes_fair_shares_stale() -> None:
    inputs = start(job(0, 9), job(1, 9))
    for fidelity, status in ((Fidelity.FAIR, "optimal"), (Fidelity.REFERENCE, "kept")):
        policy = make_policy("mst", fidelity=fidelity)
        later = go_on(inputs, policy.plan(inputs))
        faster = replace(later.jobs[1], throughput=Profile.of_type({("cnn", 16, 1): 99.0}))
        later = replace(later, clock_seconds=9_000.0, jobs=(later.jobs[0], faster))
        assert policy.plan(later).report.status == status


def test_a_lease_is_kept_for_as_long_as_it_lasts() -> None:
    policy = make_policy("themis", values={"lease_seconds": 250.0})
    inputs, taken = start(job(0, 9), job(1, 9)), []
    for _ in range(6):
        plan = policy.plan(inputs)
        taken += list(plan.placement)
        inputs = go_on(inputs, plan)
    assert taken == [0, 0, 0, 1, 1, 1]
    assert turns("themis", start(job(0, 9), job(1, 9)), 4) == [[0], [1], [0], [1]]
