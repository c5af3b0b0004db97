"""`solve`: recorded windows with any back end; an invalid line stops no other."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.flows.conftest import Command, assert_refused

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
