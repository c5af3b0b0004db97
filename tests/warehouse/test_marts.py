"""Copies of ended runs' marts change no answer."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from harness.waiting import HANG_SECONDS
from predictor.errors import InputError, WarehouseError
from tests.contents import columns_and_rows, contents, seen_by_analysts
from tests.runs import Made, ended, write
from warehouse.analytics import catalog
from warehouse.analytics.catalog import TABLE_BYTES, build, create_views
from warehouse.analytics.copies import read_copies
from warehouse.analytics.definitions import MARTS, find_read_twice, find_views
from warehouse.analytics.limits import SPILL
from warehouse.analytics.marts import keep_fast, materialise
from warehouse.analytics.questions import Analytics
from warehouse.store.checksums import checksum
from warehouse.store.durable import hold_lock
from warehouse.store.folder import MISPLACED, name_of, place_of

pytestmark = pytest.mark.slow

SOME = ("records", "rounds", "job_outcomes")
"""Views that read files, copies, and other views: where one of them is right, all are."""


@pytest.fixture(scope="module")
def runs() -> list[Made]:
    return [ended("shockwave", jobs=3), ended("srtf", jobs=2)]


@pytest.fixture(scope="module")
def written(runs: list[Made], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run ended, one under way."""
    folder = tmp_path_factory.mktemp("written")
    write(folder, runs[0].start, runs[0].rounds)
    write(folder, runs[1].start, runs[1].rounds[:3], compact=False)
    return folder


