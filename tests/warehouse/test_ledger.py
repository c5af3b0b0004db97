"""The ledger enters all writes, in a chain."""

import ctypes
import itertools
import os
import resource
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from predictor.errors import WarehouseError
from predictor.rows import hash_content
from tests.runs import Made, ended, write
from warehouse.analytics.catalog import build
from warehouse.store import warehouse_audit, writer
from warehouse.store.audit import audit
from warehouse.store.campaigns import CellStore, write_cells
from warehouse.store.checksums import add_sum, checksum
from warehouse.store.creation import make_folder
from warehouse.store.files import CellRow, CellStatus
from warehouse.store.folder import SNAPSHOT, place_of, records_folder
from warehouse.store.ledger import (
    HEADER_FILE,
    LEDGER,
    LedgerEntry,
    enter,
    folder_name,
    read_ledger,
)
from warehouse.store.parts import WHOLE, part_name
from warehouse.store.removal import remove_run
from warehouse.store.warehouse_audit import accept, audit_all
from warehouse.store.writer import Writer


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warehouse_audit, "WAIT_SECONDS", 0.0)


@pytest.fixture
def bound_by_modes() -> Iterator[None]:
    """Take away root's right to read every file: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    effective = sets[0]
    sets[0] &= ~0b110  # of this thread and of those that it starts
    assert libc.capset(header, sets) == 0
    yield
    sets[0] = effective
    assert libc.capset(header, sets) == 0


@pytest.fixture(scope="module")
def made() -> Made:
    return ended("srtf", jobs=2)


def of_run(warehouse: Path, run: str) -> list[LedgerEntry]:
    """The run's entries."""
    name = folder_name(warehouse, place_of(warehouse, run))
    return [entry for entry in read_ledger(warehouse).entries if entry.folder == name]


def problems(warehouse: Path, expected: str | None = None) -> list[str]:
    found = audit_all(warehouse, expected).findings
    return [" ".join((finding.place, finding.problem)) for finding in found]


def lines(warehouse: Path) -> list[bytes]:
    return (warehouse / LEDGER).read_bytes().splitlines(keepends=True)


def test_a_run_is_entered_when_it_begins_stops_and_ends(tmp_path: Path, made: Made) -> None:
    run = write(tmp_path, made.start, made.rounds[:3], compact=False)
    folder = place_of(tmp_path, run)
    begun, left = of_run(tmp_path, run)
    assert begun.files.keys() == {"header.parquet", "workload.parquet"}
    assert left.files == {path.name: checksum(path) for path in folder.glob("round=*.parquet")}
    with Writer(tmp_path, made.start, run=run) as again:
        for stored in made.rounds[3:]:
            again.append(*stored)
        again.compact()
    *_, last = of_run(tmp_path, run)
    assert last.files == {WHOLE: checksum(folder / WHOLE)}
    state = read_ledger(tmp_path).folders[last.folder]
    assert state == {path.name: checksum(path) for path in folder.glob("*.parquet")}
    # The third: a part took the place of files that the ledger had.
    assert len(of_run(tmp_path, run)) == 4
    assert problems(tmp_path) == []
    with Writer(tmp_path, made.start, run=run) as idle:
        idle.compact()
    assert len(of_run(tmp_path, run)) == 4


