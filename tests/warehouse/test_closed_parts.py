"""Copies of the closed parts of runs under way change no answer, however the runs go on."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from predictor.errors import WarehouseError
from tasks.commands import Command, CommandKind, NewNode
from tasks.record import Fork, RoundRecord, make_pool
from tests.contents import columns_and_rows, contents, seen_by_analysts
from tests.runs import Made, as_service, ended, make, make_start, mixed, write
from warehouse.analytics.copies import Copies, marts_folder, read_copies
from warehouse.analytics.definitions import OF_ROUNDS, OF_SERVICES
from warehouse.analytics.marts import keep_fast, materialise
from warehouse.analytics.questions import Analytics
from warehouse.store.checksums import checksum
from warehouse.store.folder import place_of
from warehouse.store.warehouse_audit import audit_all
from warehouse.store.writer import Writer

pytestmark = pytest.mark.slow

SOME = ("records", "placements", "job_outcomes")


@pytest.fixture(autouse=True)
def parts_of_four_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warehouse.store.parts.FAN", 2)
    monkeypatch.setattr("warehouse.store.parts.MOST_ROUNDS", 4)


@pytest.fixture(scope="module")
def runs() -> list[Made]:
    """A market, pairs on shared GPUs, a fork of another cluster, a service whose nodes change."""
    market, few = ended("shockwave", jobs=4), mixed("fifo", jobs=6)
    settings = market.header.settings
    fork = Fork("run", "0" * 64, 4, settings.pools, settings.policy, settings.parameters)
    forked = replace(settings, pools=make_pool(12), forked=(fork,))
    orders = [
        Command(0, CommandKind.ADD, -1, 100.0, node=NewNode("", "v100", 2, 1.5)),
        Command(0, CommandKind.REMOVE, 0, 9000.0),
    ]
    return [
        market,
        make(mixed("gandiva", jobs=8, together=0.8)),
        make(make_start(market.start.workload, forked)),
        make(as_service(few.workload, few.header.settings, orders)),
    ]


def under_way(warehouse: Path, made: Made, rounds: int) -> str:
    return write(warehouse, made.start, made.rounds[:rounds], compact=False)


def paired(record: RoundRecord) -> bool:
    """Whether jobs share GPUs."""
    held = [gpu for lease in record.leases for gpu in lease.gpus]
    return len(held) > len({*held})


def parts(warehouse: Path, run: str) -> int:
    return sum(of == run for of, _ in read_copies(warehouse).parts)


def computed(warehouse: Path, views: tuple[str, ...]) -> dict[str, list[object]]:
    """What views say without any copy."""
    with pytest.MonkeyPatch.context() as without:
        none = Copies(marts_folder(warehouse))
        without.setattr("warehouse.analytics.catalog.read_copies", lambda _: none)
        return contents(warehouse, views)


def test_copies_of_parts_change_no_view_while_runs_go_on_and_end(
    tmp_path: Path, runs: list[Made]
) -> None:
    write(tmp_path, ended("srtf", jobs=2).start, ended("srtf", jobs=2).rounds)
    half = [len(made.rounds) // 2 for made in runs]
    assert min(half) > 8  # of at least two parts, and jobs go on from one to the next
    assert all(paired(record) for record in runs[1].records[3:5])  # also those that share GPUs
    names = [under_way(tmp_path, *one) for one in zip(runs, half, strict=True)]
    before = columns_and_rows(tmp_path)
    assert materialise(tmp_path) == 1
    assert [parts(tmp_path, run) for run in names] == [rounds // 4 for rounds in half]
    assert columns_and_rows(tmp_path) == before
    assert seen_by_analysts(tmp_path, SOME) == {view: before[view][1] for view in SOME}
    alone = Analytics(tmp_path).query("FROM job_outcomes ORDER BY ALL", names[:1])[1]
    assert alone == [row for row in before["job_outcomes"][1] if row[0] == names[0]] != []
    copied = read_copies(tmp_path).parts
    for run, made, rounds in zip(names, runs, half, strict=True):
        with Writer(tmp_path, made.start, run=run) as again:
            for stored in made.rounds[rounds : rounds + 6]:
                again.append(*stored)
    all_computed = computed(tmp_path, SOME)
    assert contents(tmp_path, SOME) == all_computed
    keep_fast(tmp_path)
    now = read_copies(tmp_path).parts
    assert {key: now[key] for key in copied} == copied
    assert all(parts(tmp_path, run) > rounds // 4 for run, rounds in zip(names, half, strict=True))
    assert contents(tmp_path, SOME) == all_computed
    for run, made, rounds in zip(names[1:], runs[1:], half[1:], strict=True):
        with Writer(tmp_path, made.start, run=run) as again:
            for stored in made.rounds[rounds + 6 :]:
                again.append(*stored)
            again.compact()
    assert {run for run, _ in read_copies(tmp_path).parts} == {names[0]}
    all_computed = computed(tmp_path, SOME)
    assert contents(tmp_path, SOME) == all_computed
    assert materialise(tmp_path) == 1 + len(names[1:])
    assert contents(tmp_path, SOME) == all_computed
    assert audit_all(tmp_path).findings == []


def test_rounds_of_a_part_are_read_from_its_copies_which_are_verified(
    tmp_path: Path, runs: list[Made]
) -> None:
    run = under_way(tmp_path, runs[-1], 10)
    materialise(tmp_path)
    asked = "SELECT round, scale_factor < 0 FROM placements ORDER BY ALL"
    (first, second) = (part for _, part in sorted(read_copies(tmp_path).parts.items()))
    assert {*first.checksums} == {*second.checksums} == {*OF_ROUNDS}
    assert Analytics(tmp_path).query("SELECT count(*) FROM jobs")[1] == [(6,)]
    copy = first.file("placements")
    noted = checksum(copy)
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT * REPLACE (-1 AS scale_factor) FROM '{copy}'")
        connection.execute(f"COPY t TO '{copy}'")
    with pytest.raises(WarehouseError, match="was changed"):
        Analytics(tmp_path).query(asked)
    note = marts_folder(tmp_path) / "current.json"
    note.write_text(note.read_text().replace(noted, checksum(copy)))
    rows = Analytics(tmp_path).query(asked)[1]
    assert {number for number, other in rows if other} == {*range(4)}
    assert len({number for number, _ in rows}) == 10
    materialise(tmp_path)  # copies that the ledger has otherwise are made anew
    assert not any(other for _, other in Analytics(tmp_path).query(asked)[1])
    os.utime(place_of(tmp_path, run) / "round=000000-000003.parquet", ns=(1, 1))
    assert parts(tmp_path, run) == 1
    assert contents(tmp_path, SOME) == computed(tmp_path, SOME)


def test_copying_that_was_cut_off_leaves_the_copies_as_they_were(
    tmp_path: Path, runs: list[Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = under_way(tmp_path, runs[0], 5)
    assert (materialise(tmp_path), parts(tmp_path, run)) == (0, 1)
    copies = read_copies(tmp_path)
    assert not {*OF_SERVICES} & {*copies.parts[run, "round=000000-000003.parquet"].checksums}
    with Writer(tmp_path, runs[0].start, run=run) as again:
        for stored in runs[0].rounds[5:13]:
            again.append(*stored)
    before = contents(tmp_path, SOME)
    with monkeypatch.context() as cut_off:
        # When the folders of two parts have their names, and nothing notes them.
        cut_off.setattr("warehouse.analytics.marts.enter", interrupted)
        with pytest.raises(KeyboardInterrupt):
            materialise(tmp_path)
    assert read_copies(tmp_path) == copies
    assert contents(tmp_path, SOME) == before
    left = marts_folder(tmp_path) / ".part.0"
    left.mkdir()
    assert (materialise(tmp_path), parts(tmp_path, run)) == (0, 3)
    assert not left.exists()
    assert contents(tmp_path, SOME) == before == computed(tmp_path, SOME)
    folders = {path for path in marts_folder(tmp_path).iterdir() if path.is_dir()}
    now = read_copies(tmp_path)
    assert folders == {now.folder, *(part.folder for part in now.parts.values())}
    shutil.rmtree(place_of(tmp_path, run))
    assert read_copies(tmp_path).parts == {}


def test_copies_of_ended_runs_are_not_made_again_for_a_part(
    tmp_path: Path, runs: list[Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = ended("srtf", jobs=2)
    done = write(tmp_path, short.start, short.rounds)
    assert materialise(tmp_path) == 1
    copied = read_copies(tmp_path)
    run = under_way(tmp_path, runs[0], 5)
    with monkeypatch.context() as unwritten:
        unwritten.setattr("warehouse.analytics.marts.MARTS", interrupted)  # cannot be gone through
        assert materialise(tmp_path) == 1
    assert parts(tmp_path, run) == 1
    now = read_copies(tmp_path)
    assert (now.folder, now.checksums) == (copied.folder, copied.checksums)
    shutil.rmtree(place_of(tmp_path, done))  # the copies have a run too many
    assert materialise(tmp_path) == 0
    assert read_copies(tmp_path).folder != copied.folder
    assert contents(tmp_path, SOME) == computed(tmp_path, SOME)


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt
