"""Plays of the queue forecast the starts and finishes of the same queue."""

from collections import deque
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from flows.runs.simulation import prepare
from flows.runs.start import make_start
from predictor.basis import Basis
from predictor.options import JobOptions, Task
from solver.deciding import place
from solver.even_cluster import find_fair_finishes, measure_rho
from tasks.queue_simulation import QueuedJob, QueueSimulation
from tasks.record import Parameter, RuntimeKind, Settings, Start, make_pool
from tasks.rollouts import (
    SIMULATIONS,
    ExpectedTimes,
    _coming,
    _draw_ratios,
    _starts,
    forecast_times,
)
from tasks.round import (
    Prediction,
    Round,
    Step,
    StepResult,
    _predict,
    call_step,
    collect,
    make_situation,
    predict,
    run_round,
    solve,
)
from tasks.run import Run
from tasks.sources import Workload
from tasks.state import make_arrivals
from tests.runs import Memory, make, mixed, planned, tiny
from warehouse.workloads.generator import generate_workload


def played(start: Start) -> tuple[dict[int, ExpectedTimes], Memory, Round]:
    """Forecasts of all jobs in the second round, by when all have come, then the whole run."""
    kept, found, predicted = Memory(), dict[int, ExpectedTimes](), list[Prediction]()

    def call(step: Step, run: Run, *inputs: StepResult[Any]) -> StepResult[Any]:
        result = call_step(step, run, *inputs)
        if step is predict:
            predicted.append(_predict(run, inputs[0].value, asked=True))
        if step is solve:
            this = Round(**vars(predicted[0]), plan=result.value)
            found.update(forecast_times(run, this, this.active.keys()))
            assert found == forecast_times(run, this, this.active.keys())
        return result

    with prepare(start).open_run(kept) as run:
        run_round(run)
        this = run_round(run, call)
        while not run.finished:
            run_round(run)
    return found, kept, this


def make_workload(jobs: int = 9) -> Workload:
    return generate_workload(jobs, rng=np.random.default_rng(5), mean_interarrival_seconds=1e-6)


def asked(policy: str, jobs: int = 9) -> tuple[dict[int, ExpectedTimes], Memory, Round]:
    workload = make_workload(jobs)
    return played(make_start(workload, Settings(policy, make_pool(4, 4), forecasts=Basis.ORACLE)))


def alone(seed: int = 0, gpus: int = 4) -> Start:
    """A run of one job."""
    workload = generate_workload(1, rng=np.random.default_rng(seed))
    return make_start(workload, Settings("fifo", make_pool(gpus, gpus)))


def at_once(start: Start, **changed: object) -> Start:
    """The run with all jobs there from its beginning."""
    specs = tuple(replace(spec, arrival_seconds=0.0) for spec in start.workload.specs)
    settings = replace(start.header.settings, **changed)  # type: ignore[arg-type]
    return make_start(replace(start.workload, specs=specs), settings)


@pytest.mark.parametrize(
    ("policy", "jobs"),
    [("slaq", 3), ("shockwave-published", 9)],
    ids=["losses to come decide", "nothing is known"],
)
def test_nothing_is_forecast_where(policy: str, jobs: int) -> None:
    assert asked(policy, jobs)[0] == {}


@pytest.mark.parametrize("policy", ["fifo", "srtf", "shockwave"])
@pytest.mark.slow
def test_known_jobs_start_and_finish_as_forecast(policy: str) -> None:
    found, kept, this = asked(policy)
    workload = make_workload()
    clock = this.observation.clock_seconds
    records = [record for record, _, _ in kept.rounds]
    ends = {e.job_id: e.at_seconds for record in records for e in record.finished}
    assert found.keys() == ends.keys()
    late, rhos = [], []
    seconds = {truth.job_id: truth.isolated_seconds for truth in workload.truths}
    fair = find_fair_finishes(make_arrivals(workload.specs), seconds, 4)
    for job_id, times in found.items():
        started = next(
            record.clock_seconds
            for record in records[1:]
            if any(lease.job_id == job_id for lease in record.leases)
        )
        assert times.start.low <= times.start.median <= times.start.high
        assert times.finish.low < times.finish.median < times.finish.high
        assert (times.start.median == clock) is (started == clock)
        late.append((times.finish.median - ends[job_id]) / (ends[job_id] - clock))
        assert times.fair_finish
        assert times.rho
        assert times.fair_finish.low < times.fair_finish.median < times.fair_finish.high
        assert times.fair_finish.median == pytest.approx(fair[job_id], rel=0.1)
        assert times.rho.low < times.rho.median < times.rho.high
        rho = measure_rho(ends[job_id], 0.0, fair[job_id], 120.0, 20.0)
        rhos.append(times.rho.median / rho - 1.0)
    assert np.mean(np.abs(late)) < 0.1
    assert np.mean(np.abs(rhos)) < 0.1