@pytest.fixture(scope="module")
def materialised(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with copies of the run that ended."""
    folder = tmp_path_factory.mktemp("materialised")
    shutil.copytree(written, folder, dirs_exist_ok=True)
    assert materialise(folder) == 1
    return folder


def test_copies_keep_to_a_limit_on_memory(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warehouse.analytics.marts.NEW_RUNS", 0)
    with pytest.raises(InputError, match="memory: is too little"):
        materialise(warehouse, memory_mib=1)
    keep_fast(warehouse, memory_mib=1)
    assert read_copies(warehouse).runs == ()
    keep_fast(warehouse, memory_mib=1_000)
    assert len(read_copies(warehouse).runs) == 1


@pytest.fixture
def warehouse(written: Path, tmp_path: Path) -> Path:
    """One run ended, one under way; a test's own."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def copied(materialised: Path, tmp_path: Path) -> Path:
    """The same, with copies of the run that ended."""
    shutil.copytree(materialised, tmp_path, dirs_exist_ok=True)
    build(tmp_path)
    return tmp_path


def in_marts(warehouse: Path) -> set[str]:
    return {path.name for path in (warehouse / "marts").iterdir()}


def files(warehouse: Path) -> dict[str, bytes]:
    folder = warehouse / "records"
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


@pytest.mark.parametrize("large", [False, True])
def test_copies_change_no_view_and_no_record(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    if large:
        monkeypatch.setattr("warehouse.analytics.marts.BATCH_BYTES", 0)
    before, records = contents(warehouse), files(warehouse)
    assert materialise(warehouse) == 1
    (copied,) = read_copies(warehouse).runs
    assert copied.startswith("shockwave-")
    folder = read_copies(warehouse).folder
    assert {path.stem for path in folder.glob("*.parquet")} == set(MARTS)
    assert contents(warehouse) == before
    assert seen_by_analysts(warehouse, SOME) == {view: before[view] for view in SOME}
    assert files(warehouse) == records
    for run in (row[0] for row in before["runs"]):
        alone = Analytics(warehouse).query("FROM job_outcomes ORDER BY ALL", [run])[1]
        assert alone == [row for row in before["job_outcomes"] if row[0] == run] != []


def test_marts_computed_into_tables_answer_as_views_do(warehouse: Path) -> None:
    views = columns_and_rows(warehouse, tables=())
    assert columns_and_rows(warehouse, tables=MARTS) == columns_and_rows(warehouse) == views
    materialise(warehouse)
    copied = {view: views[view] for view in SOME}
    assert columns_and_rows(warehouse, SOME, ()) == copied
    assert columns_and_rows(warehouse, SOME, MARTS) == copied


def test_records_beyond_a_size_are_not_computed_into_tables(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tables() -> list[Any]:
        with duckdb.connect() as connection:
            create_views(connection, warehouse, tables=MARTS, if_small=["jobs"])
            return connection.sql("SELECT table_name FROM duckdb_tables()").fetchall()

    assert {name for (name,) in tables()} == {*MARTS, "jobs"}
    monkeypatch.setattr(catalog, "SMALL_BYTES", 0)
    assert {name for (name,) in tables()} == set(MARTS)
    (large,) = (warehouse / "records").rglob("run=srtf*")
    with (large / "round=000000.parquet").open("r+b") as file:
        file.truncate(TABLE_BYTES + 1)
    assert tables() == []


def test_a_large_run_is_copied_when_it_ends(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_fast(warehouse)
    assert not read_copies(warehouse).runs
    monkeypatch.setattr("warehouse.analytics.marts.NEW_BYTES", 1)
    keep_fast(warehouse)
    assert len(read_copies(warehouse).runs) == 1


def test_marts_read_twice_are_known() -> None:
    marts = ("runs", "rounds", "leases", "job_outcomes")
    assert find_read_twice("FROM run_summary") == ("headers", "inventories", *marts)
    assert find_read_twice("FROM records JOIN jobs USING (run)") == ()
    assert find_read_twice("SELECT * from leases JOIN Leases AS l USING (run)") == (
        *("headers", "inventories", "leases"),
    )
    assert find_read_twice("SELECT count(*) AS rounds FROM solves") == ("headers",)
    assert find_read_twice("SHOW TABLES") == ()


@pytest.mark.parametrize(
    ("asked", "seen"),
    [
        ("SELECT jobs, 1 AS rounds, run_summary.envy FROM run_summary", {"run_summary"}),
        ("FROM runs JOIN Leases USING (run) ORDER BY jobs", {"runs", "leases"}),
        ("SELECT * EXCLUDE (jobs) REPLACE (1 AS events) FROM runs AS r(plans)", {"runs"}),
        ("WITH jobs(bids) AS (FROM main.jobs) SELECT bids FROM jobs", {"jobs"}),
        (
            "WITH a AS (FROM jobs), b AS (TABLE bids) FROM a, b, (FROM main.solves)",
            {"jobs", "bids", "solves"},
        ),
        (
            'SELECT (SELECT max(run) FROM "Envy") FROM runs, LATERAL (FROM events)',
            {"envy", "runs", "events"},
        ),
        ("FROM query('SELECT ' || '1 FROM jobs')", {"jobs"}),
        ("FROM query_table(['jobs', 'leases'])", {"jobs", "leases"}),
        ("SELECT '\"alias\":\"' FROM jobs WHERE name = '\"'", {"jobs"}),
        ("DESCRIBE prices", {"prices"}),
        ("PIVOT jobs ON mode", {"jobs"}),
        ("SELECT no SQL FROM rounds, jobs;", {"rounds", "jobs"}),
    ],
)
def test_columns_are_no_views(asked: str, seen: set[str]) -> None:
    with duckdb.connect() as connection:
        assert find_views(connection, [asked]) == tuple(sorted(seen))
        assert set(find_views(connection, [asked, "FROM usage"])) == seen | {"usage"}


def test_the_newest_run_is_found_without_and_with_copies(written: Path, materialised: Path) -> None:
    found = {Analytics(warehouse).newest_run() for warehouse in (written, materialised)}
    (copied,) = read_copies(materialised).runs
    (newest,) = found
    assert newest != copied


def test_a_copied_or_damaged_run_is_not_queried(warehouse: Path) -> None:
    newest = place_of(warehouse, str(Analytics(warehouse).newest_run()))
    shutil.copytree(newest, place_of(warehouse, "copied"))
    with pytest.raises(WarehouseError, match=f"belongs to run '{name_of(newest)}'") as misplaced:
        Analytics(warehouse).newest_run()
    assert misplaced.value.remedy == MISPLACED
    shutil.rmtree(place_of(warehouse, "copied"))
    (newest / "header.parquet").write_bytes(b"")
    with pytest.raises(WarehouseError, match=r"cannot be read|was changed"):
        Analytics(warehouse).newest_run()


def test_answers_of_ended_runs_come_from_the_copies(copied: Path) -> None:
    copy = read_copies(copied).file("run_summary")
    noted = checksum(copy)
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT * REPLACE (-1.0 AS makespan_s) FROM '{copy}'")
        connection.execute(f"COPY t TO '{copy}'")
    note = copied / "marts" / "current.json"
    note.write_text(note.read_text().replace(noted, checksum(copy)))
    _, rows = Analytics(copied).query("SELECT complete, makespan_s < 0 FROM run_summary ORDER BY 1")
    assert rows == [(False, False), (True, True)]


def test_runs_that_come_later_are_seen_at_once_and_copied_next_time(
    copied: Path, runs: list[Made]
) -> None:
    warehouse, first = copied, read_copies(copied)
    new = write(warehouse, runs[1].start, runs[1].rounds)
    before = contents(warehouse, SOME)
    assert new in [row[0] for row in before["job_outcomes"]]
    assert seen_by_analysts(warehouse, SOME) == before
    assert materialise(warehouse) == 2
    assert read_copies(warehouse).runs == tuple(sorted([*first.runs, new]))
    assert contents(warehouse, SOME) == seen_by_analysts(warehouse, SOME) == before
    assert first.folder.is_dir()  # for sessions that read it
    assert materialise(warehouse) == 2
    assert contents(warehouse, SOME) == before


def test_copies_of_a_run_that_is_gone_or_another_do_not_count(
    warehouse: Path, runs: list[Made]
) -> None:
    second = write(warehouse, runs[1].start, runs[1].rounds)
    materialise(warehouse)
    before = contents(warehouse, SOME)
    first, _ = read_copies(warehouse).runs
    path = place_of(warehouse, second) / "round=all.parquet"
    os.utime(path, ns=(1, 1))
    assert read_copies(warehouse).runs == (first,)
    assert contents(warehouse, SOME) == before
    shutil.rmtree(place_of(warehouse, first))
    assert read_copies(warehouse).runs == ()
    kept = {view: [row for row in rows if first not in row] for view, rows in before.items()}
    assert contents(warehouse, SOME) == kept
    assert materialise(warehouse) == 1
    assert contents(warehouse, SOME) == seen_by_analysts(warehouse, SOME) == kept


@pytest.mark.parametrize("note", [b"", b"{}", b"[1]", b'{"generation": "a", "stamps": 1}'])
def test_copies_without_a_note_that_can_be_read_do_not_count(copied: Path, note: bytes) -> None:
    before = contents(copied, ("runs",))
    (copied / "marts" / "current.json").write_bytes(note)
    assert read_copies(copied).runs == ()
    assert contents(copied, ("runs",)) == before


def removed_marts(warehouse: Path) -> None:
    shutil.rmtree(warehouse / "marts")


def removed_one_mart(warehouse: Path) -> None:
    (read_copies(warehouse).folder / "rounds.parquet").unlink()


def removed_run(warehouse: Path) -> None:
    (run,) = read_copies(warehouse).runs
    shutil.rmtree(place_of(warehouse, run))


@pytest.mark.parametrize(
    ("remove", "renew"),
    [
        (removed_marts, build),
        (removed_one_mart, build),
        (removed_run, build),
        (removed_run, materialise),  # copying at once
    ],
)
def test_analysts_see_what_is_left_once_their_database_is_renewed(
    copied: Path, remove: Callable[[Path], None], renew: Callable[[Path], object]
) -> None:
    warehouse, before = copied, contents(copied, SOME)
    (run,) = read_copies(warehouse).runs
    remove(warehouse)
    with pytest.raises(duckdb.IOException):
        seen_by_analysts(warehouse, SOME)
    left = before
    if remove is removed_run:
        left = {view: [row for row in rows if run not in row] for view, rows in before.items()}
    assert contents(warehouse, SOME) == left
    of_runs = 0 if remove is removed_run else 1
    if renew is materialise:
        assert materialise(warehouse) == of_runs
    else:
        build(warehouse)
        assert contents(warehouse, SOME) == seen_by_analysts(warehouse, SOME) == left
        assert materialise(warehouse) == of_runs
    assert contents(warehouse, SOME) == seen_by_analysts(warehouse, SOME) == left


def test_left_overs_of_a_crash_are_removed(copied: Path) -> None:
    (copied / "marts" / ".current.json.0").write_text("{")
    (copied / "marts" / ".marts.0" / "parts").mkdir(parents=True)
    assert materialise(copied) == 1
    assert in_marts(copied) == {".lock", "current.json", read_copies(copied).folder.name}


@pytest.mark.process
def test_a_query_that_ends_meanwhile_is_no_error(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.glob

    def with_one_that_ended(path: Path, pattern: str) -> Iterator[Path]:
        yield from real(path, pattern)
        if pattern.startswith(SPILL):
            yield path / f"{SPILL}ended"

    monkeypatch.setattr(Path, "glob", with_one_that_ended)
    assert materialise(warehouse) == 1


def test_several_processes_copy_one_after_the_other(warehouse: Path) -> None:
    before = contents(warehouse, SOME)
    code = "\n".join(
        (
            "import sys, pathlib, warehouse.analytics.marts as marts",
            "marts.materialise(pathlib.Path(sys.argv[1]))",
        )
    )
    (warehouse / "marts").mkdir()
    with hold_lock(warehouse / "marts" / ".lock"):
        begun = [
            subprocess.Popen([sys.executable, "-c", code, str(warehouse)], stderr=subprocess.PIPE)
            for _ in range(2)
        ]
        unfinished = warehouse / "marts" / ".marts.0"
        unfinished.mkdir()
        with pytest.raises(subprocess.TimeoutExpired):
            begun[0].wait(3)
        assert unfinished.is_dir()  # of whom holds the lock
    assert [process.communicate(timeout=HANG_SECONDS)[1].decode() for process in begun] == [""] * 2
    assert [process.returncode for process in begun] == [0] * 2
    assert in_marts(warehouse) == {".lock", "current.json", read_copies(warehouse).folder.name}
    assert len(read_copies(warehouse).runs) == 1
    assert contents(warehouse, SOME) == seen_by_analysts(warehouse, SOME) == before


def test_a_damaged_record_is_named_and_leaves_the_copies_as_they_are(
    copied: Path, runs: list[Made]
) -> None:
    warehouse, copies = copied, read_copies(copied)
    run = write(warehouse, runs[1].start, runs[1].rounds)
    path = place_of(warehouse, run) / "round=all.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(WarehouseError) as caught:
        materialise(warehouse)
    assert caught.value.place == str(path)
    assert read_copies(warehouse) == copies
    assert in_marts(warehouse) == {".lock", "current.json", copies.folder.name}
