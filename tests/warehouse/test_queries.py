"""Readers cannot write, and the database of analysts has the same views."""

import os
import shutil
import signal
from contextlib import ExitStack
from pathlib import Path

import duckdb
import pytest

from flows.runs.simulation import simulate
from predictor.errors import InputError, WarehouseError
from tasks.run import Run
from tests.contents import seen_by_analysts
from tests.runs import Made, ended, tiny, write
from tests.warehouse.conftest import folder, process, tree
from warehouse.analytics.catalog import build
from warehouse.analytics.limits import run_interruptible
from warehouse.analytics.marts import materialise
from warehouse.analytics.questions import Analytics
from warehouse.store.audit import audit
from warehouse.store.folder import MISPLACED, RESTORE, records_folder
from warehouse.store.parts import WHOLE
from warehouse.store.reader import Reader


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
    with pytest.raises(InputError) as caught:
        Analytics(warehouse).query(sql.format(folder=warehouse))
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


def test_times_are_in_utc_wherever_the_machine_is(
    part: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    asked = "SELECT created_at::VARCHAR, created_at FROM runs"
    (((text, moment),),) = [Analytics(part[0]).query(asked)[1]]
    assert text.endswith("+00")
    assert str(moment).endswith("+00:00")


@pytest.mark.slow
def test_several_queries_are_answered_as_each_alone(part: tuple[Path, str]) -> None:
    asked = ["FROM rounds ORDER BY round", "SELECT count(*) FROM leases", "FROM run_summary"]
    analytics = Analytics(part[0])
    assert analytics.queries(asked, [part[1]]) == [analytics.query(sql) for sql in asked]
    with pytest.raises(InputError, match="query: "):
        analytics.queries([*asked, "DELETE FROM rounds"])


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
    seen = seen_by_analysts(warehouse)
    asked = [f"FROM {view} ORDER BY ALL" for view in seen]
    answers = Analytics(warehouse).queries(asked)
    assert {view: rows for view, (_, rows) in zip(seen, answers, strict=True)} == seen


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


@pytest.mark.slow
def test_a_warehouse_that_moved_is_rebuilt_by_its_next_run(tmp_path: Path, made: Made) -> None:
    build(tmp_path / "here")
    write(tmp_path / "here", made.start, made.rounds[:3])
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert Analytics(tmp_path / "there").query("SELECT count(*) FROM rounds")[1] == [(3,)]
    simulate(tiny("fifo", jobs=2), tmp_path / "there", rounds=2)
    with duckdb.connect(str(tmp_path / "there" / "analytics.duckdb")) as connection:
        assert connection.execute("SELECT count(*) FROM rounds").fetchone() == (5,)


@pytest.mark.slow
def test_queries_see_a_run_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.runs.simulation.DELAY_SECONDS", 0.0)
    analytics, seen = Analytics(tmp_path), []

    def listener(run: Run) -> None:
        if run.state.round <= 5:
            seen.append(analytics.query("SELECT max(round), count(*) FROM rounds")[1][0])

    simulate(tiny("fifo", jobs=2), tmp_path, progress=listener)
    assert seen == [(number, number + 1) for number in range(5)]


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


@pytest.mark.parametrize("name", ["{run}.bak", "{run} (copy)", "{run}_old", "Copy"])
def test_a_copy_of_a_run_under_a_name_of_no_run_is_refused(
    part: tuple[Path, str], name: str
) -> None:
    warehouse, run = part
    copy = records_folder(warehouse) / f"run={name.format(run=run)}"
    shutil.copytree(folder(warehouse, run), copy)
    analytics = Analytics(warehouse)
    for refused in (lambda: analytics.query("FROM runs"), lambda: materialise(warehouse)):
        with pytest.raises(WarehouseError) as caught:
            refused()
        assert str(caught.value) == f"{copy}: has a name that no run can have; {MISPLACED}"
    assert analytics.query("SELECT run, count(*) FROM rounds GROUP BY run", [run])[1] == [(run, 5)]
    assert audit(warehouse, run).findings == ()


def test_an_ended_run_without_its_rounds_is_not_one_without_rounds(tmp_path: Path) -> None:
    made = ended("srtf", jobs=1)
    run = write(tmp_path, made.start, made.rounds)
    (missing := folder(tmp_path, run) / WHOLE).unlink()
    for ask in (
        lambda: Analytics(tmp_path).query("FROM runs"),
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
            run_interruptible(connection, endless)
        assert connection.sql("SELECT 1").fetchall() == [(1,)]  # it is free again
