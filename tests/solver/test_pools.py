"""Clusters of several pools: menus, and assignment of jobs to GPU types."""

import math
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.allocation import Allocation, Demand
from predictor.belief import Belief
from predictor.job import JobSpec, Mode
from predictor.throughput import Profile
from solver.inventory import Inventory, Pool
from solver.list_scheduling import Claim, make_claims, next_round
from solver.plan import ActiveJob, Situation
from solver.policies import for_several_pools, make_policy
from tests.strategies import among, certain, cluster, examples

MIXED = Inventory((Pool("v100", 4, 2), Pool("k80", 6, 2), Pool("v100", 2, 1)))
"""V100s 0 to 3 and 10, 11, K80s 4 to 9."""

RATES = {
    ("cnn", 8, "v100", 1): 10.0,
    ("cnn", 8, "k80", 1): 2.0,
    ("cnn", 8, "v100", 2): 18.0,
    ("cnn", 8, "k80", 2): 3.0,
    ("mlp", 8, "v100", 1): 4.0,
    ("mlp", 8, "k80", 1): 5.0,
    ("big", 8, "v100", 4): 1.0,
    ("big", 8, "k80", 4): 0.0,
}
PROFILE = Profile(RATES)


def job(
    job_id: int,
    model: str = "cnn",
    gpus: int = 1,
    held: tuple[int, ...] = (),
    *,
    inventory: Inventory = MIXED,
    consolidate: bool = False,
    types: tuple[str, ...] = (),
) -> ActiveJob:
    demand = Demand(gpus, gpus, types)
    spec = JobSpec(job_id, model, 8, 8, demand, Mode.STATIC, 1, 1, 0.0, consolidate=consolidate)
    return ActiveJob(
        Belief(spec),
        certain(job_id, 1.0, 8),
        held,
        len(held),
        inventory.menu_of(spec, 8, PROFILE),
        PROFILE,
        held=inventory.allocation(held) if held else None,
    )


def situation(*jobs: ActiveJob, inventory: Inventory = MIXED) -> Situation:
    return Situation(0.0, inventory, 100.0, 1, jobs)


def served(*jobs: ActiveJob) -> dict[int, tuple[int, ...]]:
    return next_round(situation(*jobs), make_claims(jobs))


def types(active: ActiveJob) -> list[str]:
    return [allocation.gpu_type for allocation in active.menu]


def test_a_menu_has_the_fastest_type_first_and_none_on_which_the_job_cannot_run() -> None:
    assert types(job(0, "cnn")) == ["v100", "k80"]
    assert types(job(0, "mlp")) == ["k80", "v100"]
    assert types(job(0, "big", 4)) == ["v100"]
    assert types(job(0, "cnn", types=("k80",))) == ["k80"]


def test_a_menu_has_no_type_that_a_batch_size_to_come_cannot_run_on() -> None:
    rates = {("cnn", size, "v100", 1): 9.0 for size in (8, 16)} | {("cnn", 8, "k80", 1): 1.0}
    grows = JobSpec(0, "cnn", 8, 16, Demand.gang(1), Mode.GNS, 1, 1, 0.0)
    stays = replace(grows, mode=Mode.STATIC)
    for spec, menu in ((grows, ["v100"]), (stays, ["v100", "k80"])):
        found = MIXED.menu_of(spec, 8, Profile(rates))
        assert [allocation.gpu_type for allocation in found] == menu


def test_what_a_job_holds_is_its_own() -> None:
    assert job(0, held=(4,)).own == Allocation("k80", 1)
    assert job(0).own == Allocation("v100", 1)


def test_the_first_in_line_gets_the_type_on_which_it_is_fastest() -> None:
    jobs = [job(0, "mlp"), job(1, gpus=2), job(2, gpus=2), job(3, gpus=2), job(4, gpus=2)]
    assert served(*jobs) == {0: (4,), 1: (0, 1), 2: (2, 3), 3: (10, 11), 4: (6, 7)}


