"""Campaigns on disk, written by several processes at once."""

import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from predictor.errors import InputError, WarehouseError
from tests.runs import ended, write
from warehouse.store.arrow import to_table, write_table
from warehouse.store.campaigns import CellStore, read_cells
from warehouse.store.files import CELLS, CellRow, CellStatus
from warehouse.store.folder import run_folder


def test_one_thread_at_a_time_works_on_a_cell(tmp_path: Path) -> None:
    store, log = CellStore(tmp_path), list[str]()

    def work(name: str) -> None:
        with store.alone("key"):
            log.append(f"{name} in")
            time.sleep(0.05)
            log.append(f"{name} out")

    threads = [threading.Thread(target=work, args=[name]) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(log) == 6
    for entered, left in zip(log[::2], log[1::2], strict=True):
        assert (entered[0], entered[2:], left) == (left[0], "in", f"{left[0]} out")


def test_only_an_ended_run_finishes_a_cell(tmp_path: Path) -> None:
    made, store = ended("fifo"), CellStore(tmp_path)
    half = write(tmp_path, made.start, made.rounds[:1], compact=False)
    whole = write(tmp_path, made.start, made.rounds)
    with store.alone("key"):
        with pytest.raises(WarehouseError, match="has not ended"):
            store.finish("key", half, 1.0)
        assert store.find_finished("key") is None
        store.begin("key", whole)
        done = store.finish("key", whole, 1.23456)
    assert (done.run, done.hash, done.seconds) == (whole, made.rounds[-1][1], 1.235)
    assert store.find_finished("key") == done
    assert store.find_begun("key") is None


def test_a_damaged_or_missing_file_is_named(tmp_path: Path) -> None:
    store = CellStore(tmp_path)
    with store.alone("key"):
        (tmp_path / "campaigns" / "cells" / "key.json").write_text("half a")
    with pytest.raises(WarehouseError, match=r"key\.json: cannot be read; remove it"):
        store.find_finished("key")
    with pytest.raises(InputError, match="'none': not in the warehouse"):
        read_cells(tmp_path, "none")


def test_a_campaign_named_as_a_run_is_refused_as_a_campaign(tmp_path: Path) -> None:
    (tmp_path / "campaigns" / "mine").mkdir(parents=True)
    (tmp_path / "campaigns" / "mine" / "cells.parquet").touch()
    with pytest.raises(InputError, match="it is a campaign; see it with: shockwave campaign show"):
        run_folder(tmp_path, "mine")


def test_cells_of_an_unknown_status_are_refused(tmp_path: Path) -> None:
    names = ("one", "cell", "fifo-1", "fifo", "small", "8", "")
    row = CellRow(*names, 0, CellStatus.FINISHED, "0" * 64, 1.5, "0" * 64, "")
    folder = tmp_path / "campaigns" / "one"
    folder.mkdir(parents=True)
    table = to_table(CELLS, row)
    at = table.schema.get_field_index("status")
    write_table(
        folder / "cells.parquet", table.set_column(at, "status", pa.array([" "], pa.string()))
    )
    with pytest.raises(WarehouseError, match=r"cells\.parquet: does not hold cells .*; restore"):
        read_cells(tmp_path, "one")
