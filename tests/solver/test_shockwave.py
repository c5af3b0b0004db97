"""Shockwave: bids of jobs, their order, and guarantees."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given

from predictor.errors import InputError
from predictor.forecast import SAMPLES
from predictor.throughput import UNTYPED
from solver.bidding import UtilityParameters, make_outlook, measure_utility
from solver.guarantees import Guarantees, audit_one_type
from solver.market import Price
from solver.plan import ActiveJob, Situation
from solver.policies import list_without_effect, make_policy, parameters
from solver.policies.shockwave import OneType, SeveralTypes, Shockwave
from solver.window.counts import solve_counts
from solver.window.market import make_welfare_market
from tests.solver.test_policies import ROUND_SECONDS, WINDOW, job, running, situation, situations
from tests.strategies import examples, gang_bid, market_of


@examples(60)
@given(situations())
def test_shockwave_reports_a_bound_that_its_plan_keeps(inputs: Situation) -> None:
    plan = make_policy("shockwave").plan(inputs)
    report = plan.report
    assert report.objective <= report.bound
    size = max(abs(report.bound), abs(report.objective))
    assert report.gap * size == pytest.approx(report.bound - report.objective)
    assert report.status == ("optimal" if inputs.jobs else "rule")
    assert all(price.price >= 0.0 for price in report.prices)
    assert [price.gpu_type for price in report.prices] == [UNTYPED] * bool(inputs.jobs)
    assert [bid.job_id for bid in plan.bids] == [job.spec.job_id for job in inputs.jobs]


def test_shockwave_gives_all_to_all_where_there_is_room() -> None:
    plan = make_policy("shockwave").plan(situation(job(0, 20), job(1, 30), gpus=4))
    assert running(plan) == [0, 1]
    assert (plan.report.prices, plan.report.gap) == ((Price(UNTYPED, 0.0),), 0.0)


def test_each_strategy_takes_the_parameters_that_it_has() -> None:
    policy = make_policy("shockwave", values={"overdue": 5.0, "tail": 1.0, "gang": 0.5})
    assert (policy.one_type, policy.several_types) == (
        OneType(overdue=5.0, tail=1.0),
        SeveralTypes(overdue=5.0, gang=0.5),
    )
    known = parameters(Shockwave)
    assert (known["tail"], known["gang"], known["overdue"]) == (0.0, 0.25, 3.0)
    assert "gang" in list_without_effect(Shockwave, several_types=False)
    assert "tail" in list_without_effect(Shockwave, several_types=True)
    assert not {"overdue", "packed"}.intersection(list_without_effect(Shockwave, False))


def test_shockwave_puts_the_job_that_has_waited_longest_first() -> None:
    # Alike but for their arrival: ρ of the first is higher, so is its weight.
    inputs = situation(
        job(0, 20, arrival=0.0, rounds_run=1),
        job(1, 20, arrival=9_000.0, rounds_run=1),
        gpus=1,
        now=10_000.0,
    )
    plan = make_policy("shockwave").plan(inputs)
    assert running(plan) == [0]
    (price,) = plan.report.prices
    assert price.price > 0.0


def test_shockwave_prefers_the_larger_budget() -> None:
    alike = [job(j, 12, rounds_run=1, budget=budget) for j, budget in enumerate((1.0, 50.0))]
    assert running(make_policy("shockwave").plan(situation(*alike, gpus=1))) == [1]


def test_fairness_is_held_against_an_even_share() -> None:
    late = job(0, 6, arrival=600.0, rounds_run=2)
    # Age 400 s and 600 s to go, over 800 s alone; at a contention of 2 half the age.
    ratios = make_outlook(situation(late)).fairness()
    assert ratios.tolist() == [[1_000.0 / 800.0] * SAMPLES]
    crowded = make_outlook(situation(late, contention=2.0))
    assert crowded.fairness().tolist() == [[(200.0 + 600.0) / 800.0] * SAMPLES]
    assert crowded.crowding.tolist() == [2.0]


PARAMETERS = UtilityParameters(
    fairness=0.75,
    lateness=2.0,
    crowded=2.0,
    fair_share=0.9,
    blur_rounds=1.0,
    blur_share=0.0,
    tail=0.5,
)


def bid(inputs: Situation, horizon: float, tail_begins: float = np.inf) -> list[float]:
    """What the coming round is worth to each job."""
    ahead = make_outlook(inputs)
    worths: list[float] = measure_utility(
        ahead,
        PARAMETERS,
        fair=ahead.fair(),
        horizon=horizon,
        tail_begins=tail_begins,
        round_seconds=ROUND_SECONDS,
    ).tolist()
    return worths


@pytest.mark.parametrize(("rounds", "worth"), [(4, 1.0), (0.5, 4.0)])
def test_far_from_every_deadline_a_round_is_worth_its_share_of_the_job(
    rounds: float, worth: float
) -> None:
    # An even share is all that it has had so far: ρ = 1.
    assert bid(situation(job(0, rounds, gang=4), seen=400, now=0.0), horizon=1e9) == [
        pytest.approx(worth)
    ]


def uncertain() -> ActiveJob:
    """A job that ends, as likely, in 2 or in 10 rounds."""
    active = job(0, 10)
    ends = active.forecast.trajectories[0][0] * np.repeat([0.2, 1.0], SAMPLES // 2)
    expected = dataclasses.replace(active.forecast, trajectories=tuple((end,) for end in ends))
    return dataclasses.replace(active, forecast=expected)


def test_a_job_that_may_end_soon_is_worth_a_round_by_its_expected_share() -> None:
    (worth,) = bid(situation(uncertain(), seen=400, now=0.0), horizon=1e9)
    assert worth == pytest.approx((1 / 2 + 1 / 10) / 2)


@pytest.mark.parametrize(
    ("begins", "worth"), [(11, 1 / 2 + 1 / 10), (9, 1 / 2 + 1.5 / 10), (1, 1.5 / 2 + 1.5 / 10)]
)
def test_a_job_whose_jct_is_in_the_tail_is_worth_more_by_its_probability(
    begins: float, worth: float
) -> None:
    inputs = situation(uncertain(), seen=400, now=0.0)
    (found,) = bid(inputs, horizon=1e9, tail_begins=begins * ROUND_SECONDS)
    assert found == pytest.approx(worth / 2)


def test_the_tail_begins_at_a_share_of_what_the_longest_job_takes_in_a_queue() -> None:
    def first(age: float, **values: float) -> list[int]:
        """Of a job with 30 rounds left of 32, and one of 8; each loses half a round."""
        jobs = job(0, 30, gang=3, rounds_run=2), job(1, 8, gang=3, arrival=age * ROUND_SECONDS)
        waiting = situation(*jobs, gpus=4, now=age * ROUND_SECONDS, seen=400)
        return running(make_policy("shockwave", values={"fairness": 0.0, **values}).plan(waiting))

    begins = 0.7 * (32 + (30 + 8 + 1) * 3 / 4) - 30
    assert first(begins + 0.1) == [1]
    assert first(begins + 0.1, tail=2.8) == [0]
    assert first(begins + 0.1, tail=2.7) == first(begins - 0.1, tail=2.8) == [1]


@pytest.mark.parametrize(
    ("contention", "penalty"), [(1.0, 0.0), (1.5, 1.0), (2.0, 2.0), (9.0, 2.0)]
)
def test_a_job_that_is_late_anyway_loses_by_each_round_as_its_life_was_crowded(
    contention: float, penalty: float
) -> None:
    late = situation(job(0, 400), seen=400, now=0.0, contention=contention)
    (worth,) = bid(late, horizon=0.0)
    # Up to 2 jobs a GPU-round of lateness, and 1/400 of a job.
    assert worth == pytest.approx(penalty + 1 / 400)


def test_the_price_of_a_deadline_rises_before_it_is_missed() -> None:
    inputs = situation(job(0, 10), seen=4_000, now=0.0, contention=2.0)
    worth = [bid(inputs, horizon=rounds * ROUND_SECONDS)[0] for rounds in (30, 13, 12, 11, 10, 5)]
    assert worth == sorted(worth)
    assert worth[0] == pytest.approx(0.1)
    assert 0.3 < worth[3] < worth[-1] == pytest.approx(2.1, abs=1e-3)


def test_bids_are_finite_without_any_blur() -> None:
    plain = {"blur_rounds": 0.0, "blur_share": 0.0}
    plan = make_policy("shockwave", values=plain).plan(situation(job(0, 4), job(1, 40), gpus=1))
    assert np.isfinite([bid.utility for bid in plan.bids]).all()
    with pytest.raises(InputError, match="out of range"):
        make_policy("shockwave", values={"lateness": 1e308})


def test_twice_the_budget_is_due_in_half_the_time() -> None:
    poor, rich = (job(j, 10, budget=budget) for j, budget in enumerate((1.0, 3.0)))
    inputs = situation(poor, rich, gpus=4, seen=80, now=16_900.0, contention=20.0)
    low, high = bid(inputs, horizon=1e9)
    assert high > 3 * low


def test_preemption_hysteresis_is_finite() -> None:
    held = job(0, 10, gpus=(0,))
    beside = {
        left: situation(held, job(1, left), job(2, 60), gpus=1, seen=400, now=0.0, contention=2.0)
        for left in (9, 1)
    }
    plans = {left: make_policy("shockwave").plan(inputs) for left, inputs in beside.items()}
    assert running(plans[9]) == [0]
    assert running(plans[1]) == [1]


def test_while_jobs_keep_coming_the_longest_is_not_due() -> None:
    jobs = [job(0, 30), *[job(j, 3) for j in range(1, 6)]]
    inputs = situation(*jobs, now=8_000.0, seen=40, contention=4.0)

    def worth(silence: float) -> float:
        """Of the longest job's coming round, when 40 jobs have come up to some time ago."""
        arrived = np.linspace(0.0, inputs.clock_seconds - silence, 41)[1:]
        even = dataclasses.replace(inputs.fair_share, arrived=tuple(arrived.tolist()))
        plan = make_policy("shockwave").plan(dataclasses.replace(inputs, fair_share=even))
        return dict(zip(plan.order, plan.worth, strict=True))[0]

    assert worth(0.0) < 0.1 < worth(2_000.0)


