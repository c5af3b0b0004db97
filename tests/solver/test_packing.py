"""The coming round with pairs as columns, against all possible rounds."""

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from solver.backends.packing import Packing, PairTable, pack
from tests.strategies import among, examples

Round = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, PairTable]


@st.composite
def rounds(draw: st.DrawFn) -> Round:
    """Up to five jobs that bid on one or two types, and some pairs of equal gangs."""
    types = draw(st.integers(1, 2))
    jobs = draw(st.integers(1, 5))
    gang = [draw(among(1, 1, 2)) for _ in range(jobs)]
    rows = [(j, k) for j in range(jobs) for k in range(types) if k == 0 or draw(st.booleans())]
    worth = np.array([draw(st.integers(0, 40)) / 10 for _ in rows])
    first, second, value = [], [], []
    for a, b in combinations(range(len(rows)), 2):
        (i, k), (j, there) = rows[a], rows[b]
        if i != j and k == there and gang[i] == gang[j] and draw(st.booleans()):
            first.append(a)
            second.append(b)
            value.append((worth[a] + worth[b]) * draw(st.integers(5, 9)) / 10)
    job_of = np.array([j for j, _ in rows])
    return (
        worth,
        np.array([gang[j] for j in job_of]),
        job_of,
        np.array([k for _, k in rows]),
        np.array([draw(st.integers(2, 4)) for _ in range(types)]),
        PairTable(np.array(first, int), np.array(second, int), np.array(value, float)),
    )


def value_of(given: Round, packing: Packing) -> float:
    worth, *_, pairs = given
    return float(worth[packing.rows].sum() + pairs.value[packing.pairs].sum())


def best(given: Round) -> float:
    """By trying all."""
    worth, gangs, job_of, type_of, capacities, pairs = given
    columns = [((job_of[r],), type_of[r], gangs[r], worth[r]) for r in range(len(worth))]
    columns += [
        ((job_of[a], job_of[b]), type_of[a], gangs[a], value)
        for a, b, value in zip(pairs.first, pairs.second, pairs.value, strict=True)
    ]

    def rest(number: int, busy: frozenset[int], free: tuple[int, ...]) -> float:
        if number == len(columns):
            return 0.0
        jobs, kind, gang, value = columns[number]
        skipped = rest(number + 1, busy, free)
        if not busy.isdisjoint(jobs) or gang > free[kind]:
            return skipped
        left = (*free[:kind], free[kind] - gang, *free[kind + 1 :])
        return max(skipped, value + rest(number + 1, busy.union(jobs), left))

    return rest(0, frozenset(), tuple(capacities.tolist()))


@examples(40)
@given(rounds())
def test_no_other_round_is_worth_more_and_the_bound_is_one(given: Round) -> None:
    worth, gangs, job_of, type_of, capacities, pairs = given
    packing = pack(*given)
    used = np.bincount(type_of, gangs * packing.rows, len(capacities)) + np.bincount(
        type_of[pairs.first], gangs[pairs.first] * packing.pairs, len(capacities)
    )
    assert (used <= capacities).all()
    jobs = [*job_of[packing.rows]]
    jobs += [*job_of[pairs.first[packing.pairs]], *job_of[pairs.second[packing.pairs]]]
    assert len(set(jobs)) == len(jobs)
    optimum, slack = best(given), 1e-6 + 1e-3 * float(worth.sum())
    assert optimum - slack <= value_of(given, packing) <= optimum + 1e-6
    assert packing.bound >= optimum - 1e-6


def test_a_job_shares_where_its_partner_gains_more_than_it_loses() -> None:
    # One GPU. Job 0 bids 3, jobs 1 and 2 bid 2; a pair gives each 0.8 of its bid.
    worth, own = np.array([3.0, 2.0, 2.0]), np.arange(3)
    pairs = PairTable(np.array([0, 1]), np.array([1, 2]), np.array([4.0, 3.2]))
    packing = pack(worth, np.ones(3, int), own, np.zeros(3, int), np.array([1]), pairs)
    assert packing.pairs.tolist() == [True, False]
    assert not packing.rows.any()
    with_two = pack(worth, np.ones(3, int), own, np.zeros(3, int), np.array([3]), pairs)
    assert with_two.rows.all()
