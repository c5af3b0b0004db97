"""Files are verified when read: a changed file or copy is an error."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from predictor.errors import InputError, WarehouseError
from tests.runs import ended, write
from warehouse.analytics.copies import read_copies
from warehouse.analytics.limits import SPILL, QueryLimits
from warehouse.analytics.marts import materialise
from warehouse.analytics.questions import Analytics
from warehouse.store.checksums import CHECKSUMS, checksum
from warehouse.store.folder import place_of
from warehouse.store.parts import WHOLE
from warehouse.store.verified import VERIFIED

pytestmark = pytest.mark.slow

SUMMARY = "SELECT run, worst_rho FROM run_summary"
ENDLESS = "SELECT sum(hash(range)) FROM range(1_000_000_000_000)"
LARGE = "SELECT count(*) FROM (SELECT DISTINCT hash(range) FROM range(3_000_000))"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A warehouse with an ended run and its copies."""
    warehouse, made = tmp_path_factory.mktemp("written"), ended("srtf", jobs=2)
    run = write(warehouse, made.start, made.rounds)
    materialise(warehouse)
    return warehouse, run


@pytest.fixture
def copied(tmp_path: Path, written: tuple[Path, str]) -> tuple[Path, Path]:
    """The same, and the run's folder."""
    warehouse, run = written
    shutil.copytree(warehouse, tmp_path / "w")
    return tmp_path / "w", place_of(tmp_path / "w", run)


@pytest.fixture
def kept(copied: tuple[Path, Path]) -> tuple[Path, Path]:
    """The same without copies."""
    shutil.rmtree(copied[0] / "marts")
    return copied


def flip(path: Path) -> None:
    """Flip a bit that changes no row: in the name of the program that wrote the file."""
    content = bytearray(path.read_bytes())
    content[content.rindex(b"parquet-cpp-arrow")] ^= 1
    path.write_bytes(content)


def change(path: Path, column: str, to: Any) -> None:
    """Rewrite a file with other values in a column; the file stays sound."""
    table = pq.read_table(path, partitioning=None)
    rows = [row | {column: to(row[column])} for row in table.to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)


def update_sum(path: Path) -> None:
    """Replace a file's checksum in `SHA256SUMS` by its new one."""
    sums = path.parent / CHECKSUMS
    lines = [line for line in sums.read_text().splitlines() if not line.endswith(f" {path.name}")]
    sums.write_text("\n".join([*lines, f"{checksum(path)}  {path.name}", ""]))


def swap(path: Path) -> None:
    """Swap two rows."""
    table = pq.read_table(path, partitioning=None)
    rows = table.to_pylist()
    rows[1], rows[2] = rows[2], rows[1]
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)


def plant(path: Path) -> None:
    """Put a run's header in place of the table without rows."""
    shutil.copy(next(path.parents[1].glob("run=srtf*/header.parquet")), path)


@pytest.mark.parametrize(
    ("place", "edit"),
    [
        ("{run}/header.parquet", flip),
        ("{run}/workload.parquet", flip),
        (f"{{run}}/{WHOLE}", flip),
        (f"{{run}}/{WHOLE}", swap),
        ("run=_/header.parquet", plant),
    ],
)
def test_a_query_names_the_file_that_was_changed(
    kept: tuple[Path, Path], place: str, edit: Callable[[Path], None]
) -> None:
    warehouse, folder = kept
    path = folder.parent / place.format(run=folder.name)
    edit(path)
    for runs in (None, [folder.name.removeprefix("run=")]):
        with pytest.raises(WarehouseError, match="was changed: its bytes are not") as caught:
            Analytics(warehouse).query(SUMMARY, runs)
        assert caught.value.place == str(path)


@pytest.mark.parametrize("name", ["round=000000.parquet", "round=zzz.parquet"])
def test_a_query_refuses_a_planted_file(kept: tuple[Path, Path], name: str) -> None:
    warehouse, folder = kept
    for place in (folder, folder.parent / "run=_"):
        planted = place / name
        pq.write_table(pq.read_table(folder / WHOLE, partitioning=None)[:1], planted)
        with pytest.raises(WarehouseError, match="is not in SHA256SUMS") as caught:
            Analytics(warehouse).query(SUMMARY)
        assert caught.value.place == str(planted)
        planted.unlink()


def test_a_query_refuses_a_run_without_checksums(kept: tuple[Path, Path]) -> None:
    warehouse, folder = kept
    flip(folder / WHOLE)
    (folder / CHECKSUMS).unlink()
    with pytest.raises(WarehouseError, match="SHA256SUMS: is missing"):
        Analytics(warehouse).query(SUMMARY)


