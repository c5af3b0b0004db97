import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.runs.simulation import simulate
from predictor.errors import InputError, ShockwaveError, WarehouseError
from tasks.round import Run
from tests.contents import contents, seen_by_analysts
from tests.runs import POLICIES, Made, ended, tiny, write
from warehouse.analytics.catalog import build
from warehouse.analytics.limits import interruptible
from warehouse.analytics.questions import Analytics
from warehouse.store.checksums import CHECKSUMS, note
from warehouse.store.folder import EMPTY, RESTORE, WHOLE, place_of, present, run_folders
from warehouse.store.holdings import audit_all
from warehouse.store.reader import Reader
from warehouse.store.writer import Writer

LATER = "max_seconds"
"""A field of jobs that there was not when layout 6 began."""


class Crash(BaseException):
    """The process dies here."""


@pytest.fixture(scope="module")
def made() -> Made:
    return ended(jobs=4)


@pytest.fixture
def part(tmp_path: Path, made: Made) -> tuple[Path, str]:
    """A warehouse with five rounds of a run under way, and the run's id."""
    return tmp_path, write(tmp_path, made.start, made.rounds[:5], compact=False)


@pytest.fixture
def opened(part: tuple[Path, str]) -> tuple[Path, str]:
    """The same, with the database that analysts open."""
    build(part[0])
    return part


def folder(warehouse: Path, run: str) -> Path:
    return place_of(warehouse, run)


def tree(*roots: Path) -> dict[Path, bytes]:
    files = (path for root in roots for path in root.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files}


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


# What is written is what is read


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.slow
def test_a_run_written_round_by_round_reads_back_equal(tmp_path: Path, policy: str) -> None:
    made = ended(policy, jobs=4)
    reader = Reader(tmp_path)
    with Writer(tmp_path, made.start) as writer:
        assert reader.header(writer.run) == made.header
        assert reader.records(writer.run) == []
        for record, digest, timings in made.rounds:
            writer.append(record, digest, timings)
            if record.round % 10 == 0:
                assert reader.records(writer.run)[-1] == (record, digest)
        written = reader.records(writer.run)
        assert written == [(record, digest) for record, digest, _ in made.rounds]
        writer.compact()
        assert reader.records(writer.run) == written


def test_the_same_run_twice_gets_two_names(tmp_path: Path, made: Made) -> None:
    with Writer(tmp_path, made.start) as first, Writer(tmp_path, made.start) as second:
        names = [first.run, second.run]
    assert len(set(names)) == 2
    assert [name.rsplit("-", 1)[1] for name in names] == ["1", "2"]
    assert {name.split("-")[0] for name in names} == {"shockwave"}


def test_a_frame_holds_what_a_query_gives(part: tuple[Path, str]) -> None:
    analytics = Analytics(part[0])
    frame = analytics.frame("SELECT round, clock_seconds FROM rounds ORDER BY round")
    columns, rows = analytics.query("SELECT round, clock_seconds FROM rounds ORDER BY round")
    assert list(frame.columns) == columns
    assert list(frame.itertuples(index=False, name=None)) == rows


@pytest.mark.parametrize("name", ["it's", "a[b]*c", "ρ {records}", "two words"])
def test_any_folder_name_will_do(tmp_path: Path, made: Made, name: str) -> None:
    run = write(tmp_path / name, made.start, made.rounds[:2])
    assert Analytics(tmp_path / name).query("SELECT run, round FROM rounds ORDER BY ALL")[1] == [
        (run, 0),
        (run, 1),
    ]


# Crashes


@pytest.mark.slow
def test_a_temporary_file_is_invisible_and_removed_when_the_run_goes_on(
    part: tuple[Path, str], made: Made
) -> None:
    warehouse, run = part
    reader = Reader(warehouse)
    before, views = reader.records(run), contents(warehouse)
    left_over = folder(warehouse, run) / f".round=000005.parquet.{uuid4().hex}"
    left_over.write_bytes(b"PAR1 half a round")
    assert reader.records(run) == before
    assert contents(warehouse) == views
    with Writer(warehouse, made.start, run=run):
        assert not left_over.exists()
    assert reader.records(run) == before


