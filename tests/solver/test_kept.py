"""Policies plan around jobs that keep their GPUs."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from containers.runtime import Lease, ResumePoint, Terms
from containers.virtual.faithful import FaithfulFactory
from containers.virtual.virtual_cluster import VirtualFactory
from flows.runs.simulation import prepare
from flows.runs.start import make_start
from predictor.allocation import Demand
from predictor.belief import Belief
from predictor.forecast import RunTime, forecast
from predictor.job import JobKind, JobSpec
from predictor.throughput import Profile
from solver.deciding import ALL_HELD, around_kept
from solver.inventory import Inventory, Pool
from solver.placement import GangRequest, place
from solver.plan import ActiveJob, drop_lost_gpus, keep_fitting
from solver.policies import make_policy
from solver.promised import RoundInput
from tasks.record import Settings, make_pool
from tasks.rollouts import seconds_to_reservation
from tasks.round import run_round
from tasks.sources import Workload
from tests.kinds import CHECKPOINTING, OPAQUE, timed, with_jobs
from tests.runs import Memory
from tests.solver.test_packed_shares import packing
from tests.solver.test_policies import job as job_of
from tests.solver.test_policies import situation as situation_of

NOTHING = Workload("none", (), (), Profile({}))


Holder = tuple[JobSpec, tuple[int, ...]]


def situation(*jobs: Holder, gpus: int = 8, per_node: int = 4) -> RoundInput:
    """A situation of timed jobs, each with the GPUs that it has held for a round."""
    inventory = Inventory((Pool("gpu", gpus, per_node),))
    beliefs = [Belief(spec) for spec, _ in jobs]
    expected = forecast(beliefs, Profile({}), trajectories=True)
    active = tuple(
        ActiveJob(belief, found, held, bool(held), inventory.menu(spec.demand), Profile({}))
        for belief, found, (spec, held) in zip(beliefs, expected, jobs, strict=True)
    )
    return RoundInput(0.0, inventory, 60.0, 5, active)


def job(job_id: int, gpus: int = 1, *, kind: JobKind = OPAQUE, limit: float = 600.0) -> JobSpec:
    return timed(job_id, limit, limit=limit, kind=kind, gpus=gpus, at=float(job_id))[0]


def placed(given: RoundInput, order: str = "fifo") -> dict[int, tuple[int, ...]]:
    policy = make_policy(order)
    return dict(around_kept(order, policy.plan, given).placement)


def test_gpus_that_are_kept_are_given_to_nobody_and_count_for_nothing() -> None:
    inventory = Inventory((Pool("a", 8, 4), Pool("b", 4, 4))).without((9, 1, 2))
    assert (inventory.kept, inventory.free, inventory.gpus) == ((1, 2, 9), (6, 3), 9)
    assert inventory.capacities == {"a": 6, "b": 3}
    menus = [inventory.menu(job(0, gpus).demand) for gpus in (3, 4, 6, 7)]
    assert [[found.gpu_type for found in menu] for menu in menus] == [["a", "b"], ["a"], ["a"], []]


def test_run_times_that_were_set_outlast_lost_gpus_and_a_smaller_menu() -> None:
    elastic = replace(job(0, 4, kind=CHECKPOINTING), demand=Demand(1, 4))
    given = situation((elastic, (0, 1)))
    (first,), free = given.jobs, given.inventory.without(range(6))
    time = RunTime(7.0, 6.0, 8.0, (7.0,))
    for allocation in first.menu:
        first.know(time, allocation)
    (fitting,) = keep_fitting(free, [drop_lost_gpus(first, free)])
    assert (fitting.gpus, fitting.held) == ((), None)
    assert {found.gpus for found in fitting.menu} < {found.gpus for found in first.menu}
    assert [fitting.run_time(found) for found in fitting.menu] == [time] * len(fitting.menu)


def test_gangs_are_placed_around_gpus_that_are_kept() -> None:
    pool, kept = Pool("gpu", 8, 4), (0, 5)
    gangs = [GangRequest(0, 3, consolidate=True), GangRequest(1, 4, consolidate=True)]
    found = place(pool, gangs, {}, kept)
    assert found == {0: (1, 2, 3)}, "no node of four is free"
    assert place(pool, [GangRequest(1, 6)], {}, kept) == {1: (1, 2, 3, 4, 6, 7)}


@pytest.mark.parametrize("policy", ["fifo", "srtf", "shockwave", "themis", "tiresias-las"])
def test_a_job_that_keeps_its_gpus_goes_before_all_others(policy: str) -> None:
    opaque, other = job(9, 4, limit=90_000.0), job(8, 2, kind=CHECKPOINTING)
    shorter = [(job(n, 4, kind=CHECKPOINTING, limit=60.0), ()) for n in range(3)]
    found = placed(situation((opaque, (2, 3, 4, 5)), (other, (0, 1)), *shorter), policy)
    assert found[9] == (2, 3, 4, 5)
    assert sum(map(len, found.values())) <= 8


def test_where_all_gpus_are_kept_nothing_is_planned() -> None:
    given = situation((job(0, 8), tuple(range(8))), (job(1), ()))
    plan = around_kept("fifo", make_policy("fifo").plan, given)
    assert (plan.placement, plan.report.reason) == ({0: tuple(range(8))}, ALL_HELD)


def waiting(*specs: JobSpec) -> Sequence[Holder]:
    return [(spec, ()) for spec in specs]


def test_no_job_is_started_that_could_delay_the_gang_that_waits_for_kept_gpus() -> None:
    running = (job(0, 4, limit=600.0), (0, 1, 2, 3))  # it ends within nine rounds
    large, long, short = job(1, 8, kind=CHECKPOINTING), job(2, limit=601.0), job(3, limit=400.0)
    preemptible = job(4, kind=CHECKPOINTING, limit=90_000.0)
    found = placed(situation(running, *waiting(large, long, short, preemptible)))
    assert found.keys() == {0, 3, 4}
    # Beside a gang of six two GPUs are left when it starts.
    six = job(1, 6, kind=CHECKPOINTING)
    found = placed(
        situation(running, *waiting(six, long, job(3, limit=700.0), job(5, limit=700.0)))
    )
    assert found.keys() == {0, 2, 3}
    assert placed(situation(running, *waiting(long))).keys() == {0, 2}


def test_a_stream_of_opaque_jobs_keeps_no_gang_waiting_for_longer_than_is_reported() -> None:
    stream = [timed(0, 900.0, limit=1_000.0, kind=OPAQUE, at=300.0 * n) for n in range(40)]
    large = timed(0, 1_000.0, limit=2_000.0, gpus=4, at=1_000.0)
    asked = Settings("fifo", make_pool(4), round_seconds=100.0)
    bounds, began, clock = dict[int, float](), dict[int, float](), 0.0
    start = make_start(with_jobs(NOTHING, [*stream, large]), asked)
    with prepare(start).open_run(Memory()) as run:
        while not run.finished:
            this = run_round(run)
            clock = this.observation.clock_seconds
            for job_id in this.plan.placement:
                began.setdefault(job_id, clock)
            for job_id, seconds in seconds_to_reservation(run, this).items():
                bounds.setdefault(job_id, clock + seconds)
    (gang,) = [spec.job_id for spec in start.workload.specs if spec.kind is CHECKPOINTING]
    assert 1_000.0 < began[gang] <= bounds[gang] <= 2_200.0, "the limit of those found, and a round"
    assert all(began[job_id] <= bound for job_id, bound in bounds.items()), "first in, first out"
    assert clock > 10_000.0, "the stream went on"


def test_a_job_that_loses_its_gpus_all_the_same_begins_again() -> None:
    jobs = [timed(0, 300.0, limit=900.0, kind=kind) for kind in (OPAQUE, CHECKPOINTING)]
    jobs[1] = replace(jobs[1][0], job_id=1), replace(jobs[1][1], job_id=1)
    for kind in (VirtualFactory, FaithfulFactory):
        runtime = kind([truth for _, truth in jobs]).open(
            Terms("", 100.0), ResumePoint(jobs=tuple(spec for spec, _ in jobs))
        )
        for number in range(2):
            runtime.launch(number, [Lease(0, (0,)), Lease(1, (1,))])
            runtime.advance(None)
        assert {entry.fraction for entry in runtime.observe().progress} == {200 / 900}
        runtime.preempt({0: "a test says so", 1: "a test says so"})
        runtime.launch(2, [Lease(0, (0,)), Lease(1, (1,))])
        runtime.advance(None)
        seen = runtime.observe()
        assert seen.ended == (1,)
        assert [entry.steps_left for entry in seen.progress] == [800, 0]


def test_a_pair_on_cordoned_gpus_goes_on_as_long_as_both_fit() -> None:
    jobs = packing(job_of(0, 5, gpus=(0,)), job_of(1, 5, gpus=(0,)), job_of(2, 5), models="abc")
    seen = situation_of(*jobs, gpus=2)
    given = RoundInput(**vars(seen), cordoned=frozenset({0}))
    plan = around_kept("antman", make_policy("antman").plan, given)
    assert plan.placement == {0: (0,), 1: (0,), 2: (1,)}
    assert plan.pairs == ((0, 1),)
    alone = [replace(active, throughput=Profile(active.throughput.rates)) for active in jobs]
    apart = around_kept("antman", make_policy("antman").plan, replace(given, jobs=tuple(alone)))
    assert apart.pairs == ()
    assert all(gpus == (1,) for gpus in apart.placement.values())
