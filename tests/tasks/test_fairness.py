"""Runs record when their jobs end in the even cluster: exactly, and whatever the policy does."""

import math
from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.basis import Basis
from predictor.rows import from_json, to_json
from solver.even_cluster import ABSENT, Arrival, find_fair_finishes
from tasks.commands import Command, CommandKind
from tasks.fairness import FairFinishes
from tasks.record import RoundRecord, RuntimeKind, Start
from tasks.sources import Workload
from tasks.state import make_arrivals
from tests.fluid import fluid
from tests.runs import Made, make, mixed, start_of, tiny


def recorded(records: list[RoundRecord]) -> dict[int, float]:
    entries = chain.from_iterable(record.fair_finishes for record in records)
    return {entry.job_id: entry.at_seconds for entry in entries}


def exact(start: Start) -> dict[int, float]:
    workload = start.workload
    arrivals = [
        Arrival(spec.job_id, spec.arrival_seconds, spec.demand.least, spec.budget)
        for spec in workload.specs
    ]
    seconds = {truth.job_id: truth.isolated_seconds for truth in workload.truths}
    return find_fair_finishes(arrivals, seconds, start.header.settings.gpus)


@pytest.mark.parametrize("policy", ["fifo", "srtf", "gavel", "shockwave"])
def test_the_even_cluster_is_the_same_under_every_policy(policy: str) -> None:
    start = tiny(policy)
    assert recorded(make(start).records) == pytest.approx(exact(start), rel=1e-9)


@pytest.mark.parametrize("runtime", [RuntimeKind.VIRTUAL, RuntimeKind.FAITHFUL])
def test_on_several_types_a_job_alone_has_the_mean_speed(runtime: RuntimeKind) -> None:
    start = mixed("srtf", runtime=runtime)
    assert recorded(make(start).records) == pytest.approx(exact(start), rel=1e-9)


def test_budgets_count_in_the_even_cluster() -> None:
    start = tiny("srtf")
    rich = tuple(
        replace(spec, budget=1.0 + 3.0 * (spec.job_id % 2)) for spec in start.workload.specs
    )
    start = start_of(start.header, replace(start.workload, specs=rich))
    found = recorded(make(start).records)
    assert found == pytest.approx(exact(start), rel=1e-9)
    assert found != pytest.approx(exact(tiny("srtf")), rel=1e-3)


@pytest.mark.parametrize(
    "policy", ["fifo", "srtf", "gavel", "themis", "tiresias-las", "slack", "shockwave"]
)
@pytest.mark.slow
def test_jobs_two_days_after_others_fare_as_if_alone(policy: str) -> None:
    start, old = tiny(policy, jobs=52), 40
    # Known run times, since jobs of the past improve forecasts, and a restart in the first round.
    settings = replace(start.header.settings, forecasts=Basis.ORACLE, runtime=RuntimeKind.FAITHFUL)
    start = start_of(replace(start.header, settings=settings), start.workload)
    whole = start.workload
    last = max(exact(start_of(start.header, _first(whole, old, 0.0))).values())
    later = (2 * 86_400.0 + last) // settings.round_seconds * settings.round_seconds
    apart = _first(whole, len(whole.specs), later, old)
    young = replace(whole, specs=apart.specs[old:], truths=apart.truths[old:])
    aged, alone = (make(start_of(start.header, workload)) for workload in (apart, young))
    jobs = {spec.job_id for spec in young.specs}
    assert schedule(aged, jobs) == schedule(alone, jobs)
    fair = recorded(aged.records)
    assert {job: fair[job] for job in jobs} == pytest.approx(recorded(alone.records), rel=1e-9)
    if not start.header.foresees:
        return
    # An alert judges by ρ as it is expected under way.
    expected = expected_rho(aged, jobs)
    assert expected == pytest.approx(expected_rho(alone, jobs), rel=1e-9)
    assert max(expected.values()) > 1.05


def schedule(made: Made, jobs: set[int]) -> list[tuple[float, int, tuple[int, ...]]]:
    """The leases of jobs, with the clock."""
    return [
        (record.clock_seconds, lease.job_id, lease.gpus)
        for record in made.records
        for lease in record.leases
        if lease.job_id in jobs
    ]


def expected_rho(made: Made, jobs: set[int]) -> dict[tuple[float, int], float]:
    """ρ of active jobs that end a round from now, by clock and job."""
    return {
        (state.clock_seconds, job): rho
        for state in made.states
        if state.beliefs.keys() <= jobs
        for job, rho in state.measure_rho(
            made.header, dict.fromkeys(state.beliefs, state.clock_seconds + 600.0)
        ).items()
    }