def test_ratios_of_isolated_run_times_are_those_of_finished_jobs() -> None:
    made = make(tiny("srtf", jobs=20))
    learning = made.states[-1].learning
    isolated = {truth.job_id: truth.isolated_seconds for truth in made.start.workload.truths}
    trained = {belief.spec.job_id: belief.reference_seconds for belief in learning.finished}
    expected = sorted(isolated[job] / trained[job] for job in isolated)
    kept = learning.isolated_ratios.values()
    assert sorted(ratio for ratios in kept for ratio in ratios) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("ratios", "spread"),
    [
        ({"static": (0.9,) * 7}, 0.0),  # too few
        (dict.fromkeys(["static", "accordion", "gns"], (0.9, 1.1) * 8), 0.1 / 16**0.5),
    ],
)
def test_few_ratios_leave_their_mean_uncertain_for_all_jobs_alike(
    ratios: dict[str, tuple[float, ...]], spread: float
) -> None:
    state = make(tiny("srtf", jobs=20)).states[4]
    job = next(iter(state.beliefs.values()))
    beliefs = {n: replace(job, spec=replace(job.spec, job_id=n)) for n in range(400)}
    learning = replace(state.learning, isolated_ratios=ratios)
    state = replace(state, beliefs=beliefs, learning=learning)
    rng = np.random.default_rng(0)
    means = [np.mean(list(_draw_ratios(state, rng).values())) for _ in range(300)]
    assert np.mean(means) == pytest.approx(1.0, abs=0.01)
    assert np.std(means) == pytest.approx(spread, rel=0.2)


def test_a_job_that_waits_for_another_to_end_has_no_fair_finish_yet() -> None:
    start = alone()
    first = start.workload.specs[0]
    second = replace(first, job_id=1, options=JobOptions(after=(0,)))
    truth = start.workload.truths[0]
    both = replace(start.workload, specs=(first, second), truths=(truth, replace(truth, job_id=1)))
    with prepare(make_start(both, start.header.settings)).open_run(Memory()) as run:
        found = forecast_times(run, planned(run)[0], {0, 1})
    assert found[0].fair_finish
    assert (found[1].fair_finish, found[1].rho) == (None, None)


@pytest.mark.parametrize("rounds", [5, 40])
def test_intervals_hold_about_four_fifths_of_starts_though_many_plays_agree(rounds: int) -> None:
    rng = np.random.default_rng(0)
    held = []
    for _ in range(4_000):
        *plays, truth = (120.0 * rng.integers(1, rounds + 1, SIMULATIONS + 1)).tolist()
        start = _starts(plays, 0.0, 120.0)
        assert 60.0 <= start.low <= start.median <= start.high
        assert start.median in plays
        held.append(start.low <= truth <= start.high)
    assert 0.78 < np.mean(held) < 0.86  # of five rounds, ends at those of plays would hold 0.97


@pytest.mark.parametrize("seed", range(3))
def test_a_job_that_waits_for_no_other_finishes_in_the_interval_of_its_run_time(seed: int) -> None:
    with prepare(alone(seed, gpus=16)).open_run(Memory()) as run:
        this, _ = planned(run)
        found = forecast_times(run, this, {0})[0]
        low, high = run.state.learning.calibration.interval_of(
            this.active[0].belief, this.active[0].run_time(this.active[0].menu[0])
        )
    assert found.finish.high - found.finish.low == pytest.approx(high - low, rel=0.03)


def test_an_interval_holds_the_start_that_all_plays_agree_on() -> None:
    start = _starts([240.0] * SIMULATIONS, 0.0, 120.0)
    assert start.median == 240.0
    assert 180.0 < start.low < 240.0 < start.high < 300.0


@pytest.mark.parametrize("seconds", [0.0, 40.0, 118.0, 119.5, 1_000.0, 12_360.0])
def test_a_round_ends_before_a_step_does(seconds: float) -> None:
    with prepare(alone()).open_run(Memory()) as run:
        this, _ = planned(run)
    job = QueuedJob(this.active[0], seconds, cut=1.5)
    held = job.held(seconds, 120.0)
    assert held == seconds + 1.5 * int(seconds / 118.5)
    assert job.trained(held, 120.0) == pytest.approx(seconds)
    assert [job.trained(120.0 * rounds, 120.0) for rounds in (1, 3)] == [118.5, 355.5]
    for late in (0.0, 20.0, 250.0):  # seconds of a restart, by the whole rounds that end
        began = late % 120.0
        rounds = int((seconds + began) / 118.5)
        assert job.held(seconds, 120.0, late) == seconds + 1.5 * rounds
        assert job.trained(job.held(seconds, 120.0, late), 120.0, late) == pytest.approx(seconds)
        assert job.trained(240.0 - began, 120.0, late) == 237.0 - began


