"""Runs that earlier versions recorded: still read, whole, and decided in the same way today.

`layoutN/run=RUN` holds runs with records of layout N. Those of layout 5 are one of each policy
with each fidelity, on both virtual clusters, in containers, with other forecasts, nodes,
parameters and histories, and forks.
"""

import shutil
from itertools import product
from pathlib import Path

import pytest

from flows.history.replay import replay
from flows.runs.simulation import simulate
from predictor.basis import Basis
from solver.fidelity import Fidelity
from solver.policies import POLICIES
from tasks.record import RuntimeKind
from warehouse.store.audit import audit
from warehouse.store.reader import Reader

FOLDER = Path(__file__).parent
RUNS = sorted(path.relative_to(FOLDER) for path in FOLDER.glob("layout*/run=*"))


def name_of(path: Path) -> str:
    return path.name.removeprefix("run=")


@pytest.fixture(params=RUNS, ids=str)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A warehouse with one stored run, and its name."""
    path: Path = request.param
    shutil.copytree(FOLDER / path, tmp_path / "stored" / "records" / path.name)
    return tmp_path / "stored", name_of(path)


def test_a_stored_run_is_whole_and_replays_identically(stored: tuple[Path, str]) -> None:
    warehouse, run = stored
    assert audit(warehouse, run).findings == ()
    comparison = replay(run, warehouse)
    assert (comparison.complete, comparison.differences) == (True, [])
    assert comparison.rounds > 0


def test_a_stored_run_is_simulated_with_the_same_decisions(
    stored: tuple[Path, str], tmp_path: Path
) -> None:
    warehouse, run = stored
    reader = Reader(warehouse)
    header = reader.header(run)
    if header.settings.forked or header.settings.runtime is RuntimeKind.DOCKER:
        return  # a fork begins with another run's decisions, containers with a real clock
    again = simulate(header, tmp_path / "again")
    before = [record for record, _ in reader.records(run)]
    after = [record for record, _ in Reader(tmp_path / "again").records(again)]
    assert [(one.clock_seconds, one.leases, one.events) for one in after] == [
        (one.clock_seconds, one.leases, one.events) for one in before
    ]
    assert [one.reports for one in after] == [one.reports for one in before]


def test_every_policy_and_runtime_is_among_them(tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "layout5", tmp_path / "records")
    reader = Reader(tmp_path)
    settings = [reader.header(name_of(path)).settings for path in RUNS if "layout5" in path.parts]
    assert {(one.policy, one.fidelity) for one in settings} >= set(product(POLICIES, Fidelity))
    assert {one.runtime for one in settings} == set(RuntimeKind)
    assert {one.forecasts for one in settings} == set(Basis)
    assert any(one.forked for one in settings)