def test_a_job_that_is_overdue_goes_first() -> None:
    def first(now: float) -> list[int]:
        short = [job(j, 1, arrival=now) for j in range(1, 9)]
        waiting = situation(job(0, 100, gang=4), *short, gpus=4, now=now)
        return running(make_policy("shockwave").plan(waiting))

    assert 0 not in first(29_500.0)
    assert first(30_500.0) == [0]


def test_it_says_from_when_on_a_job_goes_first() -> None:
    def first_by(now: float, **values: float) -> dict[int, float]:
        """Of nine jobs on four GPUs, where an even share serves a second in 9/4."""
        short = [job(j, 1, arrival=now) for j in range(1, 9)]
        waiting = situation(job(0, 100, gang=4), *short, gpus=4, now=now)
        plan = make_policy("shockwave", values=values).plan(waiting)
        return dict(zip(plan.order, plan.first_by, strict=True))

    assert first_by(29_500.0) == {0: 500.0 * 9 / 4, **dict.fromkeys(range(1, 9), 300.0 * 9 / 4)}
    assert first_by(29_500.0, overdue=4.0)[0] == 10_500.0 * 9 / 4
    assert first_by(30_500.0)[0] == 0.0


def test_the_longest_job_is_never_delayed_for_long() -> None:
    short = [job(j, 6) for j in range(1, 6)]
    inputs = situation(job(0, 50), *short, gpus=2, seen=6, now=0.0)
    assert 0 in make_policy("shockwave").plan(inputs).placement


