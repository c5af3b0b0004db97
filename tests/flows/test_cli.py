"""Each command on small input: what it prints, what it exits with, how it refuses."""

import json
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import typer

from flows.cli import runs
from flows.cli.app import application
from flows.cli.commands import COMMANDS, WITHOUT_RECORDS
from flows.cli.errors import with_warehouse
from flows.cli.terminal import USUAL_WIDTH, print_side_by_side
from harness.up import PROGRAM
from solver.policies import POLICIES
from tests.flows.conftest import Command, Finished, Ran, tree
from tests.runs import chained, write
from warehouse.store.folder import place_of
from warehouse.store.reader import Reader

SOLVE_FIELDS = [
    "seq",
    "jobs",
    "objective",
    "bound",
    "gap",
    "feasible",
    "build_ms",
    "solve_ms",
    "backend",
]
GROUP: Any = typer.main.get_command(application())


def assert_refused(ran: Ran, *said: str, output: str = "") -> None:
    """Exit code 2 and one line that says where, what and what to do."""
    assert (ran.code, ran.out) == (2, output)
    (line,) = ran.err.splitlines()
    assert line.startswith("error: ")
    place_and_problem, remedy = line.removeprefix("error: ").rsplit("; ", 1)
    assert ": " in place_and_problem
    assert remedy
    for part in said:
        assert part in line


# What commands print


def test_simulate_reports_the_headline_figures_in_order(finished: Finished) -> None:
    assert finished.ran.err == ""
    (row,) = finished.ran.rows
    assert list(row) == [
        "run",
        "policy",
        "fidelity",
        "trace",
        "gpus",
        "jobs",
        "makespan_s",
        "mean_jct_s",
        "worst_ftf",
        "unfair_fraction",
        "worst_ftf_themis",
        "unfair_fraction_themis",
        "utilization",
        "rounds",
        "preemptions",
        "wall_s",
        "solve_ms_p50",
        "solve_ms_p95",
        "solve_ms_max",
        "max_gap",
        "jct_p50_s",
        "jct_p95_s",
        "jct_p99_s",
        "mean_queueing_s",
        "restart_s",
        "gpu_hours",
        "nash_welfare",
        "proportionality_violations",
        "envy_violations",
    ]
    assert (row["policy"], row["gpus"], row["jobs"]) == ("shockwave", 4, 2)
    assert 0 < row["mean_jct_s"] <= row["makespan_s"]
    assert 0 < row["utilization"] <= 1
    assert 0 < row["solve_ms_p50"] <= row["solve_ms_p95"] <= row["solve_ms_max"]
    assert 0 < row["jct_p50_s"] <= row["jct_p95_s"] <= row["jct_p99_s"] <= row["makespan_s"]
    assert 0 < row["gpu_hours"] <= row["gpus"] * row["makespan_s"] / 3600


def test_simulate_takes_the_settings_it_is_given(here: Command, tmp_path: Path) -> None:
    size = {"gpus": 6, "gpus_per_node": 2}
    settings = {
        "policy": "shockwave",
        "fidelity": "reference",
        "backend": "highs",
        "round_seconds": 1800.0,
        "restart_seconds": 7.0,
        "window": 3,
        "seed": 11,
        "forecasts": "reactive",
        "runtime": "faithful",
    }
    options = [f"--{name.replace('_', '-')}={value}" for name, value in (size | settings).items()]
    ran = here(
        *("simulate", "--jobs", 2, "--arrivals", "at_once", *options, "--set", "lateness=1e-4"),
        *("--warehouse", tmp_path, "--json"),
    )
    (kept,) = here(
        "sql", "SELECT settings, source FROM headers", "--warehouse", tmp_path, "--json"
    ).rows
    settings |= {
        "pools": [{"gpu_type": "gpu", **size, "price": 0.0}],
        "parameters": [{"name": "lateness", "value": 1e-4}],
        "forked": [],
        "levels": [],
        "cells": [],
    }
    assert kept == {"settings": settings, "source": ran.rows[0]["trace"]}
    assert kept["source"] == "generated: 2 jobs, at_once"


def test_simulate_prints_a_table_without_json(here: Command, tmp_path: Path) -> None:
    ran = here("simulate", "--gpus", 4, "--jobs", 1, "--policy", "fifo", "--warehouse", tmp_path)
    assert (ran.code, ran.err) == (0, "")
    headline, heading, *figures = ran.out.splitlines()
    assert headline.startswith(
        "1 jobs (generated: 1 jobs, poisson, 90 s apart) on 4 GPUs, fidelity fair, "
    )
    assert heading.strip() == "fifo"
    told_above = ("policy", "fidelity", "trace", "gpus", "jobs", "wall_s")
    assert [line.split()[0] for line in figures] == [
        name for name in runs.SIMULATE_FIELDS if name not in told_above
    ]


