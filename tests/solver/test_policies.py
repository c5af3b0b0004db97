import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.allocation import Allocation, Demand
from predictor.belief import Belief
from predictor.errors import InputError
from predictor.forecast import SAMPLES
from predictor.job import JobProgress, JobSpec, Mode
from predictor.published_predictor import ProfiledRegime
from predictor.throughput import UNTYPED, Profile
from solver.bidding import (
    UtilityParameters,
    finish_time_fairness,
    outlook,
    utilities,
)
from solver.counts import solve_counts
from solver.even_share import EvenShare
from solver.guarantees import Guarantees, guarantees
from solver.market import Market, Price, welfare_market
from solver.plan import ActiveJob, Plan, Situation
from solver.policies import POLICIES, make_policy
from solver.policies.plugged import unfit
from tests.strategies import certain, cluster, examples

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
    )


def situation(
    *jobs: ActiveJob,
    gpus: int = 4,
    now: float = 1_000.0,
    seen: int | None = None,
    contention: float = 1.0,
) -> Situation:
    """Jobs that competed at the same contention since they arrived."""
    even = EvenShare(contention=contention).after(
        now, [job.spec for job in jobs], [job.job_id for job in jobs], gpus
    )
    even = dataclasses.replace(even, contention=max(contention, even.contention))
    return Situation(now, cluster(gpus), ROUND_SECONDS, WINDOW, jobs, seen or len(jobs), even=even)


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """Up to twelve jobs on a small cluster, some of them running."""
    jobs, free = [], list(range(8))
    for job_id in range(draw(st.integers(0, 12))):
        gang = draw(st.sampled_from((1, 1, 2, 4, 8)))
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
                budget=draw(st.sampled_from((0.5, 1.0, 4.0))),
            )
        )
    seen, contention = len(jobs) + draw(st.integers(1, 50)), draw(st.sampled_from((1.0, 1.2, 4.0)))
    return situation(*jobs, gpus=8, seen=seen, contention=contention)


def running(plan: Plan) -> list[int]:
    return sorted(plan.placement)


@pytest.mark.parametrize("name", POLICIES)
@examples(60)
@given(told=situations())
def test_every_policy_plans_a_round_that_can_run(name: str, told: Situation) -> None:
    assert list(unfit(told, make_policy(name).plan(told))) == []


@pytest.mark.parametrize("name", [name for name in POLICIES if POLICIES[name].work_conserving])
@examples(60)
@given(told=situations())
def test_no_gpu_idles_that_a_waiting_job_could_use(name: str, told: Situation) -> None:
    plan = make_policy(name).plan(told)
    free = told.inventory.gpus - sum(len(gpus) for gpus in plan.placement.values())
    waiting = [job for job in told.jobs if job.spec.job_id not in plan.placement]
    assert all(job.gang > free for job in waiting)


@pytest.mark.parametrize("name", POLICIES)
@examples(30)
@given(told=situations())
def test_every_policy_is_pure(name: str, told: Situation) -> None:
    policy = make_policy(name)
    first, second = policy.plan(told), policy.plan(told)
    assert first == second == make_policy(name).plan(told)


@pytest.mark.parametrize("name", POLICIES)
@examples(60)
@given(told=situations())
def test_a_job_that_goes_on_keeps_its_gpus(name: str, told: Situation) -> None:
    plan = make_policy(name).plan(told)
    for active in told.jobs:
        if active.gpus and active.spec.job_id in plan.placement:
            assert plan.placement[active.spec.job_id] == active.gpus


@examples(60)
@given(situations())
def test_shockwave_reports_a_bound_that_its_plan_keeps(told: Situation) -> None:
    plan = make_policy("shockwave").plan(told)
    report = plan.report
    assert report.objective <= report.bound
    size = max(abs(report.bound), abs(report.objective))
    assert report.gap * size == pytest.approx(report.bound - report.objective)
    assert report.status == ("optimal" if told.jobs else "rule")
    assert all(price.price >= 0.0 for price in report.prices)
    assert [price.gpu_type for price in report.prices] == [UNTYPED] * bool(told.jobs)
    assert [bid.job_id for bid in plan.bids] == [job.spec.job_id for job in told.jobs]


@examples(60)
@given(situations())
def test_the_window_changes_no_coming_round(told: Situation) -> None:
    plan = make_policy("shockwave").plan(told)
    ahead = make_policy("shockwave", values={"preview": 1.0}).plan(told)
    assert (plan.placement, plan.order, plan.worth) == (ahead.placement, ahead.order, ahead.worth)
    assert plan.turns == ()
    assert [len(row.utility) for bid in plan.bids for row in bid.rows] == [2] * len(told.jobs)
    assert [len(row.utility) for bid in ahead.bids for row in bid.rows] == [WINDOW + 1] * len(
        told.jobs
    )


@pytest.mark.parametrize("name", POLICIES)
def test_the_registry_makes_policies_that_introduce_themselves(name: str) -> None:
    policy = make_policy(name)
    assert policy.name == name
    assert policy.plan(situation()).turns == ()


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"known are .*shockwave"):
        make_policy("lottery")


