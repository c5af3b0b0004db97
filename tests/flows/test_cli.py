"""Each command on small input: its output and exit code."""

import shlex
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from flows.cli import simulate
from flows.cli.commands import COMMANDS, EVERYDAY, GROUPS
from flows.cli.output import USUAL_WIDTH, find_best, print_side_by_side
from tests.flows.conftest import Command, Finished, assert_refused, command_named


def test_simulate_reports_the_headline_figures_in_order(finished: Finished) -> None:
    assert finished.ran.err == ""
    (row,) = finished.ran.rows
    assert tuple(row) == simulate.SIMULATE_FIELDS
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
        "1 job (generated: 1 job, poisson, 90 s apart) on 4 GPUs, fidelity fair, "
    )
    assert heading.strip() == "fifo"
    shown_above = ("policy", "fidelity", "trace", "gpus", "jobs", "wall_s")
    assert [line.split()[0] for line in figures] == [
        name for name in simulate.SIMULATE_FIELDS if name not in shown_above
    ]


def test_a_headline_is_one_line_whatever_its_trace_is_called(here: Command, tmp_path: Path) -> None:
    trace = tmp_path / "a\nb.csv"
    trace.write_text("job_id,num_gpu,submit_time,model_name,duration\n4,2,0,vgg,60\n")
    asked = ("--format", "tiresias", "--policy", "fifo", "--warehouse", tmp_path / "w")
    ran = here("simulate", "--gpus", 2, "--trace", trace, *asked)
    assert ran.out.startswith(r"1 job (a\nb.csv) on 2 GPUs, "), ran.err


@pytest.mark.slow
def test_what_generate_writes_simulate_runs_alike(here: Command, tmp_path: Path) -> None:
    knobs = ("--jobs", 2, "--seed", 5, "--contention-factor", 1.5, "--gpus", 8)
    ran = here("workload", "generate", tmp_path / "out", *knobs, "--json")
    (row,) = ran.rows
    files = [f"--{name}={row[name]}" for name in ("trace", "profile", "regimes")]
    run = ("simulate", "--policy", "fifo", "--json", "--warehouse", tmp_path / "w")
    (drawn,) = here(*run, *knobs).rows
    (read,) = here(*run, *files, "--gpus", 8).rows
    assert (drawn["trace"], read["trace"]) == (row["source"], "jobs.trace")
    for name in ("jobs", "makespan_s", "mean_jct_s", "worst_rho", "rounds"):
        assert drawn[name] == read[name]


def test_generate_converts_a_table(here: Command, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("at,took,n\n0,600,2\n60,900,0\n")
    ran = here(
        *("workload", "generate", tmp_path / "out", "--trace", table, "--format", "table"),
        *("--columns", "arrival=at,duration=took,gpus=n", "--skip-unusable", "--json"),
    )
    assert (ran.rows[0]["source"], ran.rows[0]["jobs"]) == ("t.csv, 1 line left out", 1)


SMALL_PLAN = """
name = "small"
policies = ["fifo"]
[[workloads]]
name = "drawn"
jobs = 1
[[clusters]]
name = "four"
gpus = 4
"""


@pytest.mark.process
@pytest.mark.parametrize(
    "command", ["simulate", "compare --policies fifo,srtf", "campaign run {plan} --runner threads"]
)
def test_the_plain_driver_does_not_import_prefect(tmp_path: Path, command: str) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(SMALL_PLAN)
    script = """
import sys
from typer.testing import CliRunner
from flows.cli.app import build_application
assert not {"torch", "duckdb", "pandas", "gurobipy"} & set(sys.modules)
done = CliRunner().invoke(build_application(), sys.argv[1:])
assert done.exit_code == 0, done.output
assert "warehouse.store.reader" in sys.modules
assert "prefect" not in sys.modules
"""
    arguments = [*command.format(plan=plan).split(), "--warehouse", str(tmp_path / "w")]
    if not command.startswith("campaign"):
        arguments += ["--gpus", "4", "--jobs", "1"]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_version(here: Command) -> None:
    assert here("--version").out.startswith(f"shockwave {version('shockwave')}\nTo cite: ")


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


def test_the_overview_has_the_everyday_commands_and_the_groups(here: Command) -> None:
    asked = here("--help")
    overview = " ".join(asked.out.split())
    summaries = {name: summary for name, (_, summary) in EVERYDAY.items()} | GROUPS
    assert all(f" {name} {summary}" in overview for name, summary in summaries.items())
    assert here() == replace(asked, code=2)
    assert here("--help", "simulate") == asked == replace(asked, code=0, err="")


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_lists_its_commands(here: Command, group: str) -> None:
    asked = here(group, "--help")
    assert (asked.code, asked.err) == (0, "")
    words = asked.out.replace("│", " ").split()
    verbs = [name.split()[1] for name in COMMANDS if name.startswith(f"{group} ")]
    assert verbs
    assert {*verbs} <= {*words}
    assert_refused(here(group), f"shockwave {group}", "Missing command")
    assert_refused(here(group, "bogus"), "No such command 'bogus'")


def test_a_verb_without_its_group_is_refused_with_the_commands_of_that_name(here: Command) -> None:
    assert_refused(here("drain", "3"), "No such command 'drain'; try shockwave node drain; see")


def test_summaries_are_those_of_the_commands() -> None:
    for name, (_, summary) in COMMANDS.items():
        assert command_named(name).help.splitlines()[0] == summary


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
    assert here("run", "replay", after["run"], *asked[-3:-1]).code == 0
    assert_refused(here(*asked, "--history", "nobody"), "nobody")


def test_a_comparison_names_the_best_policy_of_each_figure_that_has_one() -> None:
    rows = [
        {"policy": name, "run": f"{name}-1", "mean_jct_s": jct, "utilization": share, "rounds": n}
        for name, jct, share, n in [("a", 9.0, 0.5, 7), ("b", 8.0, 0.7, 6), ("c", 8.0, 0.6, 5)]
    ]
    *_, best = simulate._select_figures(rows, every_figure=True)
    assert best == {
        **{"policy": "best", "run": "", "rounds": ""},
        **{"mean_jct_s": "b, c", "utilization": "b"},
    }
    assert "rounds" not in simulate._select_figures(rows, every_figure=False)[0]
    assert find_best("worst_rho", {"a": 1.2, "b": None, "c": 1.20001}) == []
