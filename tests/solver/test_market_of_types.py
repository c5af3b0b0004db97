"""`shockwave` on several GPU types: deadlines, least makespan, assignment to types, audit."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.belief import Belief
from predictor.errors import InputError
from predictor.job import JobProgress
from predictor.options import JobOptions, Task
from predictor.rows import to_json
from predictor.throughput import Profile
from solver.backends import over_time
from solver.backends.makespan import find_least_makespan
from solver.fair_share import FairShare
from solver.inventory import Inventory, Pool
from solver.plan import ActiveJob, Plan, Situation
from solver.policies import make_policy
from solver.policies.shockwave import Shockwave
from solver.shared_cluster import SharedCluster, Sharer
from tests.strategies import among, certain, examples, gang_job

TWO = Inventory((Pool("v100", 1), Pool("k80", 1)))
MIXED = Inventory((Pool("v100", 4), Pool("k80", 8)))


def fluid(inventory: Inventory, seconds: list[list[float]], gangs: list[int]) -> float:
    """The least makespan of jobs by their run time on each type; 0 where they cannot run."""
    table = np.array(seconds)
    jobs, kinds = np.nonzero(table)
    return find_least_makespan(
        table[jobs, kinds],
        np.array(gangs, dtype=float)[jobs],
        np.unique(jobs, return_inverse=True)[1],
        kinds,
        np.array(list(inventory.capacities.values())),
    )


def test_the_least_makespan_is_the_longest_job_or_the_work_by_comparative_advantage() -> None:
    assert fluid(TWO, [[300.0, 900.0]], [1]) == pytest.approx(300.0)
    # Both are faster on the V100; the second loses little on the K80.
    assert fluid(TWO, [[400.0, 4000.0], [300.0, 400.0]], [1, 1]) == pytest.approx(400.0)
    # The second does half its work on the K80, in 500 s, and then the rest on the V100.
    assert fluid(TWO, [[500.0, 0.0], [500.0, 1000.0]], [1, 1]) == pytest.approx(750.0)
    assert fluid(MIXED, [[100.0, 0.0]] * 8, [4] * 8) == pytest.approx(800.0)


def test_jobs_of_a_shared_cluster_speed_up_as_others_end() -> None:
    jobs = [
        Sharer.new(0, 0.0, 100.0, 1.0, [1.0], [1.0]),
        Sharer.new(1, 0.0, 300.0, 1.0, [0.5], [1.0]),
    ]
    # One GPU, every other round of it: job 0 ends its tenth at 190 s. Of job 1 45 s of work are
    # done by then, and the rest takes 510 s.
    both = SharedCluster(types=("v100",)).joined(jobs, {0, 1}, [1], 10.0)
    assert [job.fair for job in both.sharers] == pytest.approx([190.0, 700.0])
    # At 100 s, with 50 s of work left of job 0, a third comes: every third round each.
    later = both.joined([Sharer.new(2, 100.0, 1000.0, 1.0, [1.0], [1.0])], {1, 2}, [1], 10.0)
    assert later.clock_seconds == 100.0
    assert [job.fair for job in later.sharers] == pytest.approx([240.0, 1260.0, 1700.0])
    assert SharedCluster.read(to_json(later), ("v100",)) == later
    # Once job 0 has ended here and there, it is forgotten; job 1 keeps its finish.
    last = later.joined([Sharer.new(3, 260.0, 10.0, 1.0, [1.0], [1.0])], {1, 2, 3}, [1], 10.0)
    assert [job.job_id for job in last.sharers] == [1, 2, 3]


def test_small_gangs_of_a_shared_cluster_go_first_while_a_large_one_waits_for_room() -> None:
    jobs = [
        Sharer.new(n, 0.0, 60.0, gpus, [1.0], [1.0])
        for n, gpus in enumerate([4.0, 1.0, 1.0, 1.0, 1.0])
    ]
    cluster = SharedCluster(types=("v100",)).joined(jobs, set(range(5)), [4], 10.0)
    # Shares of time are 0.2 and 0.8: as a fluid the small ones would end at 75 s.
    assert [job.fair for job in cluster.sharers] == pytest.approx([120.0, 70.0, 70.0, 70.0, 70.0])


def test_who_gets_less_of_a_round_by_whole_steps_goes_first_in_a_shared_cluster() -> None:
    jobs = [
        Sharer.new(0, 0.0, 50.0, 1.0, [1.0], [1.0]),
        Sharer.new(1, 0.0, 45.0, 1.0, [1.0], [1.0]),
    ]
    cut = [jobs[0], jobs[1]._replace(whole=(0.9,))]
    none = SharedCluster(types=("v100",))
    in_turns, shorter = (
        [job.fair for job in none.joined(these, {0, 1}, [1], 10.0).sharers] for these in (jobs, cut)
    )
    assert in_turns == pytest.approx([90.0, 95.0])
    # Of rounds of 10 s job 1 trains for 9: it has received less after as many, and the tie is its.
    assert shorter == pytest.approx([95.0, 85.0])


def test_a_gang_without_room_in_service_ends_a_shared_cluster_as_if_alone() -> None:
    jobs = [
        Sharer.new(0, 0.0, 60.0, 8.0, [1.0], [1.0]),
        Sharer.new(1, 0.0, 40.0, 1.0, [1.0], [1.0]),
    ]
    cluster = SharedCluster(types=("v100",)).joined(jobs, {0, 1}, [4], 10.0)
    assert [job.fair for job in cluster.sharers] == pytest.approx([100.0, 40.0])


def test_a_shared_cluster_waits_for_a_gang_whose_nodes_are_out_of_service_for_a_while() -> None:
    jobs = [Sharer.new(0, 0.0, 60.0, 8.0, [1.0], [1.0])]
    before = SharedCluster(types=("v100",)).joined(jobs, {0}, [8], 10.0)
    drained = before.joined([Sharer.new(1, 500.0, 40.0, 8.0, [1.0], [1.0])], {0, 1}, [4], 10.0)
    assert drained.clock_seconds == 500.0
    assert [job.left for job in drained.sharers] == [60.0, 40.0]
    whole = drained.joined([Sharer.new(2, 500.0, 20.0, 8.0, [1.0], [1.0])], {0, 1, 2}, [8], 10.0)
    # In turns from 500 s on: 20 s each, then two of them 20 s each, then one.
    assert [job.fair for job in whole.sharers] == [620.0, 600.0, 560.0]


def test_a_shared_cluster_knows_its_jobs_after_types_went_and_came() -> None:
    jobs = [
        Sharer.new(0, 0.0, 300.0, 1.0, [1.0, 0.5], [1.0, 1.0]),
        Sharer.new(1, 0.0, 100.0, 1.0, [0.0, 1.0], [1.0, 1.0]),
    ]
    both = SharedCluster(types=("v100", "k80")).joined(jobs, {0, 1}, [1, 1], 10.0)
    single = SharedCluster.read(to_json(both), ("v100",))
    assert [job.fair for job in single.sharers] == [job.fair for job in both.sharers]
    assert [job.speeds for job in single.sharers] == [(1.0,), (0.0,)]
    again = SharedCluster.read(to_json(single), ("p100", "v100"))
    assert [job.speeds for job in again.sharers] == [(0.0, 1.0), (0.0, 0.0)]
    assert [job.received for job in again.sharers] == [(0.5, 0.5)] * 2
    assert again.stale
    # Speeds are over that on its own fastest type, whichever is in service.
    first = again.sharers[0].also_at([1.0, 0.4], [0.8, 0.9])
    assert (first.speeds, first.whole) == ((2.5, 1.0), (0.8, 1.0)), "on V100s as it was"
    assert again.sharers[1].also_at([1.0, 0.0], [0.7, 1.0]).speeds == (1.0, 0.0)


RATES = {"cnn": (10.0, 1.0), "mlp": (4.0, 5.0), "rnn": (6.0, 3.0)}
PROFILE = Profile(
    {
        (model, 8, kind, gpus): rate * gpus
        for model, rates in RATES.items()
        for kind, rate in zip(("v100", "k80"), rates, strict=True)
        for gpus in (1, 2, 4)
    }
)


def active(
    job_id: int,
    model: str,
    epochs: float,
    gpus: int = 1,
    held: tuple[int, ...] = (),
    *,
    inventory: Inventory = MIXED,
) -> ActiveJob:
    spec = gang_job(job_id, model, gpus)
    return ActiveJob(
        Belief(spec),
        certain(job_id, epochs, 8),
        held,
        len(held),
        inventory.menu_of(spec, 8, PROFILE),
        PROFILE,
        held=inventory.allocation(held) if held else None,
    )


def situation(*jobs: ActiveJob, inventory: Inventory = MIXED, clock: float = 0.0) -> Situation:
    even = FairShare(
        clock, clock / 2.0, max(1.0, len(jobs) / inventory.gpus), {job.job_id: 0.0 for job in jobs}
    )
    return Situation(clock, inventory, 100.0, 1, jobs, len(jobs), fair_share=even)


def ran_on(plan: Plan, inventory: Inventory = MIXED) -> dict[int, str]:
    return {job_id: inventory.allocation(gpus).gpu_type for job_id, gpus in plan.placement.items()}


def test_jobs_run_where_their_advantage_is() -> None:
    jobs = [active(n, model, 4000.0, inventory=TWO) for n, model in enumerate(("mlp", "cnn"))]
    plan = Shockwave().plan(situation(*jobs, inventory=TWO))
    assert ran_on(plan, TWO) == {0: "k80", 1: "v100"}
    prices = {price.gpu_type: price.price for price in plan.report.prices}
    assert [bid.job_id for bid in plan.bids] == [0, 0, 1, 1]
    assert plan.report.gap == pytest.approx(0.0, abs=1e-4)
    assert (plan.report.envious, plan.report.wanting) == (0, 0)
    assert prices.keys() == {"v100", "k80"}


def test_a_round_says_so_if_what_jobs_bid_by_was_not_solved_to_its_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inputs = situation(*(active(n, "cnn", 1000.0 * n) for n in range(1, 17)))
    assert Shockwave().plan(inputs).report.status == "optimal"
    monkeypatch.setattr(over_time, "STEPS", 3)
    assert Shockwave().plan(inputs).report.status == "work_limit"


def test_a_dear_start_is_paid_by_who_goes_there_and_keeps_who_is_there() -> None:
    """On a type that is a little faster, and where a start takes more than that saves."""
    nodes = Inventory((Pool("v100", 1), Pool("k80", 1)))
    rates = {("cnn", 8, kind, 1): rate for kind, rate in (("v100", 10.0), ("k80", 9.9))}

    def job(restarts: dict[tuple[str, int], float], gpus: tuple[int, ...] = ()) -> ActiveJob:
        profile, there = (
            Profile(rates, restarts=restarts),
            active(0, "cnn", 4000.0, inventory=nodes),
        )
        held = nodes.allocation(gpus) if gpus else None
        found = replace(there, throughput=profile, menu=nodes.menu_of(there.spec, 8, profile))
        return replace(found, gpus=gpus, held=held, lease_rounds=3 * len(gpus))

    dear = {("v100", 1): 90.0, ("k80", 1): 10.0}
    cheap = {("v100", 1): 10.0, ("k80", 1): 10.0}
    for restarts, gpus, kind in (
        (cheap, (), "v100"),
        (dear, (), "k80"),
        (dear, (0,), "v100"),  # it is there already
        (dear, (1,), "k80"),
    ):
        inputs = situation(job(restarts, gpus), inventory=nodes)
        assert ran_on(Shockwave().plan(inputs), nodes) == {0: kind}, (restarts, gpus)


def test_a_job_stays_on_its_type_unless_moving_is_worth_a_restart() -> None:
    jobs = [active(0, "rnn", 4000.0, held=(4,)), active(1, "rnn", 3999.0, held=(0,))]
    few = Inventory((Pool("v100", 1), Pool("k80", 1)))
    held = [
        replace(job, gpus=(1 - n,), held=few.allocation((1 - n,)), lease_rounds=3)
        for n, job in enumerate(jobs)
    ]
    inputs = situation(*held, inventory=few)
    assert ran_on(Shockwave().plan(inputs), few) == {0: "k80", 1: "v100"}
    idle = situation(replace(held[0], held=few.allocation((1,))), inventory=few)
    assert ran_on(Shockwave().plan(idle), few) == {0: "v100"}


def test_on_several_types_a_job_goes_first_at_three_times_its_fair_time() -> None:
    jobs = [active(n, "cnn", 9_000.0) for n in range(3)]
    plan = Shockwave().plan(situation(*jobs, clock=700.0))
    fair = {
        found.job_id: found.fair for found in SharedCluster.read(plan.memory, MIXED.types).sharers
    }
    by = dict(zip(plan.order, plan.first_by, strict=True))
    assert by == pytest.approx({n: 3.0 * fair[n] - 700.0 for n in range(3)})
    assert min(by.values()) > 0.0
    assert make_policy("shockwave", values={"packed": 1.0}).plan(situation(*jobs)).first_by == (), (
        "pairs go before the line"
    )


def test_the_end_of_all_work_keeps_its_price_as_jobs_end() -> None:
    long = active(0, "cnn", 40_000.0, inventory=TWO)
    short = [active(n, "cnn", 4000.0, inventory=TWO) for n in range(1, 5)]
    inputs = situation(long, *short, inventory=TWO)

    def pressed(*arrived: float) -> float:
        """What a V100 is worth to the long job over what it is worth to a short one."""
        at = replace(inputs, fair_share=replace(inputs.fair_share, arrived=arrived))
        worth = {bid.job_id: bid.utility for bid in Shockwave().plan(at).bids[::-1]}
        return worth[0] / worth[1]

    assert pressed(*[0.0] * 20) > 1.5 * pressed(*[0.0] * 5), "15 have ended"
    assert pressed(*[-1.0] * 20) == pressed(*[0.0] * 5), "they came before all that are here"
    # Those that came are counted with an array as one, so the active ones are too.
    short = [
        replace(
            job,
            belief=replace(
                job.belief,
                spec=replace(job.spec, options=JobOptions(task=Task(place, place, 4))),
            ),
        )
        for place, job in enumerate(short)
    ]
    inputs = replace(inputs, jobs=(long, *short))
    assert pressed(0.0, 0.0, 0.0, 0.0) > 1.3 * pressed(0.0, 0.0), "two single jobs have ended"


@pytest.mark.parametrize(
    ("name", "value"),
    [("ending", 0.0), ("ending", 1e12), ("tardiness", 0.0), ("gang", 0.0), ("gang", 8.0)],
)
def test_any_value_of_a_parameter_makes_a_plan(name: str, value: float) -> None:
    inventory = Inventory((Pool("v100", 8), Pool("k80", 8)))
    jobs = [active(n, "cnn", 4000.0, 4 - n, inventory=inventory) for n in (0, 2, 3)]
    inputs = situation(*jobs, inventory=inventory)
    plan = make_policy("shockwave", values={name: value}).plan(inputs)
    assert plan.placement.keys() == {0, 2, 3}


def test_an_exponent_beyond_its_bound_is_refused() -> None:
    with pytest.raises(InputError, match=r"parameters.gang: 400 is not in \[0, 8\]"):
        make_policy("shockwave", values={"gang": 400.0})


def test_deadlines_are_noted_when_jobs_arrive_and_kept_until_the_next() -> None:
    jobs = [active(n, "cnn", 1000.0) for n in range(3)]
    first = Shockwave().plan(situation(*jobs[:2]))
    assert [job.job_id for job in SharedCluster.read(first.memory, MIXED.types).sharers] == [0, 1]
    known = replace(situation(*jobs[:2]), memory=first.memory)
    assert Shockwave().plan(known).memory == ""
    more = Shockwave().plan(replace(situation(*jobs), memory=first.memory))
    assert [job.job_id for job in SharedCluster.read(more.memory, MIXED.types).sharers] == [0, 1, 2]


def test_fair_finish_times_outlast_a_type_that_is_out_of_service_for_a_while() -> None:
    def inputs(memory: str, inventory: Inventory, clock: float, *epochs: float) -> Situation:
        """Jobs of which the first two came at 0 s, and the others now."""
        jobs = [active(n, "cnn", left, inventory=inventory) for n, left in enumerate(epochs)]
        came = [replace(job.spec, arrival_seconds=clock * (n > 1)) for n, job in enumerate(jobs)]
        known = [replace(job, belief=Belief(c)) for job, c in zip(jobs, came, strict=True)]
        return replace(situation(*known, inventory=inventory, clock=clock), memory=memory)

    def fair(memory: str, inventory: Inventory) -> list[float]:
        found = {
            job.job_id: job.fair for job in SharedCluster.read(memory, inventory.types).sharers
        }
        return [found[n] for n in (0, 1)]

    three = Inventory((Pool("v100", 1), Pool("k80", 1), Pool("p100", 1)))
    two = Inventory(three.pools[:2])
    first = Shockwave().plan(inputs("", three, 0.0, 40_000.0, 40_000.0)).memory
    # Half of their work is done when a type leaves, and a tenth is left when it comes back.
    second = Shockwave().plan(inputs(first, two, 1000.0, 20_000.0, 20_000.0, 100.0)).memory
    third = Shockwave().plan(inputs(second, three, 1500.0, 4_000.0, 4_000.0, 90.0, 90.0)).memory
    assert min(fair(second, two)) >= min(fair(first, three))
    assert min(fair(third, three)) >= min(fair(first, three))
    assert SharedCluster.read(third, three.types).clock_seconds == 1500.0


def test_a_job_unknown_to_the_shared_cluster_has_all_its_work_before_it_there() -> None:
    new = active(0, "cnn", 4000.0)
    alone, ran = (
        SharedCluster.read(Shockwave().plan(situation(job, clock=900.0)).memory, MIXED.types)
        for job in (new, replace(new, belief=replace(new.belief, progress=trained(new, 300.0))))
    )
    assert ran.sharers[0].left == pytest.approx(alone.sharers[0].left + 300.0)
    assert ran.sharers[0].fair >= alone.sharers[0].fair + 300.0


def trained(job: ActiveJob, seconds: float) -> JobProgress:
    """What a job that ran for a time reports."""
    spec = job.spec
    return JobProgress(spec.job_id, 0, 0.0, 8, seconds, seconds, spec.total_steps)


@st.composite
def queues(draw: st.DrawFn) -> Situation:
    """Jobs of every model and gang that wait or run, at some time."""
    jobs, free = [], {"v100": list(range(4)), "k80": list(range(4, 12))}
    for job_id in range(draw(st.integers(1, 14))):
        gpus, model = draw(among(1, 1, 2, 4)), draw(among(*sorted(RATES)))
        kind = draw(among("none", "v100", "k80"))
        held = tuple(free.get(kind, [])[:gpus])
        if len(held) == gpus:
            free[kind] = free[kind][gpus:]
        epochs = draw(st.integers(1, 20_000))
        jobs.append(active(job_id, model, epochs, gpus, held if len(held) == gpus else ()))
    return situation(*jobs, clock=float(draw(among(0, 5_000, 90_000))))


@examples(30)
@given(queues())
def test_nobody_prefers_another_type_at_its_price_and_no_wanted_gpu_idles(
    inputs: Situation,
) -> None:
    plan = Shockwave().plan(inputs)
    assert (plan.report.envious, plan.report.wanting) == (0, 0)
    assert 0.0 <= plan.report.gap <= 1.0
    assert plan.report.objective <= plan.report.bound
    gangs = {job.job_id: job.gang for job in inputs.jobs}
    assert {job: len(gpus) for job, gpus in plan.placement.items()}.items() <= gangs.items()
    assert Shockwave().placed(inputs).placement == plan.placement
    assert sorted(plan.order) == sorted(gangs)
