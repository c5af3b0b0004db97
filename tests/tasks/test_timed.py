"""Checkpointing and opaque jobs in whole runs, on both virtual clocks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containers.runtime import EventKind, Lease, Observation, Runtime
from flows.explain.sentences import describe_answer
from flows.explain.why import why
from flows.runs.simulation import prepare
from flows.runs.start import make_start
from predictor.job import JobKind
from predictor.parts import Mapper
from predictor.throughput import Profile
from tasks.invariants import Invariants
from tasks.record import RuntimeKind, Settings, make_pool
from tasks.round import run_round
from tasks.sources import Workload
from tests.kinds import CHECKPOINTING, OPAQUE, timed, with_jobs
from tests.runs import Made, Memory, check_sound, check_stored, make, tiny, write
from warehouse.store.reader import Reader


def mixed(policy: str = "shockwave", runtime: RuntimeKind = RuntimeKind.VIRTUAL) -> Made:
    """Adaptive jobs, and after them 16 checkpointing and opaque ones, some beyond their limit."""
    jobs = [
        timed(
            0,
            [1_500.0, 3_000.0, 9_000.0][n % 3],
            limit=5_000.0,
            kind=(CHECKPOINTING, OPAQUE)[n % 2],
            gpus=1 + n % 2,
            at=800.0 * n,
        )
        for n in range(16)
    ]
    workload = with_jobs(tiny().workload, jobs)
    asked = Settings(policy, make_pool(8), round_seconds=600.0, seed=7, runtime=runtime)
    return make(make_start(workload, asked))


@pytest.mark.slow
@pytest.mark.parametrize("runtime", [RuntimeKind.VIRTUAL, RuntimeKind.FAITHFUL])
def test_jobs_of_all_kinds_run_together(tmp_path: Path, runtime: RuntimeKind) -> None:
    made = mixed(runtime=runtime)
    check_sound(made)
    ends = {event.job_id: event for record in made.records for event in record.finished}
    truths = {truth.job_id: truth.isolated_seconds for truth in made.start.workload.truths}
    for spec in made.specs:
        beyond = spec.timed and truths[spec.job_id] > spec.max_seconds
        assert ends[spec.job_id].kind is (EventKind.FAILED if beyond else EventKind.FINISHED)
    kinds = {spec.job_id: spec.kind for spec in made.specs}
    preempted = {
        kinds[event.job_id]
        for record in made.records
        for event in record.events
        if event.kind is EventKind.PREEMPTED
    }
    assert JobKind.OPAQUE not in preempted

    state = made.run.state
    assert len(state.learning.history.shares["", "default", "python:3-slim"]) == 16
    assert max(state.learning.history.shares["", "default", "python:3-slim"]) > 0.9, (
        "those at their limits"
    )

    name = check_stored(tmp_path, made)
    assert Reader(tmp_path).start(name).workload.specs == made.specs


def test_a_job_learns_how_long_it_takes_from_those_before_it() -> None:
    made = mixed()
    last = max(made.specs, key=lambda spec: spec.arrival_seconds).job_id
    estimates = [estimate for record in made.records for estimate in record.estimates]
    first = next(estimate for estimate in estimates if estimate.job_id == 8)
    later = next(estimate for estimate in estimates if estimate.job_id == last)
    assert (first.remaining_seconds, first.low_seconds) == pytest.approx((2_500.0, 0.0), abs=1e-3)
    assert first.high_seconds == pytest.approx(5_000.0)
    assert later.low_seconds == pytest.approx(1_500.0, rel=0.05)


def test_why_tells_of_jobs_that_keep_their_gpus(tmp_path: Path) -> None:
    made = mixed("fifo")
    name = write(tmp_path, made.start, made.rounds)
    number, job = next(
        (record.round, lease.job_id)
        for record in made.records[5:]
        for lease in record.leases
        if made.specs[lease.job_id].kind is OPAQUE
        and all(event.job_id != lease.job_id for event in record.events)
    )
    text = " ".join(describe_answer(why(job, tmp_path, name, number)))
    assert f"Job {job} runs in round {number}" in text


def test_an_opaque_job_that_is_moved_or_preempted_is_found() -> None:
    made = mixed()
    whole = made.header.settings.gpus
    for change in ("moved", "preempted"):
        invariants, found = Invariants(made.header, made.start.workload), list[str]()
        held: dict[int, tuple[int, ...]] = {}
        for record in made.records:
            kept = [
                lease
                for lease in record.leases
                if made.specs[lease.job_id].kind is OPAQUE and held.get(lease.job_id) == lease.gpus
            ]
            if not kept:
                assert list(invariants.check(record)) == []
                held = {lease.job_id: lease.gpus for lease in record.leases}
                continue
            others = tuple(lease for lease in record.leases if lease != kept[0])
            used = {gpu for lease in record.leases for gpu in lease.gpus}
            elsewhere = tuple(sorted({*range(whole)} - used))[: len(kept[0].gpus)]
            moved = (Lease(kept[0].job_id, elsewhere),) if change == "moved" else ()
            found = list(invariants.check(replace(record, leases=(*others, *moved))))
            break
        said = f"job {kept[0].job_id} is opaque and loses its GPUs {list(kept[0].gpus)}"
        assert said in found


class Reporting:
    """A runtime whose timed jobs report what share of their work is done."""

    def __init__(self, runtime: Runtime, lengths: dict[int, float]) -> None:
        self._runtime, self._lengths = runtime, lengths

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def observe(self, each: Mapper | None = None) -> Observation:
        """See `Runtime.observe`."""
        seen = self._runtime.observe()
        progress = (
            replace(entry, share=min(entry.run_seconds / self._lengths[entry.job_id], 1.0))
            for entry in seen.progress
        )
        return replace(seen, progress=tuple(progress))


@pytest.mark.parametrize("reporting", [False, True])
def test_forecasts_of_jobs_that_report_are_scored_with_those_alike(reporting: bool) -> None:
    jobs = [timed(0, 1_500.0, limit=9_000.0, name="train") for _ in range(3)]
    start = make_start(
        with_jobs(Workload("none", (), (), Profile({})), jobs),
        Settings("sjf", make_pool(1), round_seconds=100.0),
    )
    lengths = {truth.job_id: truth.isolated_seconds for truth in start.workload.truths}
    with prepare(start).open_run(Memory()) as run:
        run.runtime = Reporting(run.runtime, lengths) if reporting else run.runtime
        while not run.finished:
            run_round(run)
    alike = ("train", "default", "python:3-slim"), ("", "default", "python:3-slim")
    assert {kind for kind, _, _ in run.state.learning.calibration.scores} == (
        {*alike} if reporting else set()
    )
    by_tenth = [len(n) for (*_, tenth), n in run.state.learning.calibration.scores.items() if tenth]
    assert max(by_tenth, default=3) == 3, "one of each job"
