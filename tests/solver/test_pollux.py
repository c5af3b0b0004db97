"""Pollux divides GPUs by goodput, exactly and by its published search."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.virtual.application_cluster import ApplicationCluster
from flows.runs.simulation import prepare
from flows.runs.start import make_start
from solver.fidelity import Fidelity
from solver.genetic import PlacementSearch
from solver.inventory import Pool
from solver.policies.pollux import Pollux, PolluxMemory, divide_exactly, make_speedups
from tasks.record import Settings, Start
from tasks.round import run_round
from tests.applications import write_applications, write_jobs
from tests.runs import Memory, make
from tests.solver.test_policies import job
from tests.solver.test_tiresias import start as situate
from tests.strategies import examples
from warehouse.workloads.applications import read_application_jobs

FOUR = "a,0,toy,1,40", "b,0,toy,2,20", "c,30,toy,1,20", "d,90,toy,2,20"

numbers = st.integers(0, 3)


def start(
    tmp_path: Path, *jobs: str, policy: str = "pollux", fidelity: Fidelity = Fidelity.FAIR
) -> Start:
    """A run on two nodes of two GPUs."""
    path = write_jobs(tmp_path, *jobs)
    workload = read_application_jobs(path, write_applications(tmp_path / "apps"), ("t4",))
    settings = Settings(
        policy,
        (Pool("t4", 4, 2),),
        fidelity=fidelity,
        round_seconds=60.0,
        restart_seconds=30.0,
    )
    return make_start(workload, settings)


@given(st.lists(st.lists(st.floats(0.0, 10.0), min_size=5, max_size=5), min_size=1, max_size=4))
@examples(60)
def test_a_division_has_the_least_total_cost(costs: list[list[float]]) -> None:
    table = np.array(costs)
    found = divide_exactly(table, 4)
    assert sum(found) <= 4
    rows = range(len(costs))
    every = (counts for counts in product(range(5), repeat=len(costs)) if sum(counts) <= 4)
    best = min(table[rows, list(counts)].sum() for counts in every)
    assert table[rows, found].sum() == pytest.approx(best)


@given(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=3, max_size=3))
@examples(60)
def test_repaired_placements_keep_all_limits(placement: list[list[int]]) -> None:
    free, most = np.array([2, 1, 2]), np.array([1, 3, 3])
    held = np.zeros((3, 3), np.int64)
    search = PlacementSearch(held, free, most, lambda population: population.sum(axis=(1, 2)))
    (repaired,) = search.repair(np.array([placement]))
    assert (repaired <= placement).all()
    assert (repaired.sum(axis=1) <= most).all()
    assert (repaired.sum(axis=0) <= free).all()
    several = np.count_nonzero(repaired, axis=1) > 1
    assert (np.count_nonzero(repaired[several], axis=0) <= 1).all()


def test_the_search_finds_the_best_placement_of_a_small_cluster() -> None:
    worth = np.array([[0.0, 1.0, 1.5, 1.7, 1.8], [0.0, 1.0, 1.9, 2.0, 2.1], [0.0, 0.5, 3, 3, 3]])

    def value(population: np.ndarray) -> np.ndarray:
        several = np.count_nonzero(population, axis=2) > 1
        found = worth[np.arange(3), population.sum(axis=2)]
        return np.asarray((found * np.where(several, 0.5, 1.0)).sum(axis=1))

    held, free, most = np.zeros((3, 2), np.int64), np.array([2, 2]), np.array([4, 4, 2])
    search = PlacementSearch(held, free, most, value)
    best = search.run(np.zeros((0, 3, 2), np.int64), np.random.default_rng(1))[0]
    assert best.sum(axis=1).tolist() == [1, 1, 2]
    assert value(best[None])[0] == 5.0  # the last on one node


def test_a_restart_counts_by_age_and_launches() -> None:
    late = replace(situate(), clock_seconds=1_000.0, restart_seconds=100.0)
    penalties = [
        Pollux()._penalize(late, PolluxMemory(launches={0: launches}), job(0, 9, arrival=0.0))
        for launches in (0, 1, 3)
    ]
    assert penalties == pytest.approx([1_000 / 1_100, 1_000 / 1_100, 800 / 1_100])


def test_speedups_are_over_the_goodput_of_a_fair_share(tmp_path: Path) -> None:
    with prepare(start(tmp_path, *FOUR)).open_run(Memory()) as run:
        for _ in range(3):
            run_round(run)
        beliefs = [b for b in run.state.beliefs.values() if b.agent and b.agent.steps]
    known = [replace(job(number, 9), belief=belief) for number, belief in enumerate(beliefs)]
    assert known
    speedups = make_speedups(known, 4)
    share = -(-4 // len(known))
    assert speedups[:, 0, share] == pytest.approx(1.0)
    assert (speedups[:, :, 0] == 0.0).all()
    for row, each in zip(speedups, known, strict=True):
        agent = each.belief.agent
        assert agent
        assert agent.noise
        counts = np.arange(1, 5)
        goodputs = agent.find_goodputs(np.ones(4, np.int64), counts)
        assert row[0, 1:] == pytest.approx(goodputs / goodputs[share - 1])
        assert row[0, 4] < 4.0 * row[0, 1]  # less than linear
    assert make_speedups([job(0, 9), job(1, 9)], 4)[:, 0, 4] == pytest.approx(2.0)  # no model


@pytest.mark.parametrize("policy", ["pollux", "sia"])
def test_no_job_doubles_its_gpus_twice_in_a_round(tmp_path: Path, policy: str) -> None:
    made = make(start(tmp_path, "a,0,toy,1,40", policy=policy))
    counts = [len(lease.gpus) for record in made.records for lease in record.leases]
    assert counts[:2] == [1, 2]
    assert max(counts) == 4


@pytest.mark.parametrize("fidelity", Fidelity)
def test_a_job_gets_at_most_twice_as_many_gpus_as_it_ever_had(
    tmp_path: Path, fidelity: Fidelity
) -> None:
    made = make(start(tmp_path, "a,0,toy,1,40", fidelity=fidelity))
    counts = [len(lease.gpus) for record in made.records for lease in record.leases]
    # A single job would always gain from more GPUs, but does not restart for little.
    assert counts[:2] == [1, 2]
    assert all(after <= 2 * max(counts[:n]) for n, after in enumerate(counts[1:], start=1))


@pytest.mark.parametrize("fidelity", Fidelity)
def test_batch_sizes_follow_gpus_and_noise(tmp_path: Path, fidelity: Fidelity) -> None:
    made = make(start(tmp_path, *FOUR, fidelity=fidelity))
    ends = [event for record in made.records for event in record.finished]
    assert sorted(event.job_id for event in ends) == [0, 1, 2, 3]
    sizes = [report.batch_size for record in made.records for report in record.progress]
    assert sizes[0] == 10  # the initial batch size, until the job knows its speed and noise
    assert max(sizes) > 20


def test_the_same_run_makes_the_same_records(tmp_path: Path) -> None:
    one, two = (make(start(tmp_path, *FOUR, fidelity=Fidelity.REFERENCE)) for _ in range(2))
    assert [r.previous_hash for r in one.records] == [r.previous_hash for r in two.records]


def test_the_scheduler_knows_what_jobs_measured_from_their_records(tmp_path: Path) -> None:
    sink = Memory()
    compared = 0
    with prepare(start(tmp_path, *FOUR)).open_run(sink) as run:
        assert isinstance(run.runtime, ApplicationCluster)
        while not run.finished:
            run_round(run)
            for job_id, belief in run.state.beliefs.items():
                if belief.agent:
                    assert belief.agent == run.runtime.find_agent(job_id)
                    compared += len(belief.agent.steps) > 1
    assert compared
