"""Commands that read recorded runs: `sql`, `replay`, `resume`."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness.up import PROGRAM
from tests.flows.conftest import Command, Finished, Ran, assert_refused, tree
from tests.runs import chained, write
from warehouse.store.folder import place_of
from warehouse.store.reader import Reader


def test_sql_gives_an_object_a_line(program: Command, finished: Finished) -> None:
    query = "SELECT job_id, model, jct_seconds FROM job_outcomes ORDER BY job_id"
    ran = program("sql", query, "--warehouse", finished.warehouse, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert [row["job_id"] for row in ran.rows] == [0, 1]
    assert [list(row) for row in ran.rows] == [["job_id", "model", "jct_seconds"]] * 2


def test_sql_values_are_plain_json(here: Command, finished: Finished) -> None:
    query = """SELECT 1.5 AS decimal, 'nan'::DOUBLE AS nan, '-inf'::DOUBLE AS inf, NULL AS nothing,
        true AS yes, DATE '2024-02-29' AS day, [1, NULL] AS list, {'x': 'nan'::FLOAT} AS struct"""
    assert here("sql", query, "--warehouse", finished.warehouse, "--json").rows == [
        {
            "decimal": 1.5,
            "nan": None,
            "inf": None,
            "nothing": None,
            "yes": True,
            "day": "2024-02-29",
            "list": [1, None],
            "struct": {"x": None},
        }
    ]


def test_sql_prints_a_table_without_json(here: Command, finished: Finished) -> None:
    ran = here("sql", "SELECT run, jobs FROM runs", "--warehouse", finished.warehouse)
    assert [line.split() for line in ran.out.splitlines()] == [["run", "jobs"], [finished.run, "2"]]


@pytest.mark.slow
def test_sql_asks_recipes_by_name(here: Command, finished: Finished) -> None:
    asked = ("--warehouse", finished.warehouse, "--json")
    query = "SELECT job_id, kind FROM events WHERE job_id = 1 ORDER BY at_seconds"
    expected = here("sql", query, *asked).rows
    rows = here("sql", "--recipe", "life-of-a-job", "--run", finished.run, "--job", 1, *asked).rows
    assert [{"job_id": row["job_id"], "kind": row["kind"]} for row in rows] == expected != []
    assert here("sql", "--recipe", "gpu-time", *asked).rows[0]["run"] == finished.run
    assert_refused(
        here("sql", "--recipe", "nonsense", *asked), "no 'nonsense'; choose from worst-jobs"
    )
    assert_refused(
        here("sql", "--recipe", "worst-job", *asked), "no 'worst-job'; did you mean worst-jobs? "
    )
    for recipe, job, said in (
        ("why-it-waited", 99, f"job 99: is not in run '{finished.run}'; name one of its jobs"),
        ("worst-jobs", 1, "--job: the recipe worst-jobs is of no single job; leave it out"),
    ):
        assert_refused(here("sql", "--recipe", recipe, "--job", job, *asked), said)


@pytest.mark.parametrize("options", [["--json"], []])
@pytest.mark.process
def test_sql_ends_quietly_when_its_reader_does(finished: Finished, options: list[str]) -> None:
    process = subprocess.Popen(
        [PROGRAM, "sql", "FROM range(20000)", "--warehouse", finished.warehouse, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""


def test_replay_of_an_untouched_run(here: Command, finished: Finished) -> None:
    ran = here("run", "replay", finished.run, "--warehouse", finished.warehouse, "--json")
    assert (ran.code, ran.err) == (0, "")
    rounds = len(Reader(finished.warehouse).records(finished.run))
    assert ran.rows == [
        {"run": finished.run, "rounds": rounds, "different": 0, "complete": True, "remarks": []}
    ]


def test_replay_of_one_round(here: Command, finished: Finished) -> None:
    ran = here("run", "replay", finished.run, "--round", 3, "--warehouse", finished.warehouse)
    assert ran == Ran(0, f"{finished.run}: 1 round replayed, all identical byte for byte\n", "")


def test_replay_of_a_tampered_run(here: Command, finished: Finished, copied: Path) -> None:
    path = place_of(copied, finished.run) / "round=all.parquet"
    table = pq.read_table(path, partitioning=None)
    rows = table.to_pylist()
    rows[2]["solve"]["objective"] += 1e-9
    pq.write_table(type(table).from_pylist(rows, table.schema), path)

    ran = here("run", "replay", finished.run, "--warehouse", copied, "--json")
    assert_refused(ran, "round 2: was changed after it was recorded", "see shockwave run audit")


def test_replay_of_a_forged_run(here: Command, finished: Finished, tmp_path: Path) -> None:
    reader = Reader(finished.warehouse)
    start = reader.start(finished.run)
    records = [record for record, _ in reader.records(finished.run)]
    solve = records[2].solve
    records[2] = replace(records[2], solve=replace(solve, objective=solve.objective + 1e-9))
    run = write(tmp_path, start, chained(start, records))  # with hashes to match

    ran = here("run", "replay", run, "--warehouse", tmp_path, "--json")
    assert (ran.code, ran.err) == (1, "")
    *differences, last = ran.rows
    assert [(row["round"], row["field"]) for row in differences] == [(2, "solve")]
    assert (last["run"], last["different"]) == (run, 1)

    ran = here("run", "replay", run, "--warehouse", tmp_path)
    assert ran.code == 1
    assert ran.out.splitlines()[0] == "round 2: solve differs"


def test_resume_of_a_finished_run_changes_nothing(here: Command, finished: Finished) -> None:
    before = tree(finished.warehouse)
    ran = here("resume", finished.run, "--warehouse", finished.warehouse, "--json")
    assert ran.code == 0
    assert ran.err == f"{finished.run} had already ended\n"
    assert [row | {"wall_s": 0} for row in ran.rows] == [
        row | {"wall_s": 0} for row in finished.ran.rows
    ]
    assert tree(finished.warehouse) == before
