"""The program over time against another solver, and the bids from its prices."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import linprog

from predictor.arrays import Floats
from predictor.errors import SolverError
from solver.backends import foresight as bidding
from solver.backends import over_time
from solver.backends.foresight import measure_savings
from solver.backends.makespan import EXACT
from solver.backends.over_time import ProgramOverTime, price_over_time
from tests.strategies import examples


def drawn(seed: int, jobs: int, types: int) -> ProgramOverTime:
    rng = np.random.default_rng(seed)
    speed = rng.lognormal(0.5, 1.0, (jobs, 1)) * rng.uniform(0.1, 1.0, (jobs, types))
    speed[rng.random((jobs, types)) < 0.2] = 0.0
    speed[np.arange(jobs), rng.integers(0, types, jobs)] += 0.7
    lengths = np.array([0.1, 0.2, 0.5, 0.2])
    late = np.maximum.accumulate(rng.uniform(0.0, 3.0, (jobs, 4)), axis=1)
    return ProgramOverTime(
        speed,
        np.cumsum(lengths) + late,
        rng.uniform(0.1, 1.0, jobs),
        2.0 ** rng.integers(0, 3, jobs),
        rng.integers(4, 9, types).astype(float),
        lengths,
        rng.uniform(0.2, 3.0),
    )


def optimum(program: ProgramOverTime, prices: Floats | None = None) -> float:
    """The program's optimum; at prices, that in which GPUs are bought in place of being limited."""
    (jobs, types), intervals = program.speed.shape, len(program.lengths)
    job, time, kind = np.nonzero(np.broadcast_to(program.speed[:, None], (jobs, intervals, types)))
    speed, gangs, rows = program.speed[job, kind], program.gangs[job], np.arange(len(job))
    costs = program.costs[job, time] * speed + program.fixed[job]
    end, sold = program.makespan * jobs, 0.0
    work, busy = np.zeros((jobs, len(rows) + 1)), np.zeros((jobs * intervals, len(rows) + 1))
    used = np.zeros((intervals * types, len(rows) + 1))
    work[job, rows], busy[job * intervals + time, rows] = speed, 1.0
    used[time * types + kind, rows] = gangs
    length = np.where(np.arange(intervals) < intervals - 1, program.lengths, 0.0)
    busy[intervals - 1 :: intervals, -1] = -1.0
    used[-types:, -1] = -program.capacities
    limits, bounds = [busy, used], [np.tile(length, jobs), np.outer(length, program.capacities)]
    if prices is not None:
        costs = costs + gangs * prices[time, kind]
        end -= float(program.capacities @ prices[-1])
        sold = float((length[:, None] * program.capacities * prices).sum())
        limits, bounds = limits[:1], bounds[:1]
    found = linprog(
        np.append(costs, end),
        A_ub=np.vstack(limits),
        b_ub=np.concatenate([bound.ravel() for bound in bounds]),
        A_eq=work,
        b_eq=np.ones(jobs),
    )
    return float(found.fun) - sold


@examples(30)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 12),
    st.integers(1, 4),
    st.sampled_from([1, 4]),
    st.sampled_from([over_time.CLOSED, EXACT]),
)
@example(102, 3, 2, 1, EXACT)
def test_the_search_ends_with_a_proof_of_its_gap(
    seed: int, jobs: int, types: int, intervals: int, gap: float
) -> None:
    program = drawn(seed, jobs, types)
    program = replace(
        program, costs=program.costs[:, -intervals:], lengths=program.lengths[-intervals:]
    )
    at = over_time._Point(program)
    while not at.closed(gap):
        at.step()
    lengths, kappa = program.lengths[:-1, None], program.makespan * jobs
    # A plan: what it lacks of the work or has too much of the GPUs is next to nothing.
    y, end, lack = at.x.y, float(at.x.all[-1]), 0.1 * gap
    assert y.min() >= 0.0
    assert (y[:, program.speed.T == 0.0] == 0.0).all()
    assert np.einsum("tkj,jk->j", y, program.speed) == pytest.approx(np.ones(jobs), abs=lack)
    spans = np.append(lengths, [[end]], axis=0)
    assert (y.sum(axis=1) <= spans + lack).all()
    assert (y @ program.gangs <= spans * program.capacities + lack * program.capacities).all()
    costs = program.costs.T[:, None] * program.speed.T + program.fixed
    value = float((costs * y).sum()) + kappa * end
    # What every plan costs at least: v is the most that prices and premiums let the work cost.
    prices, premiums = at.d.u, at.d.s
    assert min(prices.min(), premiums.min()) >= 0.0
    assert prices[-1] @ program.capacities + premiums[-1].sum() <= kappa * (1.0 + gap)
    paid = costs + np.multiply.outer(prices, program.gangs) + premiums[:, None]
    runs = program.speed.T > 0.0
    each = np.divide(paid, program.speed.T, out=np.full(paid.shape, np.inf), where=runs)
    bound = float(each.min(axis=(0, 1)).sum())
    bound -= float(
        (lengths * (prices @ program.capacities + premiums.sum(axis=1))[:-1, None]).sum()
    )
    assert bound == pytest.approx(value, rel=3.0 * gap)


