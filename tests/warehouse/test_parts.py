"""A run under way has few files, and each round in exactly one, despite interruptions."""

from collections import Counter
from itertools import islice
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import WarehouseError
from tests.runs import Made, ended, write
from warehouse.analytics import catalog
from warehouse.analytics.limits import SPILL
from warehouse.analytics.questions import Analytics
from warehouse.store.audit import audit
from warehouse.store.folder import place_of
from warehouse.store.parts import (
    WHOLE,
    largest_part,
    part_name,
    part_names,
    replaces,
    round_files,
    rounds_of,
    tidy_parts,
)
from warehouse.store.reader import Reader
from warehouse.store.warehouse_audit import audit_all
from warehouse.store.writer import Writer


@pytest.fixture(scope="module")
def made() -> Made:
    return ended("srtf", jobs=4)


def names(warehouse: Path, run: str) -> list[str]:
    return part_names(place_of(warehouse, run))


@given(st.integers(0, 5000))
def test_rounds_are_in_few_parts_each_in_one(count: int) -> None:
    parts = tidy_parts(count)
    assert [number for part in parts for number in part] == list(range(count))
    sizes = Counter(map(len, parts))
    assert [*sizes] == sorted(sizes, reverse=True)
    assert all(size in (1, 8, 64, 512, 4096) and sizes[size] < 8 for size in sizes)
    assert all(part.start % len(part) == 0 and rounds_of(part_name(part)) == part for part in parts)


@given(st.integers(0, 5000), st.integers(1, 600))
def test_rounds_that_waited_are_in_parts_that_others_replace_later(start: int, count: int) -> None:
    parts, number, stop = [], start, start + count
    while number < stop:
        parts.append(largest_part(number, stop))
        number = parts[-1].stop
    assert [number for part in parts for number in part] == list(range(start, stop))
    assert len(parts) <= 7 * 2 * 3 + 1  # at most seven of each size on either side
    tidy = [part_name(part) for part in tidy_parts(stop)]
    assert all(
        any(name == whole or replaces(whole, name) for whole in tidy)
        for name in map(part_name, parts)
    )


