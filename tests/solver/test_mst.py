"""Shares by steps per second or for money, with deadlines: `mst` on several GPU types."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from predictor.errors import InputError
from solver.fidelity import Fidelity
from solver.inventory import Inventory, Pool
from solver.pairs import ALONE, Rows
from solver.policies.contenders import Contenders, mean_price
from solver.policies.mst import MaxSumThroughput, find_promised_speeds
from tests.solver.test_shares_of_types import (
    constraints,
    contenders,
    of,
    shares_of,
    speed_rows,
    start,
    typed,
)
from tests.strategies import examples


@examples(25)
@given(contenders())
def test_mst_attains_the_best_sum(jobs: Contenders) -> None:
    rows, most = constraints(jobs)
    best = -linprog(-jobs.rates.reshape(-1), A_ub=rows, b_ub=most).fun
    assert (jobs.rates * shares_of(MaxSumThroughput(), jobs)).sum() == pytest.approx(best, rel=1e-4)


@examples(25)
@given(contenders())
def test_mst_by_cost_attains_the_most_steps_for_money(jobs: Contenders) -> None:
    rows, most = constraints(jobs)
    jobs = replace(jobs, prices=np.array([0.74, 0.43, 0.135])[: len(jobs.gpus)])
    value = jobs.rates / jobs.prices
    best = -linprog(-value.reshape(-1), A_ub=rows, b_ub=most).fun
    shares = shares_of(MaxSumThroughput(costed=1.0), jobs)
    assert (value * shares).sum() == pytest.approx(best, rel=1e-4)


def test_a_type_costs_what_its_pools_do_on_average() -> None:
    fast = (Pool("v100", 3, price=0.5), Pool("v100", 1, price=0.9))
    pools = (*fast, Pool("p100", 1, price=0.4), Pool("k80", 2, price=0.1))
    inputs = replace(start(typed(0), typed(1)), inventory=Inventory(pools))
    assert mean_price(inputs.inventory, "v100") == pytest.approx(0.6)
    assert len(MaxSumThroughput(costed=1.0).plan(inputs).placement) == 2
    free = replace(inputs, inventory=Inventory((*pools, Pool("k80", 1))))
    with pytest.raises(InputError, match="no price"):
        MaxSumThroughput(costed=1.0).plan(free)


def test_a_deadline_takes_a_job_from_the_cheap_type_to_the_dear_one() -> None:
    # 10 steps for 1 are more than 40 for 5, but 1,000 steps in 50 s are 20 a second.
    jobs = of([[40.0, 10.0], [40.0, 10.0]], gpus=(1, 2))
    jobs = replace(jobs, prices=np.array([5.0, 1.0]), time_left=np.array([50.0, np.inf]))
    for policy, gets in ((MaxSumThroughput(costed=1.0), 10.0), (BY_DEADLINE, 20.0)):
        throughput = (jobs.rates * shares_of(policy, jobs)).sum(axis=1)
        assert throughput == pytest.approx([gets, 10.0], rel=1e-3)
    # A deadline that is over asks for nothing, nor does one of a job that has nothing left to do.
    for changed in ({"time_left": np.array([0.0, -1.0])}, {"steps_left": np.array([0.0, 1_000.0])}):
        free = replace(jobs, **changed)
        assert not find_promised_speeds(free, Fidelity.FAIR).any()
        assert shares_of(BY_DEADLINE, free)[:, 1] == pytest.approx([1.0, 1.0], abs=1e-3)


def test_a_job_is_to_end_a_round_early_or_as_fast_as_it_can() -> None:
    jobs = replace(of([[40.0, 10.0]] * 4, gpus=(4, 4)), round_seconds=10.0)
    jobs = replace(jobs, time_left=np.array([50.0, 30.0, 20.0, np.inf]))
    assert find_promised_speeds(jobs, Fidelity.FAIR) == pytest.approx([25.0, 40.0, 0.0, 0.0])
    met = replace(jobs, time_left=np.array([50.0, 30.0, 25.0, np.inf]))
    assert find_promised_speeds(met, Fidelity.REFERENCE) == pytest.approx(
        [20.0, 100 / 3, 40.0, 0.0]
    )


BY_DEADLINE = MaxSumThroughput(costed=1.0, deadlines=1.0)


@pytest.mark.parametrize("types", [1, 2])
@pytest.mark.parametrize(
    ("deadlines", "fair", "reference"),
    [
        ([250, 0, 250, 0], [4.0, 0.0, 4.0, 0.0], [4.0, 0.0, 4.0, 0.0]),
        ([250, 50, 250, 0], [4.0, 0.0, 4.0, 0.0], [0.0] * 4),  # the second is too late alone
        ([260, 250, 0, 200], [0.0, 4.0, 0.0, 5.0], [0.0] * 4),  # there are 10 steps a second
    ],
)
def test_deadlines_that_cannot_all_be_met_count_by_the_next_or_as_published_not_at_all(
    types: int, deadlines: list[float], fair: list[float], reference: list[float]
) -> None:
    jobs = of([[10.0] * types] * 4, gpus=(1,) if types == 1 else (0.5, 0.5))
    jobs = replace(jobs, time_left=np.array([deadline or np.inf for deadline in deadlines]))
    for fidelity, expected in ((Fidelity.FAIR, fair), (Fidelity.REFERENCE, reference)):
        steps = find_promised_speeds(jobs, fidelity) * (jobs.rates[:, 0] if types == 1 else 1.0)
        assert steps == pytest.approx(expected)
        policy = MaxSumThroughput(fidelity, deadlines=1.0)
        throughput = (jobs.rates * policy.allocate(jobs)[0]).sum(axis=1)
        assert (throughput >= np.array(expected) * (1.0 - 1e-4)).all()


@examples(40)
@given(contenders(), st.lists(st.integers(-100, 40_000), min_size=7, max_size=7))
def test_deadlines_are_met_at_the_least_loss_of_steps_for_money(
    jobs: Contenders, time_left: list[int]
) -> None:
    left = np.array(time_left[: len(jobs.gangs)], dtype=float)
    left[left > 30_000.0] = np.inf
    jobs = replace(jobs, time_left=left, prices=np.array([0.74, 0.43, 0.135])[: len(jobs.gpus)])
    asked = np.where(left > 0.0, jobs.steps_left / np.maximum(left, 1.0), 0.0)
    rows, most = constraints(jobs)
    value = jobs.rates / jobs.prices
    floors = -speed_rows(jobs)

    def best(least: np.ndarray) -> float | None:
        """The most steps for money by a simplex method; None where nothing meets them."""
        found = linprog(
            -value.reshape(-1), A_ub=np.vstack([rows, floors]), b_ub=np.append(most, -least)
        )
        return -found.fun if found.status == 0 else None

    shares = shares_of(BY_DEADLINE, jobs)
    throughput = (jobs.rates * shares).sum(axis=1)
    counted = find_promised_speeds(jobs, Fidelity.FAIR)
    assert ((counted == 0.0) | (counted == asked)).all()
    assert (throughput >= counted * (1.0 - 1e-4)).all()
    assert (value * shares).sum() == pytest.approx(best(counted * (1.0 - 1e-5)), rel=1e-4)
    if best(asked) is not None:  # all can be met, and so they are
        assert (counted == asked).all()


@pytest.mark.parametrize(
    ("together", "within", "shares"),
    [
        # 10 steps a second and 4 alone. Both at 0.8 of that are 11.2, at 0.6 only 8.4.
        (0.8, 0.0, [0.0, 0.0, 1.0]),
        (0.6, 0.0, [1.0, 0.0, 0.0]),
        # 3,000 steps in 1,500 s are half of what the second makes alone: 8.4 for 5/6 of the time,
        # and 10 for the rest, are more than 10 and 4 for half of it each.
        (0.6, 1_500.0, [1 / 6, 0.0, 5 / 6]),
    ],
)
def test_pairs_are_worth_the_steps_of_both_and_meet_deadlines(
    together: float, within: float, shares: list[float]
) -> None:
    jobs = of([[10.0], [4.0]], gpus=(1,))
    jobs = replace(jobs, steps_left=np.array([1e6, 3_000.0]), time_left=np.array([0.0, within]))
    rates = np.zeros((3, 2, 1))
    rates[0, 0], rates[1, 0], rates[2] = 10.0, 4.0, together * jobs.rates
    rows = Rows(np.array([[0, ALONE], [1, ALONE], [0, 1]]), np.ones(3), rates)
    policy = MaxSumThroughput(Fidelity.REFERENCE, deadlines=1.0, packed=1.0)
    found, _ = policy.allocate(replace(jobs, rows=rows))
    assert found[:, 0] == pytest.approx(shares, abs=1e-3)