def _first(workload: Workload, jobs: int, later: float, after: int = 0) -> Workload:
    """The first jobs of a workload, those after the given number by some seconds later."""
    specs = (
        replace(spec, arrival_seconds=spec.arrival_seconds + later * (number >= after))
        for number, spec in enumerate(workload.specs[:jobs])
    )
    return replace(workload, specs=tuple(specs), truths=workload.truths[:jobs])


def test_a_held_job_neither_gets_nor_takes_service() -> None:
    start = tiny("srtf", jobs=4)
    first, second = start.workload.specs[:2]
    hold = Command(0, CommandKind.HOLD, first.job_id, 0.0)
    free = Command(1, CommandKind.RELEASE, first.job_id, 50_000.0)
    held = recorded(
        make(start_of(start.header, replace(start.workload, commands=(hold, free)))).records
    )
    alone = recorded(make(start).records)
    assert held[first.job_id] > 50_000.0
    assert held[second.job_id] <= alone[second.job_id]


@pytest.mark.parametrize("policy", ["srtf", "shockwave"])
def test_a_job_that_no_gpu_in_service_can_run_is_absent(policy: str) -> None:
    start = tiny(policy, jobs=12)
    times = {5_000.0: 3, 20_000.0: 8, 40_000.0: 0, 50_000.0: 8}  # GPUs, each a node of its own
    commands = list[Command]()
    for at, gpus in times.items():
        for node in range(8):
            kind = CommandKind.UNCORDON if node < gpus else CommandKind.DRAIN
            commands.append(Command(len(commands), kind, node, at))
    made = make(start_of(start.header, replace(start.workload, commands=tuple(commands))))
    changes = [(record.clock_seconds, 8 - len(record.solve.drained)) for record in made.records]
    assert {gpus for _, gpus in changes} == {3, 8, 0}
    seconds = {truth.job_id: truth.isolated_seconds for truth in made.start.workload.truths}
    jobs = [(s.arrival_seconds, seconds[s.job_id], s.demand.least, 1.0) for s in made.specs]
    assert {gang for _, _, gang, _ in jobs} == {1, 2, 4}
    ends = fluid(jobs, 8, changes)
    expected = {spec.job_id: ends[n] for n, spec in enumerate(made.specs)}
    assert recorded(made.records) == pytest.approx(expected, rel=1e-6)


def made_with_states() -> Made:
    return make(tiny("srtf", jobs=10, gap_seconds=2_000.0))


def test_what_has_ended_is_forgotten_and_a_snapshot_keeps_the_rest() -> None:
    states = [state.fair_finishes for state in made_with_states().states]
    for state in states:
        assert from_json(FairFinishes, to_json(state)) == state
        needed = {job for change in state.pending for job, *_ in change.arrivals}
        assert {*state.seconds} <= needed | state.settled.jobs.keys()
    end = states[-1]
    assert (end.since, end.ahead, end.pending) == ({}, {}, ())


def test_an_active_job_alone_is_expected_to_end_after_its_forecast_run_time() -> None:
    made = made_with_states()
    state, (estimate,) = made.states[1], made.records[0].estimates
    (job,) = state.beliefs
    expected = state.fair_finishes.project()[job]
    alone = estimate.isolated_seconds
    assert expected == pytest.approx(made.specs[0].arrival_seconds + alone, rel=1e-12)
    settings = made.header.settings
    (rho,) = state.measure_rho(made.header, {job: expected}).values()
    least = settings.round_seconds + settings.restart_seconds
    assert rho == pytest.approx(alone / (alone + least), rel=1e-12)


def test_with_true_run_times_and_arrivals_fair_finishes_are_foreseen_exactly() -> None:
    made = make(tiny("srtf", jobs=20))
    final, specs = recorded(made.records), made.specs
    seconds = {truth.job_id: truth.isolated_seconds for truth in made.start.workload.truths}
    for state in made.states[1:]:
        coming = make_arrivals(specs[state.arrived :])
        found = state.fair_finishes.foresee(seconds, coming)
        active = {*state.beliefs} | {job.job_id for job in coming}
        assert {job: found[job] for job in active} == pytest.approx(
            {job: final[job] for job in active}, rel=1e-9
        )


