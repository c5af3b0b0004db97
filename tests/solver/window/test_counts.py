import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given

from predictor.arrays import Ints
from predictor.errors import InputError, SolverError
from solver.backends import RELATIVE_GAP, gurobi
from solver.backends.choice import Solution
from solver.window import lagrangian
from solver.window.counts import find_decided, find_last_useful, solve_counts
from solver.window.market import WindowMarket
from tests.strategies import GANGS, WindowJob, examples, window_of, windows


def line(gain: float, *, gpus: int = 1, window: int = 4, weight: float = 1.0) -> WindowJob:
    """A job that gains as much in every round and has no time left to run after them."""
    rounds = np.arange(window + 1)
    remaining = (120.0 * rounds[::-1]).tolist()
    return WindowJob(gpus, (weight * gain * rounds).tolist(), remaining, weight=weight)


def price(solved: Solution) -> float:
    """The price of a GPU-round."""
    (price,) = solved.prices.tolist()
    return float(price)


def gain_of_everything(market: WindowMarket) -> float:
    """What the market would gain if every job ran in every round."""
    none = np.zeros(len(market.job_ids), dtype=np.int64)
    return market.objective(none + market.window) - market.objective(none)


def all_counts(market: WindowMarket) -> Ints:
    """Every vector of counts within capacity, shape (vectors, jobs)."""
    counts = np.array(list(product(range(market.window + 1), repeat=len(market.job_ids))))
    fits = counts @ market.gangs <= market.gpus * market.window
    return np.asarray(counts[fits], dtype=np.int64)


tiny_windows = windows(max_jobs=4, max_window=3, gpus=(1, 2, 4), gangs=(1, 1, 2, 4))


def test_the_round_goes_to_the_job_that_gains_more_by_it() -> None:
    market = window_of(1, 4, 0.0, (line(1.0), line(2.0)))
    counts = solve_counts(market)
    assert counts.counts.tolist() == [0, 4]
    assert counts.bound == pytest.approx(8.0)
    assert 1.0 <= price(counts) <= 2.0


@pytest.fixture
def kinked() -> WindowMarket:
    """One job gains less with every round, the other two in each."""
    kinked = WindowJob(1, (0.0, 5.0, 8.0, 9.0, 9.5))
    return window_of(1, 4, 0.0, (kinked, line(2.0)))


def test_the_price_is_what_one_more_gpu_round_brings(kinked: WindowMarket) -> None:
    counts = solve_counts(kinked)
    assert counts.counts.tolist() == [2, 2]
    assert price(counts) == pytest.approx(2.0)


def test_the_longest_job_is_bought_time_by_the_regularizer() -> None:
    long = WindowJob(1, (0.0,) * 5, (900.0, 780.0, 660.0, 540.0, 420.0))
    market = window_of(1, 4, 1.0, (long, line(50.0)))
    assert solve_counts(market).counts.tolist() == [4, 0]


def test_a_jump_later_in_the_table_is_worth_waiting_for() -> None:
    jump = WindowJob(1, (0.0, 0.0, 0.0, 9.0, 9.0))
    market = window_of(1, 4, 0.0, (jump, line(2.0)))
    for backend in ("lagrangian", "gurobi", "highs"):
        assert solve_counts(market, backend).counts.tolist() == [3, 1]


def test_rounds_that_gain_nothing_are_not_bought() -> None:
    done = WindowJob(1, (0.0, 3.0, 3.0, 3.0, 3.0), (120.0, 0.0, 0.0, 0.0, 0.0))
    counts = solve_counts(window_of(8, 4, 1.0, (done,)))
    assert counts.counts.tolist() == [1]


def test_an_empty_market_has_no_counts() -> None:
    counts = solve_counts(window_of(4, 3, 1.0, ()))
    assert (counts.counts.tolist(), counts.backend, price(counts)) == ([], "none", 0.0)