@pytest.mark.slow
def test_a_crash_before_the_rename_loses_that_round_alone(
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
    assert (reader.records(run), contents(warehouse)) == (before, views)
    with Writer(warehouse, made.start, run=run) as writer:
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


def test_rounds_written_after_a_compaction_are_not_lost_by_the_next(
    part: tuple[Path, str], made: Made
) -> None:
    warehouse, run = part
    with Writer(warehouse, made.start, run=run) as writer:
        writer.compact()
        writer.append(*made.rounds[5])
        writer.compact()
    assert [record.round for record, _ in Reader(warehouse).records(run)] == list(range(6))


def test_rounds_from_before_a_field_are_compacted_with_its_default(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(Writer, "_enter_all", lambda self: None)
        run = write(tmp_path, made.start, made.rounds[:3], compact=False)
    for path in folder(tmp_path, run).glob("round=*.parquet"):
        table = pq.read_table(path, partitioning=None)
        number = table.schema.get_field_index("arrivals")
        kind = pa.struct([f for f in table.schema.types[number].value_type if f.name != LATER])
        old = table.schema.set(number, pa.field("arrivals", pa.list_(kind)))
        pq.write_table(pa.Table.from_pylist(table.to_pylist(), schema=old), path)
        note(path)
    with Writer(tmp_path, made.start, run=run) as writer:
        for one in made.rounds[3:]:
            writer.append(*one)
        writer.compact()
    found = Reader(tmp_path).records(run)
    assert found == [(record, digest) for record, digest, _ in made.rounds]
    assert any(record.arrivals for record, _ in found[:3])


def test_a_compaction_under_a_query_is_waited_out(
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


# Damage


def test_a_missing_round_is_named(part: tuple[Path, str]) -> None:
    warehouse, run = part
    (folder(warehouse, run) / "round=000002.parquet").unlink()
    with pytest.raises(WarehouseError) as caught:
        Reader(warehouse).records(run)
    assert caught.value.place == str(folder(warehouse, run))
    assert caught.value.problem == "round 2 is missing"


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


def test_an_empty_file_of_other_columns_is_renewed_with_its_checksum(
    part: tuple[Path, str], made: Made
) -> None:
    warehouse, _ = part
    empty = present(warehouse) / EMPTY
    path = empty / "round=_.parquet"
    before = path.read_bytes()
    pq.write_table(pa.table({"run": pa.array([], pa.string())}), path)
    write(warehouse, made.start, made.rounds[:1], compact=False)
    assert path.read_bytes() == before
    lines = (empty / CHECKSUMS).read_text().splitlines()
    assert sorted(line.split()[1] for line in lines) == [
        "header.parquet",
        "round=_.parquet",
        "workload.parquet",
    ]
    assert audit_all(warehouse).findings == []


def test_a_damaged_empty_partition_is_named_by_writers_too(tmp_path: Path, made: Made) -> None:
    build(tmp_path)
    path = present(tmp_path) / EMPTY / "round=_.parquet"
    path.write_bytes(b"garbage" * 10)
    (tmp_path / "analytics.duckdb").unlink()
    with pytest.raises(WarehouseError, match="restore it") as caught:
        Writer(tmp_path, made.start)
    assert caught.value.place == str(path)
    assert not list(tmp_path.glob(".analytics*"))


# Refusals


@pytest.mark.parametrize("place", ["a file", "/proc"])
def test_a_folder_that_cannot_be_written_is_refused_and_left_alone(
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


def test_what_is_not_a_warehouse_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a warehouse"):
        Analytics(tmp_path).query("FROM runs")
    build(tmp_path)
    for asked in (Reader(tmp_path).header, Reader(tmp_path).records):
        with pytest.raises(InputError, match="not in the warehouse"):
            asked("nobody")


@pytest.mark.parametrize(
    "name", ["", "_", "..", "_/../../other/run=a", "A", "a b", "-a", "a" * 300]
)
def test_names_are_names(part: tuple[Path, str], made: Made, name: str) -> None:
    warehouse, _ = part
    asked: list[Callable[[str], object]] = [Reader(warehouse).header, Reader(warehouse).records]
    asked.append(lambda name: Analytics(warehouse).query("FROM runs", [name]))
    asked.append(lambda name: Writer(warehouse, made.start, run=name))
    before = tree(warehouse)
    for use in asked:
        with pytest.raises(InputError, match=r"is no name of a run; names have 1 to 100 of a-z"):
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


@contextmanager
def process(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Another Python that says when it is ready and then waits for its standard input."""
    command = [sys.executable, "-c", code, *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as other:  # type: ignore[call-overload]
        try:
            assert other.stdout.readline() == "holding\n"
            yield other
        finally:
            other.kill()


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


# Readers cannot write


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE mine (i INT)",
        "CREATE VIEW mine AS FROM runs",
        "INSERT INTO runs VALUES (1)",
        "COPY (FROM runs) TO '{folder}/out.csv'",
        "COPY (FROM runs) TO '{folder}/records/layout=7/run=_/header.parquet'",
        "WITH x AS (COPY (FROM runs) TO '{folder}/records/layout=7/run=_/out.parquet') FROM x",
        "FROM query('COPY (SELECT 1) TO ''{folder}/out.csv''')",
        "EXPLAIN ANALYZE COPY (FROM runs) TO '{folder}/out.csv'",
        "EXPORT DATABASE '{folder}/out'",
        "ATTACH '{folder}/out.duckdb'",
        "SELECT 1; ATTACH '{folder}/out.duckdb'",
        "FROM enable_logging(storage := 'file', storage_path := '{folder}/log')",
        "SET threads = 1",
        "INSTALL httpfs",
        "FROM read_text('{folder}/secret')",
        "FROM 'https://example.com/runs.parquet'",
        "FROM nowhere",
        "SELEC 1",
        "SELECT 'a'::INT",
        "",
    ],
)
@pytest.mark.slow
def test_a_query_changes_nothing_and_a_wrong_one_is_one_line(
    part: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    warehouse, _ = part
    (warehouse / "secret").write_text("not a record")
    monkeypatch.chdir(warehouse)
    before = tree(warehouse)
    for ask in (Analytics(warehouse).query, Analytics(warehouse).frame):
        with pytest.raises(InputError) as caught:
            ask(sql.format(folder=warehouse))
        assert caught.value.place == "query"
        assert "job_outcomes" in caught.value.remedy
        assert "\n" not in str(caught.value)
    assert tree(warehouse) == before


@pytest.mark.parametrize(
    "sql",
    [
        "FROM runs;",
        "SHOW TABLES",
        "DESCRIBE runs",
        "SUMMARIZE rounds",
        "VALUES (1) -- one",
        "WITH r AS (FROM rounds) SELECT max(round) FROM r",
        "SELECT run AS a, run AS a FROM runs",
    ],
)
def test_all_kinds_of_select_are_answered(part: tuple[Path, str], sql: str) -> None:
    columns, rows = Analytics(part[0]).query(sql)
    assert len(rows) >= 1
    assert all(len(row) == len(columns) for row in rows)


def test_rows_come_in_the_order_asked_for(part: tuple[Path, str]) -> None:
    _, rows = Analytics(part[0]).query("SELECT round FROM rounds ORDER BY round DESC")
    assert rows == [(4,), (3,), (2,), (1,), (0,)]


def test_a_reader_has_no_way_to_write() -> None:
    for kind, reads in (
        (Reader, {"header", "start", "begun", "created_at", "packages", "records", "parts"}),
        (Analytics, {"query", "recipe", "frame", "table", "limits"}),
    ):
        assert {name for name in dir(kind) if not name.startswith("_")} == reads


# What analysts open

HOLD_DATABASE = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1])
connection.execute("CREATE TABLE notes AS SELECT 'mine' AS text")
assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)
print("holding", flush=True)
sys.stdin.readline()
"""


@pytest.mark.slow
def test_the_database_gives_what_a_reader_gives(opened: tuple[Path, str]) -> None:
    warehouse, _ = opened
    for view, rows in seen_by_analysts(warehouse).items():
        assert Analytics(warehouse).query(f"FROM {view} ORDER BY ALL")[1] == rows


@pytest.mark.process
def test_an_analyst_with_the_database_open_blocks_neither_runs_nor_a_rebuild(
    opened: tuple[Path, str],
) -> None:
    warehouse, _ = opened
    database = warehouse / "analytics.duckdb"
    with process(HOLD_DATABASE, str(database)):
        with pytest.raises(duckdb.IOException):  # it really is held
            duckdb.connect(str(database))
        run = simulate(tiny("fifo", jobs=2), warehouse)
        (warehouse / ".views").unlink()  # as when the views changed
        build(warehouse)
        with duckdb.connect(str(database)) as connection:
            assert connection.execute("SELECT count(*) FROM runs").fetchone() == (2,)
            assert ("notes",) not in connection.execute("SHOW TABLES").fetchall()
    with duckdb.connect(str(database), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (2,)
    assert Reader(warehouse).records(run)


def test_the_database_is_rebuilt_only_when_something_changed(opened: tuple[Path, str]) -> None:
    warehouse, _ = opened
    database = warehouse / "analytics.duckdb"
    before = database.stat().st_ino
    build(warehouse)
    assert database.stat().st_ino == before
    database.unlink()
    build(warehouse)
    assert database.exists()


def test_a_warehouse_that_moved_is_rebuilt_by_its_next_run(tmp_path: Path, made: Made) -> None:
    build(tmp_path / "here")
    write(tmp_path / "here", made.start, made.rounds[:3])
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert Analytics(tmp_path / "there").query("SELECT count(*) FROM rounds")[1] == [(3,)]
    simulate(tiny("fifo", jobs=2), tmp_path / "there", rounds=2)
    with duckdb.connect(str(tmp_path / "there" / "analytics.duckdb")) as connection:
        assert connection.execute("SELECT count(*) FROM rounds").fetchone() == (5,)


def test_queries_see_a_run_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.runs.simulation.DELAY_SECONDS", 0.0)
    analytics, seen = Analytics(tmp_path), []

    def told(run: Run) -> None:
        if run.state.round <= 5:
            seen.append(analytics.query("SELECT max(round), count(*) FROM rounds")[1][0])

    simulate(tiny("fifo", jobs=2), tmp_path, progress=told)
    assert seen == [(number, number + 1) for number in range(5)]


def test_errors_of_the_store_are_the_users_to_mend(part: tuple[Path, str], made: Made) -> None:
    warehouse, run = part
    start = replace(made.start, digest="other")
    with pytest.raises(ShockwaveError), Writer(warehouse, start, run="nobody"):
        pass
    assert Reader(warehouse).header(run) == made.header


@pytest.mark.slow
def test_a_query_of_some_runs_sees_no_others(tmp_path: Path) -> None:
    one, other = (
        write(tmp_path, made.start, made.rounds)
        for made in (ended("srtf", jobs=2), ended("srtf", jobs=3))
    )
    analytics = Analytics(tmp_path)
    seen = analytics.query("SELECT run, count(*) FROM rounds GROUP BY run ORDER BY run")[1]
    assert sorted(run for run, _ in seen) == sorted([one, other])
    for run in (one, other):
        assert analytics.query("SELECT run, count(*) FROM rounds GROUP BY run", [run])[1] == [
            row for row in seen if row[0] == run
        ]
        assert analytics.query("SELECT run FROM run_summary", [run])[1] == [(run,)]


@pytest.mark.parametrize("name", ["header", "round=000000", "round=000003"])
def test_a_query_of_a_run_that_lacks_a_file(part: tuple[Path, str], name: str) -> None:
    warehouse, run = part
    missing = folder(warehouse, run) / f"{name}.parquet"
    missing.unlink()
    for runs in (None, [run]):
        with pytest.raises(WarehouseError) as caught:
            Analytics(warehouse).query("FROM runs", runs)
        assert str(caught.value) == f"{missing}: is missing; {RESTORE}"


def test_an_ended_run_without_its_rounds_is_not_one_without_rounds(tmp_path: Path) -> None:
    made = ended("srtf", jobs=1)
    run = write(tmp_path, made.start, made.rounds)
    (missing := folder(tmp_path, run) / WHOLE).unlink()
    for ask in (
        lambda: Analytics(tmp_path).query("FROM runs", [run]),
        lambda: Reader(tmp_path).records(run),
    ):
        with pytest.raises(WarehouseError, match="is missing; ") as caught:
            ask()
        assert caught.value.place == str(missing)


def test_an_endless_query_can_be_interrupted() -> None:
    # Other tests' servers may have left a handler of their own, that does nothing.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGINT, before)
        connection = stack.enter_context(duckdb.connect())

        def endless() -> object:
            os.kill(os.getpid(), signal.SIGINT)  # to the main thread, as a terminal does
            return connection.sql(
                "SELECT sum(hash(range)) FROM range(1_000_000_000_000)"
            ).fetchall()

        with pytest.raises(KeyboardInterrupt):
            interruptible(connection, endless)
        assert connection.sql("SELECT 1").fetchall() == [(1,)]  # it is free again


def test_runs_are_seen_when_a_layout_follows(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(tmp_path, made.start, made.rounds)
    analytics = Analytics(tmp_path)
    before = [analytics.query(f"FROM {view} ORDER BY ALL") for view in ("run_summary", "leases")]
    monkeypatch.setattr("warehouse.store.folder.VERSION", made.header.version + 1)
    assert Reader(tmp_path).records(first) == [record[:2] for record in made.rounds]
    build(tmp_path)
    seen = [analytics.query(f"FROM {view} ORDER BY ALL") for view in ("run_summary", "leases")]
    assert seen == before
    second = write(tmp_path, made.start, made.rounds[:3], compact=False)
    assert place_of(tmp_path, second).parent != place_of(tmp_path, first).parent
    rounds = "SELECT run, count(*) FROM rounds GROUP BY run ORDER BY count(*)"
    assert analytics.query(rounds)[1] == [(second, 3), (first, len(made.rounds))]