def test_a_running_job_moves_up_where_there_is_room_and_stays_in_its_pool_otherwise() -> None:
    assert served(job(0, held=(4,))) == {0: (0,)}
    assert served(job(0, gpus=2, held=(10, 11)), job(1, gpus=2)) == {0: (10, 11), 1: (0, 1)}


def test_a_claim_on_one_type_is_met_there_or_not_at_all() -> None:
    first, second = job(0), job(1, gpus=2, held=(4, 5))
    on_k80 = [Claim(first, Allocation("k80", 1)), Claim(second, Allocation("k80", 2))]
    assert next_round(situation(first, second), on_k80) == {0: (6,), 1: (4, 5)}
    assert next_round(situation(first), [Claim(first, Allocation("a100", 1))]) == {}


def test_claims_of_jobs_may_be_mixed() -> None:
    first, second = job(0, gpus=2), job(1, gpus=2)
    inventory = Inventory((Pool("v100", 2, 2), Pool("k80", 2, 2)))
    order = [
        Claim(first, Allocation("k80", 2)),
        Claim(second, Allocation("k80", 2)),
        Claim(first, Allocation("v100", 2)),
        Claim(second, Allocation("v100", 2)),
    ]
    inputs = situation(first, second, inventory=inventory)
    assert next_round(inputs, order) == {0: (2, 3), 1: (0, 1)}


def test_a_gang_never_spans_pools() -> None:
    assert served(job(0, "big", 4), job(1, "big", 4)) == {0: (0, 1, 2, 3)}


def test_a_consolidated_gang_without_room_takes_the_next_type() -> None:
    inventory = Inventory((Pool("v100", 4, 2), Pool("k80", 2, 2)))
    first = [job(n, "cnn", held=(gpu,), inventory=inventory) for n, gpu in enumerate((0, 2, 4))]
    strict = job(9, gpus=2, consolidate=True, inventory=inventory)
    inputs = situation(*first, strict, inventory=inventory)
    # The three before it move up to V100s; one node of them has a GPU left.
    assert next_round(inputs, make_claims(inputs.jobs)) == {0: (0,), 1: (2,), 2: (1,), 9: (4, 5)}


def test_strict_fifo_waits_for_the_first_that_fits_on_no_type() -> None:
    jobs = [job(0, "big", 4), job(1, "big", 4), job(2)]
    strict = make_policy("fifo", values={"backfill": 0.0}).plan(situation(*jobs))
    assert strict.placement == {0: (0, 1, 2, 3)}
    assert make_policy("fifo").plan(situation(*jobs)).placement == {0: (0, 1, 2, 3), 2: (10,)}


@st.composite
def crowds(draw: st.DrawFn) -> Situation:
    """Jobs on up to four pools of three types, some running where an earlier round left them."""
    pools = []
    for _ in range(draw(st.integers(2, 4))):
        size, nodes = draw(among(1, 2, 4)), draw(st.integers(1, 3))
        pools.append(Pool(draw(among("v100", "k80", "p100")), size * nodes, size))
    inventory = Inventory(tuple(pools))
    rates = st.sampled_from((0.0, 1.0, 2.5))
    wanted = draw(
        st.lists(
            st.tuples(st.sampled_from((1, 2, 3, 4)), st.booleans(), rates, rates, rates),
            max_size=9,
        )
    )
    profile = Profile(
        {
            (f"model-{number}", 8, kind, gpus): rate
            for number, (gpus, _, *speeds) in enumerate(wanted)
            for kind, rate in zip(("v100", "k80", "p100"), speeds, strict=True)
        }
    )

    def active(held: Mapping[int, tuple[int, ...]]) -> list[ActiveJob]:
        jobs = []
        for number, (gpus, strict, *_) in enumerate(wanted):
            spec = JobSpec(
                number,
                f"model-{number}",
                8,
                8,
                Demand.gang(gpus),
                Mode.STATIC,
                1,
                1,
                0.0,
                consolidate=strict,
            )
            menu, there = inventory.menu_of(spec, 8, profile), held.get(number, ())
            lease = inventory.allocation(there) if there else None
            if menu:
                belief, work = Belief(spec), certain(number, 1.0, 8)
                jobs.append(ActiveJob(belief, work, there, 1, menu, profile, held=lease))
        return jobs

    first = active({})
    ran = next_round(
        situation(*first, inventory=inventory), make_claims(draw(st.permutations(first)))
    )
    ended = draw(st.sets(st.sampled_from(range(9))))
    running = {job_id: gpus for job_id, gpus in ran.items() if job_id not in ended}
    return situation(*active(running), inventory=inventory)


