"""Runs of earlier layouts are read, audited, replayed and queried, but not continued."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.explain.replay import replay
from flows.runs.resuming import resume
from predictor.errors import InputError
from tasks.record import RuntimeKind
from tests.contents import contents
from tests.runs import Made, ended, write
from warehouse.analytics.definitions import VIEWS
from warehouse.analytics.listing import list_campaigns
from warehouse.analytics.questions import Analytics
from warehouse.store.audit import audit
from warehouse.store.folder import EMPTY, place_of
from warehouse.store.reader import Reader
from warehouse.store.writer import Writer

LAYOUT3 = Path(__file__).parents[1] / "stored" / "layout3"
LAYOUT4 = Path(__file__).parents[1] / "stored" / "layout4"


@pytest.fixture(scope="module")
def made() -> Made:
    return ended("srtf", jobs=12, seed=2)


def test_a_run_of_layout_3_is_read_audited_and_replayed(tmp_path: Path) -> None:
    run = "shockwave-954f78-1"
    shutil.copytree(LAYOUT3, tmp_path / "records")
    found = audit(tmp_path, run)
    assert (found.findings, found.rounds, found.jobs, found.checksums) == ((), 10, 4, False)
    header, records = Reader(tmp_path).header(run), Reader(tmp_path).records(run)
    assert header.version == 3
    assert {record.version for record, _ in records} == {3}
    assert all(event.reason == "" for record, _ in records for event in record.events)
    comparison = replay(run, tmp_path)
    assert (comparison.complete, comparison.rounds) == (True, 10)


def test_a_warehouse_of_an_earlier_version_lists_no_campaigns(tmp_path: Path) -> None:
    shutil.copytree(LAYOUT3, tmp_path / "records")
    with pytest.raises(InputError, match="is not a warehouse"):
        list_campaigns(Analytics(tmp_path))
    (tmp_path / "records" / EMPTY).mkdir()
    assert list_campaigns(Analytics(tmp_path)) == []


def test_a_run_of_layout_4_is_read_audited_and_replayed(tmp_path: Path) -> None:
    run = "shockwave-52654c-1"
    shutil.copytree(LAYOUT4, tmp_path / "records")
    found = audit(tmp_path, run)
    assert (found.findings, found.rounds, found.jobs, found.checksums) == ((), 12, 4, True)
    header, records = Reader(tmp_path).header(run), Reader(tmp_path).records(run)
    assert (header.version, header.settings.runtime) == (4, RuntimeKind.VIRTUAL)
    assert all(record.solve.drained == () for record, _ in records)
    assert {entry.memory_bytes for record, _ in records for entry in record.progress} == {0}
    comparison = replay(run, tmp_path)
    assert (comparison.complete, comparison.rounds) == (True, 12)


@pytest.mark.slow
def test_runs_of_all_layouts_are_asked_together(tmp_path: Path, made: Made) -> None:
    shutil.copytree(LAYOUT3, tmp_path / "records")
    shutil.copytree(LAYOUT4, tmp_path / "records", dirs_exist_ok=True)
    new = write(tmp_path, made.start, made.rounds)
    _, rows = Analytics(tmp_path).query(
        "SELECT run, count(*) FILTER (kind = 'preempted'), count(nullif(reason, '')), count(*) "
        "FROM events GROUP BY run"
    )
    counts = {run: tuple(numbers) for run, *numbers in rows}
    events = [event for record in made.records for event in record.events + record.finished]
    reasons = sum(bool(event.reason) for event in events)
    assert counts["shockwave-954f78-1"] == (0, 0, 8)
    assert counts[new] == (reasons, reasons, len(events))
    assert reasons > 0
    assert len(Analytics(tmp_path).query("FROM run_summary")[1]) == 4
    assert list(contents(tmp_path)) == list(VIEWS)


def test_a_layout_3_record_that_was_changed_is_found(tmp_path: Path) -> None:
    shutil.copytree(LAYOUT3, tmp_path / "records")
    run = "shockwave-954f78-1"
    path = place_of(tmp_path, run) / "round=all.parquet"
    table = pq.read_table(path, partitioning=None)
    rows = table.to_pylist()
    rows[6]["solve"]["price"] += 1.0
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    (found,) = audit(tmp_path, run).findings
    assert (found.round, found.place) == (6, "round=all.parquet, row 6")
    assert found.problem == "was changed: its contents have another hash"


def test_no_round_is_added_to_a_run_of_an_older_layout(tmp_path: Path) -> None:
    run = "shockwave-52654c-1"
    shutil.copytree(LAYOUT4, tmp_path / "records")
    before = {path: path.read_bytes() for path in place_of(tmp_path, run).iterdir()}
    for go_on in (
        lambda: Writer(tmp_path, Reader(tmp_path).start(run), run=run),
        lambda: resume(run, tmp_path),
    ):
        with pytest.raises(InputError, match="has records of layout 4, to which none can be added"):
            go_on()
    assert {path: path.read_bytes() for path in place_of(tmp_path, run).iterdir()} == before