@examples(30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 4))
def test_at_the_prices_nothing_is_gained_by_having_more_gpus_than_there_are(
    seed: int, jobs: int, types: int
) -> None:
    program = drawn(seed, jobs, types)
    found = price_over_time(program)
    prices = found.prices
    assert found.closed
    assert prices.min() >= 0.0
    assert optimum(program, prices) == pytest.approx(optimum(program), rel=2e-3)


def unlike(jobs: int, types: int, gangs: Floats) -> ProgramOverTime:
    """Jobs whose run times differ by a thousandfold and more, over ten intervals."""
    rng, lengths = np.random.default_rng(1), 1.6 ** np.arange(10)
    lengths = np.append(0.8 * lengths[:9] / lengths[:9].sum(), 0.2)
    speed = rng.lognormal(2.0, 4.0, (jobs, 1)) * rng.uniform(0.1, 1.0, (jobs, types))
    late = np.maximum.accumulate(rng.uniform(0.0, 3.0, (jobs, 10)), axis=1)
    return ProgramOverTime(
        speed,
        np.cumsum(lengths) + late,
        np.full(jobs, 0.5),
        gangs,
        np.full(types, 12.0),
        lengths,
        2,
    )


@pytest.mark.parametrize(
    ("jobs", "types", "largest"), [(300, 3, 8), (1, 2, 1), (1, 2, 64), (5, 2, 64)]
)
def test_the_search_ends_at_the_optimum_and_says_so(
    jobs: int, types: int, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gangs = 2.0 ** np.random.default_rng(0).integers(0, largest.bit_length(), jobs)
    gangs[0] = largest
    found = price_over_time(unlike(jobs, types, gangs))
    assert found.closed
    monkeypatch.setattr(over_time, "STEPS", 3)
    assert not price_over_time(unlike(jobs, types, gangs)).closed


def test_a_step_without_a_direction_is_an_error_with_a_remedy() -> None:
    at = over_time._Point(unlike(3, 2, np.zeros(3)))
    at.x.u[:] = 0.0
    with pytest.raises(SolverError, match="program over time: a step fails: Singular matrix;"):
        at.step()


@pytest.mark.process
def test_prices_are_the_same_with_any_number_of_threads() -> None:
    asked = (
        "import numpy as np; from solver.backends import over_time as there;"
        "from tests.solver.test_foresight import unlike; there.STEPS = 3;"
        "found = [there.price_over_time(unlike(400, n, np.ones(400))) for n in (5, 9, 12, 25)];"
        "print([each.prices.tobytes().hex() for each in found])"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", asked],
            env={**os.environ, "OPENBLAS_NUM_THREADS": threads},
            check=True,
            capture_output=True,
        ).stdout
        for threads in ("1", "2")
    }
    assert len(said) == 1


