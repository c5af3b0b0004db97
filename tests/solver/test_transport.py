"""Rounds in which jobs choose among GPU types, compared with HiGHS."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.allocation import Allocation
from solver.backends import RELATIVE_GAP, BackendUnavailableError, CountProblem
from solver.backends.gurobi import Gurobi
from solver.backends.highs import Highs
from solver.backends.transport import solve_round
from solver.counts import Lagrangian, solve_counts
from solver.market import Bid, BidRow, Market
from tests.strategies import examples, market_of

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
    found, best = Lagrangian().solve(problem), Highs().solve(problem)
    value, most = problem.objective(found.counts), problem.objective(best.counts)
    assert feasible(problem, found.counts)
    assert value == pytest.approx(most, rel=2 * RELATIVE_GAP)
    assert (found.status, found.bound) == ("optimal", pytest.approx(most, rel=2 * RELATIVE_GAP))
    assert found.bound >= most * (1.0 - 1e-9)
    assert (found.prices >= 0.0).all()


@examples(40)
@given(rounds(gangs=(1, 1, 2, 4)))
def test_no_round_of_gangs_is_above_the_bound(problem: CountProblem) -> None:
    found, best = Lagrangian().solve(problem), Highs().solve(problem)
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

    def bid(job_id: int, gpus: int, gains: dict[str, float]) -> Bid:
        rows = [
            BidRow(Allocation(kind, gpus), (0.0, gain), (0.0, 0.0)) for kind, gain in gains.items()
        ]
        return Bid(job_id, 1.0, tuple(rows))

    bids = [
        bid(4, 1, {"v100": 6.0, "k80": 5.0}),
        bid(7, 1, {"v100": 6.0, "k80": 1.0}),
        bid(9, 2, {"v100": 7.0}),
    ]
    return market_of({"v100": 2, "k80": 1}, 1, 0.0, bids)


@pytest.mark.parametrize("backend", ["auto", "lagrangian", "gurobi", "highs"])
def test_every_back_end_lets_a_job_run_once(backend: str, mixed: Market) -> None:
    solved = solve_counts(mixed, backend)
    running = [
        (int(mixed.job_ids[row]), mixed.allocations[row].gpu_type)
        for row in np.flatnonzero(solved.counts)
    ]
    assert mixed.objective(solved.counts) == pytest.approx(12.0, abs=1.0)
    assert len({job for job, _ in running}) == len(running)
    assert solved.bound >= 12.0 - 1e-6
    assert [len(found.rows) for found in mixed.bids] == [2, 2, 1]


def test_a_window_of_several_rounds_is_left_to_the_other_back_ends() -> None:
    problem = round_of([[1.0, 2.0]], (1,), (1, 1))
    wide = CountProblem(
        utility=np.array([[0.0, 1.0, 2.0], [0.0, 2.0, 3.0]]),
        remaining=np.zeros((2, 3)),
        regularizer=0.0,
        gangs=problem.gangs,
        capacities=2 * problem.capacities,
        type_of=problem.type_of,
        most=np.array([2, 2]),
        job_of=problem.job_of,
    )
    with pytest.raises(BackendUnavailableError, match="several GPU types"):
        Lagrangian().solve(wide)
    for backend in (Gurobi(), Highs()):
        assert backend.solve(wide).counts.sum() == 2
        assert backend.solve(problem).counts.tolist() == [0, 1]


def test_rows_of_a_job_follow_each_other_and_nothing_is_charged_for_the_longest() -> None:
    row = BidRow(Allocation("v100", 1), (0.0, 1.0), (0.0, 0.0))
    other = BidRow(Allocation("k80", 1), (0.0, 1.0), (0.0, 0.0))
    bids = [Bid(1, 1.0, (row,)), Bid(2, 1.0, (row,)), Bid(1, 1.0, (other,))]
    with pytest.raises(ValueError, match="follow each other"):
        market_of({"v100": 1, "k80": 1}, 1, 0.0, bids)
    with pytest.raises(ValueError, match="longest"):
        market_of({"v100": 1, "k80": 1}, 1, 1.0, [Bid(1, 1.0, (row, other))])