def test_a_weight_of_1e21_leaves_the_others_as_well_solved_as_without_it() -> None:
    others = (line(1.0), line(3.0), line(2.0))
    heavy = line(1.0, weight=1e21)
    alone = solve_counts(window_of(2, 4, 0.0, others))
    beside = solve_counts(window_of(3, 4, 0.0, (heavy, *others)))
    assert beside.counts.tolist() == [4, *alone.counts.tolist()] == [4, 0, 4, 4]
    assert price(beside) == pytest.approx(price(alone))


@pytest.mark.parametrize("backend", ["lagrangian", "gurobi", "highs"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_constant_in_a_bid_changes_nothing(backend: str, sign: float) -> None:
    market = window_of(1, 4, 0.0, (line(1.0), line(2.0)))
    constant = sign * 1e6
    moved = replace(market, utility=market.utility + constant)
    counts = solve_counts(moved, backend)
    assert counts.counts.tolist() == [0, 4]


@examples(50)
@given(windows())
def test_back_ends_agree(market: WindowMarket) -> None:
    ours, *others = (solve_counts(market, name) for name in ("lagrangian", "gurobi", "highs"))
    tolerance = 2 * RELATIVE_GAP * gain_of_everything(market) + 1e-9
    for theirs in others:
        assert market.objective(ours.counts) == pytest.approx(
            market.objective(theirs.counts), abs=tolerance
        )
        assert ours.bound == pytest.approx(theirs.bound, abs=tolerance)
    asked = [solved.backend for solved in (ours, *others)]
    assert asked in (["lagrangian", "gurobi", "highs"], ["none"] * 3)


@pytest.mark.parametrize("backend", ["lagrangian", "gurobi", "highs"])
@examples(40)
@given(market=windows())
def test_counts_fit_and_stay_below_their_bound(backend: str, market: WindowMarket) -> None:
    solved = solve_counts(market, backend)
    counts = solved.counts
    assert ((counts >= 0) & (counts <= market.window)).all()
    assert market.gangs @ counts <= market.gpus * market.window
    assert market.objective(counts) <= solved.bound + 1e-6 * gain_of_everything(market) + 1e-9
    assert solved.bound - market.objective(counts) <= 2e-5 * gain_of_everything(market) + 1e-9
    assert price(solved) >= 0.0
    assert solved.status == "optimal"


@given(windows(gpus=(48,)))
def test_the_price_is_zero_when_everybody_gets_all(market: WindowMarket) -> None:
    solved = solve_counts(market)
    assert (price(solved), solved.backend, solved.reason) == (0.0, "none", "every job gets all")
    assert solved.bound == market.objective(solved.counts)
    everything = np.full(len(market.job_ids), market.window)
    assert solved.bound == market.objective(everything)


@pytest.mark.parametrize("backend", ["lagrangian", "gurobi", "highs"])
@examples(40)
@given(market=tiny_windows)
def test_no_counts_are_better(backend: str, market: WindowMarket) -> None:
    best = max(market.objective(counts) for counts in all_counts(market))
    solved = solve_counts(market, backend)
    tolerance = RELATIVE_GAP * gain_of_everything(market) + 1e-9
    assert market.objective(solved.counts) == pytest.approx(best, abs=tolerance)
    assert solved.bound >= best - tolerance


@given(tiny_windows)
def test_decided_jobs_get_all_they_can_use_in_every_optimum(market: WindowMarket) -> None:
    most = find_last_useful(market)
    decided = find_decided(market, most)
    counts = all_counts(market)
    # Every number is whole and below 2^53, so that equal means equal.
    worth = np.array([market.objective(vector) for vector in counts])
    optimal = counts[worth == worth.max()]
    assert (optimal[:, decided] >= most[decided]).all()


@given(tiny_windows)
def test_the_undecided_jobs_are_solved_on_their_own_scale(market: WindowMarket) -> None:
    decided = find_decided(market, find_last_useful(market))
    rest = replace(
        market,
        **{name: getattr(market, name)[~decided] for name in ("job_ids", "gangs", "weights")},
        **{name: getattr(market, name)[~decided] for name in ("utility", "remaining")},
    )
    best = max(market.objective(counts) for counts in all_counts(market))
    loss = best - market.objective(solve_counts(market).counts)
    assert loss <= RELATIVE_GAP * gain_of_everything(rest) + 1e-9


def test_the_same_market_gives_the_same_counts() -> None:
    rng = np.random.default_rng(5)
    bids = tuple(line(float(rng.random()), gpus=int(rng.choice(GANGS))) for _ in range(40))
    for backend in ("lagrangian", "gurobi", "highs"):
        first, second = (solve_counts(window_of(32, 4, 0.001, bids), backend) for _ in range(2))
        assert first.counts.tolist() == second.counts.tolist()
        assert (first.bound, price(first)) == (second.bound, price(second))


@pytest.fixture(scope="module")
def beyond_the_licence() -> WindowMarket:
    """More jobs than the 2,000 variables of Gurobi's size-limited licence."""
    rng = np.random.default_rng(11)
    bids = tuple(WindowJob(1, (0.0, 2.0 + gain, 3.0)) for gain in rng.random(2_001).tolist())
    return window_of(1_100, 2, 0.0, bids)


def test_our_own_solver_runs_first_and_needs_no_refinement(
    beyond_the_licence: WindowMarket,
) -> None:
    solved = solve_counts(beyond_the_licence)
    assert (solved.backend, solved.reason) == ("lagrangian", "first choice")
    assert solved.counts.sum() == 2_200


def test_a_gap_is_refined_by_another_back_end_and_the_better_counts_are_kept(
    monkeypatch: pytest.MonkeyPatch, kinked: WindowMarket
) -> None:
    monkeypatch.setattr(lagrangian, "CORE_SOLVES", 0)
    solved = solve_counts(kinked)
    assert solved.counts.tolist() == [2, 2]
    assert (solved.backend, solved.status) == ("gurobi", "optimal")
    assert solved.reason == "lagrangian left a gap; gurobi was asked too"
    assert solved.bound == pytest.approx(12.0)


def test_where_gurobi_refuses_highs_takes_over_and_says_why(
    monkeypatch: pytest.MonkeyPatch, beyond_the_licence: WindowMarket
) -> None:
    monkeypatch.setattr(lagrangian, "CORE_SOLVES", 0)
    solved = solve_counts(beyond_the_licence)
    assert solved.backend == "highs"
    assert "10010" in solved.reason
    assert solved.counts.sum() == 2_200


def test_a_gap_that_stays_is_reported(
    monkeypatch: pytest.MonkeyPatch, kinked: WindowMarket
) -> None:
    monkeypatch.setattr(lagrangian, "CORE_SOLVES", 0)
    solved = solve_counts(kinked, "lagrangian")
    assert (solved.counts.tolist(), solved.status) == ([0, 0], "work_limit")
    assert solved.bound == pytest.approx(12.0)


def test_where_gurobi_alone_was_asked_for_it_is_an_error(beyond_the_licence: WindowMarket) -> None:
    with pytest.raises(SolverError, match="10010") as caught:
        solve_counts(beyond_the_licence, "gurobi")
    assert caught.value.place == "backend"


def test_a_solver_that_is_not_installed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    gurobi._environment.cache_clear()
    monkeypatch.setitem(sys.modules, "gurobipy", None)
    with pytest.raises(SolverError, match="gurobipy is not installed"):
        solve_counts(window_of(1, 4, 0.0, (line(1.0), line(2.0))), "gurobi")


def test_a_missing_highs_is_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(SolverError, match="highspy is not installed"):
        solve_counts(window_of(1, 4, 0.0, (line(1.0), line(2.0))), "highs")


def test_an_unknown_back_end_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="choose from auto, lagrangian, gurobi, highs"):
        solve_counts(window_of(1, 1, 0.0, ()), "cplex")
