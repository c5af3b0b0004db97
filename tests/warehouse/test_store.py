"""A run reads back as it was written, and has one writer at a time."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from predictor.errors import InputError, WarehouseError
from tests.runs import Made, write
from tests.warehouse.conftest import process, tree
from warehouse.analytics.catalog import build
from warehouse.analytics.questions import Analytics
from warehouse.store.folder import run_folders
from warehouse.store.reader import FEW_ROUNDS, Reader
from warehouse.store.writer import Writer


def test_two_runs_with_the_same_inputs_have_two_names(tmp_path: Path, made: Made) -> None:
    with Writer(tmp_path, made.start) as first, Writer(tmp_path, made.start) as second:
        names = [first.run, second.run]
    assert len(set(names)) == 2
    assert [name.rsplit("-", 1)[1] for name in names] == ["1", "2"]
    assert {name.split("-")[0] for name in names} == {"shockwave"}


@pytest.mark.parametrize("compact", [True, False])
def test_rounds_are_the_same_one_by_one(tmp_path: Path, made: Made, compact: bool) -> None:
    run, reader = write(tmp_path, made.start, made.rounds, compact=compact), Reader(tmp_path)
    assert [*reader.walk(run)] == reader.records(run)
    assert len(reader.records(run)) == len(made.rounds) > FEW_ROUNDS


@pytest.mark.parametrize("compact", [True, False])
def test_a_missing_round_is_found_one_by_one(tmp_path: Path, made: Made, compact: bool) -> None:
    run = write(tmp_path, made.start, [*made.rounds[:9], *made.rounds[10:]], compact=compact)
    walked = Reader(tmp_path).walk(run)
    with pytest.raises(WarehouseError, match="round 9"):
        list(walked)


def test_a_frame_equals_the_rows_of_its_query(part: tuple[Path, str]) -> None:
    analytics = Analytics(part[0])
    frame = analytics.frame("SELECT round, clock_seconds FROM rounds ORDER BY round")
    columns, rows = analytics.query("SELECT round, clock_seconds FROM rounds ORDER BY round")
    assert list(frame.columns) == columns
    assert list(frame.itertuples(index=False, name=None)) == rows


@pytest.mark.parametrize("name", ["it's", "a[b]*c", "ρ {records}", "two words"])
def test_any_folder_name_works(tmp_path: Path, made: Made, name: str) -> None:
    run = write(tmp_path / name, made.start, made.rounds[:2])
    assert Analytics(tmp_path / name).query("SELECT run, round FROM rounds ORDER BY ALL")[1] == [
        (run, 0),
        (run, 1),
    ]


@pytest.mark.parametrize("place", ["a file", "/proc"])
def test_a_folder_that_cannot_be_written_is_refused_and_unchanged(
    tmp_path: Path, made: Made, place: str
) -> None:
    (tmp_path / "a file").write_text("mine")
    warehouse = tmp_path / place / "warehouse"
    with pytest.raises(WarehouseError) as caught:
        Writer(warehouse, made.start)
    assert str(warehouse) in caught.value.place
    assert caught.value.problem.startswith("cannot be written (")
    assert tree(tmp_path) == {tmp_path / "a file": b"mine"}


def test_nothing_is_left_of_a_run_whose_header_cannot_be_written(
    tmp_path: Path, made: Made
) -> None:
    build(tmp_path)
    before = tree(tmp_path)
    settings = replace(made.header.settings, seed=2**63)
    too_large = replace(made.start, header=replace(made.header, settings=settings))
    with pytest.raises(OverflowError):
        Writer(tmp_path, too_large)
    assert run_folders(tmp_path) == []
    assert tree(tmp_path) == before
    assert write(tmp_path, made.start, []).endswith("-1")


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a warehouse"):
        Analytics(tmp_path).query("FROM runs")
    build(tmp_path)
    for asked in (Reader(tmp_path).header, Reader(tmp_path).records):
        with pytest.raises(InputError, match="not in the warehouse"):
            asked("nobody")


@pytest.mark.parametrize(
    "name", ["", "_", "..", "_/../../other/run=a", "A", "a b", "-a", "a" * 300]
)
def test_impossible_names_are_refused(part: tuple[Path, str], made: Made, name: str) -> None:
    warehouse, _ = part
    asked: list[Callable[[str], object]] = [Reader(warehouse).header, Reader(warehouse).records]
    asked.append(lambda name: Analytics(warehouse).query("FROM runs", [name]))
    asked.append(lambda name: Writer(warehouse, made.start, run=name))
    before = tree(warehouse)
    for use in asked:
        with pytest.raises(InputError, match="not in the warehouse"):
            use(name)
    assert tree(warehouse) == before


def test_a_run_has_one_writer(part: tuple[Path, str], made: Made) -> None:
    warehouse, run = part
    with (
        Writer(warehouse, made.start, run=run),
        pytest.raises(WarehouseError, match="is being written by another process"),
    ):
        Writer(warehouse, made.start, run=run)
    with Writer(warehouse, made.start, run=run) as writer:
        writer.append(*made.rounds[5])


HOLD_RUN = """
import sys
from pathlib import Path
from uuid import uuid4
from warehouse.store.reader import Reader
from warehouse.store.writer import Writer
warehouse, run = Path(sys.argv[1]), sys.argv[2]
with Writer(warehouse, Reader(warehouse).start(run), run=run):
    print("holding", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.process
def test_a_run_written_by_another_process_is_refused_until_that_dies(
    part: tuple[Path, str], made: Made
) -> None:
    warehouse, run = part
    with (
        process(HOLD_RUN, str(warehouse), run),
        pytest.raises(WarehouseError, match=f"run '{run}': is being written"),
    ):
        Writer(warehouse, made.start, run=run)
    with Writer(warehouse, made.start, run=run):
        pass
