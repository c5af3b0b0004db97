"""Shares of time: what each policy computes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from predictor.errors import InputError
from predictor.rows import from_json
from solver.fidelity import Fidelity
from solver.plan import Situation
from solver.policies import make_policy
from solver.policies.allox import match_queue_heads
from solver.policies.contenders import Contenders
from solver.policies.gandiva_fair import GandivaFair
from solver.policies.gavel import Gavel
from solver.policies.ledger import Ledger
from solver.policies.mst import MaxSumThroughput
from solver.policies.ossp import OpenShop
from solver.policies.shares import SharePolicy
from solver.policies.themis import Themis, find_least_shares
from tests.solver.test_policies import job
from tests.strategies import among, cluster

ROUND_SECONDS = 100.0


@st.composite
def contenders(draw: st.DrawFn) -> Contenders:
    count = draw(st.integers(1, 12))

    def numbers(low: int, high: int) -> np.ndarray:
        return np.array([float(draw(st.integers(low, high))) for _ in range(count)])

    return of_one_type(
        gpus=draw(among(4, 8, 13)),
        gangs=np.array([float(draw(among(1, 1, 2, 4))) for _ in range(count)]),
        rates=numbers(1, 100) / 10,
        steps_left=numbers(0, 100_000),
        ages=numbers(0, 50_000),
        weights=numbers(1, 5),
    )


def of_one_type(
    gpus: float,
    gangs: np.ndarray,
    rates: np.ndarray,
    steps_left: np.ndarray,
    ages: np.ndarray,
    weights: np.ndarray,
    notes: Sequence[tuple[float, ...]] = (),
) -> Contenders:
    return Contenders(
        gpus=np.array([float(gpus)]),
        gangs=gangs,
        rates=rates[:, None],
        steps_left=steps_left,
        ages=ages,
        weights=weights,
        shares=np.zeros((len(gangs), 1)),
        notes=notes,
        job_ids=tuple(range(len(gangs))),
    )


def shares_of(policy: SharePolicy, jobs: Contenders) -> np.ndarray:
    shares, _ = policy.allocate(jobs)
    assert ((shares >= 0.0) & (shares <= 1.0)).all()
    assert shares.shape == (len(jobs.gangs), 1)
    return shares[:, 0]


def used(jobs: Contenders, shares: np.ndarray) -> float:
    return float(jobs.gangs @ shares)


@given(contenders())
def test_gavel_attains_the_best_minimum(jobs: Contenders) -> None:
    shares = shares_of(Gavel(), jobs)
    weights = jobs.gangs / jobs.weights
    count = len(weights)
    best = linprog(  # the last column is the minimum
        np.append(np.zeros(count), -1.0),
        A_ub=np.vstack(
            [
                np.append(jobs.gangs, 0.0),
                np.column_stack([-np.diag(weights), np.ones(count)]),
            ]
        ),
        b_ub=np.append(jobs.gpus, np.zeros(count)),
        bounds=[(0, 1)] * count + [(0, None)],
    )
    assert float((weights * shares).min()) == pytest.approx(-best.fun, rel=1e-5, abs=1e-6)
    assert used(jobs, shares) <= jobs.gpus[0] * (1 + 1e-6)


@given(contenders())
def test_mst_attains_the_best_sum(jobs: Contenders) -> None:
    shares = shares_of(MaxSumThroughput(), jobs)
    left, best, rates = float(jobs.gpus[0]), 0.0, jobs.rates[:, 0]
    for worth in np.argsort(-rates / jobs.gangs):  # a fractional knapsack
        share = min(1.0, left / jobs.gangs[worth])
        best, left = best + share * rates[worth], left - share * jobs.gangs[worth]
    assert float(rates @ shares) == pytest.approx(best, rel=1e-5)
    assert used(jobs, shares) <= jobs.gpus[0] * (1 + 1e-6)


@given(contenders())
def test_ossp_ends_within_five_percent_of_the_least_makespan(jobs: Contenders) -> None:
    shares = shares_of(OpenShop(), jobs)
    least = max(
        float(jobs.work_left.max()),
        float(jobs.gangs @ jobs.work_left) / float(jobs.gpus[0]),
        95.0,  # the bisection starts at 100 s
    )
    left = jobs.work_left
    ends = np.divide(left, shares, out=np.zeros_like(left), where=left > 0.0)
    assert float(ends.max()) <= 1.06 * least
    assert used(jobs, shares) <= jobs.gpus[0] * (1 + 1e-6)


def fairness(jobs: Contenders, alone: np.ndarray, shares: np.ndarray) -> float:
    left = jobs.work_left
    waits = np.divide(left, shares, out=np.zeros_like(left), where=left > 0.0)
    return float(((jobs.ages + waits) / alone).max())


@given(contenders(), st.integers(1, 50_000))
def test_themis_attains_the_best_worst_fairness(jobs: Contenders, alone: int) -> None:
    times = alone + jobs.work_left
    everybody = np.ones(len(times), dtype=bool)
    shares = find_least_shares(jobs, times, everybody)
    assert used(jobs, shares) <= jobs.gpus[0] * (1 + 1e-6)
    assert shares.max() <= 1.0
    best = fairness(jobs, times, shares)
    # A hair less is out of reach: somebody would need more than all, or all than there is.
    time_left = best * (1 - 1e-6) * times - jobs.ages
    if (time_left > 0.0).all():
        needed = jobs.work_left / time_left
        assert needed.max() > 1.0 or used(jobs, needed) > jobs.gpus[0]
    # Whoever needs nothing more has a fairness that no share can mend.
    else:
        assert best == pytest.approx(float((jobs.ages / times).max()), rel=1e-5)


def test_themis_leaves_to_the_others_what_the_unfairly_treated_do_not_need() -> None:
    jobs = of_one_type(
        gpus=1,
        gangs=np.ones(2),
        rates=np.ones(2),
        steps_left=np.array([100.0, 100.0]),
        ages=np.array([900.0, 0.0]),
        weights=np.ones(2),
    )
    # Only the old job takes part, and it can use the whole GPU.
    shares = shares_of(Themis(filter=0.5), jobs)
    assert shares == pytest.approx([1.0, 0.0], abs=1e-6)
    assert shares_of(Themis(), jobs)[1] > 0.05
    with pytest.raises(InputError, match=r"parameters.filter: 1 is not in \[0, 1\)"):
        make_policy("themis", values={"filter": 1.0})


def test_themis_counts_the_time_that_steps_would_have_taken_on_equal_shares() -> None:
    policy = Themis()
    first = of_one_type(
        1,
        np.ones(2),
        np.ones(2),
        np.array([300.0, 300.0]),
        np.zeros(2),
        np.ones(2),
    )
    _, notes = policy.allocate(first)
    assert notes == [
        (0, 0.0, 300.0, 0.5),
        (1, 0.0, 300.0, 0.5),
    ]  # two jobs on one GPU: half the speed each
    later = replace(
        first,
        steps_left=np.array([200.0, 300.0]),
        notes=notes,
    )
    _, notes = policy.allocate(later)
    assert notes == [(0, 200.0, 200.0, 0.5), (1, 0.0, 300.0, 0.5)]


@pytest.mark.parametrize("fidelity", Fidelity)
def test_themis_gives_equal_shares_where_a_job_is_past_its_end(fidelity: Fidelity) -> None:
    jobs = of_one_type(
        1,
        np.ones(2),
        np.ones(2),
        np.array([-5.0, 300.0]),
        np.zeros(2),
        np.ones(2),
        [(0, 10.0, 20.0, 0.5), (1, 10.0, 20.0, 0.5)],
    )
    shares, notes = Themis(fidelity).allocate(jobs)
    assert shares.tolist() == [[0.5], [0.5]]
    if fidelity is Fidelity.FAIR:
        assert notes == [(0, 10.0, 20.0, 0.5), (1, 10.0, 20.0, 0.5)]
    else:  # the published simulator counts the stretch now and again next time
        assert notes == [(0, 60.0, 20.0, 0.5), (1, -550.0, 20.0, 0.5)]


def test_gandiva_fair_gives_all_the_same_whatever_their_size() -> None:
    jobs = of_one_type(
        3,
        np.array([1.0, 2.0, 1.0, 1.0]),
        np.ones(4),
        np.ones(4),
        np.zeros(4),
        np.ones(4),
    )
    assert shares_of(GandivaFair(), jobs).tolist() == [0.75] * 4


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=30, unique=True), st.integers(1, 10))
def test_the_first_in_line_are_the_shortest_but_for_uneven_queues(
    seconds: list[int], queues: int
) -> None:
    # On equal machines the least sum of completion times starts with the shortest jobs.
    lengths = np.array(seconds, dtype=float)
    ages = np.arange(len(lengths), dtype=float)
    (first,) = match_queue_heads(lengths[:, None], ages, np.array([queues]))
    assert len(first) == len(set(first))
    # All queues but some are as long as the longest; those begin with one of the next.
    ordered, longer = sorted(lengths), len(lengths) % queues
    assert len(first) == min(queues, len(lengths))
    assert set(ordered[:longer]) <= set(lengths[first])
    assert max(lengths[first]) <= ordered[min(longer + queues, len(ordered)) - 1]


def test_allox_takes_the_oldest_and_settles_a_job_that_has_a_gpu_to_itself() -> None:
    policy = make_policy("allox")
    jobs = [job(j, 10 + j, arrival=100.0 * j) for j in range(6)]
    inputs = Situation(1_000.0, cluster(2), ROUND_SECONDS, 6, tuple(jobs))
    memory = policy.plan(inputs).memory
    ledger = from_json(Ledger, memory)
    assert [row.share for row in ledger.accounts.values()] == [(1.0,)] * 2 + [(0.0,)] * 4

    def settle(situation: Situation) -> list[int]:
        rows = from_json(Ledger, policy.plan(situation).memory).accounts
        return [job for (job,), row in rows.items() if row.share == (1.0,)]

    # A shorter job does not unsettle them; it is matched when one of them has gone.
    newcomer = job(6, 1, arrival=1_000.0)
    more = replace(inputs, jobs=(*jobs, newcomer), memory=memory)
    shares = settle(more)
    assert shares == [0, 1]
    gone = replace(more, jobs=tuple(jobs[1:]))
    shares = settle(gone)
    assert shares == [1, 2]
