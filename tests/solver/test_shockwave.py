"""Shockwave: bids of jobs, their order, and guarantees."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given

from predictor.errors import InputError
from predictor.forecast import SAMPLES
from predictor.throughput import UNTYPED
from solver.bidding import BLUR_ROUNDS, make_outlook, measure_unfair_jct, measure_utility
from solver.guarantees import Guarantees, audit_one_type
from solver.market import Price
from solver.plan import ActiveJob, Situation
from solver.policies import make_policy, parameters
from solver.policies.shockwave import Shockwave
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


def test_one_set_of_parameters_serves_one_type_and_several() -> None:
    assert parameters(Shockwave) == {
        "fairness": 0.1,
        "lateness": 6.0,
        "stay": 1.1,
        "overdue": 1.5,
        "packed": 0.0,
    }
    with pytest.raises(InputError, match=r"parameters.fairness: 1.5 is out of range; give 0 to 1"):
        make_policy("shockwave", values={"fairness": 1.5})


def test_shockwave_puts_the_job_that_has_waited_longest_first() -> None:
    # Alike but for their arrival: the first ends first in the even cluster.
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


def bid(
    inputs: Situation, horizon: float, *, fairness: float = 0.0, lateness: float = 2.0
) -> list[float]:
    """What the coming round is worth to each job."""
    ahead = make_outlook(inputs)
    worths: list[float] = measure_utility(
        ahead,
        unfair=measure_unfair_jct(inputs, ahead),
        fairness=fairness,
        lateness=lateness,
        horizon=horizon,
        round_seconds=ROUND_SECONDS,
    ).tolist()
    return worths


@pytest.mark.parametrize(("rounds", "worth"), [(40, 1 / 40), (4, 1 / 4), (0.5, 1.0)])
def test_far_from_every_due_date_a_round_is_worth_its_share_of_the_job_here_and_there(
    rounds: float, worth: float
) -> None:
    # In the even cluster it ends after ten times its run time; four rounds are as good as none.
    inputs = situation(job(0, rounds, gang=4), now=0.0, slower=10.0)
    there = BLUR_ROUNDS / max(10.0 * rounds, BLUR_ROUNDS)
    assert bid(inputs, horizon=1e9) == [pytest.approx(4.0 * (worth + there))]


def uncertain() -> ActiveJob:
    """A job that ends, as likely, in 2 or in 10 rounds."""
    active = job(0, 10)
    ends = active.forecast.trajectories[0][0] * np.repeat([0.2, 1.0], SAMPLES // 2)
    expected = dataclasses.replace(active.forecast, trajectories=tuple((end,) for end in ends))
    return dataclasses.replace(active, forecast=expected)


def test_a_job_that_may_end_soon_is_worth_a_round_by_its_expected_share() -> None:
    (worth,) = bid(situation(uncertain(), now=0.0, slower=1e6), horizon=1e9)
    assert worth == pytest.approx((1 / 2 + 1 / 10) / 2, abs=1e-4)


def test_jobs_that_end_first_in_the_even_cluster_are_worth_more() -> None:
    inputs = situation(
        *(job(n, 20, arrival=4_000.0 - 2_000.0 * n) for n in range(3)), now=4_000.0, slower=4.0
    )
    worth = bid(inputs, horizon=1e9)
    assert worth == sorted(worth)
    assert worth[0] < worth[2]


@pytest.mark.parametrize(("fairness", "price"), [(0.0, 1.0), (0.5, 1.125), (1.0, 2.0)])
def test_a_job_that_is_late_anyway_loses_by_each_round(fairness: float, price: float) -> None:
    late = situation(job(0, 400), now=1e6, slower=2.0)
    (worth,) = bid(late, horizon=0.0, fairness=fairness)
    # It waits there for half of its life: ½ λ (1 + φ³) a GPU-round of lateness; beside that 1/400
    # of the job, and all of its end in the even cluster.
    assert worth == pytest.approx(price + 1 / 400 + 1.0)


def test_no_due_date_has_a_price_for_a_job_that_never_waits_in_the_even_cluster() -> None:
    late = situation(job(0, 400), now=1e6, slower=1.0)
    assert bid(late, horizon=0.0, fairness=1.0) == [pytest.approx(1 / 400 + 1.0)]


def test_the_price_of_a_due_date_rises_before_it_is_missed() -> None:
    inputs = situation(job(0, 10), now=0.0, slower=1e6)
    worth = [bid(inputs, horizon=rounds * ROUND_SECONDS)[0] for rounds in (60, 16, 13, 11, 8, 0)]
    assert worth == sorted(worth)
    assert worth[0] == pytest.approx(0.1, abs=1e-4)
    assert 0.3 < worth[3] < worth[-1] == pytest.approx(2.1, abs=0.02)


def test_bids_are_finite_for_a_job_that_never_ends_in_the_even_cluster() -> None:
    inputs = dataclasses.replace(
        situation(job(0, 4), job(1, 40), gpus=1), fair_finishes={0: np.inf}
    )
    for fairness in (0.0, 1.0):
        plan = make_policy("shockwave", values={"fairness": fairness}).plan(inputs)
        assert np.isfinite([bid.utility for bid in plan.bids]).all()
    with pytest.raises(InputError, match="out of range"):
        make_policy("shockwave", values={"lateness": 1e308})


def test_twice_the_budget_is_worth_more_than_twice() -> None:
    # It also ends earlier in the even cluster.
    jobs = [job(j, 10, budget=budget) for j, budget in enumerate((1.0, 2.0, 1.0))]
    low, high, _ = bid(situation(*jobs, gpus=1, now=0.0), horizon=1e9)
    assert high > 2.0 * low


def test_preemption_hysteresis_is_finite() -> None:
    held = job(0, 10, gpus=(0,))
    beside = {left: situation(held, job(1, left), job(2, 60), gpus=1, now=0.0) for left in (9, 1)}
    plans = {left: make_policy("shockwave").plan(inputs) for left, inputs in beside.items()}
    assert running(plans[9]) == [0]
    assert running(plans[1]) == [1]


def test_while_jobs_keep_coming_the_longest_is_not_due() -> None:
    jobs = [job(0, 30), *[job(j, 3) for j in range(1, 6)]]
    inputs = situation(*jobs, now=8_000.0, slower=4.0)

    def worth(silence: float) -> float:
        """Of the longest job's coming round, when 40 jobs have come up to some time ago."""
        arrived = np.linspace(0.0, inputs.clock_seconds - silence, 41)[1:]
        known = dataclasses.replace(inputs, arrivals=tuple(arrived.tolist()))
        plan = make_policy("shockwave").plan(known)
        return dict(zip(plan.order, plan.worth, strict=True))[0]

    assert worth(0.0) < 0.2 < worth(2_000.0)


