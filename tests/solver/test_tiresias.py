"""Tiresias' orders by hand, and the isolated share."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import InputError
from predictor.job import JobProgress
from solver.plan import ActiveJob, Plan, Situation
from solver.policies import make_policy
from solver.policies.tiresias import Tiresias
from solver.policies.tiresias_gittins import TiresiasGittins, gittins_index
from solver.policies.tiresias_las import TiresiasLas
from tests.solver.test_policies import job
from tests.strategies import cluster

ROUND_SECONDS = 100.0


def start(*jobs: ActiveJob, gpus: int = 1) -> Situation:
    return Situation(2_000.0, cluster(gpus), ROUND_SECONDS, 6, jobs)


def go_on(inputs: Situation, plan: Plan, *more: ActiveJob) -> Situation:
    """A round later, in which those that were placed ran."""
    jobs = []
    for active in inputs.jobs:
        gpus = plan.placement.get(active.job_id, ())
        if gpus:
            ran = active.belief.run_seconds + ROUND_SECONDS
            progress = JobProgress(active.job_id, 0, 0.0, 16, ROUND_SECONDS, ran, 500)
            active = replace(active, belief=active.belief.after([], progress))
        jobs.append(replace(active, gpus=gpus))
    return replace(
        inputs,
        clock_seconds=inputs.clock_seconds + ROUND_SECONDS,
        jobs=(*jobs, *more),
        memory=plan.memory or inputs.memory,
    )


def turns(policy: str, inputs: Situation, rounds: int, **parameters: float) -> list[list[int]]:
    made, taken = make_policy(policy, values=parameters), []
    for _ in range(rounds):
        plan = made.plan(inputs)
        taken.append(sorted(plan.placement))
        inputs = go_on(inputs, plan)
    return taken


def test_a_job_falls_a_queue_when_its_gpu_time_reaches_the_threshold() -> None:
    policy = TiresiasLas()
    services = np.array([0.0, 3_249.0, 3_250.0, 7_199.0, 7_200.0])
    assert policy.queues(services).tolist() == [0, 0, 1, 1, 2]
    inputs = start(
        job(0, 50, rounds_run=32, arrival=0.0),  # 3,200 s
        job(1, 50, gang=2, rounds_run=17, arrival=10.0),  # 3,400 GPU-seconds
        gpus=2,
    )
    assert sorted(policy.plan(inputs).placement) == [0]


def test_inside_a_queue_running_jobs_stay_and_earlier_ones_go_first() -> None:
    waiting = [job(0, 9, arrival=30.0), job(1, 9, arrival=10.0)]
    assert sorted(TiresiasLas().plan(start(*waiting)).placement) == [1]
    running = job(2, 9, arrival=50.0, gpus=(0,), rounds_run=1)
    assert sorted(TiresiasLas().plan(start(*waiting, running)).placement) == [2]


def test_a_job_that_waited_as_long_as_it_ran_is_promoted_and_counts_anew() -> None:
    inputs = start(job(0, 50, rounds_run=33, gpus=(0,)), job(1, 50, rounds_run=31.5))
    # 1 is in the first queue for a round more; then both are in the second, and 0 came first.
    thresholds = {"first_threshold": 3_250.0, "second_threshold": 1e9}
    assert turns("tiresias-las", inputs, 5, **thresholds) == [[1], [1], [1], [1], [1]]
    # With promotion, 0 goes back once it waited a tenth of its 3,300 s.
    assert turns("tiresias-las", inputs, 6, **thresholds, promote=0.1) == [
        *([[1]] * 4),
        *([[0]] * 2),
    ]


def test_a_job_that_returns_from_a_hold_stays_demoted() -> None:
    policy = Tiresias(threshold=3_000.0)
    both = start(job(0, 90, rounds_run=31, arrival=0.0), job(1, 90, arrival=10.0))
    assert list(policy.plan(both).placement) == [1]
    alone = replace(both, jobs=both.jobs[1:])  # 0 is on hold
    back = go_on(alone, policy.plan(alone), both.jobs[0])
    assert list(policy.plan(back).placement) == [1]


def test_waiting_before_the_first_run_promotes_nobody() -> None:
    policy = TiresiasLas(promote=0.1)
    inputs = start(job(0, 90, gpus=(0,), rounds_run=1), job(1, 90))
    for _ in range(5):
        inputs = go_on(inputs, policy.plan(inputs))
    assert 1 not in policy._accounts(inputs)


def by_definition(sizes: list[float], attained: float, quantum: float) -> float:
    above = [size for size in sizes if size > attained]
    if not above:
        return 0.0
    probability = sum(size - attained <= quantum for size in above) / len(above)
    return probability / (sum(min(size - attained, quantum) for size in above) / len(above))


@given(
    st.lists(st.integers(1, 100), min_size=1, max_size=20),
    st.lists(st.integers(0, 120), min_size=1, max_size=5),
    st.integers(1, 50),
)
def test_the_gittins_index_is_what_the_paper_defines(
    sizes: list[int], attained: list[int], quantum: int
) -> None:
    quanta = np.full(len(attained), float(quantum))
    index = gittins_index(np.array(sizes, float), np.array(attained, float), quanta)
    expected = [by_definition([float(s) for s in sizes], a, quantum) for a in attained]
    assert index == pytest.approx(expected)


def test_gittins_prefers_the_job_that_most_likely_ends_soon() -> None:
    # Jobs take 1,000 or 50,000 GPU-seconds: one at 900 is nearly done or has long to go.
    policy = TiresiasGittins(quantum=500.0, sizes=(1_000.0,) * 9 + (50_000.0,))
    fresh, near, past = job(0, 9), job(1, 9, rounds_run=9), job(2, 9, rounds_run=20)
    assert list(policy.plan(start(fresh, near, past)).placement) == [1]
    assert list(policy.plan(start(fresh, past)).placement) == [0]


def test_the_index_decides_inside_a_queue_only() -> None:
    # The second job is about to end, but it fell to the second queue.
    policy = TiresiasGittins(quantum=500.0, sizes=(4_000.0, 4_000.0, 90_000.0))
    inputs = start(job(0, 90, rounds_run=1), job(1, 90, rounds_run=39, gpus=(0,)))
    assert list(policy.plan(inputs).placement) == [0]
    one_queue = replace(policy, first_threshold=1e9, second_threshold=1e9)
    assert list(one_queue.plan(inputs).placement) == [1]


def test_a_quantum_of_0_is_the_upper_threshold_of_the_queue() -> None:
    policy = TiresiasGittins(quantum=0.0, sizes=(1_000.0, 5_000.0, 20_000.0))
    inputs = start(*(job(j, 90, rounds_run=ran) for j, ran in enumerate((1, 40, 80))))
    services = np.array([100.0, 4_000.0, 8_000.0])
    merits = policy.merits(inputs, services, policy.queues(services))
    expected = [
        by_definition(list(policy.sizes), 100.0, policy.first_threshold),
        by_definition(list(policy.sizes), 4_000.0, policy.second_threshold),
        1.0 / 12_000.0,  # without end: the shortest expected remaining time first
    ]
    assert merits == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("tiresias-las", {"first_threshold": 9e3}),
        ("tiresias-gittins", {"second_threshold": 1.0}),
    ],
)
def test_thresholds_out_of_order_are_refused(name: str, values: dict[str, float]) -> None:
    with pytest.raises(InputError, match="is above second_threshold"):
        make_policy(name, values=values)


def test_gittins_learns_from_enough_ended_jobs_only() -> None:
    policy = TiresiasGittins(quantum=500.0)
    inputs = start(job(0, 9, arrival=0.0), job(1, 9, rounds_run=9, arrival=10.0))
    few = replace(inputs, ended_gpu_seconds=(1_000.0,) * 9)
    assert list(policy.plan(few).placement) == [0]
    assert list(policy.plan(replace(few, ended_gpu_seconds=(1_000.0,) * 10)).placement) == [1]


def test_sjf_preempts_nobody_and_srtf_gpu_counts_gpus() -> None:
    running, shorter = job(0, 9, gpus=(0,), rounds_run=1), job(1, 1)
    assert sorted(make_policy("sjf").plan(start(running, shorter)).placement) == [0]
    pair, single = job(0, 3, gang=2), job(1, 5)
    assert sorted(make_policy("srtf-gpu").plan(start(pair, single, gpus=2)).placement) == [1]
    assert sorted(make_policy("srtf").plan(start(pair, single, gpus=2)).placement) == [0]


def test_a_strict_order_lets_nobody_pass() -> None:
    inputs = start(job(0, 9), job(1, 9, gang=2), job(2, 9), gpus=2)
    assert sorted(make_policy("fifo").plan(inputs).placement) == [0, 2]
    assert sorted(make_policy("fifo", values={"backfill": 0.0}).plan(inputs).placement) == [0]


def test_isolated_jobs_get_their_share_and_no_more() -> None:
    # Three jobs on two GPUs: two thirds of the time each; GPUs idle rather than give more.
    taken = turns("isolated", start(*(job(j, 90) for j in range(3)), gpus=2), 30)
    rounds = [sum(j in now for now in taken) for j in range(3)]
    assert all(abs(got - 20) <= 1 for got in rounds)
    # A gang of two counts twice: half of the time for each of two such jobs on two GPUs.
    taken = turns("isolated", start(*(job(j, 90, gang=2) for j in range(2)), gpus=2), 10)
    assert taken == [[0], [1]] * 5
    alone = turns("isolated", start(job(0, 90), gpus=4), 5)
    assert alone == [[0]] * 5