@pytest.mark.slow
def test_simulate_reads_a_public_trace(here: Command, data: Path, tmp_path: Path) -> None:
    trace = tmp_path / "five.trace"
    lines = (data / "jobs120_gpus32.trace").read_text().splitlines(keepends=True)
    trace.write_text("".join(lines[:5]))
    ran = here(
        *("simulate", "--gpus", 32, "--trace", trace, "--policy", "fifo", "--json"),
        *("--profile", data / "tacc_throughputs.json", "--regimes", data / "gns_regimes.csv"),
        *("--warehouse", tmp_path / "w"),
    )
    (row,) = ran.rows
    assert (row["trace"], row["jobs"], row["preemptions"]) == ("five.trace", 5, 0)


@pytest.mark.slow
def test_what_generate_writes_simulate_runs_alike(here: Command, tmp_path: Path) -> None:
    knobs = ("--jobs", 2, "--seed", 5, "--contention-factor", 1.5, "--gpus", 8)
    ran = here("generate", tmp_path / "out", *knobs, "--json")
    (row,) = ran.rows
    assert list(row) == [
        "trace",
        "profile",
        "regimes",
        "source",
        "jobs",
        "gpu_hours",
        "last_arrival_s",
    ]
    files = [f"--{name}={row[name]}" for name in ("trace", "profile", "regimes")]
    run = ("simulate", "--policy", "fifo", "--json", "--warehouse", tmp_path / "w")
    (drawn,) = here(*run, *knobs).rows
    (read,) = here(*run, *files, "--gpus", 8).rows
    assert (drawn["trace"], read["trace"]) == (row["source"], "jobs.trace")
    for name in ("jobs", "makespan_s", "mean_jct_s", "worst_ftf", "rounds"):
        assert drawn[name] == read[name]


def test_generate_says_how_to_run_what_it_wrote(here: Command, tmp_path: Path) -> None:
    ran = here("generate", tmp_path / "the jobs", "--jobs", 1)
    assert (ran.code, ran.err) == (0, "")
    headline, command = ran.out.splitlines()
    assert headline.startswith("1 jobs (generated: 1 jobs, poisson, 90 s apart) written.")
    files = [tmp_path / "the jobs" / name for name in ("jobs.trace", "throughputs.json")]
    assert f"--trace '{files[0]}' --profile '{files[1]}' --regimes" in command


def test_generate_converts_a_table(here: Command, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("at,took,n\n0,600,2\n60,900,0\n")
    ran = here(
        *("generate", tmp_path / "out", "--trace", table, "--format", "table"),
        *("--columns", "arrival=at,duration=took,gpus=n", "--skip-unusable", "--json"),
    )
    assert (ran.rows[0]["source"], ran.rows[0]["jobs"]) == ("t.csv, 1 line skipped", 1)


def test_simulate_reads_a_tiresias_list(here: Command, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("job_id,num_gpu,submit_time,model_name,duration\n4,2,0,vgg,60\n")
    ran = here(
        *("simulate", "--gpus", 4, "--format", "tiresias", "--trace", jobs, "--json"),
        *("--policy", "fifo", "--warehouse", tmp_path / "w"),
    )
    assert (ran.rows[0]["trace"], ran.rows[0]["makespan_s"]) == ("jobs.csv", 60.0)


@pytest.mark.process
def test_the_plain_driver_does_not_import_prefect(tmp_path: Path) -> None:
    script = """
import sys
from typer.testing import CliRunner
from flows.cli.app import application
assert not {"torch", "duckdb", "pandas", "gurobipy"} & set(sys.modules)
done = CliRunner().invoke(application(), sys.argv[1:])
assert done.exit_code == 0, done.output
assert "warehouse.store.reader" in sys.modules
assert "prefect" not in sys.modules
"""
    arguments = ["simulate", "--gpus", "4", "--jobs", "1", "--warehouse", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_solve(program: Command, data: Path, tmp_path: Path) -> None:
    file = tmp_path / "five.jsonl"
    lines = (data / "windows_jobs120.jsonl").read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:5]))
    ran = program("solve", file, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert [row["seq"] for row in ran.rows] == [0, 1, 2, 3, 4]
    for row, line in zip(ran.rows, lines, strict=False):
        assert list(row) == SOLVE_FIELDS
        assert row["jobs"] == len(json.loads(line)["jobs"])
        assert row["feasible"] is True
        assert row["bound"] >= row["objective"]
        assert 0 <= row["gap"] < 1e-3


def test_solve_prints_one_table_without_json(here: Command, tmp_path: Path) -> None:
    file = tmp_path / "windows.jsonl"
    file.write_text(json.dumps(window()) + "\n\n" + json.dumps(window(seq=8)) + "\n")
    ran = here("solve", file, "--backend", "highs")
    head, *rows = ran.out.splitlines()
    assert head.split() == SOLVE_FIELDS
    assert [row.split()[0] for row in rows] == ["7", "8"]


def test_version(here: Command) -> None:
    assert here("--version") == Ran(0, f"{version('shockwave')}\n", "")


def test_policies_fit_a_terminal(here: Command) -> None:
    ran = here("policies")
    lines = ran.out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == list(POLICIES)
    assert "    parameters: aware=1 filter=0 lease_seconds=0" in lines
    assert max(map(len, lines)) < USUAL_WIDTH


def test_runs_that_do_not_fit_side_by_side_go_below(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"policy": f"policy{n}", "run": f"{n}" * 30, "rounds": n} for n in range(5)]
    print_side_by_side(rows, heading="policy")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= USUAL_WIDTH
    assert [line.split() for line in lines] == [
        ["policy0", "policy1"],
        ["run", "0" * 30, "1" * 30],
        ["rounds", "0", "1"],
        ["policy2", "policy3"],
        ["run", "2" * 30, "3" * 30],
        ["rounds", "2", "3"],
        ["policy4"],
        ["run", "4" * 30],
        ["rounds", "4"],
    ]


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


