"""Our own solver against exact optima, other solvers, and on hard shapes of tables."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.backends import Backend, BackendUnavailableError, CountProblem, core
from solver.backends.gurobi import solve_with_gurobi
from solver.backends.highs import solve_with_highs
from solver.window import lagrangian
from solver.window.lagrangian import solve_window

ROUNDING = 1e-12
"""Share of the stake that sums in another order may differ by."""


def count_problem(
    steps: list[list[float]],
    gangs: list[int],
    capacity: int,
    *,
    lengths: list[float] | None = None,
    regularizer: float = 0.0,
    most: list[int] | None = None,
) -> CountProblem:
    """A problem by gains per round; a job of some length is a unit shorter per round."""
    gains = np.array(steps, dtype=np.float64).reshape(len(gangs), -1 if gangs else 3)
    rounds = np.arange(gains.shape[1] + 1)
    cap = np.array(most if most is not None else [gains.shape[1]] * len(gangs), dtype=np.int64)
    left = np.array(lengths or [0.0] * len(gangs))[:, None] - rounds
    floor = max((row[n] for row, n in zip(left, cap, strict=True)), default=0.0)
    return CountProblem(
        utility=np.concatenate([np.zeros((len(gangs), 1)), gains.cumsum(axis=1)], axis=1),
        remaining=left - max(floor, 0.0),
        regularizer=regularizer,
        gangs=np.array(gangs, dtype=np.int64),
        capacities=np.array([capacity]),
        type_of=np.zeros(len(gangs), dtype=np.int64),
        most=cap,
    )


def stake(problem: CountProblem) -> float:
    """What can be gained in all."""
    longest = float(problem.remaining.max(initial=0.0))
    return float(problem.utility[:, -1].sum()) + problem.regularizer * longest


def optimum(problem: CountProblem) -> float:
    """By dynamic programming over GPU-rounds, once for every longest remaining time."""
    lengths = np.unique(np.maximum(np.append(problem.remaining, 0.0), 0.0))
    best = -np.inf
    for longest in lengths if problem.regularizer else lengths[-1:]:
        worth = np.zeros(problem.capacity + 1)
        for job, gang in enumerate(problem.gangs.tolist()):
            after = np.full_like(worth, -np.inf)
            for count in range(int(problem.most[job]) + 1):
                use = gang * count
                if problem.remaining[job, count] <= longest and use <= problem.capacity:
                    gained = worth[: len(worth) - use] + problem.utility[job, count]
                    after[use:] = np.maximum(after[use:], gained)
            worth = after
        best = max(best, float(worth.max()) - problem.regularizer * float(longest))
    return best


def random_problem(seed: int, jobs: int, rounds: int, gpus: int) -> CountProblem:
    """Tables of all shapes: any, concave, convex, mostly flat, all alike."""
    rng = np.random.default_rng(seed)
    steps = rng.integers(0, 100, size=(jobs, rounds)).astype(np.float64)
    shape = seed % 5
    if shape == 1:
        steps = -np.sort(-steps, axis=1)
    elif shape == 2:
        steps = np.sort(steps, axis=1)
    elif shape == 3:
        steps *= rng.random(steps.shape) < 0.2
    elif shape == 4:
        steps[:] = steps[0]
    weights = 10.0 ** rng.integers(0, rng.choice([1, 3, 12]), size=jobs)
    steps *= (weights / weights.max())[:, None]
    return count_problem(
        steps.tolist(),
        np.minimum(rng.choice([1, 1, 2, 3, 4, 8, gpus], size=jobs), gpus).tolist(),
        gpus * rounds,
        lengths=rng.integers(0, 3 * rounds, size=jobs).astype(float).tolist(),
        regularizer=float(rng.choice([0.0, 1e-3, 1.0, 30.0, 1e4])),
    )


def assert_certified(problem: CountProblem, best: float, gap: float) -> None:
    solved = solve_window(problem)
    size = stake(problem)
    found = problem.objective(solved.counts)
    assert ((solved.counts >= 0) & (solved.counts <= problem.most)).all()
    assert problem.gangs @ solved.counts <= problem.capacity
    assert (solved.prices >= 0.0).all()
    assert solved.bound >= found
    assert solved.bound >= best - ROUNDING * size
    assert found <= best + ROUNDING * size
    assert solved.bound - found <= gap * size


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_bound_optimum_and_plan_are_in_order_and_close(block: int) -> None:
    for seed in range(block * 250, (block + 1) * 250):
        rng = np.random.default_rng((1, seed))
        sizes = (int(rng.integers(1, 8)), int(rng.integers(1, 7)), int(rng.choice([1, 2, 8, 9])))
        problem = random_problem(seed, *sizes)
        assert_certified(problem, optimum(problem), 2 * lagrangian.TARGET_GAP)


@pytest.mark.parametrize(("backend", "problems"), [(solve_with_gurobi, 50), (solve_with_highs, 15)])
@pytest.mark.slow
def test_no_other_solver_finds_better_or_proves_less(backend: Backend, problems: int) -> None:
    refused = 0
    for seed in range(problems):
        problem = random_problem(seed, jobs=30, rounds=8, gpus=16)
        ours, size = solve_window(problem), stake(problem)
        assert ours.bound - problem.objective(ours.counts) <= 2 * lagrangian.TARGET_GAP * size
        try:
            theirs = backend(problem)
        except BackendUnavailableError:
            refused += 1
            continue
        assert problem.objective(theirs.counts) <= ours.bound + ROUNDING * size
        assert problem.objective(ours.counts) <= theirs.bound + 1e-6 * size
    assert refused <= problems // 10


def test_no_jobs_gain_nothing() -> None:
    solved = solve_window(count_problem([], [], 8))
    assert (solved.counts.tolist(), solved.bound, solved.prices.tolist()) == ([], 0.0, [0.0])


def test_the_price_is_the_value_of_one_more_gpu_round() -> None:
    solved = solve_window(count_problem([[5, 3, 1], [2, 2, 2]], [1, 1], 4))
    assert solved.counts.tolist() == [2, 2]
    assert solved.prices == pytest.approx([2.0])
    assert solved.bound == pytest.approx(12.0)


def test_counts_stop_at_the_most_that_a_job_can_use() -> None:
    solved = solve_window(count_problem([[9, 9, 9], [1, 1, 1]], [1, 1], 3, most=[1, 3]))
    assert solved.counts.tolist() == [1, 2]


def test_a_jump_is_taken_whole_or_not_at_all() -> None:
    steps = [[0, 0, 9], [2, 2, 2]]
    for capacity, counts in ((3, [3, 0]), (2, [0, 2]), (4, [3, 1])):
        solved = solve_window(count_problem(steps, [1, 1], capacity))
        assert solved.counts.tolist() == counts


tables = st.sampled_from(
    ([0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 8], [8, 0, 0, 0], [1, 2, 4, 8], [8, 4, 2, 1])
)


@given(
    st.lists(st.tuples(tables, st.sampled_from((1, 2, 5, 6))), min_size=1, max_size=6),
    st.sampled_from((1.0, 1e9, 1e21)),
    st.sampled_from((0.0, 1e-9, 1.0, 1e12)),
    st.data(),
)
def test_degenerate_shapes(
    jobs: list[tuple[list[int], int]], weight: float, regularizer: float, data: st.DataObject
) -> None:
    weights = data.draw(st.lists(st.sampled_from((1.0, weight)), min_size=6, max_size=6))
    problem = count_problem(
        [
            [scale * gain for gain in gains]
            for (gains, _), scale in zip(jobs, weights, strict=False)
        ],
        [gang for _, gang in jobs],
        capacity=6 * 4,
        lengths=[float(data.draw(st.integers(0, 9))) for _ in jobs],
        regularizer=regularizer,
    )
    assert_certified(problem, optimum(problem), 2 * lagrangian.TARGET_GAP)


@pytest.mark.parametrize(
    ("core_solves", "options", "states"), list(product((1, 40), (0, 8), (0, 50)))
)
def test_the_bound_holds_at_any_bound_on_effort(
    core_solves: int, options: int, states: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lagrangian, "CORE_SOLVES", core_solves)
    monkeypatch.setattr(lagrangian, "FIRST_OPTIONS", options)
    monkeypatch.setattr(lagrangian, "MOST_OPTIONS", options)
    monkeypatch.setattr(core, "STATES", states)
    for seed in range(100):
        problem = random_problem(seed, jobs=6, rounds=5, gpus=9)
        assert_certified(problem, optimum(problem), 1.0)
