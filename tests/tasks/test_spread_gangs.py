"""Gangs that are slower when they span several nodes: the rate is that of the real placement."""

from collections import deque
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from flows.runs.simulation import prepare
from flows.runs.start import make_start
from predictor.allocation import Allocation, Demand
from predictor.errors import InputError
from predictor.job import JobSpec, Mode
from predictor.throughput import Profile
from solver.deciding import place
from solver.inventory import Inventory, Pool
from tasks.queue_simulation import QueuedJob, QueueSimulation
from tasks.record import RuntimeKind, Settings, Start
from tasks.sources import Workload
from tests.runs import Made, Memory, check_sound, make, planned
from warehouse.workloads.gavel import static_truth

POOLS = (Pool("v100", 4, 2),)
INVENTORY = Inventory(POOLS)
FAST, SPREAD = ("cnn", 8, "v100", 2), Profile({("cnn", 8, "v100", 2): 4.0})
PROFILE = Profile({("cnn", 8, "v100", 1): 1.0, FAST: 10.0}, source="by hand", by_nodes={2: SPREAD})
"""A gang of two makes 10 steps per second on one node, and 4 on two."""


def job(job_id: int, gpus: int, steps: int, arrival: float = 0.0) -> JobSpec:
    demand = Demand.gang(gpus)
    return JobSpec(job_id, "cnn", 8, 8, demand, Mode.STATIC, 1, 8 * steps, arrival)


def start(
    *specs: JobSpec,
    profile: Profile = PROFILE,
    policy: str = "fifo",
    pools: tuple[Pool, ...] = POOLS,
    runtime: RuntimeKind = RuntimeKind.FAITHFUL,
) -> Start:
    truths = tuple(static_truth(spec, profile) for spec in specs)
    workload = Workload("by hand", specs, truths, profile)
    settings = Settings(policy, pools, round_seconds=100.0, restart_seconds=20.0, runtime=runtime)
    return make_start(workload, settings)


def came_of(made: Made, job_id: int) -> tuple[int, float]:
    """The nodes that a job spanned first, and when it ended."""
    leases = (lease for r in made.records for lease in r.leases if lease.job_id == job_id)
    ends = (e.at_seconds for r in made.records for e in r.finished if e.job_id == job_id)
    return INVENTORY.allocation(next(leases).gpus).nodes, next(ends)


@pytest.mark.parametrize(
    ("steps", "nodes", "end"),
    [
        # Alone on a node it takes 100 s, spread 250 s. To move the one in its way costs a GPU 20 s.
        (1_000, 1, 100.0 + 20.0 + 1_000 / 10.0),
        # 2 s against 5 s on two GPUs are not worth it.
        (20, 2, 100.0 + 20.0 + 20 / 4.0),
    ],
)
def test_a_gang_is_consolidated_where_that_saves_more_than_it_costs(
    steps: int, nodes: int, end: float
) -> None:
    # The first ends at 100 s; the free GPUs are then on two nodes, and the last has come.
    first = (job(0, 1, 80), job(1, 1, 1_000), job(2, 1, 1_000))
    made = make(start(*first, job(3, 2, steps, 50.0)))
    assert came_of(made, 3) == (nodes, pytest.approx(end))


def test_a_gang_that_cannot_be_spread_never_is() -> None:
    never = replace(PROFILE, by_nodes={2: Profile({FAST: 0.0})})
    first = (job(0, 1, 80), job(1, 1, 1_000), job(2, 1, 1_000))
    made = make(start(*first, job(3, 2, 20, 50.0), profile=never))
    assert came_of(made, 3) == (1, pytest.approx(100.0 + 20.0 + 20 / 10.0))


@pytest.mark.parametrize("runtime", [RuntimeKind.VIRTUAL, RuntimeKind.FAITHFUL])
def test_records_tell_the_run_time_of_a_spread_gang(runtime: RuntimeKind) -> None:
    """A gang of four needs two nodes, where it makes 6 steps per second."""
    four = ("cnn", 8, "v100", 4)
    profile = Profile({four: 20.0}, by_nodes={2: Profile({four: 6.0})})
    made = make(start(job(0, 4, 900), profile=profile, runtime=runtime, policy="shockwave"))
    assert [e.allocation for r in made.records for e in r.estimates] == [
        Allocation("v100", 4, 2)
    ] * 2
    estimate = made.records[0].estimates[0]
    assert estimate.remaining_seconds == pytest.approx(900 / 6.0)
    lost = 20.0 if runtime is RuntimeKind.FAITHFUL else 0.0
    assert came_of(made, 0) == (2, pytest.approx(900 / 6.0 + lost))
    # What is learned is in seconds of the reference: 80 s there are 24 on one node.
    (pace,) = made.records[1].progress
    assert pace.steps_left == pytest.approx(900 - (100.0 - lost) * 6.0, abs=1)
    (belief,) = made.states[-1].learning.finished
    assert all(pace.seconds == pytest.approx(pace.steps / 20.0, rel=0.02) for pace in belief.paces)