def test_sql_asks_recipes_by_name(here: Command, finished: Finished) -> None:
    asked = ("--warehouse", finished.warehouse, "--json")
    query = "SELECT job_id, kind FROM events WHERE job_id = 1 ORDER BY at_seconds"
    expected = here("sql", query, *asked).rows
    rows = here("sql", "--recipe", "life-of-a-job", "--run", finished.run, "--job", 1, *asked).rows
    assert [{"job_id": row["job_id"], "kind": row["kind"]} for row in rows] == expected != []
    assert here("sql", "--recipe", "gpu-time", *asked).rows[0]["run"] == finished.run
    assert_refused(
        here("sql", "--recipe", "nonsense", *asked), "no 'nonsense'; known are worst-jobs"
    )
    assert_refused(
        here("sql", "--recipe", "worst-job", *asked), "no 'worst-job'; did you mean worst-jobs? "
    )
    for recipe, job, said in (
        ("why-it-waited", 99, f"job 99: is not in run '{finished.run}'; name one of its jobs"),
        ("worst-jobs", 1, "--job: the recipe worst-jobs is of no single job; leave it out"),
    ):
        assert_refused(here("sql", "--recipe", recipe, "--job", job, *asked), said)


def test_options_before_the_command_are_sent_behind_it(here: Command) -> None:
    ran = here("--warehouse", "w", "runs")
    assert_refused(ran, "options follow the command, as in shockwave COMMAND --warehouse;")


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        ("show nope", "list them with: shockwave runs{given}"),
        ("restore nope", "shockwave runs{given} can list the trash"),
    ],
)
def test_remedies_name_the_warehouse_that_was_given(
    here: Command, finished: Finished, monkeypatch: pytest.MonkeyPatch, command: str, remedy: str
) -> None:
    given = f" --warehouse {finished.warehouse}"
    assert_refused(here(*command.split(), *given.split()), remedy.format(given=given))
    monkeypatch.setenv("SHOCKWAVE_WAREHOUSE", str(finished.warehouse))
    assert_refused(here(*command.split()), remedy.format(given=""))


def test_remedies_know_which_commands_read_a_warehouse() -> None:
    reads = {
        name for name, one in GROUP.commands.items() for p in one.params if p.name == "warehouse"
    }
    assert {*COMMANDS} - reads == WITHOUT_RECORDS
    kept = Path("a b")
    assert with_warehouse("see shockwave audit fifo-0f0f0f-1", kept) == (
        "see shockwave audit fifo-0f0f0f-1 --warehouse 'a b'"
    )
    for same in (
        "see shockwave policies",
        "shockwave resume x-1 --warehouse w",
        "shockwave is off",
    ):
        assert with_warehouse(same, kept) == same


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
    ran = here("replay", finished.run, "--warehouse", finished.warehouse, "--json")
    assert (ran.code, ran.err) == (0, "")
    rounds = len(Reader(finished.warehouse).records(finished.run))
    assert ran.rows == [
        {"run": finished.run, "rounds": rounds, "different": 0, "complete": True, "remarks": []}
    ]