def first_by(now: float, **values: float) -> dict[int, float]:
    """When each job goes first, of a long gang that came at 0 s and of eight short jobs now."""
    short = [job(j, 1, arrival=now) for j in range(1, 9)]
    waiting = situation(job(0, 100, gang=4), *short, gpus=4, now=now, slower=2.0)
    plan = make_policy("shockwave", values=values).plan(waiting)
    assert ([*plan.placement] == [0]) is (plan.first_by[plan.order.index(0)] == 0.0)
    return dict(zip(plan.order, plan.first_by, strict=True))


def test_a_job_goes_first_once_it_is_overdue_and_it_says_when() -> None:
    # The gang ends after 20,000 s in the even cluster, so it is unfair from 21,105 s on.
    bounds = {0: 1.5 * 21_105.0, **dict.fromkeys(range(1, 9), 1.5 * 1.05 * 300.0)}
    assert first_by(0.0) == pytest.approx(bounds)
    assert first_by(31_500.0)[0] == pytest.approx(157.5)
    assert first_by(31_500.0, overdue=4.0)[0] == pytest.approx(52_920.0)
    assert first_by(31_700.0)[0] == 0.0


def test_the_longest_job_is_never_delayed_for_long() -> None:
    short = [job(j, 6) for j in range(1, 6)]
    inputs = situation(job(0, 50), *short, gpus=2, now=0.0)
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
    hurried = situation(job(0, 30), job(1, 4), gpus=1, now=0.0)
    assert running(make_policy("slack").plan(hurried)) == [0]
    relaxed = situation(job(0, 12), job(1, 5), job(2, 13), gpus=1, now=0.0)
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