def test_a_run_under_way_is_entered_every_few_minutes(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ENTRY_SECONDS", -1.0)
    with Writer(tmp_path, made.start) as written:
        for number in range(3):
            written.append(*made.rounds[number])
            assert [*of_run(tmp_path, written.run)[-1].files] == [
                part_name(range(number, number + 1))
            ]
    assert len(of_run(tmp_path, written.run)) == 4


def test_the_next_writer_enters_what_a_killed_one_did_not(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        begin = Writer._enter_all
        killed.setattr(Writer, "_enter_all", lambda w: begin(w) if HEADER_FILE in w._new else None)
        run = write(tmp_path, made.start, made.rounds[:3], compact=False)
        assert problems(tmp_path) == []
        assert audit(tmp_path, run).entered == 0
        ended_run = write(tmp_path, made.start, made.rounds)
    assert problems(tmp_path) == [
        f"{WHOLE} is not in {LEDGER}: after a crash, shockwave resume adds it"
    ]
    for name, rounds in ((run, 3), (ended_run, len(made.rounds))):
        with Writer(tmp_path, made.start, run=name):
            pass
        assert audit(tmp_path, name).entered == rounds
    assert problems(tmp_path) == []


def test_entries_of_many_threads_are_one_chain(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: enter(tmp_path, tmp_path / f"f{n}", {"a": "0" * 64}), range(40)))
    ledger = read_ledger(tmp_path)
    assert ledger.problems == ()
    assert {entry.folder for entry in ledger.entries} == {f"f{number}" for number in range(40)}


def test_the_next_entry_cuts_half_a_line_off(tmp_path: Path) -> None:
    for _ in range(2):
        enter(tmp_path, tmp_path, {"a": "0" * 64})
    before = (tmp_path / LEDGER).read_bytes()
    with (tmp_path / LEDGER).open("ab") as file:
        file.write(lines(tmp_path)[-1][:-20])
    problem = "is half a line: it was cut off, or never finished"
    assert read_ledger(tmp_path).problems == ((3, problem),)
    enter(tmp_path, tmp_path, {"a": ""})
    assert (tmp_path / LEDGER).read_bytes().startswith(before)
    assert len(read_ledger(tmp_path).entries) == 3
    assert read_ledger(tmp_path).problems == ()


def test_an_entry_that_does_not_fit_on_the_disk_leaves_no_half_line(tmp_path: Path) -> None:
    make_folder(tmp_path)
    before = (tmp_path / LEDGER).read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, limits[1]))
    try:
        with pytest.raises(WarehouseError, match="File too large"):
            enter(tmp_path, tmp_path, {"a": "0" * 64})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / LEDGER).read_bytes() == before


def test_nothing_is_added_to_a_ledger_whose_last_line_was_changed(
    tmp_path: Path, made: Made
) -> None:
    run = write(tmp_path, made.start, made.rounds)
    path = tmp_path / LEDGER
    path.write_bytes(path.read_bytes()[:-10] + b"123456789\n")
    before = path.read_bytes()
    with pytest.raises(WarehouseError, match=r"ledger\.jsonl, last line: is not an entry"):
        write(tmp_path, made.start, made.rounds)
    assert path.read_bytes() == before
    assert [path.name for path in place_of(tmp_path, run).parent.glob("run=srtf*")] == [
        f"run={run}"
    ]


def test_audits_tolerate_folders_of_runs_that_begin(tmp_path: Path) -> None:
    """As those in which runs begin, until they are renamed."""
    make_folder(tmp_path)
    folders = [records_folder(tmp_path) / f".run={number:032x}" for number in range(20)]
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            for change in (Path.mkdir, Path.rmdir):
                for folder in folders:
                    change(folder)

    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(come_and_go)
        try:
            assert [found for _ in range(100) for found in problems(tmp_path)] == []
        finally:
            over.set()
        coming.result()


def test_a_warehouse_is_sound_while_it_is_written_to(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warehouse_audit, "WAIT_SECONDS", 2.0)  # on however few processors
    write(tmp_path, made.start, made.rounds)
    over = threading.Event()

    def audits() -> int:
        number = 0
        while not over.is_set():
            assert problems(tmp_path) == []
            number += 1
        return number

    with ThreadPoolExecutor(1) as pool:
        audited = pool.submit(audits)
        try:
            for number in range(3):
                run = write(tmp_path, made.start, made.rounds)
                store = CellStore(tmp_path)
                with store.alone("0"):
                    cell = store.finish("0", run, float(number))
                names = ("c", "cell", run, "srtf", "w", "8", "", 0, CellStatus.FINISHED)
                write_cells(tmp_path, "c", [CellRow(*names, cell.hash, cell.seconds, "0", "")])
        finally:
            over.set()
        assert audited.result() > 0