def test_replay_of_one_round(here: Command, finished: Finished) -> None:
    ran = here("replay", finished.run, "--round", 3, "--warehouse", finished.warehouse)
    assert ran == Ran(0, f"{finished.run}: 1 round replayed, all identical byte for byte\n", "")


def test_replay_of_a_tampered_run(here: Command, finished: Finished, tmp_path: Path) -> None:
    shutil.copytree(finished.warehouse, tmp_path, dirs_exist_ok=True)
    path = place_of(tmp_path, finished.run) / "round=all.parquet"
    table = pq.read_table(path, partitioning=None)
    rows = table.to_pylist()
    rows[2]["solve"]["objective"] += 1e-9
    pq.write_table(type(table).from_pylist(rows, table.schema), path)

    ran = here("replay", finished.run, "--warehouse", tmp_path, "--json")
    assert_refused(ran, "round 2: was changed after it was recorded", "see shockwave audit")


def test_replay_of_a_forged_run(here: Command, finished: Finished, tmp_path: Path) -> None:
    reader = Reader(finished.warehouse)
    start = reader.start(finished.run)
    records = [record for record, _ in reader.records(finished.run)]
    solve = records[2].solve
    records[2] = replace(records[2], solve=replace(solve, objective=solve.objective + 1e-9))
    run = write(tmp_path, start, chained(start, records))  # with hashes to match

    ran = here("replay", run, "--warehouse", tmp_path, "--json")
    assert (ran.code, ran.err) == (1, "")
    *differences, last = ran.rows
    assert [(row["round"], row["field"]) for row in differences] == [(2, "solve")]
    assert (last["run"], last["different"]) == (run, 1)

    ran = here("replay", run, "--warehouse", tmp_path)
    assert ran.code == 1
    assert ran.out.splitlines()[0] == "round 2: solve differs"


def test_resume_of_a_finished_run_changes_nothing(here: Command, finished: Finished) -> None:
    before = tree(finished.warehouse)
    ran = here("resume", finished.run, "--warehouse", finished.warehouse, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert [row | {"wall_s": 0} for row in ran.rows] == [
        row | {"wall_s": 0} for row in finished.ran.rows
    ]
    assert tree(finished.warehouse) == before


def test_the_overview_has_every_command_in_its_own_words(here: Command) -> None:
    assert sorted(GROUP.commands) == sorted(COMMANDS)
    for name, (_, summary) in COMMANDS.items():
        assert GROUP.commands[name].help.splitlines()[0] == summary
    asked = here("--help")
    assert (asked.code, asked.err) == (0, "")
    told = " ".join(asked.out.split())
    assert all(f" {name} {summary}" in told for name, (_, summary) in COMMANDS.items())
    assert here() == replace(asked, code=2)
    assert here("--help", "simulate") == asked


def test_a_command_that_is_none_is_refused_with_those_like_it(here: Command) -> None:
    ran = here("simlate")
    assert_refused(ran, "Did you mean 'simulate'?")
    assert_refused(here("--bogus"), "No such option: --bogus")


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "spared"),
    [
        ("--help", {"typer", "rich", "numpy", "duckdb"}),
        (
            "sql --warehouse {warehouse} FROM\\ run_summary",
            {"numpy", "pyarrow", "scipy", "torch", "prefect"},
        ),
        ("why 0 --warehouse {warehouse}", {"scipy.optimize", "pandas", "prefect"}),
    ],
)
def test_commands_import_what_they_need(
    finished: Finished, arguments: str, spared: set[str]
) -> None:
    script = """
import sys
from flows.cli.main import main
try:
    main()
finally:
    print(*sys.modules)
"""
    given = shlex.split(arguments.format(warehouse=finished.warehouse))
    done = subprocess.run([sys.executable, "-c", script, *given], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not spared & set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("command", COMMANDS)
def test_help(here: Command, command: str) -> None:
    ran = here(command, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert f"shockwave {command}" in ran.out


# How commands refuse


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--gpus 0", ["--gpus", "0 is not positive"]),
        ("--gpus -4", ["--gpus", "-4 is not positive"]),
        ("--gpus 99999999999", ["--gpus", "99999999999 is out of range", "at most 1000000"]),
        ("--gpus 1 --jobs 20", ["needs 2 GPUs", "the cluster has 1"]),
        ("--window 0", ["--window", "0 is out of range"]),
        ("--round-seconds -120", ["--round-seconds", "-120.0 is out of range"]),
        ("--round-seconds nan", ["--round-seconds", "nan is out of range"]),
        ("--round-seconds inf", ["--round-seconds", "inf is out of range"]),
        ("--restart-seconds -1", ["--restart-seconds", "-1.0 is out of range"]),
        ("--restart-seconds nan", ["--restart-seconds", "nan is out of range"]),
        ("--jobs 0", ["--jobs", "0 is out of range", "at least 1"]),
        ("--jobs -3", ["--jobs", "-3 is out of range"]),
        ("--jobs 99999999999", ["--jobs", "99999999999 is out of range", "at most 1000000"]),
        ("--window 1001", ["--window", "1001 is out of range", "at most 1000"]),
        ("--seed -1", ["--seed", "-1 is out of range", "at least 0"]),
        ("--seed 9223372036854775808", ["--seed", "out of range", "at most 9223372036854775807"]),
        ("--seed 99999999999999999999", ["--seed", "99999999999999999999 is out of range"]),
        ("--policy shokwave", ["--policy", "did you mean shockwave? known are"]),
        ("--backend higs", ["--backend", "did you mean highs? known are"]),
        ("--set latenes=1", ["--set latenes", "did you mean lateness? known are"]),
        ("--policy lottery", ["--policy", "'lottery'", "known are shockwave, "]),
        ("--backend abacus", ["--backend", "'abacus'", "auto, lagrangian, gurobi, highs"]),
        ("--backend abacus --policy fifo", ["--backend", "'abacus'"]),
        ("--trace some.trace", ["--profile", "missing", "format"]),
        ("--profile some.json", ["--profile", "belongs to a trace"]),
        ("--regimes some.csv", ["--regimes", "belongs to a trace"]),
        ("--trace no.trace --profile no.json", ["no.json", "No such file"]),
    ],
)
def test_simulate_refuses_options(
    here: Command, tmp_path: Path, options: str, said: list[str]
) -> None:
    given = ["--gpus", "4", *options.split()]
    if "--trace" not in given:
        given = ["--jobs", "1", *given]
    assert_refused(here("simulate", *given, "--warehouse", tmp_path / "w", "--json"), *said)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--jobs 0", ["--jobs", "0 is out of range", "at least 1"]),
        ("--seed 9223372036854775808", ["--seed", "out of range"]),
        ("--contention-factor 2", ["--gpus", "missing"]),
        ("--contention-factor 0 --gpus 4", ["--contention-factor", "give more than 0"]),
        ("--longest-seconds 5", ["--longest-seconds", "5 is out of range"]),
        ("--format philly", ["--format", "belongs to a trace"]),
        ("--format table --trace {folder}/no.csv", ["--columns", "no column for the arrival"]),
        ("--format philly --trace {folder}/no.csv", ["no.csv", "No such file"]),
    ],
)
def test_generate_refuses_options(
    here: Command, tmp_path: Path, options: str, said: list[str]
) -> None:
    given = options.format(folder=tmp_path).split()
    assert_refused(here("generate", tmp_path / "out", *given), *said)
    assert tree(tmp_path) == {}


