"""The evenly shared cluster: by hand, and against a fluid that is computed in another way."""

import cProfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.even_cluster import (
    ABSENT,
    UNKNOWN,
    Arrival,
    ClusterChange,
    EvenCluster,
    find_fair_finishes,
    measure_rho,
)
from tests.fluid import Job, fluid


def in_even_cluster(jobs: list[Job], gpus: int) -> dict[int, float]:
    arrivals = [Arrival(n, at, gang, budget) for n, (at, _, gang, budget) in enumerate(jobs)]
    return find_fair_finishes(arrivals, {n: job[1] for n, job in enumerate(jobs)}, gpus)


jobs = st.lists(
    st.tuples(
        st.floats(0, 1_000).map(lambda at: round(at, 1)),
        st.floats(1, 1_000).map(lambda seconds: round(seconds, 1)),
        st.sampled_from([1, 2, 4, 8]),
        st.sampled_from([0.5, 1.0, 3.0]) | st.floats(0.01, 100.0),
    ),
    min_size=1,
    max_size=12,
)


def test_all_jobs_share_the_gpus_until_each_ends() -> None:
    # 2 of 3 GPUs asked for, then 2 of 4: by 150 s both have trained 100 s, by 250 s 150 s; then
    # the jobs of 2 GPUs and 1 GPU need 50 s each, at two thirds.
    ends = in_even_cluster([(0, 200, 2, 1), (0, 150, 1, 1), (150, 100, 1, 1)], gpus=2)
    assert ends == pytest.approx({0: 325.0, 1: 250.0, 2: 325.0})


def test_alone_a_job_ends_after_its_isolated_run_time() -> None:
    assert in_even_cluster([(7, 100, 8, 2)], gpus=8) == pytest.approx({0: 107.0})


def test_a_budget_buys_a_rate_up_to_that_of_a_job_alone() -> None:
    # Of 3 GPUs the job with budget 4 gets 1, the most it can use, and the others 2/3 each.
    ends = in_even_cluster([(0, 60, 1, 4), (0, 60, 1, 1), (0, 60, 1, 1), (0, 60, 1, 1)], gpus=3)
    assert ends == pytest.approx({0: 60.0, 1: 80.0, 2: 80.0, 3: 80.0})


@given(jobs, st.integers(1, 16))
def test_a_projection_of_some_jobs_has_their_ends(workload: list[Job], gpus: int) -> None:
    arrivals = [Arrival(n, 0.0, gang, budget) for n, (_, _, gang, budget) in enumerate(workload)]
    seconds = {n: job[1] for n, job in enumerate(workload)}
    cluster, _ = EvenCluster().after([ClusterChange(0.0, tuple(arrivals), gpus)], seconds)
    whole = cluster.project()
    for job in whole:
        assert cluster.project([job])[job] == whole[job]
    assert len(cluster.project([]).keys()) == len(workload)


@given(jobs, st.integers(1, 16))
def test_it_equals_the_fluid_of_its_definition(workload: list[Job], gpus: int) -> None:
    assert in_even_cluster(workload, gpus) == pytest.approx(fluid(workload, gpus), rel=1e-6)


def budgets_apart(number: int) -> list[Job]:
    """Jobs of budgets that all differ, at a load near 1 on 32 GPUs."""
    rng = np.random.default_rng(5)
    at, seconds = rng.uniform(0.0, 25.0 * number, number), rng.exponential(400.0, number)
    gangs, budgets = rng.choice([1, 2, 4], number), rng.lognormal(0.0, 1.0, number)
    return list(zip(at, seconds, gangs.tolist(), budgets.tolist(), strict=True))


def test_many_budgets_equal_the_fluid() -> None:
    workload = budgets_apart(150)
    assert in_even_cluster(workload, 32) == pytest.approx(fluid(workload, 32), rel=1e-6)


def test_the_work_of_an_event_does_not_grow_with_the_budgets() -> None:
    def count_calls(number: int) -> int:
        workload = budgets_apart(number)
        with cProfile.Profile() as profile:
            in_even_cluster(workload, 16)  # overloaded: half of the jobs are present at once
        return sum(entry.callcount for entry in profile.getstats())

    assert count_calls(2_000) < 5 * count_calls(500)


@given(jobs, jobs, st.integers(1, 16))
def test_jobs_that_arrive_after_an_end_do_not_change_it(
    workload: list[Job], later: list[Job], gpus: int
) -> None:
    ends = in_even_cluster(workload, gpus)
    last = max(ends.values())
    longer = [*workload, *((last + 1 + at, *rest) for at, *rest in later)]
    found = in_even_cluster(longer, gpus)  # type: ignore[arg-type]
    assert {n: found[n] for n in ends} == ends


@given(jobs, st.integers(1, 16), st.lists(st.floats(0, 2_000), max_size=5))
def test_looking_at_it_on_the_way_changes_nothing(
    workload: list[Job], gpus: int, looks: list[float]
) -> None:
    seconds = {n: job[1] for n, job in enumerate(workload)}
    cluster, ends, clock = EvenCluster(gpus=gpus), dict[int, float](), 0.0
    for at in [*sorted(looks), 2_000.0]:
        new = tuple(
            Arrival(n, job[0], job[2], job[3])
            for n, job in enumerate(workload)
            if clock < job[0] <= at or (clock == job[0] == 0.0 and n not in cluster.jobs | ends)
        )
        cluster, ended = cluster.after([ClusterChange(at, new, gpus)], seconds)
        ends |= ended
        clock = at
    found = {n: at for n, at in (ends | cluster.project()).items()}
    assert found == pytest.approx(in_even_cluster(workload, gpus))


def test_capacity_and_absence_count_from_when_they_change() -> None:
    cluster, _ = EvenCluster(gpus=2).after(
        [ClusterChange(0.0, (Arrival(0, 0.0, 1), Arrival(1, 0.0, 1)), 2)], {0: 100.0, 1: 100.0}
    )
    cluster, _ = cluster.after([ClusterChange(40.0, gpus=1)], {})  # a GPU is drained
    cluster, _ = cluster.after(
        [ClusterChange(60.0, gpus=1, budgets={1: ABSENT})], {}
    )  # 50 s are done
    assert cluster.measure_service(1) == pytest.approx(50.0)
    cluster, ends = cluster.after([ClusterChange(120.0, gpus=1, budgets={1: 1.0})], {})
    assert ends == pytest.approx({0: 110.0})
    assert cluster.project() == pytest.approx({1: 170.0})


def test_without_gpus_nothing_ends() -> None:
    cluster, ends = EvenCluster().after([ClusterChange(5.0, (Arrival(0, 0.0, 1),))], {0: UNKNOWN})
    assert not ends
    assert cluster.project() == {0: float("inf")}
    assert replace(cluster, gpus=1).jobs[0].seconds == UNKNOWN


def test_rho_allows_for_a_round_and_a_restart() -> None:
    assert measure_rho(1_240.0, 100.0, 1_100.0, 120.0, 20.0) == 1.0
