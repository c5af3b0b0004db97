"""Markets of several GPU types: counts, prices by type, and the jobs that buy at them."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given

from predictor.errors import SolverError
from solver.backends import RELATIVE_GAP, BackendUnavailableError, CountProblem
from solver.backends.gurobi import Gurobi
from solver.backends.highs import Highs
from solver.counts import Counts, Lagrangian, solve_counts
from solver.market import Bid, Market
from tests.strategies import examples, gang_bid, market_of, markets

TYPES = ("v100", "k80")

typed_markets = markets(
    types=TYPES, gangs=(1, 1, 2, 4), gpus=(1, 2, 4), max_jobs=4, max_window=3, largest_exponent=3
)


def feasible(market: Market) -> list[np.ndarray]:
    """Every vector of counts that fits the GPU-rounds of each type."""
    found = []
    for counts in product(range(market.window + 1), repeat=len(market.job_ids)):
        used = dict.fromkeys(market.types, 0)
        for allocation, count in zip(market.allocations, counts, strict=True):
            used[allocation.gpu_type] += allocation.gpus * count
        room = market.window * market.capacities
        if all(used[kind] <= room[n] for n, kind in enumerate(market.types)):
            found.append(np.array(counts))
    return found


def stake(market: Market) -> float:
    """What the market would gain if every job ran in every round."""
    none = np.zeros(len(market.job_ids), dtype=np.int64)
    return market.objective(none + market.window) - market.objective(none)


def prices(solved: Counts) -> dict[str, float]:
    return {price.gpu_type: price.price for price in solved.prices}


@pytest.mark.parametrize("backend", ["gurobi", "highs", "auto"])
@examples(40)
@given(market=typed_markets)
def test_no_counts_are_better_than_those_found(backend: str, market: Market) -> None:
    best = max(market.objective(counts) for counts in feasible(market))
    solved, tolerance = solve_counts(market, backend), RELATIVE_GAP * stake(market) + 1e-9
    assert any(np.array_equal(solved.counts, counts) for counts in feasible(market))
    assert market.objective(solved.counts) == pytest.approx(best, abs=tolerance)
    assert solved.bound >= best - tolerance
    assert tuple(prices(solved)) == TYPES
    assert min(prices(solved).values()) >= 0.0


def only(market: Market, gpu_type: str) -> Market:
    """The part of a market that bids on one type."""
    number = market.types.index(gpu_type)
    bids = [bid for bid in market.bids if bid.rows[0].allocation.gpu_type == gpu_type]
    gpus = int(market.capacities[number])
    return market_of({gpu_type: gpus}, market.window, market.regularizer, bids)


@examples(50)
@given(market=markets(types=TYPES, max_jobs=8, regularizers=(0,), largest_exponent=3))
def test_without_a_regulariser_types_are_markets_of_their_own(market: Market) -> None:
    together, tolerance = solve_counts(market), 2 * RELATIVE_GAP * stake(market) + 1e-9
    apart = [(part, solve_counts(part)) for part in (only(market, kind) for kind in TYPES)]
    worth = sum(part.objective(solved.counts) for part, solved in apart)
    assert market.objective(together.counts) == pytest.approx(worth, abs=tolerance)
    # An uncontended type costs nothing, whatever the other one costs.
    for kind, (_, solved) in zip(TYPES, apart, strict=True):
        if solved.backend == "none" and together.backend != "none":
            assert prices(together)[kind] == pytest.approx(0.0, abs=1e-9 * stake(market))


def line(job_id: int, gain: float, gpu_type: str) -> Bid:
    """A job that gains as much in every one of four rounds."""
    return gang_bid(job_id, 1, [gain * n for n in range(5)], gpu_type=gpu_type)


@pytest.fixture
def kinked() -> Market:
    """On each type a job that gains less with every round beside one that does not."""
    kink = (0.0, 5.0, 8.0, 9.0, 9.5)
    bids = [
        gang_bid(0, 1, kink, gpu_type="v100"),
        line(1, 2.0, "v100"),
        gang_bid(2, 1, [10.0 * gain for gain in kink], gpu_type="k80"),
        line(3, 20.0, "k80"),
        line(4, 7.0, "spare"),
    ]
    return market_of({"v100": 1, "k80": 1, "spare": 3}, 4, 0.0, bids)


@pytest.mark.parametrize("backend", ["gurobi", "highs", "auto"])
def test_the_price_of_a_type_is_what_one_more_of_its_gpu_rounds_brings(
    backend: str, kinked: Market
) -> None:
    solved = solve_counts(kinked, backend)
    assert solved.counts.tolist() == [2, 2, 2, 2, 4]
    assert prices(solved) == pytest.approx({"v100": 2.0, "k80": 20.0, "spare": 0.0})
    assert solved.bound == pytest.approx(12.0 + 120.0 + 28.0)


def test_the_longest_job_of_all_types_is_what_the_regulariser_charges() -> None:
    left = (900.0, 780.0, 660.0, 540.0, 420.0)
    bids = [
        gang_bid(0, 1, (0.0,) * 5, left, gpu_type="v100"),
        line(1, 50.0, "v100"),
        gang_bid(2, 1, (0.0,) * 5, [seconds - 300.0 for seconds in left], gpu_type="k80"),
        line(3, 50.0, "k80"),
    ]
    market = market_of({"v100": 1, "k80": 1}, 4, 1.0, bids)
    # The job on v100 is bought all rounds and has 420 s left; that on k80 needs two for less.
    for backend in ("gurobi", "highs"):
        assert solve_counts(market, backend).counts.tolist() == [4, 0, 2, 2]


def count_problem(capacities: list[int]) -> CountProblem:
    """Jobs of two and three GPUs, on the two types or on the only one."""
    rounds = np.arange(4.0)
    return CountProblem(
        utility=np.array([rounds, 2.0 * rounds]),
        remaining=np.zeros((2, 4)),
        regularizer=0.0,
        gangs=np.array([2, 3]),
        capacities=np.array(capacities),
        type_of=np.arange(2) % len(capacities),
        most=np.array([3, 3]),
    )


@pytest.mark.parametrize("backend", [Gurobi(), Highs()])
def test_each_type_has_a_capacity_of_its_own(backend: Gurobi | Highs) -> None:
    assert backend.solve(count_problem([4, 6])).counts.tolist() == [2, 2]
    assert backend.solve(count_problem([3, 9])).counts.tolist() == [1, 3]
    assert backend.solve(count_problem([9])).counts.tolist() == [0, 3]


def test_our_own_solver_takes_one_type_and_says_so(kinked: Market) -> None:
    assert Lagrangian().solve(count_problem([9])).counts.tolist() == [0, 3]
    with pytest.raises(BackendUnavailableError, match="several GPU types"):
        Lagrangian().solve(count_problem([4, 6]))
    with pytest.raises(SolverError, match="several GPU types") as caught:
        solve_counts(kinked, "lagrangian")
    assert caught.value.place == "backend"


def test_where_our_own_solver_refuses_the_next_one_takes_over_and_says_why(kinked: Market) -> None:
    solved = solve_counts(kinked)
    assert (solved.backend, solved.status) == ("gurobi", "optimal")
    assert solved.reason == "the problem has several GPU types"
