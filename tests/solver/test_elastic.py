"""Shockwave chooses how many GPUs elastic jobs get, by delay prices."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.runs.simulation import prepare
from predictor.allocation import Allocation, Demand
from predictor.goodput import Agent
from predictor.rows import from_json
from predictor.throughput import UNTYPED
from solver.backends import RELATIVE_GAP
from solver.backends.configurations import (
    MANY,
    choose_configurations,
    choose_on_one_type,
    price_gpus,
)
from solver.elastic import (
    ALIKE,
    MAKESPAN,
    Experience,
    Offers,
    level_prices,
    make_offers,
    plan_sizes,
    price_delays,
    value_offers,
    weigh_gpus,
)
from solver.inventory import Inventory, Pool
from solver.plan import ActiveJob, Situation
from tasks.round import run_round
from tests.runs import Memory, make
from tests.solver.test_policies import ROUND_SECONDS, job
from tests.solver.test_pollux import FOUR, start
from tests.solver.test_sia import CHOICES, values
from tests.solver.test_tiresias import start as situate
from tests.strategies import examples


@given(st.lists(values, min_size=1, max_size=4))
@examples(40)
def test_prices_bound_every_choice(table: list[dict[Allocation, float]]) -> None:
    capacities = {"a": 3, "b": 4}
    prices, total = price_gpus(table, capacities)
    gains = (
        max([0.0, *(worth - prices[c.gpu_type] * c.gpus for c, worth in row.items())])
        for row in table
    )
    bound = sum(prices[kind] * gpus for kind, gpus in capacities.items()) + sum(gains)
    assert bound == pytest.approx(total, abs=1e-6)
    for every in product(*([None, *row] for row in table)):
        used = {kind: sum(c.gpus for c in every if c and c.gpu_type == kind) for kind in "ab"}
        if all(used[kind] <= capacities[kind] for kind in used):
            assert sum(row[c] for row, c in zip(table, every, strict=True) if c) <= bound + 1e-6
    assert min(prices.values()) >= 0.0
    assert {choice.gpu_type for choice in CHOICES} == prices.keys()


@given(st.lists(values, min_size=1, max_size=4))
@examples(40)
def test_one_type_is_divided_exactly(table: list[dict[Allocation, float]]) -> None:
    on_one = [{c: worth for c, worth in row.items() if c.gpu_type == "a"} for row in table]
    chosen, total = choose_on_one_type(on_one, 3)
    _, bound = choose_configurations(on_one, {"a": 3})
    assert total == pytest.approx(bound, abs=1e-6)
    assert sum(c.gpus for c in chosen if c) <= 3
    got = sum(row[c] for row, c in zip(on_one, chosen, strict=True) if c)
    assert got == pytest.approx(total)


def test_many_configurations_are_chosen_among_within_the_gap() -> None:
    rng = np.random.default_rng(3)
    sizes = [(kind, 2**n) for kind in "ab" for n in range(7)]
    speeds = rng.uniform(0.3, 3.0, (400, 1)) * [gpus**0.7 * (1.0 + (k == "a")) for k, gpus in sizes]
    table = [
        {
            Allocation(kind, gpus): float(value)
            for (kind, gpus), value in zip(sizes, row, strict=True)
        }
        for row in speeds
    ]
    assert sum(map(len, table)) > MANY
    capacities = {"a": 500, "b": 300}
    chosen, bound = choose_configurations(table, capacities)
    assert (chosen, bound) == choose_configurations(
        table, capacities, price_gpus(table, capacities)
    )
    got = [(row[found], found) for row, found in zip(table, chosen, strict=True) if found]
    for kind, gpus in capacities.items():
        assert sum(found.gpus for _, found in got if found.gpu_type == kind) <= gpus
    assert bound * (1.0 - RELATIVE_GAP) <= sum(value for value, _ in got) <= bound * (1.0 + 1e-9)


def test_delay_prices_of_one_gpu_jobs_are_those_of_shortest_remaining_time() -> None:
    """The two that run are worth one more with each job: 2, 2 + 1, 2 + 2, 3 + 2, 3 + 3."""
    work = np.array([50.0, 40.0, 30.0, 20.0, 10.0])
    ones = np.ones(5, np.int64)
    found = price_delays(np.arange(5), ones, np.ones(5), work, np.ones(5), 2)
    assert found == pytest.approx([2.0, 1.0, 2.0, 3.0, 3.0], rel=0.04)


def test_delay_prices_make_the_market_worth_what_waiting_costs() -> None:
    """Three jobs with speeds k ** 0.7 on 16 GPUs; a bound on the market is 3 jobs and makespan."""
    sizes = np.tile(np.arange(1, 17), 3)
    job_of, speeds = np.repeat(np.arange(3), 16), sizes**0.7
    work, budgets = np.array([100.0, 900.0, 300.0]), np.ones(3)
    prices = price_delays(job_of, sizes, speeds, work, budgets, 16)
    assert prices[0] > prices[2] > prices[1]  # short jobs first
    table = [
        {Allocation("a", k): float(prices[row] * k**0.7) for k in range(1, 17)} for row in range(3)
    ]
    price = price_gpus(table, {"a": 16})[0]["a"]
    gains = (max(worth - price * c.gpus for c, worth in row.items()) for row in table)
    assert 16 * price + sum(gains) == pytest.approx(3.0 + MAKESPAN, rel=0.01)


def test_jobs_of_alike_work_have_equal_prices_on_several_types() -> None:
    prices, budgets = np.array([1.0, 3.0, 8.0]), np.array([1.0, 2.0, 1.0])
    found = level_prices(prices, np.array([100.0, 190.0, 50.0]), budgets)
    assert found == pytest.approx([1.25, 2.5, 8.0])  # 100 and 95 of work per budget are alike


@given(st.lists(st.tuples(*[st.floats(0.5, 3.0)] * 3), min_size=1, max_size=20))
@examples(40)
def test_prices_are_means_over_all_jobs_of_alike_work(jobs: list[tuple[float, ...]]) -> None:
    prices, work, budgets = np.array(jobs).T
    logs = np.log(work / budgets)
    means = [np.mean((prices / budgets)[np.abs(logs - log) <= ALIKE]) for log in logs]
    assert level_prices(prices, work, budgets) == pytest.approx(budgets * means)


def test_gpus_are_weighed_by_the_speeds_of_jobs_on_their_types() -> None:
    fast, slow = Allocation("a", 1), Allocation("b", 1)
    left = np.array([10.0, 30.0, 6.0, 20.0, 20.0])
    entries = fast, slow, Allocation("a", 2), fast, slow
    offers = Offers(np.array([0, 0, 0, 1, 1]), entries, left, np.ones(5, bool))
    assert weigh_gpus(offers) == pytest.approx({"a": 1.0, "b": 3.0**-0.5})
    # A job that can run on b alone says nothing about a, and none can run on c.
    alone = Offers(
        np.append(offers.job_of, [2, 2]),
        (*entries, slow, Allocation("c", 1)),
        np.append(left, [9.0, np.inf]),
        np.ones(7, bool),
    )
    assert weigh_gpus(alone) == pytest.approx({"a": 3.0**0.5, "b": 1.0})


def faster(seen: ActiveJob, speeds: tuple[float, ...]) -> ActiveJob:
    """The job on one to as many GPUs as there are speeds."""
    time = seen.run_time(seen.menu[0])
    spec = replace(seen.spec, demand=Demand(1, len(speeds)))
    menu = tuple(Allocation(UNTYPED, gpus) for gpus in range(1, len(speeds) + 1))
    found = replace(seen, belief=replace(seen.belief, spec=spec), menu=menu)
    for entry, speed in zip(menu, speeds, strict=True):
        left = time.remaining / speed
        found.know(replace(time, remaining=left, low=left, high=left, samples=(left,)), entry)
    return found


def holding(seen: ActiveJob) -> ActiveJob:
    """The job in its first round on a GPU."""
    return replace(seen, gpus=(0,), lease_rounds=1, held=seen.menu[0])


def test_what_a_configuration_is_worth_by_hand() -> None:
    """20 rounds are left on one GPU; on two it is 1.6 times as fast.

    Alone it runs on both, so its delay price is (1 + makespan) / 1.6.
    """
    waits = faster(job(0, 20.0), (1.0, 1.6))
    here = replace(situate(waits, gpus=2), restart_seconds=30.0)
    offers = make_offers(here, Experience())
    assert offers.left == pytest.approx([20 * ROUND_SECONDS, 12.5 * ROUND_SECONDS])
    price = (1.0 + MAKESPAN) / 1.6
    # Its restart takes a tenth of the 300 s that it is expected to stay.
    assert value_offers(here, offers) == pytest.approx([0.9 * price, 0.9 * 1.6 * price])
    # One of ten minutes is worth it for a job that holds nothing.
    slow = value_offers(replace(here, restart_seconds=600.0), offers)
    assert slow == pytest.approx([0.5 * price, 0.5 * 1.6 * price])
    stays = replace(here, jobs=(faster(holding(job(0, 20.0)), (1.0, 1.6)),))
    offers = make_offers(stays, Experience())
    assert value_offers(stays, offers) == pytest.approx([price, 0.9 * 1.6 * price])


def test_a_job_that_restarts_keeps_its_size() -> None:
    restarts = faster(holding(job(0, 9.0)), (1.0, 1.9))
    now = replace(situate(restarts, gpus=4), restart_seconds=2 * ROUND_SECONDS)
    assert make_offers(now, Experience()).allocations == restarts.menu[:1]


def test_gpus_go_where_they_save_most_time() -> None:
    """The job that speeds up gets what the other leaves, which does not."""
    crowd = faster(job(0, 20.0), (1.0, 1.0, 1.0)), faster(job(1, 20.0), (1.0, 1.9, 2.7))
    plan = plan_sizes("shockwave", situate(*crowd, gpus=4))
    sizes = {job_id: len(gpus) for job_id, gpus in plan.placement.items()}
    assert sizes == {0: 1, 1: 3}
    report = plan.report
    assert (report.status, report.backend, report.wanting) == ("optimal", "lagrangian", 0)
    assert report.objective == pytest.approx(report.bound)
    assert {bid.job_id: bid.allocation.gpus for bid in plan.bids} == sizes
    assert sorted(plan.order) == [0, 1]


def test_a_job_with_nothing_left_is_planned_like_others() -> None:
    ended, other = faster(job(0, 20.0), (np.inf, np.inf)), faster(job(1, 20.0), (1.0, 1.9))
    plan = plan_sizes("shockwave", situate(ended, other, gpus=3))
    assert {job_id: len(gpus) for job_id, gpus in plan.placement.items()} == {0: 1, 1: 2}


def test_measured_applications_run_and_share_what_they_measured(tmp_path: Path) -> None:
    made = make(start(tmp_path, *FOUR, policy="shockwave"))
    counts = {len(lease.gpus) for record in made.records for lease in record.leases}
    assert counts <= {1, 2, 4}
    assert max(counts) > 1
    ends = [event.job_id for record in made.records for event in record.finished]
    assert sorted(ends) == [0, 1, 2, 3]
    memories = [record.memory for record in made.records if record.memory]
    known = from_json(Experience, memories[-1])
    assert known.steps.keys() == known.noise.keys() == {"toy"}
    assert len(memories) < len(made.records)  # kept only if there is news


def test_a_new_job_of_a_known_application_bids_on_several_sizes(tmp_path: Path) -> None:
    with prepare(start(tmp_path, *FOUR, policy="shockwave")).open_run(Memory()) as run:
        for _ in range(3):
            run_round(run)
        belief = next(b for b in run.state.beliefs.values() if b.agent and b.agent.steps)
    assert belief.agent
    new = replace(belief, progress=None, observed=(), agent=Agent.of(belief.spec, belief.agent.app))
    menu = tuple(Allocation("t4", gpus, -(-gpus // 2)) for gpus in (1, 2, 3, 4))
    jobs = [replace(job(n, 9), belief=seen, menu=menu) for n, seen in enumerate((belief, new))]
    now = Situation(180.0, Inventory((Pool("t4", 4, 2),)), 60.0, 6, tuple(jobs))
    unknown = make_offers(now, Experience())
    assert [entry.gpus for entry in unknown.allocations] == [1, 1]
    offers = make_offers(now, Experience().after(jobs))
    assert [entry.gpus for entry in offers.allocations] == [1, 2, 4, 1, 2, 4]
    assert (offers.left[3:] > offers.left[:3]).all()  # the new one has its whole work ahead
