"""Shares of time of several GPU types: the programs, and how shares become rounds."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import JobProgress
from predictor.rows import from_json
from predictor.throughput import Profile
from solver.fidelity import Fidelity
from solver.inventory import Inventory, Pool
from solver.plan import ActiveJob, Plan, Situation
from solver.policies import make_policy
from solver.policies.allox import AlloX, match_queue_heads
from solver.policies.contenders import Contenders
from solver.policies.fifo import Fifo
from solver.policies.gavel import DIGITS, Gavel
from solver.policies.isolated import Entitlements, Isolated
from solver.policies.ledger import Ledger, ShareAccount
from solver.policies.ossp import OpenShop
from solver.policies.shares import SharePolicy
from solver.policies.themis import Themis, find_fairest_shares
from tests.solver.test_policies import job
from tests.strategies import examples

Rows = tuple[np.ndarray, np.ndarray]


@st.composite
def contenders(draw: st.DrawFn, gangs: tuple[int, ...] = (1, 1, 2, 4)) -> Contenders:
    count, types = draw(st.integers(1, 7)), draw(st.integers(2, 3))

    def numbers(low: int, high: int, *shape: int) -> np.ndarray:
        return np.array(
            [float(draw(st.integers(low, high))) for _ in range(int(np.prod(shape)))]
        ).reshape(shape)

    rates = numbers(0, 100, count, types) / 10
    rates[:, 0] += 0.1
    return Contenders(
        gpus=numbers(4, 9, types),
        gangs=np.array([float(draw(st.sampled_from(gangs))) for _ in range(count)]),
        rates=rates,
        steps_left=numbers(1, 100_000, count),
        ages=numbers(0, 50_000, count),
        weights=numbers(1, 5, count),
        shares=np.zeros((count, types)),
        job_ids=tuple(range(count)),
    )


def shares_of(policy: SharePolicy, jobs: Contenders) -> np.ndarray:
    """Shares of a policy, which keep to the GPUs and to the time that there is."""
    shares, _ = policy.allocate(jobs)
    assert shares.shape == jobs.rates.shape
    assert ((shares >= 0.0) & (shares <= 1.0)).all()
    assert (shares.sum(axis=1) <= 1.0 + 1e-5).all()
    assert (jobs.gangs @ shares <= jobs.gpus * (1 + 1e-5)).all()
    return shares


def constraints(jobs: Contenders) -> Rows:
    """Rows of the GPUs of each type, then of the time of each job."""
    count, types = jobs.rates.shape
    rows = np.vstack(
        [np.kron(jobs.gangs, np.eye(types)[k]) for k in range(types)]
        + [np.kron(np.eye(count)[j], np.ones(types)) for j in range(count)]
    )
    return rows, np.append(jobs.gpus, np.ones(count))


def speed_rows(jobs: Contenders) -> np.ndarray:
    return np.array(
        [
            np.kron(row, rates)
            for row, rates in zip(np.eye(len(jobs.rates)), jobs.rates, strict=True)
        ]
    )


def best_minimum(jobs: Contenders, weights: np.ndarray) -> float:
    """max min_j weight_j · throughput_j by a simplex method."""
    rows, most = constraints(jobs)
    floors = -speed_rows(jobs) * weights[:, None]
    found = linprog(
        np.append(np.zeros(jobs.rates.size), -1.0),
        A_ub=np.block([[rows, np.zeros((len(rows), 1))], [floors, np.ones((len(floors), 1))]]),
        b_ub=np.append(most, np.zeros(len(floors))),
        bounds=[(0, None)] * (jobs.rates.size + 1),
    )
    return float(-found.fun)


@examples(25)
@given(contenders())
def test_gavel_attains_the_best_minimum(jobs: Contenders) -> None:
    proportional = jobs.rates @ jobs.gpus / jobs.gpus.sum()
    weights = jobs.gangs / jobs.weights / proportional
    throughput = (jobs.rates * shares_of(Gavel(), jobs)).sum(axis=1)
    assert (weights * throughput).min() == pytest.approx(best_minimum(jobs, weights), rel=1e-4)


@examples(20)
@given(contenders())
def test_filled_levels_rise_only_at_the_cost_of_lower_ones(jobs: Contenders) -> None:
    proportional = jobs.rates @ jobs.gpus / jobs.gpus.sum()
    weights = jobs.gangs / jobs.weights / proportional
    levels = weights * (jobs.rates * shares_of(Gavel(filling=1.0), jobs)).sum(axis=1)
    rows, most = constraints(jobs)
    speeds = speed_rows(jobs) * weights[:, None]
    for job_levels, level in zip(speeds, levels, strict=True):
        lower = levels <= level * 1.001
        found = linprog(
            -job_levels,
            A_ub=np.vstack([rows, -speeds[lower]]),
            b_ub=np.append(most, -levels[lower] * (1.0 - 1e-5)),
        )
        assert -found.fun <= level * 1.01


@pytest.mark.parametrize(
    ("filling", "gpus", "expected"),
    [
        (1.0, 2, [0.5, 0.5, 0.5, 0.5]),
        (2.0, 2, [1.0, 1 / 3, 1 / 3, 1 / 3]),
        (2.0, 3, [1.0, 2 / 3, 2 / 3, 2 / 3]),  # what the first tenant cannot use is the other's
        (3.0, 2, [1.0, 0.0, 1.0, 0.0]),  # its second job came first, then the third
        (3.0, 3, [1.0, 0.0, 1.0, 1.0]),
    ],
)
@pytest.mark.parametrize("types", [1, 2])
def test_a_tenant_has_the_share_of_a_tenant_whatever_it_submits(
    filling: float, gpus: int, expected: list[float], types: int
) -> None:
    jobs = of(rates=[[2.0] * types] * 4, gpus=(gpus,) if types == 1 else (1, gpus - 1))
    jobs = replace(jobs, ages=np.array([10.0, 10.0, 30.0, 20.0]), tenants=("a", "b", "b", "b"))
    time = shares_of(Gavel(filling=filling), jobs).sum(axis=1)
    assert time == pytest.approx(expected, abs=1e-3)


def test_fillings_are_known_and_share_no_gpus() -> None:
    for parameters in ({"filling": 0.5}, {"filling": 1.0, "packed": 1.0}):
        with pytest.raises(InputError, match="filling"):
            Gavel(**parameters)


@examples(25)
@given(contenders())
def test_gavel_unaware_of_types_gives_the_time_out_as_if_they_were_one(jobs: Contenders) -> None:
    weights = jobs.gangs / jobs.weights
    blind = replace(jobs, rates=np.ones_like(jobs.rates))
    for filling in (0.0, 1.0):
        shares = shares_of(Gavel(aware=0.0, filling=filling), jobs)
        time = shares.sum(axis=1)
        assert (weights * time).min() == pytest.approx(best_minimum(blind, weights), rel=1e-3)
        assert (shares == shares.round(DIGITS)).all(), "alike jobs have the same"


@examples(25)
@given(contenders())
def test_ossp_ends_within_five_percent_of_the_least_makespan(jobs: Contenders) -> None:
    least = max(1.0 / best_minimum(jobs, 1.0 / jobs.steps_left), 95.0)
    throughput = (jobs.rates * shares_of(OpenShop(), jobs)).sum(axis=1)
    assert (jobs.steps_left / throughput).max() <= 1.06 * least


@examples(25)
@given(contenders(), st.integers(1_000, 50_000))
def test_themis_attains_the_best_worst_fairness(jobs: Contenders, alone: int) -> None:
    times = np.full(len(jobs.gangs), float(alone))
    shares = find_fairest_shares(jobs, times, np.ones(len(times), dtype=bool))
    throughput = (jobs.rates * shares).sum(axis=1)
    attained = float(((jobs.ages + jobs.steps_left / throughput) / times).max())
    left = 0.999 * attained * times - jobs.ages  # a hair less is out of reach
    assert (left <= 0.0).any() or best_minimum(jobs, left / jobs.steps_left) < 1.0


def test_themis_notes_the_time_of_steps_on_equal_shares_of_each_type() -> None:
    jobs = of(rates=[[4.0, 1.0], [4.0, 1.0]], gpus=(1, 1))
    _, notes = Themis().allocate(jobs)
    assert [note[1:] for note in notes] == [
        (0.0, 1_000.0, 2.5)
    ] * 2  # half the time on each: 4 / 2 + 1 / 2


def of(rates: list[list[float]], gpus: tuple[int, ...], gangs: tuple[int, ...] = ()) -> Contenders:
    count = len(rates)
    return Contenders(
        gpus=np.array(gpus, dtype=float),
        gangs=np.array(gangs or (1,) * count, dtype=float),
        rates=np.array(rates),
        steps_left=np.full(count, 1_000.0),
        ages=np.arange(count, 0, -1.0),
        weights=np.ones(count),
        shares=np.zeros((count, len(gpus))),
        job_ids=tuple(range(count)),
    )


def test_isolated_is_the_same_part_of_each_type_and_no_more_than_all_the_time() -> None:
    jobs = of([[1.0, 1.0, 1.0]] * 3, gpus=(6, 3, 3), gangs=(1, 4, 8))
    assert shares_of(Isolated(), jobs) == pytest.approx(
        np.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25], [0.25, 0.125, 0.125]])
    )


def test_fifo_puts_each_on_its_fastest_type_with_room_and_stops_at_the_first_without() -> None:
    jobs = of([[3.0, 1.0], [2.0, 1.0], [1.0, 5.0], [1.0, 1.0]], gpus=(1, 3), gangs=(1, 1, 4, 1))
    assert shares_of(Fifo(), jobs).tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]]
    assert Fifo(aware=0.0).allocate(jobs)[0].tolist() == [[1.0, 0.0]] * 4


@examples(25)
@given(contenders(gangs=(1,)))
def test_allox_settles_as_many_jobs_as_there_are_gpus_and_keeps_them(jobs: Contenders) -> None:
    policy = AlloX(alpha=1.0)
    shares = shares_of(policy, jobs)
    assert set(shares.reshape(-1)) <= {0.0, 1.0}
    assert shares.sum() <= min(len(jobs.gangs), jobs.gpus.sum())
    again = shares_of(policy, replace(jobs, shares=shares))
    assert (again >= shares).all()


def test_allox_matches_jobs_to_the_type_where_that_shortens_the_sum_of_ends() -> None:
    # Job 1 gains more from the fast GPU than job 0 does; the long one runs after it.
    seconds = np.array([[10.0, 12.0], [10.0, 90.0], [500.0, 900.0]])
    heads = match_queue_heads(seconds, np.zeros(3), np.array([1, 1]))
    assert heads == [[1], [0]]


# How shares become rounds

TYPES = Inventory((Pool("v100", 1), Pool("p100", 1), Pool("k80", 2)))
RATES = {"v100": 4.0, "p100": 2.0, "k80": 1.0}
PROFILE = Profile({("cnn", 16, kind, gpus): r for kind, r in RATES.items() for gpus in (1, 2)})


def typed(job_id: int, arrival: float = 0.0, gang: int = 1) -> ActiveJob:
    found = job(job_id, 50, gang=gang, arrival=arrival)
    spec = replace(found.spec, demand=Demand.gang(gang))
    return replace(
        found,
        belief=replace(found.belief, spec=spec),
        menu=TYPES.menu_of(spec, 16, PROFILE),
        throughput=PROFILE,
    )


def ledger_of(plan: Plan) -> Ledger:
    """The ledger in the memory of the policy `isolated`."""
    return from_json(Ledger, from_json(Entitlements, plan.memory).ledger)


def start(*jobs: ActiveJob) -> Situation:
    return Situation(2_000.0, TYPES, 360.0, 6, jobs)


def after(inputs: Situation, placement: dict[int, tuple[int, ...]], *more: ActiveJob) -> Situation:
    """The situation a round later."""
    jobs = []
    for active in inputs.jobs:
        gpus, belief = placement.get(active.job_id, ()), active.belief
        if gpus:
            belief = belief.after([], JobProgress(active.job_id, 0, 0.0, 16, 360.0, 360.0, 500))
        held = TYPES.allocation(gpus) if gpus else None
        jobs.append(replace(active, belief=belief, gpus=gpus, held=held))
    return replace(inputs, clock_seconds=inputs.clock_seconds + 360.0, jobs=(*jobs, *more))


def test_time_is_received_on_the_type_where_a_job_ran() -> None:
    policy = make_policy("isolated", fidelity=Fidelity.REFERENCE)
    inputs = start(*map(typed, range(6)))
    plan = policy.plan(inputs)
    assert len(plan.placement) == 4  # no GPU idles
    later = replace(after(inputs, dict(plan.placement)), memory=plan.memory)
    accounts = ledger_of(policy.plan(later)).accounts
    for job_id, gpus in plan.placement.items():
        kind = TYPES.types.index(TYPES.allocation(gpus).gpu_type)
        received = [180.0] * 3
        received[kind] += 360.0
        assert accounts[job_id,].received == tuple(received)


def test_as_published_the_orders_of_the_types_are_those_of_its_generator() -> None:
    policy = make_policy("isolated", fidelity=Fidelity.REFERENCE)
    inputs, generator = start(*map(typed, range(6))), random.Random(5)
    for _ in range(5):
        kinds = [0, 1, 2]
        generator.shuffle(kinds)
        plan = policy.plan(inputs)
        first = TYPES.pools[kinds[0]].gpus
        filled = [TYPES.types.index(TYPES.allocation(g).gpu_type) for g in plan.placement.values()]
        assert filled[:first] == [kinds[0]] * first
        inputs = replace(after(inputs, dict(plan.placement)), memory=plan.memory)


def test_as_published_an_arrival_has_no_share_for_1920_seconds_and_its_gpu_idles() -> None:
    policy = make_policy("isolated", fidelity=Fidelity.REFERENCE)
    inputs = start(typed(0))
    plan = policy.plan(inputs)
    inputs = replace(after(inputs, dict(plan.placement), typed(1, 2_100.0)), memory=plan.memory)
    for _ in range(5):
        plan = policy.plan(inputs)
        assert sorted(plan.placement) == [0]
        inputs = replace(after(inputs, dict(plan.placement)), memory=plan.memory)
    assert sorted(policy.plan(inputs).placement) == [0, 1]


def test_fifo_as_published_leaves_idle_what_it_gave_no_share() -> None:
    inputs = start(typed(0), typed(1), typed(2, gang=2), typed(3))
    fair = make_policy("fifo").plan(inputs).placement
    assert {j: TYPES.allocation(g).gpu_type for j, g in fair.items()} == {
        0: "v100",
        1: "p100",
        2: "k80",
    }
    inputs = start(typed(0), typed(1, gang=2), typed(2, gang=2), typed(3))
    published = make_policy("fifo", fidelity=Fidelity.REFERENCE).plan(inputs).placement
    assert sorted(published) == [0, 1]


def test_accounts_follow_their_types_when_a_node_leaves() -> None:
    accounts = {(3,): ShareAccount((0.5, 0.25), (1.0, 2.0), (3.0, 4.0))}
    ledger = Ledger(("v100", "k80"), 10.0, stale=False, rates={3: (5.0, 6.0)}, accounts=accounts)
    fewer = ledger.on_types(("k80",), 180.0)
    assert fewer.accounts[3,] == ShareAccount((0.25,), (2.0,), (4.0,))
    assert fewer.rates == {3: (6.0,)}
    assert fewer.stale
    more = fewer.on_types(("v100", "k80"), 180.0)
    assert more.accounts[3,].received == (180.0, 2.0)


def test_as_published_a_job_on_an_idle_cluster_waits_until_the_clock_moves_or_stands_still() -> (
    None
):
    policy = make_policy("isolated", fidelity=Fidelity.REFERENCE)
    inputs = start(typed(0))
    gone = replace(after(inputs, {}), jobs=(), memory=policy.plan(inputs).memory)
    inputs = replace(gone, jobs=(typed(1, 2_300.0),), memory=policy.plan(gone).memory)
    inputs = replace(inputs, clock_seconds=2_400.0)
    plan = policy.plan(inputs)
    assert not plan.placement
    ledger = ledger_of(plan)
    assert (ledger.computed_at, ledger.rounds, ledger.planned_at) == (2_000.0, 3, 2_400.0)
    assert sorted(policy.plan(replace(inputs, memory=plan.memory)).placement) == [1]