def test_guarantees_are_audited_on_the_round() -> None:
    market = market_of({UNTYPED: 2}, [gang_bid(job, 1, 1.0) for job in range(3)])
    for rows, budgets, expected in (
        ([0, 1], [1.0, 1.0, 1.0], Guarantees(1, 0, 0)),
        ([0, 1], [1.0, 1.0, 2.0], Guarantees(1, 1, 0)),
        ([0, 1], [9.0, 9.0, 1.0], Guarantees(0, 0, 0)),
        ([0], [1.0, 1.0, 0.1], Guarantees(1, 0, 2)),
    ):
        assert audit_one_type(market, np.array(rows), np.array(budgets)) == expected


def test_slack_serves_the_job_that_would_miss_its_deadline() -> None:
    hurried = situation(job(0, 30), job(1, 4), gpus=1, seen=40, now=0.0)
    assert running(make_policy("slack").plan(hurried)) == [0]
    relaxed = situation(job(0, 12), job(1, 5), job(2, 13), gpus=1, seen=40, now=0.0)
    assert running(make_policy("slack").plan(relaxed)) == [1]


@pytest.mark.parametrize("backend", ["lagrangian", "gurobi", "highs"])
@pytest.mark.parametrize("regularizer", [1e-5, 0.01, 10.0, 1e5])
def test_the_regulariser_leaves_the_welfare_to_be_decided(backend: str, regularizer: float) -> None:
    # One job on the critical path beside many that compete: a regulariser out of scale
    # would drown their welfare in the solver's tolerance, and GPU-rounds would be free.
    crowd = [job(j, 5 + j, arrival=50.0 * j, rounds_run=1 + j % 3) for j in range(12)]
    inputs = situation(*crowd, job(12, 80), gpus=3)
    run = np.array([[job.belief.run_seconds] for job in inputs.jobs])
    left = np.array([[job.run_time(job.own).remaining] for job in inputs.jobs])
    elapsed = ROUND_SECONDS * np.arange(WINDOW + 1)
    market = make_welfare_market(
        gpus=inputs.inventory.gpus,
        regularizer=regularizer,
        job_ids=range(13),
        gangs=[job.gang for job in inputs.jobs],
        weights=np.ones(13),
        progress=np.minimum((run + elapsed) / (run + left), 1.0),
        remaining=np.maximum(left - elapsed, 0.0),
    )
    counts = solve_counts(market, backend)
    span = float(np.ptp(market.utility, axis=1).sum())
    assert counts.bound >= market.objective(counts.counts) - 1e-6 * span
    assert counts.prices[0] > 0.0
    assert counts.counts.sum() == 3 * WINDOW
    assert counts.counts[12] == WINDOW
    swapped = [
        counts.counts + step
        for more, fewer in itertools.permutations(range(13), 2)
        if (step := np.eye(13, dtype=np.int64)[more] - np.eye(13, dtype=np.int64)[fewer]).any()
        and counts.counts[fewer] > 0
        and counts.counts[more] < WINDOW
    ]
    best = max(market.objective(other) for other in swapped)
    assert best <= market.objective(counts.counts) + 1e-5 * span