def test_generate_replaces_nothing_unasked(here: Command, tmp_path: Path) -> None:
    assert here("generate", tmp_path, "--jobs", 1).code == 0
    before = tree(tmp_path)
    assert_refused(here("generate", tmp_path, "--jobs", 2), "jobs.trace", "is there already")
    assert tree(tmp_path) == before
    assert here("generate", tmp_path, "--jobs", 2, "--overwrite").code == 0
    assert tree(tmp_path) != before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--policies fifo,lottery", ["'lottery'", "known are shockwave, "]),
        ("--policies fifo,,srtf", ["unknown policy ''"]),
        ("--gpus 0", ["--gpus", "0 is not positive"]),
        ("--jobs 0", ["--jobs", "0 is out of range", "at least 1"]),
        ("--gpus 99999999999", ["--gpus", "99999999999 is out of range"]),
        ("--set weight=1", ["--set", "weight: is a parameter of none of shockwave, fifo, srtf"]),
        ("--set lateness=-1", ["lateness"]),
        ("--seed 9223372036854775808", ["--seed", "out of range"]),
        ("--history no-such-run", ["'no-such-run'", "not in the warehouse"]),
    ],
)
def test_compare_refuses_options_before_prefect_starts(
    here: Command, tmp_path: Path, options: str, said: list[str]
) -> None:
    given = ["--jobs", "1", *options.split()]
    assert_refused(here("compare", *given, "--warehouse", tmp_path / "w", "--json"), *said)
    assert tree(tmp_path) == {}


JOB = {
    "job_type": "LM (batch size 5)",
    "command": "command",
    "working_directory": ".",
    "steps_argument": "-n",
    "needs_data": "0",
    "total_steps": "20000",
    "scale_factor": "1",
    "mode": "static",
    "priority_weight": "1",
    "slo": "-1",
    "duration": "1000",
    "arrival": "0",
}