@examples(50)
@given(st.floats(1e-3, 0.5))
@example(0.21)
@example(0.3)
@example(0.4)
def test_intervals_begin_with_a_round_and_none_is_shorter(first: float) -> None:
    lengths = bidding._lengths(first)
    assert lengths[0] == first
    assert lengths.sum() == pytest.approx(1.0)
    assert 2 <= len(lengths) <= bidding.INTERVALS
    assert lengths.min() >= (1.0 - 1e-9) * first
    assert len(lengths) == bidding.INTERVALS or first > bidding.FIXED / bidding.INTERVALS


def bids(seconds: list[float], gpus: int = 2, **asked: float) -> Floats:
    """Bids of jobs of one GPU on V100s, and at half the speed on K80s."""
    jobs = len(seconds)
    return measure_savings(
        np.ravel([(length, 2.0 * length) for length in seconds]),
        np.ones(2 * jobs),
        np.repeat(np.arange(jobs), 2),
        np.tile([0, 1], jobs),
        np.array([gpus, gpus]),
        weights=np.ones(jobs),
        due=np.full(jobs, asked.get("due", 1e9)),
        lateness=np.full(jobs, 5.0),
        least=sum(seconds) / 3.0 * 2.0 / gpus,
        round_seconds=100.0,
        makespan=asked.get("makespan", 1.0),
    ).saved.reshape(jobs, 2)


def test_short_jobs_bid_most_and_each_most_where_it_is_fastest() -> None:
    found = bids([400.0, 900.0, 2_000.0, 4_000.0, 8_000.0])
    assert (np.diff(found[:4, 0]) < 0.0).all()
    assert (found[:, 0] > found[:, 1]).all()
    assert (found >= 0.0).all()


def test_a_job_that_ends_within_the_round_bids_what_it_loses_by_waiting_for_the_next() -> None:
    long = [3_000.0 + 100.0 * n for n in range(8)]
    found = bids([20.0, *long])
    assert found[0, 1] > 0.9 * found[0, 0], "it ends in the round on either type"
    assert (found[1:, 1] < 0.6 * found[1:, 0]).all()
    late = bids([20.0, *long], due=0.0)
    assert late[0].min() > 3.0 * found[0].max(), "by the next round it is later"


def test_bids_from_the_prices_of_a_sample_are_near_those_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = np.random.default_rng(0).lognormal(8.0, 1.0, 240).tolist()
    monkeypatch.setattr(over_time, "MOST", 80)
    some = bids(seconds, gpus=20)
    monkeypatch.undo()
    every = bids(seconds, gpus=20)
    assert np.abs(some / every - 1.0).mean() < 0.1


@examples(20)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 4))
def test_a_bid_is_what_the_work_of_the_round_costs_if_it_is_left_for_later(
    seed: int, jobs: int, types: int
) -> None:
    program, prices = drawn(seed, jobs, types), price_over_time(drawn(seed, jobs, types))
    first, later = program.lengths[0], np.append(program.lengths[1:-1], prices.last)
    found = bidding._bids(program, prices)
    whole = program.makespan * jobs - float(program.capacities @ prices.prices[-1])
    for job, speeds in enumerate(program.speed):
        kinds = np.flatnonzero(speeds)
        speed, gang, fixed = speeds[kinds], program.gangs[job], program.fixed[job]
        costs = program.costs[job, 1:, None] * speed + fixed + gang * prices.prices[1:, kinds]
        costs = np.vstack([costs, costs[-1] + max(whole, 0.0)])
        for kind in range(types):
            x = min(first * speeds[kind], 1.0)
            saved = 0.0
            if x > 0.0:
                saved = work_costs(1.0, speed, costs, later)
                saved -= work_costs(1.0 - x, speed, costs, later)
                saved -= x * program.costs[job, 0] + fixed * x / speeds[kind]
            assert found[job, kind] * first == pytest.approx(max(saved, 0.0), rel=1e-6, abs=1e-6)


def work_costs(work: float, speed: Floats, costs: Floats, lengths: Floats) -> float:
    """The least that so much work costs, by the costs of a second and, last, beyond the end."""
    busy = np.kron(np.eye(len(costs))[:-1], np.ones(len(speed)))
    done = np.tile(speed, len(costs))
    return float(linprog(costs.ravel(), busy, lengths, done[None], [work]).fun)
