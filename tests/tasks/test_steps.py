from itertools import pairwise

import pytest

from containers.runtime import Observation
from flows.runs.simulation import prepare
from predictor.forecast import Forecast
from predictor.parts import Mapper
from tasks.record import hash_record
from tasks.round import run_round, solve_round
from tests.runs import POLICIES, Made, Memory, check_sound, ended, make, tiny

CASES = [
    *((policy, 7, 90.0) for policy in POLICIES),
    ("shockwave", 2, 90.0),
    ("shockwave", 5, 20_000.0),  # so far apart that the cluster runs empty in between
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(map(str, case)))
def made(request: pytest.FixtureRequest) -> Made:
    policy, seed, gap_seconds = request.param
    return make(tiny(policy, seed=seed, gap_seconds=gap_seconds))


def test_every_round_is_sound_and_linked_to_the_one_before(made: Made) -> None:
    check_sound(made)
    digests = [made.start.digest, *(digest for _, digest, _ in made.rounds)]
    for (record, digest, _), before in zip(made.rounds, digests, strict=False):
        assert (record.previous_hash, hash_record(record)) == (before, digest)
    assert made.run.state.last_hash == digests[-1]


def test_no_gpu_idles_that_a_waiting_job_could_use(made: Made) -> None:
    gangs = {spec.job_id: spec.demand.least for spec in made.specs}
    for record, state in zip(made.records, made.states[1:], strict=True):
        launched = {lease.job_id for lease in record.leases}
        idle = made.header.settings.gpus - sum(len(launch.gpus) for launch in record.leases)
        waiting = [job_id for job_id in state.beliefs if job_id not in launched]
        assert all(gangs[job_id] > idle for job_id in waiting), record.round


def test_a_job_that_goes_on_running_keeps_its_gpus(made: Made) -> None:
    kept = 0
    for before, after in pairwise(made.records):
        held = {lease.job_id: lease.gpus for lease in before.leases}
        for launch in after.leases:
            if launch.job_id in held:
                assert launch.gpus == held[launch.job_id]
                kept += 1
    assert kept > 10


def test_jobs_are_admitted_at_the_first_boundary_after_they_arrive(made: Made) -> None:
    clocks = [record.clock_seconds for record in made.records]
    admitted = {
        spec.job_id: record.clock_seconds for record in made.records for spec in record.arrivals
    }
    assert admitted == {
        spec.job_id: min(clock for clock in clocks if clock >= spec.arrival_seconds)
        for spec in made.specs
    }


def test_jobs_of_which_there_is_news_are_forecast_again(made: Made) -> None:
    assert made.header.foresees is (made.header.settings.policy != "themis")
    last: dict[int, Forecast] = {}
    for record in made.records:
        news = {spec.job_id for spec in record.arrivals}
        news |= {entry.job_id for entry in record.progress}
        news -= {event.job_id for event in record.finished}
        news = news if made.header.foresees else set()
        again = [f.job_id for f in record.forecasts]
        assert again == sorted(again)
        assert news <= set(again)
        assert set(again) == news or (
            made.header.foresees and record.finished
        )  # what others went through is news too
        assert all(last.get(f.job_id) != f for f in record.forecasts)
        last |= {f.job_id: f for f in record.forecasts}


def test_fair_finishes_and_answers_need_no_recorded_forecasts() -> None:
    made, foreseen = ended("fifo"), ended("srtf")
    assert not any(record.forecasts or record.estimates for record in made.records)
    found, expected = (
        {fair.job_id: fair.at_seconds for record in run.records for fair in record.fair_finishes}
        for run in (made, foreseen)
    )
    assert found == pytest.approx(expected)
    assert found.keys() == {spec.job_id for spec in made.specs}
    with prepare(made.start).open_run(Memory()) as run:
        run_round(run)
        this = solve_round(run)
    left = [job.run_time(job.own).remaining for job in this.active.values()]
    assert len(left) > 1
    assert min(left) > 0.0


def test_a_run_ends_in_a_closing_record_without_an_active_job(made: Made) -> None:
    closing = made.records[-1]
    assert (closing.forecasts, closing.leases) == ((), ())
    assert closing.finished
    finished = [event.job_id for record in made.records for event in record.finished]
    assert sorted(finished) == [spec.job_id for spec in made.specs]
    assert closing.clock_seconds == max(event.at_seconds for event in closing.finished)


@pytest.mark.parametrize("policy", POLICIES)
def test_same_inputs_end_in_the_same_hash_and_another_seed_in_another(policy: str) -> None:
    first, again, other = (make(tiny(policy, jobs=4, seed=seed)) for seed in (7, 7, 8))
    assert first.run.state.last_hash == again.run.state.last_hash
    assert first.records == again.records
    assert first.run.state.last_hash != other.run.state.last_hash


def test_policy_inputs_are_made_anew_only_for_jobs_with_news() -> None:
    start, kept = tiny("sjf", jobs=20), 0
    with prepare(start).open_run(Memory()) as run:
        while not run.finished:
            before = run.active
            this = run_round(run)
            news = {expected.job_id for expected in this.forecasts}
            for job_id, job in run.active.items():
                assert job.belief is this.state.beliefs[job_id]
                assert job.forecast is this.state.forecasts[job_id]
                assert job.gpus == this.state.leases.get(job_id, ())
                kept += job is before.get(job_id)
                assert job_id not in news or job is not before.get(job_id)
    assert kept > 10


def test_the_wait_for_the_round_before_is_no_time_of_collecting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr("tasks.round.perf_counter", lambda: clock[0])
    start, sink = tiny("srtf", jobs=2), Memory()
    with prepare(start).open_run(sink) as run:
        advance, observe = run.runtime.advance, run.runtime.observe

        def wait(idle_until: float | None) -> None:
            clock[0] += 120.0
            advance(idle_until)

        def look(each: Mapper | None) -> Observation:
            clock[0] += 0.5
            return observe()

        monkeypatch.setattr(run.runtime, "advance", wait)
        monkeypatch.setattr(run.runtime, "observe", look)
        for _ in range(3):
            run_round(run)
    assert [timings.collect_ms for _, _, timings in sink.rounds] == [500.0] * 3
