"""Shares of jobs and of pairs: the program, its rows, and how pairs are placed."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from predictor.rows import from_json, to_json
from predictor.throughput import Profile
from solver.backends.interior import find_best_packed_shares
from solver.fidelity import Fidelity
from solver.inventory import Inventory, Pool
from solver.list_scheduling import Claim, next_round
from solver.pairs import ALONE, find_pairs, make_rows
from solver.plan import ActiveJob
from solver.policies import make_policy
from solver.policies.gandiva import _draw_pairs, _Draws
from solver.policies.ledger import Ledger
from tests.solver.test_policies import job, situation
from tests.strategies import cluster, examples


def packing(*jobs: ActiveJob, models: str, together: float = 0.8) -> tuple[ActiveJob, ...]:
    """Jobs of models by letter; different ones get a part of their rates on the same GPUs."""
    kind = jobs[0].menu[0].gpu_type
    gangs = {job.gang for job in jobs}
    rates = {(model, 16, kind, g): 10.0 for model in models for g in gangs}
    pairs = {
        (model, 16, two, 16, kind, g): together * 10.0
        for model in models
        for two in models
        for g in gangs
        if model != two
    }
    profile = Profile(rates, pairs=pairs)
    return tuple(
        replace(
            job,
            belief=replace(job.belief, spec=replace(job.spec, model=model)),
            throughput=profile,
        )
        for job, model in zip(jobs, models, strict=True)
    )


def test_rows_are_jobs_and_pairs_of_equal_gangs_that_fit_together() -> None:
    jobs = packing(job(0, 5), job(1, 5), job(2, 5, gang=2), job(3, 5), models="abca")
    given = situation(*jobs)
    rows = make_rows(jobs, given.inventory.types)
    assert rows.members.tolist() == [
        [0, ALONE],
        [1, ALONE],
        [0, 1],
        [2, ALONE],
        [3, ALONE],
        [1, 3],
    ]
    assert rows.gangs.tolist() == [1, 1, 1, 2, 1, 1]
    assert rows.ratios().sum(axis=1)[:, 0] == pytest.approx([1, 1, 1.6, 1, 1, 1.6])


@st.composite
def packed(draw: st.DrawFn) -> tuple[np.ndarray, ...]:
    """Rows of up to five jobs on two types: members, rates, GPUs, weights."""
    jobs = draw(st.integers(1, 5))
    members = [(j, ALONE) for j in range(jobs)]
    members += [(i, j) for j in range(jobs) for i in range(j) if draw(st.booleans())]
    numbers = st.integers(1, 50)
    rates = np.zeros((len(members), 2, 2))
    for row, (_, second) in enumerate(members):
        for kind in range(2):
            if second == ALONE or draw(st.booleans()):
                rates[row, 0, kind] = draw(numbers) / 10
                rates[row, 1, kind] = draw(numbers) / 10 if second != ALONE else 0.0
    gpus = np.array([float(draw(st.integers(1, 3))) for _ in range(2)])
    weights = np.array([draw(numbers) / 10 for _ in range(jobs)])
    return np.array(members), rates, gpus, weights


def by_job(members: np.ndarray, rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which rows a job is in, shape (jobs, rows), and its rates there, (jobs, rows, types)."""
    jobs = range(members.max() + 1)
    takes = np.array([[j in pair for pair in members.tolist()] for j in jobs])
    none = np.zeros(rates.shape[2])
    speeds = [
        [
            rates[row, pair.index(j)] if j in pair else none
            for row, pair in enumerate(members.tolist())
        ]
        for j in jobs
    ]
    return takes, np.array(speeds)


def best_minimum(
    gangs: np.ndarray,
    gpus: np.ndarray,
    members: np.ndarray,
    rates: np.ndarray,
    weights: np.ndarray,
) -> float:
    """max min_j weight_j · throughput_j over rows by a simplex method."""
    (takes, speeds), jobs, types = by_job(members, rates), len(weights), len(gpus)
    rows = [
        *(np.append(np.kron(gangs, np.eye(types)[k]), 0.0) for k in range(types)),
        *(np.append(np.repeat(takes[j], types), 0.0) for j in range(jobs)),
        *(np.append(-weights[j] * speeds[j].reshape(-1), 1.0) for j in range(jobs)),
    ]
    most = [*gpus, *np.ones(jobs), *np.zeros(jobs)]
    most_of_each = [(0, None if runs else 0) for runs in (rates[:, 0] > 0.0).reshape(-1).tolist()]
    cost = np.append(np.zeros(types * len(members)), -1.0)
    found = linprog(cost, A_ub=rows, b_ub=most, bounds=[*most_of_each, (0, None)])
    return float(-found.fun)


@examples(25)
@given(packed())
def test_packed_shares_attain_the_best_minimum_within_time_and_gpus(
    drawn: tuple[np.ndarray, ...],
) -> None:
    members, rates, gpus, weights = drawn
    count = len(members)
    shares = find_best_packed_shares(np.ones(count), gpus, members, rates, floor_weights=weights)
    takes, speeds = by_job(members, rates)
    assert (shares[rates[:, 0] == 0.0] == 0.0).all()
    assert (takes @ shares.sum(axis=1) <= 1.0 + 1e-5).all()
    assert (shares.sum(axis=0) <= gpus * (1 + 1e-5)).all()
    attained = (weights * (speeds * shares).sum(axis=(1, 2))).min()
    best = best_minimum(np.ones(count), gpus, members, rates, weights)
    assert attained == pytest.approx(best, rel=1e-4)


