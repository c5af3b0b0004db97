"""Shockwave as published: when it solves, its schedule, and its lay-out of rounds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.job import EpochReport, JobProgress
from predictor.rows import from_json, to_json
from solver.plan import ActiveJob, Plan, Situation
from solver.policies import make_policy
from solver.policies.shockwave_published import (
    RESOLVE_ROUNDS,
    FinishEstimates,
    PublishedMemory,
    epochs_done,
)
from solver.window.market import WindowMarket
from solver.window.published import fill_with_longest, lay_out_by_priority
from tests.solver.test_policies import job
from tests.strategies import WindowJob, cluster, window_of

ROUND_SECONDS = 100.0


def start(*jobs: ActiveJob, gpus: int = 2) -> Situation:
    return Situation(0.0, cluster(gpus), ROUND_SECONDS, 20, jobs)


def go_on(inputs: Situation, plan: Plan) -> Situation:
    """A round later; nobody came or ended."""
    jobs = []
    for active in inputs.jobs:
        gpus = plan.placement.get(active.job_id, ())
        if gpus:
            progress = JobProgress(active.job_id, 0, 0.5, 16, 100.0, 100.0, 300)
            active = replace(active, belief=active.belief.after([], progress))
        jobs.append(replace(active, gpus=gpus))
    return replace(
        inputs,
        clock_seconds=inputs.clock_seconds + ROUND_SECONDS,
        jobs=tuple(jobs),
        memory=plan.memory,
    )


def test_a_schedule_is_followed_until_an_arrival_or_for_eight_rounds() -> None:
    policy = make_policy("shockwave-published")
    inputs, solved = start(*(job(j, 40 + j) for j in range(4))), []
    for number in range(2 * RESOLVE_ROUNDS + 1):
        if number == 11:
            inputs = replace(inputs, jobs=(*inputs.jobs, job(4, 10)))
        plan = policy.plan(inputs)
        if plan.report.status != "kept":
            solved.append(number)
        assert sum(map(len, plan.placement.values())) == 2
        inputs = go_on(inputs, plan)
    assert solved == [0, 8, 11, 16]  # an arrival does not put the eighth round off


def test_idle_gpus_go_to_the_longest_job() -> None:
    # A gang of two is not to run in this window's first round; one GPU is left over.
    plan = make_policy("shockwave-published").plan(start(job(0, 1), job(1, 90), gpus=3))
    assert sorted(plan.placement) == [0, 1]


def test_the_finish_objective_is_mostly_the_mean_over_time_and_a_little_the_latest() -> None:
    account = FinishEstimates(submitted_at=0.0).estimated(3, 1_000.0)
    assert account.finish_objective(3) == 1_000.0
    account = account.estimated(5, 2_000.0)  # 1,000 s held for two rounds
    assert account.finish_objective(5) == pytest.approx(0.9 * 1_000.0 + 0.1 * 2_000.0)
    mean = (2 * 1_000.0 + 6 * 2_000.0) / 8
    assert account.finish_objective(11) == pytest.approx(0.9 * mean + 0.1 * 2_000.0)


def market_of(gangs: list[int], window: int, gpus: int) -> WindowMarket:
    flat = [0.0] * (window + 1)
    return window_of(gpus, window, 0.0, [WindowJob(gang, flat) for gang in gangs])


def test_priority_goes_first_unless_a_job_needs_all_rounds_that_are_left() -> None:
    market = market_of([1, 1, 1], window=3, gpus=1)
    table = lay_out_by_priority(market, np.array([1, 1, 1]), np.array([1.0, 9.0, 4.0]))
    assert np.argmax(table, axis=1).tolist() == [2, 0, 1]
    market = market_of([1, 1], window=3, gpus=2)
    table = lay_out_by_priority(market, np.array([3, 1]), np.array([1.0, 1e9]))
    assert table.tolist() == [[True] * 3, [True, False, False]]


def test_idle_gpus_of_every_round_go_to_the_longest_jobs_that_fit() -> None:
    market = market_of([2, 1, 1, 1], window=2, gpus=3)
    table = np.array([[True, False], [False, False], [False, True], [False, False]])
    filled = fill_with_longest(table, market, np.array([9.0, 5.0, 1.0, 7.0]))
    # Round 0 has one GPU left, for the last job; in round 1 the gang comes back first.
    assert filled.tolist() == [[True, True], [False, False], [False, True], [True, False]]


def test_the_report_holds_the_plan_as_filled_against_its_bound() -> None:
    plan = make_policy("shockwave-published").plan(start(*(job(j, 40 + j) for j in range(4))))
    report = plan.report
    assert report.status == "optimal"
    assert report.objective <= report.bound
    size = max(abs(report.bound), abs(report.objective))
    assert report.gap == pytest.approx((report.bound - report.objective) / size)


@given(st.integers(0, 10), st.floats(0.0, 1.0))
def test_completed_epochs_are_not_lost_to_rounding(epochs: int, fraction: float) -> None:
    active = job(0, 5)
    progress = JobProgress(0, epochs, fraction, 16, 100.0, 100.0, 300)
    belief = active.belief.after([EpochReport(0, 0, epochs, 16, 100.0)], progress)
    assert epochs_done(replace(active, belief=belief)) == epochs


@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 100)), min_size=1, max_size=8),
)
def test_jobs_of_one_gpu_get_all_their_rounds(gpus: int, jobs: list[tuple[int, int]]) -> None:
    counts = np.array([count for count, _ in jobs])
    while counts.sum() > 6 * gpus:
        counts[np.argmax(counts)] -= 1
    market = market_of([1] * len(jobs), window=6, gpus=gpus)
    table = lay_out_by_priority(market, counts, np.array([float(p) for _, p in jobs]))
    assert table.sum(axis=1).tolist() == counts.tolist()
    assert table.sum(axis=0).max() <= gpus


@given(
    st.dictionaries(
        st.integers(0, 999),
        st.builds(
            FinishEstimates,
            *(st.floats(0, 1e9), st.floats(0, 1e12), st.integers(0, 999), st.floats(0, 1e6)),
            *(st.floats(0, 10), st.integers(-1, 999), st.integers(-1, 999)),
            *(st.floats(0, 1e9), st.floats(0, 1e12)),
        ),
    ),
    st.lists(st.lists(st.integers(0, 999)).map(tuple)).map(tuple),
)
def test_a_memory_reads_as_it_was_written(
    accounts: dict[int, FinishEstimates], schedule: tuple[tuple[int, ...], ...]
) -> None:
    memory = PublishedMemory(7, accounts, schedule)
    assert from_json(PublishedMemory, to_json(memory)) == memory