def changed(**fields: str) -> str:
    return "\t".join((JOB | fields).values())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (changed().replace("\t", ","), ["1 columns instead of 12", "format of a CSV table"]),
        (changed().rsplit("\t", 1)[0], ["11 columns instead of 12", "arrival"]),
        (changed(job_type="GPT (batch size 5)"), ["job_type", "unknown model 'GPT'", "LM"]),
        (changed(job_type="LM"), ["job_type", "'LM'"]),
        (changed(job_type="LM (batch size 7)"), ["batch size 7"]),
        (changed(scale_factor="8"), ["needs 8 GPUs", "the cluster has 4"]),
        (changed(scale_factor="0"), ["scale_factor", "0 is not positive"]),
        (changed(scale_factor="two"), ["scale_factor", "'two' is not a whole number"]),
        (changed(arrival="-1"), ["arrival", "-1"]),
        (changed(arrival="nan"), ["arrival", "nan"]),
        (changed(total_steps="0"), ["total_steps", "0 is not positive"]),
        (changed(total_steps="9" * 15), ["total_steps", "epochs are beyond all bounds"]),
        (changed(total_steps="9" * 20), ["total_steps", "beyond all bounds"]),
        (changed(mode="magic"), ["mode", "'magic'", "static, accordion, gns"]),
        (changed(priority_weight="0"), ["priority_weight", "not positive"]),
    ],
)
def test_simulate_refuses_a_trace_line(
    here: Command, tmp_path: Path, line: str, said: list[str]
) -> None:
    trace, profile = tmp_path / "bad.trace", tmp_path / "throughputs.json"
    trace.write_text(changed() + "\n" + line + "\n")
    rates = {f"('LM (batch size 5)', {gpus})": {"null": 10.5} for gpus in (1, 8)}
    profile.write_text(json.dumps({"v100": rates}))
    before = tree(tmp_path)
    ran = here(
        *("simulate", "--gpus", 4, "--trace", trace, "--profile", profile),
        *("--warehouse", tmp_path / "w", "--json"),
    )
    assert_refused(ran, "bad.trace", *said)
    assert tree(tmp_path) == before


def window(**fields: Any) -> dict[str, Any]:
    """A window problem of two jobs, with some fields replaced, or removed by `...`."""
    line = {
        "seq": 7,
        "ngpus": 4,
        "round_index": 3,
        "future_nrounds": 5,
        "round_duration": 120,
        "k": 0.001,
        "lam": 12.0,
        "rhomax": 1.0,
        "logapx_bases": [0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
        "log_zero": 1e-06,
        "jobs": [job(jobid=0), job(jobid=1)],
    }
    return {name: value for name, value in (line | fields).items() if value is not ...}


def job(**fields: Any) -> dict[str, Any]:
    line = {
        "jobid": 0,
        "nworkers": 3,
        "epochs": 20,
        "epoch_progress": 2,
        "epoch_dur": 63.0,
        "remaining": 1134.0,
        "finish_time_objective": 1200.0,
    }
    return {name: value for name, value in (line | fields).items() if value is not ...}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", ["not JSON"]),
        ("9" * 5000, ["not JSON"]),
        ("[]", ["not a JSON object"]),
        (window(seq=...), ["missing field 'seq'"]),
        (window(jobs=...), ["missing field 'jobs'"]),
        (window(jobs=[]), ["jobs", "at least one job"]),
        (window(jobs=[3]), ["jobs[0]", "not a JSON object"]),
        (window(jobs=[job(), job(remaining=...)]), ["jobs[1]", "missing field 'remaining'"]),
        (window(ngpus=0), ["ngpus", "0 is not"]),
        (window(ngpus=2.5), ["ngpus", "2.5 is not whole"]),
        (window(ngpus="4"), ["ngpus", "'4' is not a number"]),
        (window(ngpus=True), ["ngpus", "True is not a number"]),
        (window(round_duration=0), ["round_duration", "0 is not"]),
        (window(future_nrounds=0), ["future_nrounds", "0 is not"]),
        (window(future_nrounds=10**9), ["future_nrounds", "1000000000 is not"]),
        (window(k=float("nan")), ["k", "nan is not"]),
        (window(lam=float("inf")), ["lam", "inf is not"]),
        (window(rhomax=-1), ["rhomax", "-1 is not"]),
        (window(log_zero=1e-5), ["log_zero", "1e-05 is not 1e-06"]),
        (window(reference={"objective": "good"}), ["reference, objective", "'good' is not"]),
        (window(reference=3), ["reference", "not a JSON object"]),
        (window(jobs=[job(nworkers=-1)]), ["jobs[0], nworkers", "-1 is not", "from 1 to 4"]),
        (window(jobs=[job(nworkers=5)]), ["jobs[0], nworkers", "5 is not", "from 1 to 4"]),
        (window(jobs=[job(epochs=0)]), ["jobs[0], epochs", "0 is not"]),
        (window(jobs=[job(epoch_progress=-1)]), ["jobs[0], epoch_progress", "-1 is not"]),
        (window(jobs=[job(epoch_dur=0)]), ["jobs[0], epoch_dur", "0 is not"]),
        (window(jobs=[job(remaining=float("nan"))]), ["jobs[0], remaining", "nan is not"]),
        (window(jobs=[job(remaining=None)]), ["jobs[0], remaining", "None is not"]),
        (window(jobs=[job(), job()]), ["jobs[1]", "jobid 0 is there twice"]),
        (window(jobs=[job(finish_time_objective=0)]), ["jobs[0], finish_time_objective"]),
        (
            window(jobs=[job(), job(jobid=1, finish_time_objective=1e-8)]),
            ["jobs[1]", "weight 1.24e+134 is too large"],
        ),
    ],
)
def test_solve_refuses_a_line_and_keeps_those_before(
    here: Command, tmp_path: Path, line: object, said: list[str]
) -> None:
    file = tmp_path / "windows.jsonl"
    text = line if isinstance(line, str) else json.dumps(line)
    file.write_text(json.dumps(window()) + "\n" + text + "\n")
    ran = here("solve", file, "--json")
    assert [row["seq"] for row in ran.rows] == [7]
    assert_refused(ran, "windows.jsonl:2", *said, output=ran.out)