def test_each_version_of_a_file_is_verified_once(kept: tuple[Path, Path]) -> None:
    warehouse, folder = kept
    answer = Analytics(warehouse).query(SUMMARY)
    note = warehouse / VERIFIED
    before = note.stat().st_mtime_ns
    files = {path for path in warehouse.glob("records/*/run=*/*.parquet")}
    assert {warehouse / name for name in orjson.loads(note.read_bytes())} == files
    assert Analytics(warehouse).query(SUMMARY) == answer
    assert note.stat().st_mtime_ns == before
    state = (folder / WHOLE).stat()
    flip(folder / WHOLE)
    os.utime(folder / WHOLE, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(WarehouseError, match="was changed"):
        Analytics(warehouse).query(SUMMARY)


@pytest.mark.parametrize("content", ["[", "[1]", '{"records": 1}'])
def test_a_damaged_list_of_verified_files_is_replaced(
    kept: tuple[Path, Path], content: str
) -> None:
    warehouse, _ = kept
    answer = Analytics(warehouse).query(SUMMARY)
    (warehouse / VERIFIED).write_text(content)
    assert Analytics(warehouse).query(SUMMARY) == answer
    assert len(orjson.loads((warehouse / VERIFIED).read_bytes())) > 3


def test_queries_work_where_verified_files_cannot_be_saved(kept: tuple[Path, Path]) -> None:
    warehouse, folder = kept
    (warehouse / VERIFIED).unlink(missing_ok=True)
    (warehouse / VERIFIED).mkdir()
    assert len(Analytics(warehouse).query(SUMMARY)[1]) == 1
    assert [path.name for path in warehouse.glob(f".{VERIFIED}.*")] == []
    flip(folder / WHOLE)
    with pytest.raises(WarehouseError, match="was changed"):
        Analytics(warehouse).query(SUMMARY)


def test_a_query_verifies_only_the_files_it_reads(copied: tuple[Path, Path]) -> None:
    warehouse, folder = copied
    flip(folder / "header.parquet")
    assert len(Analytics(warehouse).query(SUMMARY)[1]) == 1  # from the copies
    with pytest.raises(WarehouseError, match="was changed"):
        Analytics(warehouse).query("FROM headers")


def test_a_query_refuses_a_forged_copy(copied: tuple[Path, Path]) -> None:
    warehouse, _ = copied
    analytics = Analytics(warehouse)
    answer = analytics.query(SUMMARY)
    copies = read_copies(warehouse)
    change(copies.file("run_summary"), "worst_rho", lambda rho: rho / 2)
    with pytest.raises(WarehouseError, match="was changed") as caught:
        analytics.query(SUMMARY)
    assert caught.value.place == str(copies.file("run_summary"))
    assert caught.value.remedy == "make the copies anew with: shockwave views"
    assert len(analytics.query("FROM job_outcomes")[1]) == 2  # another copy
    assert materialise(warehouse) == 1
    assert analytics.query(SUMMARY) == answer


def test_a_copy_forged_with_its_checksum_is_made_anew(copied: tuple[Path, Path]) -> None:
    warehouse, _ = copied
    answer = Analytics(warehouse).query("FROM run_summary")
    copies, note = read_copies(warehouse), warehouse / "marts" / "current.json"
    copy = copies.file("run_summary")
    change(copy, "worst_rho", lambda rho: rho / 2)
    note.write_text(note.read_text().replace(copies.checksums["run_summary"], checksum(copy)))
    assert Analytics(warehouse).query("FROM run_summary") != answer  # audits find it
    materialise(warehouse)
    assert Analytics(warehouse).query("FROM run_summary") == answer


def test_a_copy_of_other_records_is_not_used(copied: tuple[Path, Path]) -> None:
    """Size and time do not suffice to identify the copied file."""
    warehouse, folder = copied
    state = (folder / WHOLE).stat()
    flip(folder / WHOLE)
    update_sum(folder / WHOLE)
    os.utime(folder / WHOLE, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert read_copies(warehouse).runs == ()


def test_a_changed_record_is_not_copied(kept: tuple[Path, Path]) -> None:
    warehouse, folder = kept
    change(folder / "header.parquet", "source", lambda source: f"{source}, forged")
    with pytest.raises(WarehouseError, match="was changed") as caught:
        materialise(warehouse)
    assert caught.value.place == str(folder / "header.parquet")
    assert read_copies(warehouse).runs == ()


def test_a_query_ends_at_its_timeout(kept: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match=r"timeout: the query was ended after 0\.2 s"):
        Analytics(kept[0], QueryLimits(seconds=0.2)).query(ENDLESS)


def test_verification_ends_with_its_query(
    kept: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warehouse.store.verified.os.cpu_count", lambda: 1)
    monkeypatch.setattr("warehouse.store.verified.find_checksum", lambda path: time.sleep(0.15))
    with pytest.raises(InputError, match=r"timeout: the query was ended after 0\.2 s"):
        Analytics(kept[0], QueryLimits(seconds=0.2)).query("SELECT count(*) FROM placements")


def test_a_query_spills_into_the_warehouse_only(
    kept: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = {path for path in tmp_path.rglob("*")}
    settings = "SELECT value FROM duckdb_settings() WHERE name = 'temp_directory'"
    ((folder,),) = Analytics(kept[0]).query(settings)[1]
    assert Path(folder).parent == kept[0]
    assert Path(folder).name.startswith(SPILL)
    assert {path for path in tmp_path.rglob("*")} == before


def test_a_query_that_needs_more_memory_spills_or_says_so(
    kept: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Analytics(kept[0], QueryLimits(memory_mib=60)).query(LARGE)[1] == [(3_000_000,)]
    monkeypatch.setattr("warehouse.analytics.limits.SPILL", "no/such/folder")
    with pytest.raises(InputError, match="memory: is too little for the query") as caught:
        Analytics(kept[0], QueryLimits(memory_mib=60)).query(LARGE)
    assert "\n" not in str(caught.value)
