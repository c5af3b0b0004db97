"""Makespan and finish-time fairness with pairs: their optima, and never worse than without."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.arrays import Floats
from predictor.errors import InputError
from predictor.job import JobProgress
from predictor.rows import from_json
from predictor.throughput import Profile
from solver.pairs import ALONE, Rows
from solver.plan import Situation
from solver.policies import check_switches, make_policy
from solver.policies.contenders import Contenders
from solver.policies.ledger import Ledger
from solver.policies.ossp import TOLERANCE, find_least_time, find_quickest_shares
from solver.policies.themis import find_fairest_shares
from tests.solver.test_packed_shares import best_minimum, by_job, packing
from tests.solver.test_policies import job, situation
from tests.strategies import cluster, examples

CLOSE = 1e-4
"""Relative error of the interior-point method's optima."""


@st.composite
def contenders(draw: st.DrawFn) -> Contenders:
    """Up to five jobs with gangs of 1 or 2 on one or two types, and some of their pairs."""
    count, types = draw(st.integers(1, 5)), draw(st.integers(1, 2))

    def numbers(low: int, high: int, *shape: int) -> Floats:
        drawn = [float(draw(st.integers(low, high))) for _ in range(int(np.prod(shape)))]
        return np.array(drawn).reshape(shape)

    alone, gangs = numbers(1, 50, count, types) / 10, numbers(1, 2, count)
    members, rates = [(j, ALONE) for j in range(count)], [[own, 0 * own] for own in alone]
    for j in range(count):
        for i in range(j):
            if gangs[i] == gangs[j] and draw(st.booleans()):
                members.append((i, j))
                rates.append([alone[i] * part for part in numbers(1, 10, 2, types) / 10])
                rates[-1][1] *= alone[j] / alone[i]
    jobs = Contenders(
        gpus=numbers(2, 4, types),
        gangs=gangs,
        rates=alone,
        steps_left=numbers(1_000, 100_000, count),
        ages=numbers(0, 50_000, count),
        weights=np.ones(count),
    )
    rows = Rows(np.array(members), gangs[np.array(members)[:, 0]], np.array(rates))
    return replace(jobs, rows=rows)


def in_steps(jobs: Contenders, shares: Floats) -> Floats:
    """Steps a second of each job, by shares that keep to the GPUs and to the jobs' time."""
    rows = jobs.rows
    assert rows is not None
    takes, speeds = by_job(rows.members, rows.rates)
    assert ((shares >= 0.0) & (shares <= 1.0)).all()
    assert (takes @ shares.sum(axis=1) <= 1.0 + 1e-5).all()
    assert (rows.gangs @ shares <= jobs.gpus * (1 + 1e-5)).all()
    throughput: Floats = (speeds * shares).sum(axis=(1, 2))
    return throughput


def best(jobs: Contenders, weights: Floats) -> float:
    """max min_j weight_j · steps a second of j, by a simplex method."""
    rows = jobs.rows
    assert rows is not None
    return best_minimum(rows.gangs, jobs.gpus, rows.members, rows.rates, weights)


@examples(25)
@given(contenders())
def test_ossp_with_pairs_has_the_least_makespan_and_none_longer_than_without(
    jobs: Contenders,
) -> None:
    left = jobs.steps_left
    least = 1.0 / best(jobs, 1.0 / left)
    assert find_least_time(jobs) == pytest.approx(least, rel=CLOSE)
    assert find_least_time(jobs) <= find_least_time(replace(jobs, rows=None)) * (1 + CLOSE)
    ends = left / in_steps(jobs, find_quickest_shares(jobs))
    assert ends.max() <= TOLERANCE * max(least, 100.0) * (1 + CLOSE)


def worst(jobs: Contenders, alone: Floats) -> float:
    """ρ of the job that is worst off under the fairest shares."""
    shares = find_fairest_shares(jobs, alone, np.ones(len(alone), dtype=bool))
    alone_only = jobs.rows is None
    throughput = (jobs.rates * shares).sum(axis=1) if alone_only else in_steps(jobs, shares)
    return float(((jobs.ages + jobs.steps_left / throughput) / alone).max())


@examples(25)
@given(contenders(), st.integers(1_000, 50_000))
def test_themis_with_pairs_has_the_best_worst_fairness_and_none_worse_than_without(
    jobs: Contenders, seconds: int
) -> None:
    alone = np.full(len(jobs.gangs), float(seconds))
    attained = worst(jobs, alone)
    left = (1.0 - 1e-3) * attained * alone - jobs.ages  # a hair less is out of reach
    assert (left <= 0.0).any() or best(jobs, left / jobs.steps_left) < 1.0
    assert attained <= worst(replace(jobs, rows=None), alone) * (1 + CLOSE)


