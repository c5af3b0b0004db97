"""An analyst queries in a process of its own while runs are written and compacted."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flows.runs.simulation import simulate
from tasks.run import Run
from tests.runs import make, tiny
from warehouse.analytics.catalog import build
from warehouse.analytics.marts import materialise
from warehouse.store.folder import place_of
from warehouse.store.reader import Reader

ANALYST = """
import json, select, sys, time, duckdb

QUERIES = (
    "SELECT run, count(*), max(round) FROM rounds GROUP BY run",
    "SELECT count(*), sum(scale_factor) FROM placements",
    "SELECT run, job_id, rho FROM job_outcomes ORDER BY rho DESC NULLS LAST LIMIT 5",
)
counts = {"asked": 0, "asked_again": 0, "seen": []}
with duckdb.connect(sys.argv[1], read_only=True) as connection:
    connection.execute("SET enable_progress_bar = false")  # which is on stdout after two seconds
    while not select.select([sys.stdin], [], [], 0)[0]:
        for query in QUERIES:
            for attempt in range(5):
                try:
                    rows = connection.execute(query).fetchall()
                    break
                except duckdb.IOException as error:  # a run was put into one file just now
                    assert "round=" in str(error), error
                    counts["asked_again"] += 1
                    time.sleep(0.2)
            else:
                raise SystemExit(f"no answer to {query}")
            if query is QUERIES[0]:
                counts["seen"].append({run: rounds for run, rounds, _ in rows})
                assert all(rounds == last + 1 for _, rounds, last in rows), rows
            counts["asked"] += 1
        print("asked", flush=True)
print(json.dumps(counts), flush=True)
"""


@contextmanager
def analyst(warehouse: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that queries until its standard input ends."""
    command = [sys.executable, "-c", ANALYST, str(warehouse / "analytics.duckdb")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("policy", ["srtf", "shockwave"])
@pytest.mark.process
def test_who_asks_while_rounds_are_written_disturbs_nothing_and_is_answered(
    tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.runs.simulation.DELAY_SECONDS", 0.0)
    start = tiny(policy, jobs=4)
    undisturbed = make(start).rounds
    build(tmp_path)
    with analyst(tmp_path) as process:
        assert process.stdout is not None

        def asked() -> None:
            assert process.stdout is not None
            assert process.stdout.readline() == "asked\n"

        def listener(run: Run) -> None:
            if run.state.round in (3, 6):  # both are going on, whatever the machine is doing
                asked()
                asked()

        asked()
        run = simulate(start, tmp_path, progress=listener)
        asked()
        materialise(tmp_path)
        again = simulate(start, tmp_path, progress=listener)
        asked()
        rest, _ = process.communicate("")
        assert process.returncode == 0
    answers = json.loads(rest.splitlines()[-1])
    assert answers["asked"] >= 3 * 10
    growing = {seen[run] for seen in answers["seen"] if run in seen}
    assert {number for number in growing if 3 <= number < len(undisturbed)}
    for name in (run, again):
        digests = [digest for _, digest in Reader(tmp_path).records(name)]
        assert digests == [digest for _, digest, _ in undisturbed]
        folder = place_of(tmp_path, name)
        assert [path.name for path in folder.glob("round=*")] == ["round=all.parquet"]