def test_a_file_rewritten_during_an_audit_is_sound(tmp_path: Path, made: Made) -> None:
    run, store = write(tmp_path, made.start, made.rounds), CellStore(tmp_path)
    times = itertools.count()

    def finish(*_: int) -> None:  # after the ledger was read, each time that it is
        with store.alone("0"):
            store.finish("0", run, float(next(times)))

    finish()
    assert audit_all(tmp_path, progress=finish).findings == []
    other = tmp_path / "campaigns" / "cells" / "1.json"
    with store.alone("1"):
        store.finish("1", run, 0.5)
    other.write_bytes(other.read_bytes().replace(b"0.5", b"0.6"))
    found = audit_all(tmp_path, progress=finish).findings
    assert [finding.place for finding in found] == ["campaigns/cells/1.json"]


def test_a_run_does_not_resume_from_a_changed_file(tmp_path: Path, made: Made) -> None:
    run = write(tmp_path, made.start, made.rounds[:3], compact=False)
    path = place_of(tmp_path, run) / "round=000001.parquet"
    table = pq.read_table(path, partitioning=None)
    rows = table.to_pylist()
    rows[0]["timings"]["solve_ms"] /= 2  # of which the chain knows nothing
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    add_sum(path)
    for _ in range(2):  # nor does it stay locked
        with pytest.raises(WarehouseError, match=f"was changed: {LEDGER} has") as caught:
            Writer(tmp_path, made.start, run=run)
    assert caught.value.place == str(path)


def test_an_audit_without_a_ledger_says_so(tmp_path: Path, made: Made) -> None:
    run = write(tmp_path, made.start, made.rounds)
    other = write(tmp_path, made.start, made.rounds)
    one, two = place_of(tmp_path, run), place_of(tmp_path, other)
    assert (one / "header.parquet").read_bytes() != (two / "header.parquet").read_bytes()
    (tmp_path / LEDGER).unlink()
    assert audit(tmp_path, run).entered is None
    assert problems(tmp_path)[0] == f"{LEDGER} is missing"


def test_a_missing_run_is_a_finding_until_accepted(tmp_path: Path, made: Made) -> None:
    run = write(tmp_path, made.start, made.rounds)
    name = folder_name(tmp_path, place_of(tmp_path, run))
    shutil.rmtree(tmp_path / name)
    found = audit_all(tmp_path)
    assert problems(tmp_path) == [f"{name} is gone, and {LEDGER} has it"]
    accept(tmp_path, found)
    assert problems(tmp_path) == []
    assert read_ledger(tmp_path).entries[-1].files == dict.fromkeys(
        (WHOLE, "header.parquet", "workload.parquet"), ""
    )
    assert write(tmp_path, made.start, made.rounds) == run  # another of this name
    assert problems(tmp_path) == []


def test_a_broken_run_is_not_accepted(tmp_path: Path, made: Made) -> None:
    run = write(tmp_path, made.start, made.rounds)
    (tmp_path / LEDGER).unlink()
    (place_of(tmp_path, run) / "workload.parquet").write_bytes(b"")
    accept(tmp_path, audit_all(tmp_path))
    assert f"run={run} is not in {LEDGER}" in problems(tmp_path)


def test_an_expected_hash_is_looked_for(tmp_path: Path, made: Made) -> None:
    run = write(tmp_path, made.start, made.rounds)
    head = read_ledger(tmp_path).entries[-1].hash
    for kept in (made.start.digest, made.rounds[2][1], audit(tmp_path, run).last_hash):
        assert audit(tmp_path, run, kept).findings == ()
    (finding,) = audit(tmp_path, run, "0" * 64).findings
    assert finding.problem == f"has no record with the hash {'0' * 64}"
    build(tmp_path)
    assert problems(tmp_path, head) == []
    assert problems(tmp_path, run) == [f"{LEDGER} has no entry with the hash {run}"]


@pytest.mark.parametrize("place", ["records/run.sh", "{run}/x.txt", "{run}/a/b.lock"])
def test_strange_files_among_the_records_are_found(tmp_path: Path, made: Made, place: str) -> None:
    run = folder_name(tmp_path, place_of(tmp_path, write(tmp_path, made.start, made.rounds)))
    name = place.format(run=run)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(b"planted")
    found = audit_all(tmp_path)
    assert problems(tmp_path) == [f"{name} is not in {LEDGER}"]
    accept(tmp_path, found)  # it stays a finding
    assert len(problems(tmp_path)) == 1


