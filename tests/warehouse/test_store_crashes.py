"""Killed writers, and recovery by the next writer."""

import os
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from predictor.errors import WarehouseError
from tests.contents import contents
from tests.runs import Made
from tests.warehouse.conftest import folder
from warehouse.store.reader import Reader
from warehouse.store.writer import Writer


class Crash(BaseException):
    """The process dies here."""


def crash_on(
    monkeypatch: pytest.MonkeyPatch, method: str, name: str, *, after: int = 0
) -> Callable[[], None]:
    """Die in place of `Path.<method>` when it is about to make or remove files like `name`."""
    real, left = getattr(Path, method), [after]

    def dying(path: Path, *args: object, **options: object) -> object:
        if path.match(name):
            if not left[0]:
                raise Crash
            left[0] -= 1
        return real(path, *args, **options)

    monkeypatch.setattr(Path, method, dying)
    return monkeypatch.undo


@pytest.mark.slow
def test_a_crash_before_the_rename_loses_only_that_round(
    part: tuple[Path, str], made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse, run = part
    reader = Reader(warehouse)
    before, views = reader.records(run), contents(warehouse)
    with Writer(warehouse, made.start, run=run) as writer:
        revive = crash_on(monkeypatch, "replace", ".round=000005.parquet.*")
        with pytest.raises(Crash):
            writer.append(*made.rounds[5])
        revive()
    assert list(folder(warehouse, run).glob(".round=000005.parquet.*"))
    left_over = folder(warehouse, run) / f".round=000006.parquet.{uuid4().hex}"
    left_over.write_bytes(b"PAR1 half a round")
    assert (reader.records(run), contents(warehouse)) == (before, views)
    with Writer(warehouse, made.start, run=run) as writer:
        assert not left_over.exists()
        writer.append(*made.rounds[5])
    assert len(reader.records(run)) == 6


@pytest.mark.slow
def test_compaction_changes_no_view(part: tuple[Path, str], made: Made) -> None:
    warehouse, run = part
    before = contents(warehouse)
    with Writer(warehouse, made.start, run=run) as writer:
        for _ in range(2):
            writer.compact()
            names = [path.name for path in folder(warehouse, run).glob("*.parquet")]
            assert sorted(names) == ["header.parquet", "round=all.parquet", "workload.parquet"]
            assert contents(warehouse) == before


@pytest.mark.parametrize(
    ("method", "name", "after"),
    [
        ("replace", ".round=all.parquet.*", 0),  # before the whole is in place
        ("unlink", "round=0*.parquet", 0),  # the whole is there, and all parts
        ("unlink", "round=0*.parquet", 3),  # and some parts
    ],
)
@pytest.mark.slow
def test_compaction_survives_a_crash(
    part: tuple[Path, str],
    made: Made,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    name: str,
    after: int,
) -> None:
    warehouse, run = part
    reader = Reader(warehouse)
    records, views = reader.records(run), contents(warehouse)
    with Writer(warehouse, made.start, run=run) as writer:
        revive = crash_on(monkeypatch, method, name, after=after)
        with pytest.raises(Crash):
            writer.compact()
        revive()
    assert (reader.records(run), contents(warehouse)) == (records, views)
    with Writer(warehouse, made.start, run=run) as writer:
        writer.compact()
    assert (reader.records(run), contents(warehouse)) == (records, views)
    names = [path.name for path in folder(warehouse, run).glob("*round*")]
    assert names == ["round=all.parquet"]


def test_a_planted_round_is_refused_on_resuming(part: tuple[Path, str], made: Made) -> None:
    warehouse, run = part
    last = folder(warehouse, run) / "round=000004.parquet"
    planted = last.with_name("round=000005.parquet")
    planted.write_bytes(last.read_bytes())
    with pytest.raises(WarehouseError, match=r"round=000005\.parquet: is not in SHA256SUMS"):
        Writer(warehouse, made.start, run=run)


def test_rounds_written_after_a_compaction_are_not_lost_by_the_next(
    part: tuple[Path, str], made: Made
) -> None:
    warehouse, run = part
    with Writer(warehouse, made.start, run=run) as writer:
        writer.compact()
        writer.append(*made.rounds[5])
        writer.compact()
    assert [record.round for record, _ in Reader(warehouse).records(run)] == list(range(6))


def test_a_query_during_a_compaction_is_answered(
    part: tuple[Path, str], made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse, run = part
    reader = Reader(warehouse)
    expected = reader.records(run)
    with Writer(warehouse, made.start, run=run) as writer:
        real = os.listdir

        def listed_then_compacted(path: Path) -> list[str]:
            monkeypatch.undo()
            found = real(path)
            writer.compact()
            return found

        monkeypatch.setattr(os, "listdir", listed_then_compacted)
        assert reader.records(run) == expected