def test_fifo_serves_by_arrival_and_backfills() -> None:
    told = situation(
        job(0, 5, gang=2, arrival=20.0), job(1, 5, gang=4, arrival=10.0), job(2, 5, gang=1), gpus=4
    )
    # 2 came first; 1 does not fit beside it; 0 does.
    assert running(make_policy("fifo").plan(told)) == [0, 2]


def test_srtf_preempts_for_a_shorter_job() -> None:
    told = situation(job(0, 9, gpus=(0,)), job(1, 2), job(2, 3), gpus=2)
    assert make_policy("srtf").plan(told).placement == {1: (0,), 2: (1,)}


def test_shockwave_gives_all_to_all_where_there_is_room() -> None:
    told = situation(job(0, 20), job(1, 30), gpus=4)
    plan = make_policy("shockwave", values={"preview": 1.0}).plan(told)
    assert [turn.rounds for turn in plan.turns] == [tuple(range(WINDOW))] * 2
    assert (plan.report.prices, plan.report.gap) == ((Price(UNTYPED, 0.0),), 0.0)


def test_shockwave_puts_the_job_that_has_waited_longest_first() -> None:
    # Alike but for their arrival: ρ of the first is higher, so is its weight.
    told = situation(
        job(0, 20, arrival=0.0, rounds_run=1),
        job(1, 20, arrival=9_000.0, rounds_run=1),
        gpus=1,
        now=10_000.0,
    )
    plan = make_policy("shockwave").plan(told)
    assert running(plan) == [0]
    (price,) = plan.report.prices
    assert price.price > 0.0


def test_shockwave_gives_rounds_by_budget() -> None:
    alike = [job(j, 12, rounds_run=1, budget=budget) for j, budget in enumerate((1.0, 50.0))]
    plan = make_policy("shockwave", values={"preview": 1.0}).plan(situation(*alike, gpus=1))
    turns = {turn.job_id: len(turn.rounds) for turn in plan.turns}
    assert turns[1] > turns.get(0, 0)


def test_fairness_is_held_against_an_even_share() -> None:
    late = job(0, 6, arrival=600.0, rounds_run=2)
    # Age 400 s and 600 s to go, over 800 s alone; at a contention of 2 half the age.
    ratios = finish_time_fairness(outlook(situation(late)))
    assert ratios.tolist() == [[1_000.0 / 800.0] * SAMPLES]
    crowded = outlook(situation(late, contention=2.0))
    assert finish_time_fairness(crowded).tolist() == [[(200.0 + 600.0) / 800.0] * SAMPLES]
    assert crowded.crowding.tolist() == [2.0]


PARAMETERS = UtilityParameters(
    fairness=0.75, lateness=2.0, crowded=2.0, fair_share=0.9, blur_rounds=1.0, blur_share=0.0
)


def bid(told: Situation, horizon: float, window: int = WINDOW) -> list[list[float]]:
    tables: list[list[float]] = utilities(
        outlook(told),
        PARAMETERS,
        fair=outlook(told).fair(),
        horizon=horizon,
        window=window,
        round_seconds=ROUND_SECONDS,
    ).tolist()
    return tables


def test_far_from_every_deadline_a_round_is_worth_its_share_of_the_job() -> None:
    (row,) = bid(situation(job(0, 4, gang=4), seen=400, now=0.0), horizon=1e9)
    # An even share is all it has had so far: ρ = 1; n of its 4 rounds, no more after four.
    assert row == pytest.approx([0.0, 1.0, 2.0, 3.0, *[4.0] * (WINDOW - 3)])