@pytest.mark.slow
def test_a_run_under_way_is_in_few_files_and_reads_the_same_after_each_round(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warehouse.store.parts.FAN", 2)
    monkeypatch.setattr("warehouse.store.writer.READ_SECONDS", -1.0)
    monkeypatch.setattr("warehouse.store.writer.GROUP_ROUNDS", 3)
    expected = [(record, digest) for record, digest, _ in made.rounds]
    with Writer(tmp_path, made.start) as writer:
        for number, stored in enumerate(made.rounds[:34]):
            writer.append(*stored)
            assert Reader(tmp_path).records(writer.run) == expected[: number + 1]
            found = audit(tmp_path, writer.run)
            assert (found.rounds, found.findings) == (number + 1, ())
    assert names(tmp_path, writer.run) == [
        "round=000000-000031.parquet",
        "round=000032-000033.parquet",
    ]
    with Writer(tmp_path, made.start, run=writer.run) as again:
        for stored in made.rounds[34:]:
            again.append(*stored)
        again.compact()
    assert names(tmp_path, writer.run) == [WHOLE]
    assert Reader(tmp_path).records(writer.run) == expected
    assert audit_all(tmp_path).findings == []
    rounds = [number for (number,) in Analytics(tmp_path).query("SELECT round FROM rounds")[1]]
    assert sorted(rounds) == list(range(len(expected)))


@pytest.mark.slow
def test_rounds_that_are_written_together_are_the_same_on_disk(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warehouse.store.writer.MOST_WAITING", 16)
    kept = {}
    for delay in (0.0, 1e9):
        warehouse = tmp_path / str(delay)
        with Writer(warehouse, made.start, delay_seconds=delay) as writer:
            for stored in made.rounds[:5]:
                writer.append(*stored)
        assert names(warehouse, writer.run) == [part_name(range(n, n + 1)) for n in range(5)]
        with Writer(warehouse, made.start, run=writer.run, delay_seconds=delay) as again:
            for number, stored in enumerate(made.rounds[5:29], start=6):
                again.append(*stored)
                seen = number if not delay else 5 if number < 21 else 21
                assert len(Reader(warehouse).records(again.run)) == seen
        files = [path.name for path in round_files(place_of(warehouse, writer.run))]
        assert files == list(map(part_name, tidy_parts(29)))
        with Writer(warehouse, made.start, run=writer.run, delay_seconds=delay) as last:
            for stored in made.rounds[29:]:
                last.append(*stored)
            last.compact()
        assert audit_all(warehouse).findings == []
        kept[delay] = (place_of(warehouse, writer.run) / WHOLE).read_bytes()
    assert kept[0.0] == kept[1e9]


def test_after_a_failed_write_no_later_round_is_written(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warehouse.store.writer.MOST_WAITING", 3)
    with Writer(tmp_path, made.start, delay_seconds=1e9) as writer:
        place = place_of(tmp_path, writer.run)
        for stored in made.rounds[:2]:
            writer.append(*stored)
        (place / part_name(range(1, 2))).mkdir()
        with pytest.raises(WarehouseError):
            writer.append(*made.rounds[2])
        (place / part_name(range(1, 2))).rmdir()
    assert names(tmp_path, writer.run) == [part_name(range(0, 1))]


def test_files_that_were_replaced_stay_for_their_readers_and_are_not_read(
    tmp_path: Path, made: Made
) -> None:
    with Writer(tmp_path, made.start) as writer:
        for stored in made.rounds[:9]:
            writer.append(*stored)
        assert len(names(tmp_path, writer.run)) == 10
        files = round_files(place_of(tmp_path, writer.run))
        assert [path.name for path in files] == [
            "round=000000-000007.parquet",
            "round=000008.parquet",
        ]
        assert Analytics(tmp_path).query("SELECT count(*) FROM rounds")[1] == [(9,)]
        assert audit_all(tmp_path).findings == []
    assert names(tmp_path, writer.run) == [path.name for path in files]


def test_a_query_whose_files_are_replaced_and_removed_before_it_reads_them_is_answered(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warehouse.store.writer.READ_SECONDS", -1.0)
    rounds, listed = iter(made.rounds), list[int]()
    with Writer(tmp_path, made.start) as writer:
        for stored in islice(rounds, 7):
            writer.append(*stored)

        def seal_late(connection: duckdb.DuckDBPyConnection, *warehouses: Path) -> None:
            """Before the query reads its files, as many more rounds as replace them all."""
            files = round_files(place_of(tmp_path, writer.run))
            listed.append(len(files))
            for stored in islice(rounds, 10):
                writer.append(*stored)
            assert not files[-1].exists()
            catalog.seal(connection, *warehouses)

        monkeypatch.setattr("warehouse.analytics.questions.seal", seal_late)
        asked = Analytics(tmp_path).query("SELECT count(*), max(round) FROM records")[1]
    assert asked == [(17, 16)]
    assert listed == [7, 3]  # asked twice, and then answered
    assert list(tmp_path.glob(f"{SPILL}*")) == []


@pytest.mark.slow
def test_a_run_of_many_small_files_is_put_into_larger_ones_when_it_goes_on(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(Writer, "_fold", lambda self, rounds: None)
        run = write(tmp_path, made.start, made.rounds, compact=False)
    assert len(names(tmp_path, run)) == len(made.rounds) == 35
    with Writer(tmp_path, made.start, run=run):
        pass
    assert len(names(tmp_path, run)) == 7
    assert audit_all(tmp_path).findings == []


def test_a_file_takes_the_place_of_those_whose_rounds_it_has() -> None:
    part = part_name(range(16, 32))
    assert part == "round=000016-000031.parquet"
    assert replaces(part, "round=000016.parquet")
    assert replaces(WHOLE, part)
    for other in (
        part,
        "round=000032.parquet",
        "round=000000-000255.parquet",
        WHOLE,
        "header.parquet",
    ):
        assert not replaces(part, other)
    assert rounds_of("round=_.parquet") is None
