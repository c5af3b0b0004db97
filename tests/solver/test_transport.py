"""Rounds in which jobs choose among GPU types, compared with HiGHS."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.allocation import Allocation
from predictor.throughput import UNTYPED
from solver.backends import RELATIVE_GAP, CountProblem
from solver.backends.highs import solve_with_highs
from solver.backends.transport import solve_round
from solver.clearing import solve_market
from solver.market import Bid, Market
from tests.strategies import examples, gang_bid, market_of

TYPES = ("v100", "p100", "k80")


def round_of(
    gains: Sequence[Sequence[float]], gangs: Sequence[int], capacities: Sequence[int]
) -> CountProblem:
    """A round: what a round on each type brings to each job; 0 for a type that it cannot use."""
    table = np.array(gains, dtype=float).reshape(len(gangs), len(capacities))
    jobs, kinds = np.nonzero(table)
    return CountProblem(
        utility=np.stack([np.zeros(len(jobs)), table[jobs, kinds]], axis=1),
        remaining=np.zeros((len(jobs), 2)),
        regularizer=0.0,
        gangs=np.array(gangs, dtype=np.int64)[jobs],
        capacities=np.array(capacities, dtype=np.int64),
        type_of=kinds,
        most=np.ones(len(jobs), dtype=np.int64),
        job_of=np.unique(jobs, return_inverse=True)[1],
    )


@st.composite
def rounds(draw: st.DrawFn, gangs: Sequence[int] = (1,)) -> CountProblem:
    """Small rounds, with many ties, on two or three types."""
    capacities = draw(st.lists(st.integers(1, 6), min_size=2, max_size=3))
    whole = st.integers(0, draw(st.sampled_from((3, 1000))))
    row = st.lists(whole, min_size=len(capacities), max_size=len(capacities)).filter(any)
    gains = draw(st.lists(row, min_size=1, max_size=12))
    sizes = draw(st.lists(st.sampled_from(gangs), min_size=len(gains), max_size=len(gains)))
    return round_of(gains, sizes, capacities)


def feasible(problem: CountProblem, counts: np.ndarray) -> bool:
    used = np.bincount(problem.type_of, problem.gangs * counts, len(problem.capacities))
    return bool(
        (used <= problem.capacities).all() and np.bincount(problem.job_of, counts).max() < 2
    )


@examples(40)
@given(rounds())
def test_jobs_of_equal_gangs_are_matched_to_types_as_well_as_can_be(problem: CountProblem) -> None:
    found, best = solve_round(problem), solve_with_highs(problem)
    value, most = problem.objective(found.counts), problem.objective(best.counts)
    assert feasible(problem, found.counts)
    assert value == pytest.approx(most, rel=2 * RELATIVE_GAP)
    assert (found.status, found.bound) == ("optimal", pytest.approx(most, rel=2 * RELATIVE_GAP))
    assert found.bound >= most * (1.0 - 1e-9)
    assert (found.prices >= 0.0).all()


@examples(40)
@given(rounds(gangs=(1, 1, 2, 4)))
def test_no_round_of_gangs_is_above_the_bound(problem: CountProblem) -> None:
    found, best = solve_round(problem), solve_with_highs(problem)
    assert feasible(problem, found.counts)
    assert problem.objective(found.counts) <= problem.objective(best.counts) * (1.0 + 1e-5)
    assert found.bound >= problem.objective(best.counts) * (1.0 - 1e-9)


@examples(40)
@given(rounds(gangs=(1, 2, 4)))
def test_the_gap_is_what_jobs_would_rather_have_and_what_idles(problem: CountProblem) -> None:
    """Σ regret at the prices + the price of idle GPUs = bound − objective."""
    found = solve_round(problem)
    net = problem.utility[:, 1] - problem.gangs * found.prices[problem.type_of]
    has = np.bincount(problem.job_of, net * found.counts)
    likes = np.zeros(len(has))
    np.maximum.at(likes, problem.job_of, net)
    used = np.bincount(problem.type_of, problem.gangs * found.counts, len(problem.capacities))
    idle = float(found.prices @ (problem.capacities - used))
    gap = found.bound - problem.objective(found.counts)
    assert float((likes - has).sum()) + idle == pytest.approx(gap, abs=1e-9 * (1.0 + found.bound))


def test_many_jobs_of_small_gangs_are_matched_to_a_gap_of_a_thousandth() -> None:
    rng = np.random.default_rng(7)
    gangs = 2 ** rng.integers(0, 3, 200)
    gains = rng.lognormal(size=(200, 1)) * rng.uniform(0.1, 1.0, (200, 3)) * gangs[:, None]
    problem = round_of(gains.tolist(), gangs.tolist(), (96, 96, 96))
    found = solve_round(problem)
    assert found.bound - problem.objective(found.counts) <= 1e-3 * found.bound


def test_comparative_advantage_comes_from_prices() -> None:
    # All are faster on a V100, yet who loses least by it takes the P100.
    gains = [[10.0, 2.0, 0.0], [9.0, 8.0, 0.0], [8.0, 1.0, 0.0]]
    found = solve_round(round_of(gains, (1, 1, 1), (2, 1, 0)))
    assert found.counts.tolist() == [1, 0, 0, 1, 1, 0]
    dear, cheap, _ = found.prices
    assert 1.0 <= dear - cheap <= 7.0


@pytest.fixture
def mixed() -> Market:
    """Two jobs that may run on either type, and one that needs both GPUs of the faster one."""
    gains = {(4, "v100"): 6.0, (4, "k80"): 5.0, (7, "v100"): 6.0, (7, "k80"): 1.0, (9, "v100"): 7.0}
    bids = [
        Bid(job, Allocation(kind, 1 + (job == 9)), 1.0, gain) for (job, kind), gain in gains.items()
    ]
    return market_of({"v100": 2, "k80": 1}, bids)


@pytest.mark.parametrize("backend", ["auto", "lagrangian", "gurobi", "highs"])
def test_every_back_end_lets_a_job_run_once(backend: str, mixed: Market) -> None:
    solved = solve_market(mixed, backend)
    running = mixed.job_ids[np.flatnonzero(solved.counts)].tolist()
    assert solved.objective == float(mixed.utility @ solved.counts) == pytest.approx(12.0, abs=1.0)
    assert len(set(running)) == len(running)
    assert solved.bound >= 12.0 - 1e-6


@examples(60)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from((1, 1, 2, 4, 8))), min_size=1),
    st.integers(8, 20),
)
def test_a_round_on_one_type_is_a_knapsack(jobs: list[tuple[int, int]], gpus: int) -> None:
    bids = [gang_bid(job, gang, float(gain)) for job, (gain, gang) in enumerate(jobs)]
    market = market_of({UNTYPED: gpus}, bids)
    ours, best = solve_market(market, "lagrangian"), solve_market(market, "highs")
    assert int(market.gangs @ ours.counts) <= gpus
    assert ours.objective == pytest.approx(best.objective, rel=2 * RELATIVE_GAP)
    assert ours.bound == pytest.approx(best.objective, rel=2 * RELATIVE_GAP)
    (price,) = ours.prices.tolist()
    net = market.utility - price * market.gangs
    assert (net[ours.counts > 0] >= 0.0).all() or ours.bound < price * gpus + net.clip(0.0).sum()
    assert ours.status == "optimal"


def test_many_gangs_on_one_type_are_solved_to_the_gap() -> None:
    rng = np.random.default_rng(3)
    gangs = rng.choice([1, 2, 4, 8], size=900).tolist()
    bids = [
        gang_bid(job, gang, gang * gain)
        for job, (gang, gain) in enumerate(zip(gangs, rng.lognormal(size=900), strict=True))
    ]
    solved = solve_market(market_of({UNTYPED: 256}, bids))
    assert (solved.backend, solved.status) == ("lagrangian", "optimal")
    assert solved.objective <= solved.bound <= solved.objective * (1.0 + RELATIVE_GAP)


def test_rows_are_found_by_job_and_type_and_recorded_as_bids(mixed: Market) -> None:
    assert (mixed.rows[7, "k80"], mixed.jobs.tolist()) == (3, [0, 2, 4])
    assert [(bid.job_id, bid.utility) for bid in mixed.bids[3:]] == [(7, 1.0), (9, 7.0)]