def test_solve_refuses_a_back_end(here: Command, tmp_path: Path) -> None:
    file = tmp_path / "windows.jsonl"
    file.write_text(json.dumps(window()))
    assert_refused(
        here("solve", file, "--backend", "abacus"), "--backend", "auto, lagrangian, gurobi, highs"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("solve {folder}/no.jsonl", ["no.jsonl", "No such file"]),
        ("solve {folder}", ["Is a directory"]),
        ("solve {folder}/file", ["file: holds no window problems"]),
        ("replay nothing-1 --warehouse {w}", ["run 'nothing-1'", "list them with: shockwave runs"]),
        ("replay ../x --warehouse {w}", ["run '../x'"]),
        ("replay _ --warehouse {w}", ["run '_'"]),
        ("replay {run} --round 999 --warehouse {w}", ["--round", "no round 999"]),
        ("replay {run} --round -1 --warehouse {w}", ["--round", "no round -1"]),
        ("replay {run} --warehouse {folder}/no", ["not in the warehouse"]),
        ("resume nothing-1 --warehouse {w}", ["run 'nothing-1'", "list them with: shockwave runs"]),
        ("resume {run} --warehouse {folder}/no", ["not in the warehouse"]),
        ("sql SELEC --warehouse {w}", ["query", "Parser Error"]),
        ("sql SELECT --warehouse {w}", ["query", "Parser Error"]),
        ("sql SELECT+nope+FROM+runs --warehouse {w}", ["query", '"nope"']),
        ("sql FROM+nope --warehouse {w}", ["query", "nope", "run_summary"]),
        ("sql SELECT+'x'::INT --warehouse {w}", ["query", "'x'"]),
        ("sql CREATE+TABLE+x(a+INT) --warehouse {w}", ["query"]),
        ("sql COPY+(SELECT+1)+TO+'{folder}/x.csv' --warehouse {w}", ["query"]),
        ("sql COPY+(SELECT+1)+TO+'{w}/records/x.parquet' --warehouse {w}", ["query"]),
        ("views --warehouse {folder}", ["is not a warehouse"]),
        ("views --warehouse {folder}/no", ["is not a warehouse"]),
        ("sql FROM+runs --warehouse {folder}/no", ["no", "is not a warehouse"]),
        ("simulate --gpus 4 --jobs 1 --warehouse {folder}/file/w", ["file", "cannot be written"]),
        ("sql FROM+runs --warehouse {folder}/file/w", ["is not a warehouse"]),
        ("replay {run} --warehouse {folder}/file/w", ["not in the warehouse"]),
        ("resume {run} --warehouse {folder}/file/w", ["not in the warehouse"]),
    ],
)
def test_what_is_not_there_is_named(
    here: Command, finished: Finished, tmp_path: Path, arguments: str, said: list[str]
) -> None:
    (tmp_path / "file").write_text("")
    before = tree(tmp_path), tree(finished.warehouse)
    given = arguments.format(folder=tmp_path, w=finished.warehouse, run=finished.run).split()
    assert_refused(here(*(part.replace("+", " ") for part in given)), *said)
    assert (tree(tmp_path), tree(finished.warehouse)) == before