def test_a_play_of_several_rounds_at_a_time_is_that_of_one_at_a_time() -> None:
    ends = []
    with prepare(alone()).open_run(Memory()) as run:
        this, now = planned(run)
        for rounds in (1, 30):
            jobs = {0: QueuedJob(this.active[0], 2_360.0, cut=1.5)}
            play = QueueSimulation(
                partial(place, run.policy), now, jobs, deque(), np.random.default_rng(0)
            )
            while not play.ends:
                play._carry_out(this.plan, rounds)
            ends += [play.ends[0] - now.clock_seconds]
    assert ends == [pytest.approx(20.0 + 2_360.0 + 1.5 * 20)] * 2


@pytest.mark.parametrize("policy", ["gavel", "gandiva"])
def test_a_play_goes_on_with_those_that_wait_where_jobs_share_gpus(policy: str) -> None:
    start = mixed(policy, jobs=24, together=0.8, parameters=(Parameter("packed", 1.0),))
    with prepare(at_once(start)).open_run(Memory()) as run:
        this, now = planned(run)
        jobs = {job_id: QueuedJob(job, 1_000.0) for job_id, job in this.active.items()}
        play = QueueSimulation(
            partial(place, run.policy), now, jobs, deque(), np.random.default_rng(0)
        )
        play._carry_out(this.plan, 60)
    assert len(this.plan.placement) < len(this.active) == len(play.ends)


@pytest.mark.slow
@pytest.mark.parametrize("runtime", [RuntimeKind.VIRTUAL, RuntimeKind.FAITHFUL])
def test_jobs_that_share_gpus_finish_as_forecast(runtime: RuntimeKind) -> None:
    start = mixed("antman", jobs=14, together=0.8, opportunistic=True, runtime=runtime)
    found, kept, this = played(at_once(start, forecasts=Basis.ORACLE))
    clock = this.observation.clock_seconds
    ends = {e.job_id: e.at_seconds for record, _, _ in kept.rounds for e in record.finished}
    late = {
        job: (times.finish.median - ends[job]) / (ends[job] - clock) for job, times in found.items()
    }
    paired = {job for pair in this.plan.pairs for job in pair}
    assert paired
    assert paired <= late.keys() == this.active.keys()
    assert np.mean(np.abs([late[job] for job in paired])) < 0.15, late


def test_a_play_ends_with_the_jobs_that_are_asked_for() -> None:
    workload = generate_workload(6, rng=np.random.default_rng(1), mean_interarrival_seconds=60.0)
    start = make_start(workload, Settings("shockwave", make_pool(4, 4), seed=3))
    with prepare(start).open_run(Memory()) as run:
        for _ in range(4):
            run_round(run)
        (job_id, *_) = run.state.beliefs
        found = forecast_times(run, planned(run)[0], {job_id})
    assert found.keys() == {job_id}


def test_arrays_come_as_often_as_jobs_and_with_all_their_tasks() -> None:
    workload = generate_workload(12, rng=np.random.default_rng(1), mean_interarrival_seconds=30.0)
    alone, tasks = workload.specs[:8], workload.specs[8:]
    array = tuple(
        replace(
            spec, arrival_seconds=tasks[0].arrival_seconds, options=JobOptions(task=Task(at, at, 4))
        )
        for at, spec in enumerate(tasks)
    )
    start = make_start(
        replace(workload, specs=(*alone, *array)), Settings("fifo", make_pool(4, 4), seed=3)
    )
    with prepare(start).open_run(Memory()) as run:
        while run.state.arrived < len(workload.specs):
            run_round(run)
        this = predict(run, collect(run))
        now = make_situation(run, this)
        assert now is not None
        now = replace(now, clock_seconds=array[0].arrival_seconds)
        active = {job_id: QueuedJob(job, 1_000.0) for job_id, job in this.active.items()}
        batches = []
        for seed in range(40):
            coming = _coming(run, this, now, active, np.random.default_rng(seed))
            for _, alike in groupby(coming, key=lambda job: job.seen.spec.arrival_seconds):
                batches.append([job.seen.spec for job in alike])
    models = {tuple(spec.model for spec in batch) for batch in batches if len(batch) > 1}
    assert models == {tuple(spec.model for spec in array)}
    places = [spec.options.task.place for batch in batches for spec in batch]
    assert places == [place for batch in batches for place in range(len(batch))]
    assert np.mean([len(batch) > 1 for batch in batches]) == pytest.approx(1 / 9, abs=0.05)