@examples(100)
@given(crowds(), st.randoms(use_true_random=False))
def test_no_gpu_is_given_twice_and_no_gang_spans_pools_or_runs_where_it_cannot(
    inputs: Situation, rng: Random
) -> None:
    order = make_claims(inputs.jobs)
    rng.shuffle(order)
    placed, inventory = next_round(inputs, order), inputs.inventory
    used = [gpu for gpus in placed.values() for gpu in gpus]
    assert len(used) == len(set(used))
    assert set(used) <= set(range(inventory.gpus))
    idle = [pool.gpus for pool in inventory.pools]
    for active in inputs.jobs:
        gpus = placed.get(active.job_id, ())
        if gpus:
            (pool,) = {inventory.pool(gpu) for gpu in gpus}
            idle[pool] -= len(gpus)
            allocation = inventory.allocation(gpus)
            assert allocation.gpu_type in types(active)
            assert len(gpus) == active.gang
            assert list(gpus) == sorted(gpus)
            if active.spec.consolidate:
                assert allocation.nodes == inventory.pools[pool].fewest_nodes(len(gpus))
    for active in inputs.jobs:
        if active.job_id not in placed and not active.spec.consolidate:
            for kind in types(active):
                assert all(idle[number] < active.gang for number in inventory.pools_of[kind])
    if order:
        first = order[0]
        assert inventory.allocation(placed[first.job.job_id]).gpu_type == first.allocation.gpu_type


@examples(100)
@given(st.lists(st.tuples(st.sampled_from((1, 2)), st.sampled_from(("cnn", "mlp"))), max_size=9))
def test_pools_of_which_one_is_of_use_are_like_that_one_alone(
    wanted: list[tuple[int, str]],
) -> None:
    """K80s that no job may have change no placement but for the numbers of the GPUs."""
    alone, both = cluster(6, 2), Inventory((Pool("k80", 4, 2), Pool("gpu", 6, 2)))
    profile = Profile({("x", 8, "gpu", gpus): 1.0 for gpus in (1, 2)})
    jobs = []
    for number, (gpus, _) in enumerate(wanted):
        spec = JobSpec(number, "x", 8, 8, Demand.gang(gpus), Mode.STATIC, 1, 1, 0.0)
        menu = both.menu_of(spec, 8, profile)
        jobs.append(ActiveJob(Belief(spec), certain(number, 1.0, 8), (), 0, menu, profile))
    one, two = (
        next_round(situation(*jobs, inventory=inventory), make_claims(jobs))
        for inventory in (alone, both)
    )
    assert two == {job_id: tuple(gpu + 4 for gpu in gpus) for job_id, gpus in one.items()}


@pytest.mark.parametrize("name", for_several_pools())
def test_policies_rank_by_the_type_that_a_job_holds_or_else_its_fastest(name: str) -> None:
    inputs = situation(job(0, held=(4,)), job(1, "mlp"), job(2, gpus=2, held=(0, 1)))
    plan = make_policy(name).plan(inputs)
    assert plan.placement.keys() == {0, 1, 2}
    assert all(math.isfinite(sum(gpus)) for gpus in plan.placement.values())