def test_a_pair_runs_while_a_third_job_has_the_gpu_that_suits_it() -> None:
    """Two GPUs, two jobs of 80,000 steps, 10 a second on either and 8 each on the same one.

    A third needs 1,000 s of the first GPU. Meanwhile the pair does 8,000 steps each on the second,
    then each the other 72,000 on a GPU of its own: 8,200 s. Alone one of the two would wait, which
    makes 10,000 of 160,000 steps in the first 1,000 s, and 20 a second then: 8,500 s.
    """
    rates = np.array([[10.0, 10.0], [10.0, 10.0], [20.0, 2.0]])
    jobs = Contenders(
        gpus=np.ones(2),
        gangs=np.ones(3),
        rates=rates,
        steps_left=np.array([80_000.0, 80_000.0, 20_000.0]),
        ages=np.zeros(3),
        weights=np.ones(3),
    )
    members = np.array([[0, ALONE], [1, ALONE], [0, 1], [2, ALONE]])
    by_row = np.zeros((4, 2, 2))
    by_row[[0, 1, 3], 0], by_row[2] = rates, 8.0
    both = replace(jobs, rows=Rows(members, np.ones(4), by_row))
    assert find_least_time(both) == pytest.approx(8_200.0, rel=CLOSE)
    assert find_least_time(jobs) == pytest.approx(8_500.0, rel=CLOSE)


def pair(*, left: tuple[float, float], memory: str = "", at: float = 0.0) -> Situation:
    """Two jobs on one GPU, of 10 and 4 steps a second, 0.8 of that together."""
    rates = {"a": 10.0, "b": 4.0}
    jobs = packing(job(0, 8), job(1, 8), models="ab")
    profile = Profile.of_type({(model, 16, 1): rate for model, rate in rates.items()})
    kind = jobs[0].menu[0].gpu_type
    shared = {(one, 16, other, 16, kind, 1): 0.8 * rates[one] for one, other in ("ab", "ba")}
    jobs = [
        replace(
            own,
            throughput=replace(profile, pairs=shared),
            belief=replace(
                own.belief, progress=JobProgress(own.job_id, 0, 0.0, 16, 1.0, 1.0, steps)
            ),
        )
        for own, steps in zip(jobs, left, strict=True)
    ]
    given = replace(situation(*jobs), inventory=cluster(1), clock_seconds=at)
    return replace(given, memory=memory)


@pytest.mark.parametrize("policy", ["gavel", "themis", "ossp"])
def test_two_jobs_on_one_gpu_share_it_whatever_the_units_of_their_steps(policy: str) -> None:
    given = pair(left=(100_000, 40_000))  # 10,000 s of each, 12,500 s of both together
    plan = make_policy(policy, values={"packed": 1.0}).plan(given)
    assert plan.pairs == ((0, 1),)
    accounts = from_json(Ledger, plan.memory).accounts
    assert accounts[0, 1].share[0] > 0.95
    alone = make_policy(policy).plan(given)
    assert (len(alone.placement), alone.pairs) == (1, ())


def test_max_min_fairness_with_pairs_goes_by_speeds_and_not_by_the_units_of_steps() -> None:
    """Two that do not fit together have half the time each, of 10 and 4 steps a second."""
    given = pair(left=(100_000, 40_000))
    profile = given.jobs[0].throughput
    assert isinstance(profile, Profile)
    never = replace(profile, pairs=dict.fromkeys(profile.pairs, 0.0))
    apart = replace(given, jobs=tuple(replace(job, throughput=never) for job in given.jobs))
    plan = make_policy("gavel", values={"packed": 1.0}).plan(apart)
    accounts = from_json(Ledger, plan.memory).accounts
    assert [accounts[job,].share[0] for job in (0, 1)] == pytest.approx([0.5, 0.5], abs=1e-4)


def test_themis_with_pairs_remembers_what_the_steps_done_would_have_taken_alone() -> None:
    policy = make_policy("themis", values={"packed": 1.0})
    first = pair(left=(100_000, 40_000))
    plan = policy.plan(first)
    noted = from_json(Ledger, plan.memory).notes
    assert noted == ((0, 0.0, 100_000, 5.0), (1, 0.0, 40_000, 2.0))  # half a GPU each
    later = pair(left=(95_000, 39_000), memory=plan.memory, at=600.0)
    third = replace(packing(job(2, 8), models="a")[0], throughput=later.jobs[0].throughput)
    later = replace(later, jobs=(*later.jobs, third))  # who arrives has shares computed again
    noted = from_json(Ledger, policy.plan(later).memory).notes
    assert [note[:2] for note in noted] == [(0, 1_000.0), (1, 500.0), (2, 0.0)]


def test_themis_has_no_leases_with_pairs() -> None:
    with pytest.raises(InputError, match="lease_seconds"):
        make_policy("themis", values={"packed": 1.0, "lease_seconds": 600.0})


@pytest.mark.parametrize(
    ("policy", "parameter", "value"),
    [("mst", "costed", 2.0), ("gavel", "packed", 0.5), ("fifo", "backfill", 0.1)],
)
def test_a_switch_is_on_or_off(policy: str, parameter: str, value: float) -> None:
    with pytest.raises(InputError, match=f"parameters.{parameter}: {value:g} is neither 0 nor 1"):
        check_switches(policy, {parameter: value})