@pytest.mark.parametrize(
    ("pools", "spread", "rate"),
    [
        # The mean of 6 and 5 steps per second, which is what an even share makes.
        ((Pool("v100", 4, 2), Pool("k80", 4, 4)), 6.0, (6.0 + 5.0) / 2),
        ((Pool("v100", 4, 2), Pool("k80", 4, 4)), 0.0, 5.0 / 2),
        ((Pool("v100", 4, 4), Pool("k80", 4, 4)), 6.0, (20.0 + 5.0) / 2),
        ((Pool("v100", 4, 2),), 6.0, 6.0),
        ((Pool("v100", 8, 4),), 6.0, 20.0),
    ],
)
def test_isolated_run_times_are_those_on_as_few_nodes_as_a_gang_needs(
    pools: tuple[Pool, ...], spread: float, rate: float
) -> None:
    rates = {("cnn", 8, "v100", 4): 20.0, ("cnn", 8, "k80", 4): 5.0}
    profile = Profile(rates, by_nodes={2: Profile({("cnn", 8, "v100", 4): spread})})
    profile = profile.of_types([pool.gpu_type for pool in pools])
    (truth,) = start(job(0, 4, 900), profile=profile, pools=pools).workload.truths
    assert truth.isolated_seconds == pytest.approx(900 / rate)


def test_a_gang_that_can_run_on_no_nodes_of_the_only_type_is_refused() -> None:
    four = ("cnn", 8, "v100", 4)
    profile = Profile({four: 20.0}, "by hand", by_nodes={2: Profile({four: 0.0})})
    with pytest.raises(InputError, match="4 GPUs on one node, as it makes no steps on several"):
        start(job(0, 4, 900), profile=profile)


def test_where_nodes_have_one_gpu_placement_has_no_effect() -> None:
    specs = job(0, 2, 500), job(1, 1, 50)
    pools = (Pool("v100", 4, 1),)
    plain = start(*specs, profile=replace(PROFILE, by_nodes={}), pools=pools)
    assert start(*specs, pools=pools).digest == plain.digest


def test_rates_by_nodes_of_other_models_are_not_in_the_header() -> None:
    other = replace(PROFILE, by_nodes={2: Profile({("lm", 8, "v100", 2): 4.0})})
    plain = start(job(0, 2, 500), profile=replace(PROFILE, by_nodes={}))
    assert start(job(0, 2, 500), profile=other).digest == plain.digest


@pytest.mark.parametrize("policy", ["fifo", "shockwave", "gavel"])
@pytest.mark.parametrize("kinds", [("v100",), ("v100", "k80")])
def test_every_round_of_gangs_that_cannot_be_spread_is_sound(
    policy: str, kinds: tuple[str, ...]
) -> None:
    speed = {"v100": 4.0, "k80": 1.0}
    rates = {("cnn", 8, kind, gpus): speed[kind] * gpus for kind in kinds for gpus in (1, 2, 4)}
    spread = {key: rate * (0.5 if key[3] == 4 else 0.0) for key, rate in rates.items()}
    profile = Profile(rates, by_nodes={2: Profile(spread)})
    specs = [job(n, (1, 2, 1, 4, 1)[n % 5], 100 + 137 * n % 900, 40.0 * n) for n in range(20)]
    pools = tuple(Pool(kind, 8, 4) for kind in kinds)
    check_sound(make(start(*specs, profile=profile, policy=policy, pools=pools)))


def test_plays_go_by_rates_of_allocations_on_which_a_gang_can_run() -> None:
    """The next job in line takes any free GPUs, even of two nodes."""
    never = replace(PROFILE, by_nodes={2: Profile({FAST: 0.0})})
    specs = (job(0, 1, 80), job(1, 1, 1_000), job(2, 1, 1_000), job(3, 2, 5_000))
    with prepare(start(*specs, profile=never)).open_run(Memory()) as run:
        this, now = planned(run)
        jobs = {n: QueuedJob(active, 1_000.0 if n else 80.0) for n, active in this.active.items()}
        play = QueueSimulation(
            partial(place, run.policy), now, jobs, deque(), np.random.default_rng(0)
        )
        play._carry_out(this.plan, 3)
    gang = play.jobs[3].seen
    assert INVENTORY.allocation(gang.gpus).nodes == 2
    assert gang.own == Allocation("v100", 2, 1)
    assert gang.rate(gang.own) == 10.0


def test_a_gang_that_is_spread_does_not_seem_longer_for_it() -> None:
    """On one free GPU of each of two nodes: the shorter of two gangs keeps them to its end."""
    pools, three = (Pool("v100", 8, 4),), ("cnn", 8, "v100", 3)
    spread = Profile({FAST: 4.0, three: 4.0})
    profile = Profile({FAST: 10.0, three: 30.0}, source="by hand", by_nodes={2: spread})
    wide = [job(job_id, 3, 60_000) for job_id in (0, 1)]
    pair = [job(2, 2, 21_000), job(3, 2, 22_000)]
    made = make(start(*wide, *pair, profile=profile, policy="srtf", pools=pools))
    ran = [{lease.job_id for lease in record.leases} for record in made.records]
    assert [jobs & {2, 3} for jobs in ran[:15]] == [{2}] * 15
    assert {found.allocation.nodes for found in made.records[5].estimates} == {1}