@pytest.mark.parametrize("place", ["campaigns/c/cells.parquet", "{records}/run=_/x.parquet"])
@pytest.mark.parametrize("kind", ["link", "pipe", "unreadable"])
@pytest.mark.usefixtures("bound_by_modes")
def test_what_cannot_be_read_is_a_finding_and_hides_no_other(
    tmp_path: Path, place: str, kind: str
) -> None:
    make_folder(tmp_path)
    place = place.format(records=folder_name(tmp_path, records_folder(tmp_path)))
    path, sound = tmp_path / place, tmp_path / "campaigns" / "c" / "plan.json"
    for file in (path, sound):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    if kind == "unreadable":
        path.chmod(0)
    else:
        path.unlink()
        path.symlink_to(sound) if kind == "link" else os.mkfifo(path)
    refused = f"{place} is not a file that can be read"
    found = audit_all(tmp_path)
    assert sorted(problems(tmp_path)) == sorted(
        [f"campaigns/c/plan.json is not in {LEDGER}", refused]
    )
    accept(tmp_path, found)
    assert problems(tmp_path) == [refused]


def test_a_cell_of_another_run_of_the_same_id_is_found(tmp_path: Path, made: Made) -> None:
    run, store = write(tmp_path, made.start, made.rounds), CellStore(tmp_path)
    with store.alone("key"):
        cell = store.finish("key", run, 1.0)
    remove_run(tmp_path, run)
    assert (store.find_finished("key"), problems(tmp_path)) == (None, [])
    assert write(tmp_path, made.start, made.rounds[:3]) == run
    assert store.find_finished("key") is None
    expected = "campaigns/cells/key.json is of another run than there is: run its campaign again"
    assert expected in problems(tmp_path)
    remove_run(tmp_path, run)
    assert write(tmp_path, made.start, made.rounds) == run
    assert (store.find_finished("key"), problems(tmp_path)) == (cell, [])


def test_a_planted_log_of_the_database_is_found(tmp_path: Path, made: Made) -> None:
    write(tmp_path, made.start, made.rounds)
    build(tmp_path)
    (tmp_path / "analytics.duckdb.wal").write_bytes(b"planted")
    assert problems(tmp_path) == [f"analytics.duckdb.wal is not in {LEDGER}"]


def test_first_commands_in_parallel_leave_a_sound_warehouse(tmp_path: Path) -> None:
    for number in range(5):
        warehouse = tmp_path / f"{number}"
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(build, [warehouse] * 8))
        assert problems(warehouse) == []
        assert len(read_ledger(warehouse).entries) == 3


def test_a_snapshot_counts_once_it_is_entered(tmp_path: Path) -> None:
    warehouse = tmp_path / "w"
    path = warehouse / SNAPSHOT
    make_folder(warehouse)
    path.parent.mkdir()
    path.write_text("{}")
    unused = f"{SNAPSHOT} differs from {LEDGER}, and is not used: remove it"
    enter(warehouse, warehouse / "campaigns", {path.name: checksum(path)})  # of another folder
    assert unused in problems(warehouse)
    enter(warehouse, path.parent, {path.name: checksum(path)})
    assert unused not in problems(warehouse)


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "no object": lambda row: row.clear(),
    "another kind": lambda row: row.update(at=3),
    "no checksums": lambda row: row.update(files={"a": 1}),
    "another chain": lambda row: row.update(previous="0" * 64),
    "a further field": lambda row: row.update(key="AAAA"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("hashed", [True, False])
def test_a_changed_line_is_named(tmp_path: Path, change: str, hashed: bool) -> None:
    for number in range(3):
        enter(tmp_path, tmp_path, {"a": f"{number}"})
    rows = [orjson.loads(line) for line in lines(tmp_path)]
    CHANGES[change](rows[2])
    if hashed:
        content = {n: v for n, v in rows[2].items() if n != "hash"}
        rows[2]["hash"] = hash_content(content)
    text = [orjson.dumps(row, option=orjson.OPT_SORT_KEYS) + b"\n" for row in rows]
    (tmp_path / LEDGER).write_bytes(b"".join(text))
    assert {line for line, _ in read_ledger(tmp_path).problems} == {3}
