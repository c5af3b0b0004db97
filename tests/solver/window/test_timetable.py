from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from solver.window.counts import solve_counts
from solver.window.market import WindowMarket
from solver.window.timetable import lay_out
from tests.strategies import WindowJob, gang_heavy_windows, unit_windows, window_of, windows


def flat(*gangs: int, gpus: int, window: int) -> WindowMarket:
    """Jobs that gain one a round."""
    rounds = tuple(float(n) for n in range(window + 1))
    bids = [WindowJob(gang, rounds, rounds[::-1]) for gang in gangs]
    return window_of(gpus, window, 0.0, bids)


@st.composite
def counted(
    draw: st.DrawFn, problems: st.SearchStrategy[WindowMarket]
) -> tuple[WindowMarket, list[int], list[int]]:
    """A market, counts within its window's GPU-rounds, and an order."""
    market = draw(problems)
    room, counts = market.gpus * market.window, []
    for gang in market.gangs.tolist():
        counts.append(draw(st.integers(0, min(market.window, room // gang))))
        room -= counts[-1] * gang
    return market, counts, draw(st.permutations(range(len(counts))))


def test_the_first_in_order_runs_in_the_coming_round() -> None:
    market = flat(1, 1, gpus=1, window=4)
    counts = np.array([2, 2])
    assert lay_out(market, counts, [0, 1])[:, 0].tolist() == [True, False]
    assert lay_out(market, counts, [1, 0])[:, 0].tolist() == [False, True]


def test_a_job_that_needs_every_round_goes_before_the_order() -> None:
    market = flat(1, 1, 1, gpus=2, window=3)
    table = lay_out(market, np.array([3, 2, 1]), [1, 2, 0])
    assert table.sum(axis=1).tolist() == [3, 2, 1]
    assert table[0].all()


def test_a_gang_waits_for_the_round_that_has_room_for_all_of_it() -> None:
    market = flat(2, 1, 1, gpus=2, window=3)
    table = lay_out(market, np.array([1, 2, 2]), [1, 2, 0])
    assert table.sum(axis=1).tolist() == [1, 2, 2]
    assert not (table[0] & (table[1] | table[2])).any()


def test_counts_that_cannot_be_laid_out_are_given_up_in_part() -> None:
    # The gang fills two of three rounds, so the job beside it cannot run in all three.
    market = flat(4, 1, gpus=4, window=3)
    table = lay_out(market, np.array([2, 3]), [0, 1])
    used = market.gangs @ table
    assert used.max() <= 4
    assert table.sum(axis=1).tolist() != [2, 3]


def test_room_that_is_left_is_filled() -> None:
    market = flat(1, 1, gpus=2, window=3)
    assert lay_out(market, np.array([0, 0]), [0, 1]).all()


def test_no_jobs_have_an_empty_timetable() -> None:
    table = lay_out(window_of(4, 3, 1.0, ()), np.array([], dtype=np.int64), [])
    assert table.shape == (0, 3)


@given(counted(st.one_of(windows(), gang_heavy_windows)))
def test_no_round_uses_more_gpus_than_there_are(
    case: tuple[WindowMarket, list[int], list[int]],
) -> None:
    market, counts, order = case
    table = lay_out(market, np.array(counts, dtype=np.int64), order)
    assert table.shape == (len(counts), market.window)
    assert (market.gangs @ table <= market.gpus).all()


@given(counted(st.one_of(windows(), gang_heavy_windows)))
def test_no_gpu_idles_that_a_job_could_use(case: tuple[WindowMarket, list[int], list[int]]) -> None:
    market, counts, order = case
    table = lay_out(market, np.array(counts, dtype=np.int64), order)
    free = market.gpus - market.gangs @ table
    assert not ((market.gangs[:, None] <= free[None, :]) & ~table).any()


@given(counted(unit_windows))
def test_jobs_of_one_gpu_get_at_least_their_counts(
    case: tuple[WindowMarket, list[int], list[int]],
) -> None:
    market, counts, order = case
    table = lay_out(market, np.array(counts, dtype=np.int64), order)
    assert (table.sum(axis=1) >= counts).all()


@given(windows(), st.randoms(use_true_random=False))
def test_the_same_inputs_give_the_same_timetable(market: WindowMarket, random: Random) -> None:
    counts = solve_counts(market).counts
    before = counts.copy()
    order = list(range(len(counts)))
    random.shuffle(order)
    first, second = (lay_out(market, counts, order) for _ in range(2))
    assert np.array_equal(first, second)
    assert np.array_equal(counts, before)
