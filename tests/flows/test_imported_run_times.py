"""Simulated jobs of every format of logs are as long as their file says, to the second."""

import json
from pathlib import Path

import pytest

from tests.flows.conftest import Command
from tests.warehouse.logs.samples import SAMPLES
from tests.warehouse.logs.test_contract import write
from tests.warehouse.logs.test_public_sets import PHILLY

pytestmark = pytest.mark.slow

TABLE = "submitted,seconds,gpus\n0,1,1\n5,2.5,2\n7,61,8\n"
SACCT_JSON = {
    "jobs": [
        {
            "job_id": number,
            "state": {"current": "COMPLETED"},
            "time": {"submission": 10, "start": 20, "end": 20 + number, "elapsed": number},
            "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 2}]},
        }
        for number in (1, 59, 3601)
    ]
}


def test_run_times_to_the_second(here: Command, tmp_path: Path) -> None:
    files: list[tuple[str, list[str], list[float]]] = []
    for sample in SAMPLES:
        write(tmp_path / sample.format, sample)
        files.append((sample.format, [], [seconds for _, seconds, *_ in sample.jobs]))
    (tmp_path / "philly-json").write_text(json.dumps(PHILLY))
    files.append(("philly-json", [], [3_660, 30]))
    (tmp_path / "table").write_text(TABLE)
    columns = ["--columns", "arrival=submitted,duration=seconds,gpus=gpus"]
    files.append(("table", columns, [1, 2.5, 61]))
    assert len(files) == 9
    for format_, more, expected in files:
        asked = ["--format", format_, "--trace", str(tmp_path / format_), *more]
        check(here, tmp_path / f"{format_}.warehouse", asked, expected)
    path = tmp_path / "sacct.json"
    path.write_text(json.dumps(SACCT_JSON))
    asked = ["--format", "sacct", "--trace", str(path)]
    check(here, tmp_path / "json.warehouse", asked, [1, 59, 3_601])


def check(here: Command, warehouse: Path, asked: list[str], expected: list[float]) -> None:
    kept = ("--warehouse", warehouse)
    done = here("simulate", "--gpus", 128, "--policy", "fifo", *asked, *kept, "--json")
    assert done.code == 0, done.err
    sql = "SELECT job_id, sum(run_seconds) AS ran FROM leases GROUP BY job_id ORDER BY job_id"
    rows = here("sql", sql, *kept, "--json").rows
    for row, seconds in zip(rows, expected, strict=True):
        assert abs(row["ran"] - seconds) < 1.0
