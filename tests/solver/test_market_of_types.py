"""`shockwave` on several GPU types: deadlines, least makespan, assignment to types, audit."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.belief import Belief
from predictor.options import JobOptions, Task
from predictor.throughput import Profile
from solver.backends import over_time
from solver.backends.makespan import find_least_makespan
from solver.inventory import Inventory, Pool
from solver.plan import ActiveJob, Plan, Situation
from solver.policies import make_policy
from solver.policies.shockwave import Shockwave
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
    """Jobs that end in the even cluster after the double of their run time."""
    fair = {job.job_id: 2.0 * job.run_time(job.choices[0]).remaining for job in jobs}
    return Situation(clock, inventory, 100.0, 1, jobs, fair)


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


def test_on_several_types_a_job_goes_first_once_it_is_overdue() -> None:
    jobs = [active(n, "cnn", 9_000.0) for n in range(3)]
    plan = Shockwave().plan(situation(*jobs, clock=700.0))
    fair = {n: 2.0 * job.run_time(job.choices[0]).remaining for n, job in enumerate(jobs)}
    by = dict(zip(plan.order, plan.first_by, strict=True))
    assert by == pytest.approx({n: 1.5 * 1.05 * (fair[n] + 100.0) - 700.0 for n in range(3)})
    assert min(by.values()) > 0.0
    assert make_policy("shockwave", values={"packed": 1.0}).plan(situation(*jobs)).first_by == (), (
        "pairs go before the line"
    )


def test_the_end_of_all_work_keeps_its_price_as_jobs_end() -> None:
    long = active(0, "cnn", 40_000.0, inventory=TWO)
    short = [active(n, "cnn", 4000.0, inventory=TWO) for n in range(1, 5)]
    inputs = situation(long, *short, inventory=TWO)
    inputs = replace(inputs, fair_finishes={})  # nobody is late

    def pressed(*arrived: float) -> float:
        """What a V100 is worth to the long job over what it is worth to a short one."""
        at = replace(inputs, arrivals=arrived)
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
    assert pressed(0.0, 0.0, 0.0, 0.0) > 1.2 * pressed(0.0, 0.0), "two single jobs have ended"


@pytest.mark.parametrize(
    ("name", "value"),
    [("fairness", 0.0), ("fairness", 1.0), ("lateness", 0.0), ("lateness", 1e9), ("stay", 0.0)],
)
def test_any_value_of_a_parameter_makes_a_plan(name: str, value: float) -> None:
    inventory = Inventory((Pool("v100", 8), Pool("k80", 8)))
    jobs = [active(n, "cnn", 4000.0, 4 - n, inventory=inventory) for n in (0, 2, 3)]
    inputs = situation(*jobs, inventory=inventory)
    plan = make_policy("shockwave", values={name: value}).plan(inputs)
    assert plan.placement.keys() == {0, 2, 3}


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
