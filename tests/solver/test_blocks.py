"""Limits of the program over time by which gangs do or do not fit beside each other."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from predictor.arrays import Floats
from solver.backends import blocks
from solver.backends.blocks import price_with_blocks
from solver.backends.foresight import measure_savings
from solver.backends.over_time import PricesOverTime, ProgramOverTime, price_over_time
from tests.strategies import examples


def drawn(seed: int, jobs: int, types: int) -> ProgramOverTime:
    """Jobs of one, two and four GPUs, in four intervals."""
    rng = np.random.default_rng(seed)
    lengths = np.array([0.1, 0.2, 0.5, 0.2])
    return ProgramOverTime(
        rng.lognormal(0.5, 1.0, (jobs, 1)) * rng.uniform(0.1, 1.0, (jobs, types)),
        np.cumsum(lengths) + np.zeros((jobs, 1)),
        rng.uniform(0.1, 1.0, jobs),
        np.array([1.0, 2.0, 4.0])[rng.integers(0, 3, jobs)],
        rng.integers(4, 10, types).astype(np.float64),
        lengths,
        rng.uniform(0.2, 3.0),
    )


def optimum(program: ProgramOverTime, found: PricesOverTime) -> float:
    """The program's optimum with the limits that were found, by HiGHS."""
    (jobs, types), intervals = program.speed.shape, len(program.lengths)
    shape, limits = (intervals, types, jobs), found.limits
    times, kinds, rows = (place.ravel() for place in np.indices(shape))
    end = np.append(np.zeros(intervals - 1), 1.0)
    length = np.append(program.lengths[:-1], 0.0)
    above, room = [], []
    for time, job in product(range(intervals), range(jobs)):
        above.append(np.append((times == time) & (rows == job), -end[time]))
        room.append(length[time])
    for time, kind in product(range(intervals), range(types)):
        here = (times == time) & (kinds == kind)
        gpus = program.capacities[kind]
        above.append(np.append(program.gangs[rows] * here, -gpus * end[time]))
        room.append(gpus * length[time])
    for time, kind, takes, most in zip(*limits, strict=True):
        here = (times == time) & (kinds == kind)
        above.append(np.append(takes[rows] * here, -most * end[time]))
        room.append(most * length[time])
    speed = program.speed[rows, kinds]
    work = np.zeros((jobs, len(rows) + 1))
    work[rows, np.arange(len(rows))] = speed
    costs = program.costs[rows, times] * speed + program.fixed[rows]
    costs = np.append(costs, program.makespan * jobs)
    best = linprog(costs, A_ub=np.array(above), b_ub=room, A_eq=work, b_eq=np.ones(jobs))
    return float(best.fun)


@examples(15)
@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.integers(1, 3))
def test_the_program_is_solved_with_the_limits_that_it_breaks(
    seed: int, jobs: int, types: int
) -> None:
    program = drawn(seed, jobs, types)
    found = price_with_blocks(program)
    assert found.closed
    costs = program.costs.T[:, None] * program.speed.T + program.fixed
    value = float((costs * found.seconds).sum()) + program.makespan * jobs * found.last
    assert value == pytest.approx(optimum(program, found), rel=2e-3)
    # At the prices no second of the end is worth more than it costs.
    assert found.ending(program.capacities) <= 1.001 * program.makespan * jobs
    assert found.more.min(initial=0.0) >= 0.0


@examples(50)
@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(1, 20), st.integers(0, 2**32)
)
def test_limits_hold_whatever_gangs_run_beside_each_other(
    gangs: list[int], gpus: int, seed: int
) -> None:
    rng, sizes = np.random.default_rng(seed), np.array(gangs, dtype=float)
    running = np.zeros(len(gangs))
    for job in rng.permutation(len(gangs)):
        running[job] = float(running @ sizes + sizes[job] <= gpus)
    program = ProgramOverTime(
        np.ones((len(gangs), 1)),
        np.ones((len(gangs), 1)),
        np.ones(len(gangs)),
        sizes,
        np.array([float(gpus)]),
        np.ones(1),
        1.0,
    )
    limits = blocks.make_limits(program)
    assert (limits.takes @ running <= limits.room).all()