def test_what_a_file_holds_does_not_steer_the_terminal(here: Command, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text('at,"to\x1b[31mok\nn"\n')
    ran = here("simulate", "--gpus", 4, "--trace", table, "--format", "philly")
    assert_refused(ran, "the header has at, to\\x1b[31mok")


@pytest.mark.parametrize("file", ["header.parquet", "round=all.parquet"])
@pytest.mark.parametrize("command", ["replay {run}", "resume {run}", "sql FROM+run_summary"])
def test_a_truncated_file_is_named(
    here: Command, finished: Finished, tmp_path: Path, file: str, command: str
) -> None:
    shutil.copytree(finished.warehouse, tmp_path, dirs_exist_ok=True)
    damaged = place_of(tmp_path, finished.run) / file
    damaged.write_bytes(damaged.read_bytes()[:300])
    before = tree(tmp_path / "records")
    given = (part.replace("+", " ") for part in command.format(run=finished.run).split())
    assert_refused(here(*given, "--warehouse", tmp_path, "--json"), str(damaged))
    assert tree(tmp_path / "records") == before


def test_the_program_refuses_as_its_entry_point_does(program: Command, tmp_path: Path) -> None:
    arguments = ("simulate", "--gpus", 8, "--policy", "lottery", "--warehouse", tmp_path / "w")
    assert_refused(program(*arguments), "--policy")
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "--gpus=x"],
        ["sql"],
        ["dance"],
        ["sql", "--no"],
        ["sql", "FROM runs", "--recipe", "worst-jobs"],
        ["sql", "FROM runs", "--job", "1"],
    ],
)
def test_wrong_usage_is_refused_and_names_the_help(here: Command, arguments: list[str]) -> None:
    assert_refused(here(*arguments), "shockwave", "see shockwave", "--help")


@pytest.mark.slow
def test_forecasts_go_by_earlier_runs_if_asked_to(here: Command, tmp_path: Path) -> None:
    asked = ("simulate", "--gpus", 8, "--jobs", 4, "--warehouse", tmp_path, "--json")
    (first,) = here(*asked, "--seed", 1).rows
    (alone,) = here(*asked, "--seed", 2).rows
    (after,) = here(*asked, "--seed", 2, "--history", first["run"]).rows
    assert after["run"] != alone["run"]
    total = "SELECT run, sum(high_seconds - low_seconds) AS s FROM forecasts GROUP BY 1"
    expected = {row["run"]: row["s"] for row in here("sql", total, *asked[-3:]).rows}
    assert expected[after["run"]] != expected[alone["run"]]
    assert here("replay", after["run"], *asked[-3:-1]).code == 0
    unknown = here(*asked, "--history", "nobody")
    assert unknown.code == 2
    assert "nobody" in unknown.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--history", ""), "'' is not a list RUN,RUN,…; name runs or leave it out"),
        (("--history", "a,"), "'a,' is not a list RUN,RUN,…; name runs or leave it out"),
        (
            ("--history", "a", "--forecasts", "oracle"),
            "has no effect on oracle forecasts; leave it out",
        ),
    ],
)
def test_a_history_that_can_teach_nothing_is_refused(
    here: Command, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    asked = ("simulate", "--gpus", 8, "--jobs", 4, "--warehouse", tmp_path / "w")
    ran = here(*asked, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"error: --history: {said}\n"
    assert not (tmp_path / "w").exists()


def test_forecast_error_takes_gpus_for_a_contention_factor_alone(here: Command) -> None:
    asked = ("forecast-error", "--jobs", 12, "--seed", 1, "--gpus", 8)
    alone = here(*asked, "--json")
    assert (alone.code, alone.out) == (2, "")
    assert alone.err == ("error: --gpus: means nothing without a contention factor; leave it out\n")
    assert len(here(*asked, "--contention-factor", 1.5, "--json").rows) == 12


def test_forecast_error_tells_errors_by_mode_and_progress(here: Command) -> None:
    ran = here("forecast-error", "--jobs", 12, "--seed", 1, "--json")
    assert [(row["mode"], row["progress"]) for row in ran.rows] == [
        (mode, point) for mode in ("accordion", "gns") for point in (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
    ]
    assert all(0.0 <= row["error"] < 2.0 and row["jobs"] <= 6 for row in ran.rows)
    told = here("forecast-error", "--jobs", 12, "--seed", 1).out
    assert told.splitlines()[0].split()[:3] == ["mode", "progress", "error"]
    wrong = here("forecast-error", "--jobs", 0)
    assert (wrong.code, wrong.out) == (2, "")
