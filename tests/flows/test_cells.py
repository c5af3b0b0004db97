"""Cells: finished cells are found, begun cells resumed, other code has other keys."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from flows.campaigns.cells import CampaignCell, CellStarts, expand_cells, finish_cell, make_cell_key
from flows.campaigns.plan import CampaignPlan
from flows.campaigns.summary import summarize
from flows.runs.code_version import PACKAGES, ROOT, code_version
from flows.runs.simulation import simulate
from predictor.errors import InputError, Interrupted, WarehouseError
from tasks.run import Run
from tests.flows.conftest import tree
from warehouse.analytics.intervals import interval
from warehouse.analytics.questions import Analytics
from warehouse.store.campaigns import CellStore, read_cells, write_cells
from warehouse.store.files import CellRow, CellStatus
from warehouse.store.folder import name_of, place_of, run_folders
from warehouse.store.reader import Reader

PLAN = CampaignPlan.model_validate(
    {
        "name": "cells",
        "policies": ["fifo"],
        "workloads": [{"name": "drawn", "jobs": 2}],
        "clusters": [{"name": "four", "gpus": 4}],
        "seeds": [1],
        "settings": {"round_seconds": 1800},
    }
)
(CELL,) = expand_cells(PLAN)


def key_of(warehouse: Path, cell: CampaignCell = CELL, code: str | None = None) -> str:
    return make_cell_key(CellStarts(warehouse).start(cell), code or code_version())


def runs(warehouse: Path) -> list[str]:
    return [name_of(folder) for folder in run_folders(warehouse)]


def interrupt(warehouse: Path) -> tuple[str, str]:
    """Interrupt a cell's run after three rounds; returns the cell's key and the run."""

    def progress(run: Run) -> None:
        if run.state.round == 3:
            raise KeyboardInterrupt

    key = key_of(warehouse)
    with pytest.raises(Interrupted):
        finish_cell(CELL, key, warehouse, watch=lambda start: progress)
    (run,) = runs(warehouse)
    return key, run


def test_a_finished_cell_is_found_again_and_nothing_is_written(tmp_path: Path) -> None:
    key = key_of(tmp_path)
    done = finish_cell(CELL, key, tmp_path)
    before = tree(tmp_path)
    assert finish_cell(CELL, key, tmp_path) == done
    assert tree(tmp_path) == before
    _, [(complete, last_hash)] = Analytics(tmp_path).query("SELECT complete, last_hash FROM runs")
    assert (complete, last_hash) == (True, done.hash)
    assert runs(tmp_path) == [done.run]


def test_a_finished_cell_runs_again_if_asked_or_if_its_run_is_gone(tmp_path: Path) -> None:
    key = key_of(tmp_path)
    first = finish_cell(CELL, key, tmp_path)
    again = finish_cell(CELL, key, tmp_path, fresh=True)
    assert (again.run, again.hash) == (first.run.removesuffix("-1") + "-2", first.hash)
    shutil.rmtree(place_of(tmp_path, again.run))
    third = finish_cell(CELL, key, tmp_path)
    assert (third.run, third.hash) == (again.run, first.hash)


@pytest.mark.slow
def test_an_interrupted_cell_goes_on_with_its_run(tmp_path: Path) -> None:
    key, run = interrupt(tmp_path)
    kept = Reader(tmp_path).records(run)
    assert len(kept) == 3
    assert CellStore(tmp_path).find_begun(key) == run

    done = finish_cell(CELL, key, tmp_path)
    assert done.run == run
    assert runs(tmp_path) == [run]
    assert Reader(tmp_path).records(run)[:3] == kept
    undisturbed = simulate(CellStarts(tmp_path).start(CELL), tmp_path / "other")
    assert Reader(tmp_path).records(run) == Reader(tmp_path / "other").records(undisturbed)
    assert CellStore(tmp_path).find_begun(key) is None


def test_a_begun_run_that_is_gone_is_made_anew(tmp_path: Path) -> None:
    key = key_of(tmp_path)
    done = finish_cell(CELL, key, tmp_path)
    other = tmp_path / "other"
    with CellStore(other).alone(key):
        CellStore(other).begin(key, "fifo-000000-1")
    assert finish_cell(CELL, key, other).hash == done.hash


def test_a_begun_run_that_is_damaged_fails_its_cell_and_none_is_started(tmp_path: Path) -> None:
    key, run = interrupt(tmp_path)
    (place_of(tmp_path, run) / "round=000001.parquet").unlink()
    for _ in range(2):
        with pytest.raises(WarehouseError, match=r"round=000001\.parquet: is gone"):
            finish_cell(CELL, key, tmp_path)
        assert runs(tmp_path) == [run]
    assert finish_cell(CELL, key, tmp_path, fresh=True).run != run


def test_a_worker_with_other_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this worker has other code or files"):
        finish_cell(CELL, key_of(tmp_path, code="other"), tmp_path)
    assert tree(tmp_path / "records") == {}


def test_the_key_depends_on_settings_jobs_and_seed(tmp_path: Path) -> None:
    settings = replace(CELL.settings, window=3)
    others = [
        replace(CELL, settings=settings),
        replace(CELL, source=replace(CELL.source, jobs=3)),
        replace(CELL, settings=replace(CELL.settings, seed=9)),
    ]
    assert len({key_of(tmp_path, cell) for cell in (CELL, *others)}) == 4


@pytest.mark.parametrize("changed", ["solver/market.py", "warehouse/analytics/views/runs.sql"])
def test_other_code_has_another_version(tmp_path: Path, changed: str) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package)
    assert code_version(tmp_path) == code_version()
    code_version.cache_clear()
    with (tmp_path / changed).open("a") as file:
        file.write("\n")
    assert code_version(tmp_path) != code_version()


@pytest.mark.slow
def test_the_interval_is_students() -> None:
    # By hand: mean 2, deviation 1, t(0.975, 2 degrees of freedom) = 4.302653, over √3.
    three = interval([1.0, 2.0, 3.0])
    assert three.mean == 2.0
    assert three.half_width == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
    assert str(three) == "2 ± 2.48"
    assert interval([5.0]).half_width is None
    assert str(interval([5.0])) == "5"
    assert interval([7.0, 7.0]).half_width == 0.0


def row_of(cell: CampaignCell, campaign: str, run: str, status: CellStatus) -> CellRow:
    named = (cell.policy, cell.workload, cell.cluster, cell.options, cell.seed)
    return CellRow(campaign, cell.name, run, *named, status, "", 0.0, "", "")


@pytest.mark.slow
def test_the_summary_is_over_the_seeds_of_finished_cells(tmp_path: Path) -> None:
    one, two, three = expand_cells(PLAN.model_copy(update={"seeds": (1, 2, 3)}))
    done = [finish_cell(cell, key_of(tmp_path, cell), tmp_path) for cell in (one, two)]
    rows = [
        row_of(one, "c", done[0].run, CellStatus.FINISHED),
        row_of(two, "c", done[1].run, CellStatus.FINISHED),
        row_of(three, "c", "", CellStatus.FAILED),
    ]
    write_cells(tmp_path, "c", rows)
    assert read_cells(tmp_path, "c") == rows
    (group,) = summarize(tmp_path, rows)
    row = group.row()
    assert (row["policy"], row["workload"], row["seeds"]) == ("fifo", "drawn", 2)
    _, found = Analytics(tmp_path).query("SELECT makespan_s FROM run_summary ORDER BY makespan_s")
    (least,), (most,) = found
    half = 12.706205 * (most - least) / 2  # t(0.975, 1) · (deviation / √2)
    assert row["makespan_s"] == pytest.approx((least + most) / 2)
    assert row["makespan_s_low"] == pytest.approx((least + most) / 2 - half, rel=1e-6)
    assert row["makespan_s_high"] == pytest.approx((least + most) / 2 + half, rel=1e-6)
