"""States of large runs: no answer depends on them."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from flows.explain.why import why
from flows.runs.kept_states import StateKeeper, find_state
from flows.runs.simulation import prepare, simulate
from flows.runs.start import make_start
from predictor.options import NO_ARRAY, Task
from tests.runs import Memory, tiny
from tests.warehouse.test_ledger import problems
from warehouse.store.folder import STATES
from warehouse.store.reader import Reader
from warehouse.store.removal import remove_run
from warehouse.store.states import list_states


@pytest.fixture(params=["shockwave", "fifo"])
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run with a state every few rounds."""
    monkeypatch.setattr("flows.runs.kept_states.LEASES_BETWEEN", 12)
    return simulate(tiny(request.param), tmp_path)


@pytest.mark.slow
def test_answers_from_a_state_are_those_from_all_rounds(tmp_path: Path, kept: str) -> None:
    rounds = list_states(tmp_path, kept)
    assert len(rounds) >= 3
    reader = Reader(tmp_path)
    asked = [(job.job_id, None) for job in reader.start(kept).workload.specs]
    asked += [
        (lease.job_id, record.round)
        for record, _ in reader.records(kept)[::3]
        for lease in record.leases[:1]
    ]
    answers = [why(job_id, tmp_path, number=number) for job_id, number in asked]
    shutil.rmtree(tmp_path / STATES)
    assert answers == [why(job_id, tmp_path, number=number) for job_id, number in asked]


def test_a_state_that_was_changed_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.runs.kept_states.LEASES_BETWEEN", 12)
    run, reader = simulate(tiny("fifo"), tmp_path), Reader(tmp_path)
    first, second, *_ = list_states(tmp_path, run)
    assert problems(tmp_path) == []
    found = find_state(reader, run, second)
    assert found
    assert found.round == second
    changed = tmp_path / STATES / f"{run}.{second:06d}"
    shutil.copy(tmp_path / STATES / f"{run}.{first:06d}", changed)
    found = find_state(reader, run, second)
    assert found
    assert found.round == first
    name = changed.relative_to(tmp_path)
    assert problems(tmp_path) == [f"{name} differs from ledger.jsonl, and is not used: remove it"]
    assert find_state(reader, run, first - 1) is None


def test_a_run_goes_with_its_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.runs.kept_states.LEASES_BETWEEN", 12)
    run, other = (simulate(tiny("fifo"), tmp_path) for _ in range(2))
    remove_run(tmp_path, run)
    assert list_states(tmp_path, run) == []
    assert list_states(tmp_path, other)
    assert problems(tmp_path) == []


def test_many_active_jobs_count_as_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.runs.kept_states.LEASES_BETWEEN", 100)
    run = simulate(tiny("fifo", jobs=100, gap_seconds=1.0), tmp_path, rounds=20)
    leases = sum(len(record.leases) for record, _ in Reader(tmp_path).records(run))
    assert len(list_states(tmp_path, run)) > leases // 100


@pytest.mark.slow
def test_finished_jobs_that_no_later_one_is_like_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.runs.kept_states.LEASES_BETWEEN", 12)
    for module in ("predictor.arrivals", "tasks.learning", "tasks.rollouts"):
        monkeypatch.setattr(f"{module}.COUNTED", 2)
    start = tiny("fifo", jobs=12)
    tasks = {9 + place: Task(place, place, 3) for place in range(3)}
    specs = tuple(
        replace(spec, options=replace(spec.options, task=tasks.get(spec.job_id, NO_ARRAY)))
        for spec in start.workload.specs
    )
    workload = replace(start.workload, specs=specs)
    run = simulate(make_start(workload, start.header.settings), tmp_path)
    reader = Reader(tmp_path)
    *_, last = list_states(tmp_path, run)
    found = find_state(reader, run, last)
    assert found
    kept = {job.spec.job_id for job in found.learning.finished}
    ended = {e.job_id for record, _ in reader.records(run)[:last] for e in record.finished}
    latest = {*sorted({min(job_id, 9) for job_id in ended})[-3:]}
    assert kept == {job_id for job_id in ended if min(job_id, 9) in latest}
    assert kept < ended
    assert len(kept) > 3  # all of the array
    answers = [why(job_id, tmp_path, number=last) for job_id in found.beliefs]
    assert answers
    shutil.rmtree(tmp_path / STATES)
    assert answers == [why(job_id, tmp_path, number=last) for job_id in found.beliefs]


def test_infinite_figures_stay_infinite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.runs.kept_states.LEASES_BETWEEN", 12)
    start = tiny("fifo")
    name, reader = simulate(start, tmp_path), Reader(tmp_path)
    *_, last = list_states(tmp_path, name)
    found = find_state(reader, name, last)
    assert found
    infinite = replace(found, arrivals=(-math.inf, *found.arrivals))
    with prepare(start).open_run(Memory(), name) as run:
        run.state = infinite
        keeper = StateKeeper(tmp_path, leases=12)
        keeper.see(run)
    assert find_state(reader, name, last) == infinite
