"""Runs in which two jobs share their GPUs, from the first round to the last."""

from dataclasses import replace
from pathlib import Path

import pytest

from containers.runtime import EventKind, Lease, ResumePoint
from containers.virtual.faithful import FaithfulFactory
from containers.virtual.truth import GroundTruth
from containers.virtual.virtual_cluster import VirtualFactory
from flows.explain.whatif import Change, fork
from flows.runs.sharing import shares_gpus
from flows.runs.simulation import make_terms
from predictor.belief import Belief
from predictor.errors import InputError
from predictor.job import Regime
from predictor.throughput import Profile
from tasks.record import Parameter, RuntimeKind
from tasks.speeds import LastRound
from tests.runs import check_sound, check_stored, ended, make, mixed, violated, write
from warehouse.store.reader import Reader

PACKED = (Parameter("packed", 1.0),)

SHARING = [
    ("antman", ()),
    ("gandiva", ()),
    ("gavel", PACKED),
    ("themis", PACKED),
    ("ossp", PACKED),
    ("mst", PACKED),
    ("fifo", (*PACKED, Parameter("gain", 1.1))),
    ("shockwave", PACKED),
]


@pytest.mark.parametrize(("policy", "parameters"), SHARING)
@pytest.mark.slow
def test_every_round_is_sound_and_its_records_give_the_state(
    policy: str, parameters: tuple[Parameter, ...], tmp_path: Path
) -> None:
    classes = policy == "antman"
    made = make(mixed(policy, jobs=14, together=0.8, parameters=parameters, opportunistic=classes))
    check_sound(made)
    assert any(record.pairs for record in made.records)
    run = check_stored(tmp_path, made)
    assert [record for record, _ in Reader(tmp_path).records(run)] == made.records
    assert Reader(tmp_path).header(run) == made.header


@pytest.mark.slow
def test_more_work_is_done_together_than_in_turns() -> None:
    def ends(packed: float) -> list[float]:
        start = mixed("gavel", jobs=24, together=0.8, parameters=(Parameter("packed", packed),))
        made = make(start)
        return [event.at_seconds for record in made.records for event in record.finished]

    assert sum(ends(1.0)) < 0.85 * sum(ends(0.0))


def test_gpus_overlap_only_where_records_say_so() -> None:
    made = make(mixed("gandiva", jobs=14, together=0.8))
    number = next(n for n, record in enumerate(made.records) if record.pairs)
    before, record = made.records[:number], made.records[number]
    (job, other), gpus = record.pairs[0], {x.job_id: x.gpus for x in record.leases}

    def faults(**parts: object) -> list[str]:
        return violated(made, [*before, replace(record, **parts)])  # type: ignore[arg-type]

    assert faults() == []
    assert f"GPU {gpus[job][0]} is given to 2 jobs" in faults(pairs=record.pairs[1:])
    alone = next(x.job_id for x in record.leases if not any(x.job_id in p for p in record.pairs))
    (fault,) = faults(pairs=(*record.pairs, (job, alone)))[1:2]
    assert fault == f"jobs {[job, alone]} are a pair and do not hold the same GPUs"
    assert faults(pairs=(*record.pairs, (job, other)))[0] == f"job {job} shares its GPUs 2 times"


def test_two_jobs_on_the_same_gpus_run_at_the_rates_of_their_pair() -> None:
    start = mixed("gandiva", jobs=14, together=0.5)
    profile = start.header.throughputs
    first, second = (start.workload.specs[number] for number in (3, 5))
    assert (first.model, second.model) == ("translator", "recurrent-lm")
    runtime = VirtualFactory(start.workload.truths).open(
        replace(make_terms(start.header), restart_seconds=0.0), ResumePoint(jobs=(first, second))
    )

    def steps(*leases: Lease) -> dict[int, int]:
        before = {first.job_id: first.total_steps, second.job_id: second.total_steps} | left
        runtime.launch(0, leases)
        runtime.advance(None)
        seen = runtime.observe()
        assert all(event.kind is EventKind.FINISHED for event in seen.finished)
        assert all(600 - entry.seconds < 1.0 for entry in seen.progress)  # whole steps
        left.update({entry.job_id: entry.steps_left for entry in seen.progress})
        return {entry.job_id: before[entry.job_id] - left[entry.job_id] for entry in seen.progress}

    left: dict[int, int] = {}
    alone = steps(Lease(first.job_id, (0,)), Lease(second.job_id, (1,)))
    rate = profile.rate(first, first.batch_size, profile.reference(first))
    assert alone[first.job_id] == pytest.approx(600 * rate, abs=1)
    together = steps(Lease(second.job_id, (0,)))
    assert together == {job: pytest.approx(0.5 * done, abs=1) for job, done in alone.items()}
    apart = steps(Lease(second.job_id, (1,)))
    assert apart[first.job_id] == pytest.approx(alone[first.job_id], abs=1)