def alone(seconds: list[float], gangs: list[int], gpus: int) -> ProgramOverTime:
    """Work on one type, in which nothing costs but the end."""
    jobs = len(gangs)
    return ProgramOverTime(
        1.0 / np.array([seconds]).T,
        np.zeros((jobs, 1)),
        np.zeros(jobs),
        np.array(gangs, dtype=float),
        np.array([float(gpus)]),
        np.array([sum(seconds)]),
        1.0,
    )


def test_a_gang_of_two_beside_nothing_takes_the_gpus_of_four() -> None:
    # By GPUs alone half a gang of four runs beside that of two.
    program = alone([10.0, 10.0], [2, 4], 4)
    assert price_over_time(program).last == pytest.approx(15.0, rel=1e-2)
    assert price_with_blocks(program).last == pytest.approx(20.0, rel=1e-2)
    # Two gangs of two share a block, and nobody waits for either.
    program = alone([10.0, 10.0, 10.0], [2, 2, 4], 4)
    assert price_with_blocks(program).last == pytest.approx(20.0, rel=1e-2)


def test_only_one_gang_of_eight_has_room_on_twelve() -> None:
    program = alone([10.0, 10.0, 1.0], [8, 8, 1], 12)
    assert price_over_time(program).last < 15.0
    assert price_with_blocks(program).last == pytest.approx(20.0, rel=1e-2)


def test_of_more_limits_than_are_added_those_most_broken_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program, lengths = drawn(4, 32, 3), np.full(12, 1.0 / 12.0)
    sizes = np.random.default_rng(4).integers(0, 3, 32)
    program = replace(
        program,
        gangs=np.array([1.0, 4.0, 8.0])[sizes],
        capacities=np.array([19.0, 23.0, 17.0]),
        lengths=lengths,
        costs=np.cumsum(lengths) + np.zeros((32, 1)),
    )
    every = blocks.make_limits(program)

    def broken(found: PricesOverTime) -> Floats:
        room = np.append(lengths[:-1], found.last)[every.times] * every.room
        return np.asarray(every.taken(found.seconds) / room - 1.0)

    first, found = price_over_time(program), price_with_blocks(program)
    assert (broken(first) > blocks.BROKEN).sum() > blocks.ROWS
    assert 0 < len(found.more) <= blocks.ROWS
    assert broken(found).max() < 0.5 * broken(first).max()
    monkeypatch.setattr(blocks, "ROWS", 8)
    few = price_with_blocks(program).limits
    assert len(few.room) == 8
    # None says of a job without a part in it what that of no job says as well.
    own = np.where(few.takes > program.gangs, few.takes, 0.0)
    parts = few._replace(takes=own).taken(first.seconds)
    assert (parts[own.any(axis=1)] > 0.0).all()


def bids(seconds: list[float], gangs: list[int]) -> Floats:
    """Bids of jobs on four GPUs of one type."""
    jobs = len(gangs)
    return measure_savings(
        np.array(seconds),
        np.array(gangs, dtype=float),
        np.arange(jobs),
        np.zeros(jobs, dtype=np.int64),
        np.array([4]),
        weights=np.ones(jobs),
        due=np.full(jobs, 1e9),
        lateness=np.zeros(jobs),
        least=float(np.dot(seconds, gangs)) / 4.0,
        round_seconds=100.0,
        makespan=1.0,
    ).saved


def test_the_longest_of_small_gangs_bids_for_as_long_as_others_run_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Once the two short ones have ended, what is left of the long one holds all four GPUs.
    seconds, gangs = [8_000.0, 4_000.0, 4_000.0, 6_000.0, 6_000.0], [2, 2, 2, 4, 4]
    limited = bids(seconds, gangs)
    monkeypatch.setattr(blocks, "JOBS", 0)
    without = bids(seconds, gangs)
    assert limited[0] > limited[1]
    assert without[0] < without[1], "by GPUs alone the shorter one goes first"
