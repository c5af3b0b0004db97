"""Guaranteed jobs are served as if alone; opportunistic jobs get what is left."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.throughput import Profile
from solver.plan import ActiveJob
from solver.policies import make_policy
from tasks.record import Parameter, Start
from tests.runs import make, mixed, start_of
from tests.solver.test_packed_shares import packing
from tests.solver.test_policies import job, situation
from tests.strategies import among, examples


def opportunistic(active: ActiveJob) -> ActiveJob:
    return replace(
        active, belief=replace(active.belief, spec=replace(active.spec, opportunistic=True))
    )


def test_the_guaranteed_job_of_a_pair_goes_as_if_alone_and_the_other_at_what_is_left() -> None:
    kind = job(0, 5).menu[0]
    rates = {("a", 16, kind.gpu_type, 1): 10.0, ("b", 16, kind.gpu_type, 1): 4.0}
    pairs = {("a", 16, "b", 16, kind.gpu_type, 1): 7.0, ("b", 16, "a", 16, kind.gpu_type, 1): 2.0}
    profile = Profile(rates, pairs=pairs)
    first, second = (replace(job(n, 5).spec, model=model) for n, model in enumerate("ab"))
    other = replace(second, opportunistic=True)
    assert profile.shared_rate(first, 16, second, 16, kind) == 7.0
    assert profile.shared_rate(first, 16, other, 16, kind) == 10.0
    assert profile.shared_rate(other, 16, first, 16, kind) == pytest.approx(4.0 * 0.2)
    assert profile.shared_rate(second, 16, replace(first, opportunistic=True), 16, kind) == 4.0
    slow = replace(profile, pairs={key: rate / 2 for key, rate in pairs.items()})
    assert slow.shared_rate(other, 16, first, 16, kind) == 0.0
    assert Profile(rates).shared_rate(first, 16, other, 16, kind) == 0.0


@examples(40)
@given(st.data())
def test_whoever_is_opportunistic_no_guaranteed_job_is_served_otherwise(
    data: st.DataObject,
) -> None:
    numbers = st.integers(0, 9)
    jobs = packing(
        *(job(n, 5, gang=data.draw(among(1, 2, 4)), arrival=n) for n in range(9)),
        models="".join(data.draw(st.sampled_from("abc")) for _ in range(9)),
        together=0.75,
    )
    rest = {data.draw(numbers) for _ in range(5)}
    classed = [opportunistic(active) if active.job_id in rest else active for active in jobs]
    policy = make_policy("antman")
    plan = policy.plan(situation(*classed))
    alone = policy.plan(situation(*(active for active in classed if active.job_id not in rest)))
    assert plan.placement.keys() - rest == alone.placement.keys()
    for pair in plan.pairs:
        assert len({*pair} & rest) == 1
        assert len({plan.placement[job_id] for job_id in pair}) == 1
    idle = 4 - len({gpu for gpus in plan.placement.values() for gpu in gpus})
    for active in classed:
        assert active.job_id in plan.placement or active.gang > idle or active.job_id not in rest


def test_who_shares_stays_with_whom_it_is() -> None:
    jobs = packing(job(0, 5, gpus=(0,)), job(1, 5, gpus=(1,)), job(2, 5, gpus=(1,)), models="abc")
    three = [*jobs[:2], opportunistic(jobs[2])]
    assert make_policy("antman").plan(situation(*three, gpus=2)).pairs == ((1, 2),)


@pytest.mark.slow
def test_in_a_run_guaranteed_jobs_end_as_if_alone_and_all_others_end() -> None:
    def ends(start: Start) -> dict[int, float]:
        return {x.job_id: x.at_seconds for record in make(start).records for x in record.finished}

    start = mixed("antman", jobs=16, together=0.8, opportunistic=True)
    together = ends(start)
    assert together.keys() == set(range(16))
    workload = start.workload
    guaranteed = replace(workload, specs=workload.specs[::2], truths=workload.truths[::2])
    alone = ends(start_of(start.header, guaranteed))
    assert all(together[job_id] <= 1.01 * end for job_id, end in alone.items())
    apart = replace(start.header.settings, parameters=(Parameter("packed", 0.0),))
    idle = ends(start_of(replace(start.header, settings=apart), workload))
    assert sum(together.values()) < sum(idle.values())