def test_a_job_that_may_end_soon_is_worth_a_round_by_its_expected_share() -> None:
    told = job(0, 10)
    ends = told.forecast.trajectories[0][0] * np.repeat([0.2, 1.0], SAMPLES // 2)
    expected = dataclasses.replace(told.forecast, trajectories=tuple((end,) for end in ends))
    told = dataclasses.replace(told, forecast=expected)
    (row,) = bid(situation(told, seen=400, now=0.0), horizon=1e9, window=1)
    assert row[1] == pytest.approx((1 / 2 + 1 / 10) / 2)


@pytest.mark.parametrize(
    ("contention", "penalty"), [(1.0, 0.0), (1.5, 1.0), (2.0, 2.0), (9.0, 2.0)]
)
def test_a_job_that_is_late_anyway_loses_by_each_round_as_its_life_was_crowded(
    contention: float, penalty: float
) -> None:
    late = situation(job(0, 400), seen=400, now=0.0, contention=contention)
    (row,) = bid(late, horizon=0.0, window=3)
    # Up to 2 jobs a GPU-round of lateness, and 1/400 of a job.
    assert np.diff(row) == pytest.approx([penalty + 1 / 400] * 3)


def test_the_price_of_a_deadline_rises_before_it_is_missed() -> None:
    told = situation(job(0, 10), seen=4_000, now=0.0, contention=2.0)
    worth = [
        np.diff(bid(told, horizon=rounds * ROUND_SECONDS, window=1)[0])[0]
        for rounds in (30, 13, 12, 11, 10, 5)
    ]
    assert worth == sorted(worth)
    assert worth[0] == pytest.approx(0.1)
    assert 0.3 < worth[3] < worth[-1] == pytest.approx(2.1, abs=1e-3)


def test_bids_are_finite_without_any_blur() -> None:
    plain = {"blur_rounds": 0.0, "blur_share": 0.0}
    plan = make_policy("shockwave", values=plain).plan(situation(job(0, 4), job(1, 40), gpus=1))
    assert np.isfinite([row.utility for bid in plan.bids for row in bid.rows]).all()
    with pytest.raises(InputError, match="out of range"):
        make_policy("shockwave", values={"lateness": 1e308})


def test_twice_the_budget_is_due_in_half_the_time() -> None:
    poor, rich = (job(j, 10, budget=budget) for j, budget in enumerate((1.0, 3.0)))
    told = situation(poor, rich, gpus=4, seen=80, now=16_900.0, contention=20.0)
    low, high = (np.diff(row)[0] for row in bid(told, horizon=1e9, window=1))
    assert high > 3 * low


def test_preemption_hysteresis_is_finite() -> None:
    held = job(0, 10, gpus=(0,))
    beside = {
        left: situation(held, job(1, left), job(2, 60), gpus=1, seen=400, now=0.0, contention=2.0)
        for left in (9, 1)
    }
    plans = {left: make_policy("shockwave").plan(told) for left, told in beside.items()}
    assert running(plans[9]) == [0]
    assert running(plans[1]) == [1]


def test_while_jobs_keep_coming_the_longest_is_not_due() -> None:
    jobs = [job(0, 30), *[job(j, 3) for j in range(1, 6)]]
    told = situation(*jobs, now=8_000.0, seen=40, contention=4.0)

    def worth(silence: float) -> float:
        """Of the longest job's coming round, when 40 jobs have come up to some time ago."""
        arrived = np.linspace(0.0, told.clock_seconds - silence, 41)[1:]
        even = dataclasses.replace(told.even, arrived=tuple(arrived.tolist()))
        plan = make_policy("shockwave").plan(dataclasses.replace(told, even=even))
        return dict(zip(plan.order, plan.worth, strict=True))[0]

    assert worth(0.0) < 0.1 < worth(2_000.0)


def test_a_job_that_is_overdue_goes_first() -> None:
    def first(now: float) -> list[int]:
        short = [job(j, 1, arrival=now) for j in range(1, 9)]
        waiting = situation(job(0, 100, gang=4), *short, gpus=4, now=now)
        return running(make_policy("shockwave").plan(waiting))

    assert 0 not in first(29_500.0)
    assert first(30_500.0) == [0]


def test_the_longest_job_is_never_delayed_for_long() -> None:
    short = [job(j, 6) for j in range(1, 6)]
    told = situation(job(0, 50), *short, gpus=2, seen=6, now=0.0)
    assert 0 in make_policy("shockwave").plan(told).placement


def test_guarantees_are_audited_on_the_timetable() -> None:
    utility = np.array([[0.0, 1.0, 2.0]] * 2)
    market = Market(
        types=(UNTYPED,),
        capacities=np.array([1]),
        window=2,
        regularizer=0.0,
        job_ids=np.arange(2),
        allocations=(Allocation(UNTYPED, 1),) * 2,
        weights=np.ones(2),
        utility=utility,
        remaining=np.zeros((2, 3)),
    )
    for table, budgets, expected in (
        ([[1, 0], [0, 1]], [1.0, 1.0], Guarantees(0, 0, 0)),
        ([[1, 1], [0, 0]], [1.0, 1.0], Guarantees(1, 1, 0)),
        ([[1, 1], [0, 0]], [9.0, 1.0], Guarantees(0, 0, 0)),
        ([[1, 0], [0, 0]], [1.0, 1.0], Guarantees(1, 1, 2)),
    ):
        assert guarantees(market, np.array(table, bool), np.array(budgets)) == expected


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
    told = situation(*crowd, job(12, 80), gpus=3)
    run = np.array([[job.belief.run_seconds] for job in told.jobs])
    left = np.array([[job.run_time(job.own).remaining] for job in told.jobs])
    elapsed = ROUND_SECONDS * np.arange(WINDOW + 1)
    market = welfare_market(
        capacities=told.inventory.capacities,
        regularizer=regularizer,
        job_ids=range(13),
        allocations=[job.own for job in told.jobs],
        weights=np.ones(13),
        progress=np.minimum((run + elapsed) / (run + left), 1.0),
        remaining=np.maximum(left - elapsed, 0.0),
    )
    counts = solve_counts(market, backend)
    span = float(np.ptp(market.utility, axis=1).sum())
    assert counts.bound >= market.objective(counts.counts) - 1e-6 * span
    assert counts.prices[0].price > 0.0
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