def test_a_job_that_ends_while_it_is_held_is_forgotten() -> None:
    finishes, nothing = FairFinishes(), dict[int, float]()
    new = (Arrival(0, 0.0, 1, ABSENT), Arrival(1, 0.0, 1))
    finishes = finishes.after(0.0, new, {0: ABSENT, 1: 1.0}, 1, nothing).expect({0: 9.0, 1: 50.0})
    finishes = finishes.after(100.0, (), {1: 1.0}, 1, {0: 0.0})  # withdrawn
    finishes = finishes.after(200.0, (), {}, 1, {1: 50.0})
    assert finishes.news[1] == 50.0
    assert (finishes.seconds, finishes.pending, finishes.now.jobs) == ({}, (), {})


def test_a_job_that_is_held_after_its_end_there_delays_nobody() -> None:
    finishes, nothing = FairFinishes(), dict[int, float]()
    finishes = finishes.after(0.0, (Arrival(0, 0.0, 1),), {0: 1.0}, 1, nothing)
    finishes = finishes.expect({0: 100.0}).after(150.0, (), {0: ABSENT}, 1, nothing)
    finishes = finishes.after(200.0, (Arrival(1, 200.0, 1),), {0: ABSENT, 1: 1.0}, 1, nothing)
    finishes = finishes.expect({1: 50.0}).after(300.0, (), {0: 1.0}, 1, {1: 50.0})
    assert finishes.news == {1: 250.0}
    finishes = finishes.after(400.0, (), {}, 1, {0: 100.0})
    assert finishes.news == {0: 100.0, 1: 250.0}


def test_a_job_that_never_ends_keeps_a_bounded_past(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.fairness.MOST_PENDING", 5)
    finishes, ended, found = FairFinishes(), dict[int, float](), dict[int, float]()
    for job in range(40):  # job 0 runs for ever, all others for 60 s
        active = {0: 1.0, job: 1.0}
        finishes = finishes.after(100.0 * job, (Arrival(job, 100.0 * job, 1),), active, 2, ended)
        finishes = finishes.expect({job: 60.0 if job else 1e6})
        ended = {job: 60.0} if job else {}
        found |= finishes.news
        assert len(finishes.pending) <= 5
        assert len(finishes.seconds) <= 7
    assert found == {job: 100.0 * job + 60.0 for job in range(1, 39)}


def test_the_same_forecast_twice_changes_nothing() -> None:
    for state in made_with_states().states:
        finishes = state.fair_finishes
        seconds = {job: there.seconds for job, there in finishes.now.jobs.items()}
        seconds |= {job: ended.seconds for job, ended in finishes.ahead.items()}
        for factor in (0.3, 1.0, 1.7):
            asked = {job: factor * known for job, known in seconds.items()}
            once = finishes.expect(asked)
            assert once.expect(asked) == once


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "hold", "free", "end", "drain"]),
        st.integers(0, 9),
        st.floats(0.0, 400.0),
    ),
    max_size=40,
)


@given(STEPS)
def test_whatever_happens_times_are_finite_and_what_has_ended_is_forgotten(
    steps: list[tuple[str, int, float]],
) -> None:
    finishes, budgets, clock, gpus, number = FairFinishes(), dict[int, float](), 0.0, 2, 0
    ends = set[int]()
    for kind, which, value in [*steps, *((("end", 0, 50.0),) * 41)]:
        clock += 60.0
        arrivals, ended = tuple[Arrival, ...](), dict[int, float]()
        job = sorted(budgets)[which % len(budgets)] if budgets else None
        if kind == "arrive":
            budgets[number] = ABSENT if which > 7 else 1.0
            arrivals = (Arrival(number, clock - 30.0, 1 + which % 2, budgets[number]),)
            number += 1
        elif kind == "drain":
            gpus = which % 3
        elif job is not None and kind == "end":
            ended = {job: value}
            del budgets[job]
            ends.add(job)
        elif job is not None:
            budgets[job] = ABSENT if kind == "hold" else 1.0
        finishes = finishes.after(clock, arrivals, budgets, gpus, ended)
        known = {job: value + 10.0 * job for job in budgets if job % 2 or job == number - 1}
        finishes = finishes.expect(known)
        assert finishes.expect(known) == finishes
        assert from_json(FairFinishes, to_json(finishes)) == finishes
        assert all(math.isfinite(at) for at in finishes.news.values())
        assert finishes.project().keys() >= budgets.keys()
        assert (
            finishes.measure_rho(*[dict.fromkeys(budgets, clock)] * 2, 60.0, 10.0).keys()
            <= budgets.keys()
        )
    assert not budgets
    finishes = finishes.after(1e9, (), {}, 2, {}).after(2e9, (), {}, 2, {})
    assert (finishes.seconds, finishes.pending, finishes.now.jobs) == ({}, (), {})
