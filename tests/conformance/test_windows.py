"""The window problems of the published system on its 120-job trace."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.windows import WindowProblem, read_windows
from solver.backends.choice import Solution, relative_gap
from solver.window.counts import solve_counts
from solver.window.timetable import lay_out

Solved = dict[str, list[Solution]]


@pytest.fixture(scope="module")
def problems(data: Path) -> list[WindowProblem]:
    return list(read_windows(data / "windows_jobs120.jsonl"))


@pytest.fixture(scope="module")
def solved(problems: list[WindowProblem]) -> Solved:
    return {
        backend: [solve_counts(problem.market, backend) for problem in problems]
        for backend in ("lagrangian", "auto", "gurobi", "highs")
    }


@pytest.fixture(scope="module")
def objectives(problems: list[WindowProblem], solved: Solved) -> dict[str, list[float]]:
    """Of the plans as laid out, shortest job first; each must be feasible."""
    result: dict[str, list[float]] = {}
    for backend, counts in solved.items():
        result[backend] = []
        for problem, solution in zip(problems, counts, strict=True):
            market = problem.market
            order = np.argsort(market.remaining[:, 0], kind="stable").tolist()
            table = lay_out(market, solution.counts, order)
            assert (market.gangs @ table <= market.gpus).all(), problem.seq
            result[backend].append(market.objective(table.sum(axis=1)))
    return result


def test_all_are_there(problems: list[WindowProblem]) -> None:
    assert [problem.seq for problem in problems] == list(range(127))
    assert all(problem.reference_objective is not None for problem in problems)
    assert {problem.market.gpus for problem in problems} == {32}
    assert {problem.market.window for problem in problems} == {20}


@pytest.mark.parametrize("backend", ["lagrangian", "gurobi", "highs"])
def test_never_worse_than_the_published_system(
    backend: str, problems: list[WindowProblem], objectives: dict[str, list[float]]
) -> None:
    for problem, objective in zip(problems, objectives[backend], strict=True):
        assert problem.reference_objective is not None
        allowed = 1e-3 * abs(problem.reference_objective)
        assert objective >= problem.reference_objective - allowed, problem.seq


@pytest.mark.parametrize("backend", ["lagrangian", "gurobi", "highs"])
def test_mostly_better_than_the_published_system(
    backend: str, problems: list[WindowProblem], objectives: dict[str, list[float]]
) -> None:
    better = [
        objective > problem.reference_objective + 1e-6 * abs(problem.reference_objective)
        for problem, objective in zip(problems, objectives[backend], strict=True)
        if problem.reference_objective is not None
    ]
    assert sum(better) >= 80


def test_the_published_plans_stay_below_our_bound(
    problems: list[WindowProblem], solved: Solved
) -> None:
    for problem, counts in zip(problems, solved["gurobi"], strict=True):
        assert problem.reference_objective is not None
        slack = 1e-6 * abs(problem.reference_objective)
        assert problem.reference_objective <= counts.bound + slack, problem.seq


@pytest.mark.parametrize("backend", ["lagrangian", "gurobi", "highs"])
def test_all_are_solved_to_the_gap_by_the_back_end_asked_for(
    backend: str, problems: list[WindowProblem], solved: Solved
) -> None:
    for problem, counts in zip(problems, solved[backend], strict=True):
        assert counts.backend in (backend, "none")
        assert counts.status == "optimal"
        slack = 1e-4 * abs(counts.bound) + 1e-12
        gap = counts.bound - problem.market.objective(counts.counts)
        assert -1e-9 * abs(counts.bound) <= gap <= slack


def test_our_own_solver_is_never_worse_than_the_published_system_but_by_rounding(
    problems: list[WindowProblem], objectives: dict[str, list[float]]
) -> None:
    for backend in ("lagrangian", "auto"):
        for problem, objective in zip(problems, objectives[backend], strict=True):
            assert problem.reference_objective is not None
            rounding = 1e-12 * abs(problem.reference_objective)
            assert objective >= problem.reference_objective - rounding, problem.seq


def test_our_own_plans_are_certified_as_laid_out(
    problems: list[WindowProblem], solved: Solved, objectives: dict[str, list[float]]
) -> None:
    for problem, counts, objective in zip(
        problems, solved["lagrangian"], objectives["lagrangian"], strict=True
    ):
        assert -1e-12 <= relative_gap(counts.bound, objective) <= 1e-4, problem.seq


def test_back_ends_agree(problems: list[WindowProblem], solved: Solved) -> None:
    for other in ("gurobi", "highs"):
        for problem, ours, theirs in zip(
            problems, solved["lagrangian"], solved[other], strict=True
        ):
            expected = problem.market.objective(theirs.counts)
            assert problem.market.objective(ours.counts) >= expected - 1e-9 * abs(expected)
            assert problem.market.objective(ours.counts) == pytest.approx(expected, rel=1e-4)


def test_what_lay_out_loses_is_little(
    problems: list[WindowProblem], solved: Solved, objectives: dict[str, list[float]]
) -> None:
    for problem, counts, objective in zip(
        problems, solved["gurobi"], objectives["gurobi"], strict=True
    ):
        expected = problem.market.objective(counts.counts)
        assert objective == pytest.approx(expected, rel=1e-3), problem.seq