def test_as_containers_behave_a_job_goes_on_alone_once_the_other_of_its_pair_ends() -> None:
    start = mixed("gandiva", jobs=14, together=0.5, runtime=RuntimeKind.FAITHFUL)
    profile = start.header.throughputs
    first, second = (start.workload.specs[number] for number in (3, 5))
    rate = profile.rate(first, first.batch_size, profile.reference(first))
    alone = profile.rate(second, second.batch_size, profile.reference(second))
    short = replace(second, total_steps=0, epochs=5)
    lasts = short.total_steps / (0.5 * alone)
    held = (Regime(second.batch_size, 5),)
    truths = [*start.workload.truths[:4], GroundTruth(5, 1.0, held, held)]
    runtime = FaithfulFactory(truths).open(
        replace(make_terms(start.header), restart_seconds=20.0), ResumePoint(jobs=(first, short))
    )
    runtime.launch(0, [Lease(first.job_id, (0,)), Lease(second.job_id, (0,))])
    runtime.advance(None)
    seen = runtime.observe()
    (end,) = seen.finished
    assert (end.job_id, end.at_seconds) == (second.job_id, pytest.approx(20.0 + lasts))
    done = first.total_steps - seen.progress[0].steps_left
    assert done == pytest.approx(rate * (0.5 * lasts + 580.0 - lasts), abs=1)
    beliefs = {job.job_id: Belief(job) for job in (first, short)}
    leases = {first.job_id: (0,), second.job_id: (0,)}
    last = LastRound(start.header, start.header.settings.inventory, beliefs, leases, 0.0)
    speed = last.measure_speed(beliefs[first.job_id], seen)
    assert speed == pytest.approx(1.0 - 0.5 * lasts / 580.0, rel=1e-3)  # whole steps
    assert speed * seen.progress[0].seconds * rate == pytest.approx(done, abs=1)


@pytest.mark.parametrize("policy", ["gandiva", "shockwave"])
def test_as_containers_behave_rounds_are_sound(policy: str) -> None:
    parameters = PACKED if policy == "shockwave" else ()
    made = make(
        mixed(policy, jobs=8, together=0.8, parameters=parameters, runtime=RuntimeKind.FAITHFUL)
    )
    check_sound(made)
    assert any(record.pairs for record in made.records)


def test_sharing_is_refused_where_it_cannot_be() -> None:
    with pytest.raises(InputError, match="throughputs have no pairs"):
        mixed("gavel", parameters=PACKED)
    with pytest.raises(InputError, match="a service has no jobs that share GPUs"):
        shares_gpus(
            mixed("gavel", together=0.8, parameters=PACKED).header.settings, Profile({}), True
        )
    assert mixed("gavel", together=0.8).header.pairs == ()


def test_a_run_whose_models_have_no_pairs_can_be_forked(tmp_path: Path) -> None:
    made = make(mixed("gavel", jobs=1, together=0.8, parameters=PACKED))
    assert made.header.pairs == ()
    run = write(tmp_path, made.start, made.rounds)
    forked = fork(run, tmp_path, 0, Change(), tmp_path / "fork")
    assert Reader(tmp_path / "fork").header(forked).settings.parameters == PACKED
    unpacked = make(mixed("gavel", jobs=1))
    other = write(tmp_path, unpacked.start, unpacked.rounds)
    for change in (Change(parameters=PACKED), Change(policy="gandiva"), Change(policy="antman")):
        with pytest.raises(InputError, match="the run recorded no throughputs of pairs; run its"):
            fork(other, tmp_path, 0, change, tmp_path / "other")
    alone = Change(policy="gandiva", parameters=(Parameter("packed", 0.0),))
    sliced = fork(other, tmp_path, 0, alone, tmp_path / "sliced")
    with pytest.raises(InputError, match="the run recorded no throughputs of pairs"):
        fork(sliced, tmp_path / "sliced", 0, Change(parameters=PACKED), tmp_path / "other")


def test_a_fork_of_generated_jobs_may_share_gpus_as_the_run_would(tmp_path: Path) -> None:
    made = ended("fifo", jobs=5)
    run = write(tmp_path, made.start, made.rounds)
    fork(run, tmp_path, 3, Change(policy="gandiva"), tmp_path / "fork")
    with pytest.raises(InputError, match="the throughputs have no pairs of jobs"):
        fork(run, tmp_path, 3, Change("gavel", PACKED), tmp_path / "other")
