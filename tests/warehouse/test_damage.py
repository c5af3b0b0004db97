"""Errors name missing and damaged files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from predictor.errors import InputError, WarehouseError
from tests.runs import Made, write
from tests.warehouse.conftest import folder
from warehouse.analytics.catalog import build
from warehouse.analytics.compaction import compact_ended
from warehouse.analytics.questions import Analytics
from warehouse.store.arrow import read_parquet
from warehouse.store.folder import EMPTY, RESTORE, records_folder, run_folder
from warehouse.store.parts import WHOLE, part_names
from warehouse.store.reader import Reader
from warehouse.store.removal import remove_run
from warehouse.store.warehouse_audit import audit_all
from warehouse.store.writer import Writer


def test_a_missing_round_is_named(part: tuple[Path, str]) -> None:
    warehouse, run = part
    (folder(warehouse, run) / "round=000002.parquet").unlink()
    with pytest.raises(WarehouseError) as caught:
        Reader(warehouse).records(run)
    assert caught.value.place == str(folder(warehouse, run))
    assert caught.value.problem == "round 2 is missing"


def test_a_damaged_run_does_not_keep_others_from_compaction(tmp_path: Path, made: Made) -> None:
    runs = sorted(write(tmp_path, made.start, made.rounds, compact=False) for _ in range(2))
    damaged = folder(tmp_path, runs[0]) / part_names(folder(tmp_path, runs[0]))[0]
    damaged.write_bytes(b"garbage")
    with pytest.raises(WarehouseError) as caught:
        compact_ended(tmp_path)
    assert caught.value.place == str(damaged)
    assert part_names(folder(tmp_path, runs[1])) == [WHOLE]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "garbage": lambda content: b"garbage" * 100,
    "with a hole": lambda content: content[:4] + bytes(2000) + content[2004:],
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["round=000003", "header", "round=all"])
@pytest.mark.slow
def test_a_damaged_file_is_named(
    part: tuple[Path, str], made: Made, name: str, damage: str
) -> None:
    warehouse, run = part
    if name == "round=all":
        with Writer(warehouse, made.start, run=run) as writer:
            writer.compact()
    path = folder(warehouse, run) / f"{name}.parquet"
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    reader = Reader(warehouse)
    view = "headers" if name == "header" else "records"
    with pytest.raises(WarehouseError) as read:
        reader.header(run) if name == "header" else reader.records(run)
    with pytest.raises(WarehouseError) as queried:
        Analytics(warehouse).query(f"SELECT * FROM {view}")
    for error in (read.value, queried.value):
        assert error.place == str(path)
        assert error.problem.startswith(("cannot be read (", "was changed: its bytes"))
        assert error.remedy.startswith("restore it from a backup")
        assert "\n" not in str(error)


def test_a_run_without_its_header_can_be_removed(part: tuple[Path, str]) -> None:
    warehouse, run = part
    (folder(warehouse, run) / "header.parquet").unlink()
    with pytest.raises(InputError) as unknown:
        run_folder(warehouse, run)
    assert "did you mean" not in str(unknown.value)
    with pytest.raises(WarehouseError, match="remove its run with shockwave run rm"):
        Analytics(warehouse).query("FROM runs")
    remove_run(warehouse, run)
    build(warehouse)
    assert Analytics(warehouse).query("FROM runs")[1] == []
    assert audit_all(warehouse).findings == []
    with pytest.raises(InputError, match="not in the warehouse"):
        remove_run(warehouse, run)


def test_the_remedy_for_a_damaged_file_is_that_of_its_folder(tmp_path: Path, made: Made) -> None:
    run = write(tmp_path, made.start, made.rounds)
    of_run, of_none = (
        folder(tmp_path, run) / WHOLE,
        records_folder(tmp_path) / EMPTY / "header.parquet",
    )
    for path, remedy in ((of_run, RESTORE), (of_none, "restore it from a backup")):
        path.write_bytes(path.read_bytes()[:100])
        with pytest.raises(WarehouseError) as caught:
            read_parquet(path)
        assert caught.value.remedy == remedy