def test_a_pair_gets_the_gpus_of_one_claim_and_goes_on_where_one_of_it_was() -> None:
    jobs = packing(job(0, 5, gpus=(2,)), job(1, 5, gpus=(3,)), job(2, 5), models="abc")
    own = jobs[0].menu[0]
    order = [Claim(jobs[2], own, jobs[1]), Claim(jobs[1], own), Claim(jobs[0], own)]
    placement = next_round(situation(*jobs), order)
    assert placement == {2: (3,), 1: (3,), 0: (2,)}
    assert find_pairs(placement, order) == ((1, 2),)


def test_of_two_claims_that_held_the_same_gpus_the_first_goes_on_there() -> None:
    jobs = packing(job(0, 5, gpus=(1,)), job(1, 5, gpus=(1,)), models="ab")
    order = [Claim(active, active.menu[0]) for active in (jobs[1], jobs[0])]
    placement = next_round(replace(situation(*jobs), inventory=cluster(2)), order)
    assert placement == {1: (1,), 0: (0,)}
    assert find_pairs(placement, order) == ()


def test_pairs_are_drawn_of_equal_gangs_and_the_draws_go_on_where_they_were() -> None:
    jobs, gangs = list(range(9)), [1.0] * 5 + [2.0] * 4
    generator, published = _Draws(0), Random(0)
    pairs = _draw_pairs(jobs, gangs, generator)
    assert pairs
    assert all(gangs[first] == gangs[other] for first, other in pairs)
    assert len({job for pair in pairs for job in pair}) == 2 * len(pairs)
    assert pairs == _draw_pairs(jobs, gangs, published)
    again = _draw_pairs(jobs, gangs, _Draws(generator.words))
    assert again == _draw_pairs(jobs, gangs, published) != pairs


@pytest.mark.parametrize(
    ("fidelity", "share"), [(Fidelity.FAIR, 0.666666667), (Fidelity.REFERENCE, 2 / 3)]
)
def test_shares_that_need_no_solver_keep_all_digits_as_published(
    fidelity: Fidelity, share: float
) -> None:
    given = replace(situation(*(job(n, 5) for n in range(3))), inventory=cluster(2))
    plan = make_policy("gandiva", fidelity=fidelity, values={"packed": 0.0}).plan(given)
    accounts = from_json(Ledger, plan.memory).accounts
    assert {account.share for account in accounts.values()} == {(share,)}


def test_notes_outlive_a_round_without_jobs() -> None:
    empty = situation()
    ledger = Ledger(empty.inventory.types, rounds=1, notes=((3,), (1, 2)))
    plan = make_policy("gandiva").plan(replace(empty, memory=to_json(ledger)))
    assert from_json(Ledger, plan.memory).notes == ((3,), (1, 2))


def test_inventories_of_several_pools_keep_pairs_in_one() -> None:
    pools = Inventory((Pool("a", 1), Pool("b", 1)))
    jobs = packing(job(0, 5), job(1, 5), models="ab")
    there = replace(jobs[0].menu[0], gpu_type="b")
    order = [Claim(jobs[0], there, jobs[1])]
    assert next_round(replace(situation(*jobs), inventory=pools), order) == {0: (1,), 1: (1,)}


@pytest.mark.parametrize("policy", ["gavel", "gandiva", "mst"])
def test_those_that_wait_stand_in_line_behind_those_that_run(policy: str) -> None:
    jobs = packing(*(job(n, 5) for n in range(5)), models="abaaa")
    given = replace(situation(*jobs), inventory=cluster(2))
    plan = make_policy(policy, values={"packed": 1.0}).plan(given)
    assert {*plan.order[: len(plan.placement)]} == plan.placement.keys()
    assert sorted(plan.order) == [0, 1, 2, 3, 4]


def test_those_without_a_share_stand_in_no_line() -> None:
    # As published, shares are computed again after 1000 s at the earliest.
    first = replace(situation(*packing(job(0, 5), models="a")), clock_seconds=10.0)
    policy = make_policy("gavel", fidelity=Fidelity.REFERENCE, values={"packed": 1.0})
    first = replace(first, memory=policy.plan(first).memory, clock_seconds=20.0)
    came = replace(first, jobs=packing(job(0, 5), job(1, 5, gang=2), models="aa"))
    assert policy.plan(came).order == (0,)


def test_pairs_stand_before_the_line_in_which_others_do() -> None:
    jobs = packing(*(job(n, 5) for n in range(5)), models="aaaab", together=0.95)
    given = replace(situation(*jobs), inventory=cluster(2))
    plan = make_policy("shockwave", values={"packed": 1.0}).plan(given)
    (pair,) = plan.pairs
    assert {*plan.order[:2]} == {*pair}
    assert sorted(plan.order) == [0, 1, 2, 3, 4]
    assert len(plan.worth) == len(plan.order)
