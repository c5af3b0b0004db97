"""States of large runs: no answer depends on them."""

import shutil
from pathlib import Path

import pytest

from flows.explain.why import why
from flows.runs.kept_states import find_state
from flows.runs.simulation import simulate
from tests.runs import tiny
from tests.warehouse.test_ledger import problems
from warehouse.store.folder import STATES
from warehouse.store.reader import Reader
from warehouse.store.removal import remove_run
from warehouse.store.states import list_states


@pytest.fixture(params=["shockwave", "fifo"])
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run with a state every few rounds."""
    monkeypatch.setattr("flows.runs.kept_states.MOST_FOLDED", 12)
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
    monkeypatch.setattr("flows.runs.kept_states.MOST_FOLDED", 12)
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
    monkeypatch.setattr("flows.runs.kept_states.MOST_FOLDED", 12)
    run, other = (simulate(tiny("fifo"), tmp_path) for _ in range(2))
    remove_run(tmp_path, run)
    assert list_states(tmp_path, run) == []
    assert list_states(tmp_path, other)
    assert problems(tmp_path) == []
