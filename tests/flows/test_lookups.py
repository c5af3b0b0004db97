"""No command, in a terminal of a new user, looks up or reaches another machine."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flows.cli.commands import COMMANDS
from flows.runs.simulation import simulate
from flows.runs.start import make_start
from flows.runs.workload_source import Source
from flows.servers.access import Access
from harness.up import PROGRAM
from tasks.record import Settings, one_pool
from tests.flows.conftest import Finished
from tests.newcomer import RECORDER, elsewhere, in_terminal, is_this_machine, lookups_of, newcomer

CLUSTER = """
storage = "{folder}"
user = "1000:1000"
[[nodes]]
name = "absent"
endpoint = "unix://{folder}/no.sock"
gpu_type = "v100"
image = "none"
gpus = [0]
"""
SMALL = "--gpus 4 --jobs 1 --round-seconds 1800"
RUNS = {
    "simulate": [(f"simulate {SMALL}", 0), (f"simulate {SMALL} --driver prefect", 0)],
    "compare": [(f"compare {SMALL} --policies fifo", 0)],
    "generate": [("generate {folder}/generated --jobs 2", 0)],
    "run": [("run --cluster {folder}/cluster.toml --jobs 1 --round-seconds 2", 2)],
    "profile": [
        (
            "profile --cluster {folder}/cluster.toml --models LM --batch-sizes 5 "
            "--out {folder}/profile.json",
            2,
        )
    ],
    "resume": [("resume {unfinished}", 0)],
    "replay": [("replay {run}", 0)],
    "audit": [("audit {run}", 0), ("audit --all", 0)],
    "why": [("why 0 --run {run}", 0)],
    "whatif": [("whatif {run} --round 1 --policy srtf", 0)],
    "report": [("report {run} --out {folder}/page.html", 0)],
    "runs": [("runs", 0)],
    "show": [("show {run}", 0)],
    "diff": [("diff {run} {run}", 0)],
    "name": [("name {run} first", 0)],
    "rm": [("rm {run}", 0)],
    "export": [("export {run} {folder}/run.tar", 0)],
    "import": [("import {folder}/cluster.toml", 2)],
    "policies": [("policies", 0)],
    "conformance": [("conformance {folder}", 2)],
    "forecast-error": [("forecast-error --jobs 2", 0)],
    "solve": [("solve {folder}/cluster.toml", 2)],
    "sql": [("sql FROM_runs", 0)],
    "views": [("views", 0)],
    "cluster": [("cluster check {folder}/cluster.toml", 1)],
    "submit": [("submit --model conv-small --batch-size 32 --epochs 2", 2)],
    "queue": [("queue", 2)],
    "tenant": [("tenant list", 2)],
    "token": [("token add ann", 0)],
    "logout": [("logout", 0)],
}
ORDERS = {
    *("cancel", "hold", "release", "requeue", "budget"),
    *("drain", "cordon", "uncordon", "add", "remove"),
}
"""Commands that differ from each other in a word, and from `submit` in what they hand in."""
LABELS = {"tag", "note", "restore"}
"""Commands that write a line beside a run, as `name` does, or move it, as `rm` does."""
SHOWN = {"jobs", "nodes", "events", "forecast", "logs", "status", "down", "top"}
"""Commands that read what `queue` reads."""

"""Each command as it is typed, and its exit code: those of containers find no daemon.

Recorded elsewhere are `up`, whenever a test starts it (tests/ui/service.py), and `campaign` with a
server of its own (test_campaign_server.py) and on Dask and Ray (test_campaign.py).
"""


@pytest.mark.process
def test_the_recorder_sees_lookups_of_grandchildren(tmp_path: Path) -> None:
    look = (
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))"
    )
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {look!r}])"
    env = os.environ | {"PYTHONPATH": str(RECORDER), "LOOKUPS": str(tmp_path / "lookups")}
    subprocess.run([sys.executable, "-c", start], env=env, check=False)
    assert [(event, whom) for event, whom, _ in lookups_of(tmp_path / "lookups")] == [
        ("socket.connect", "192.0.2.1")
    ]
    assert not is_this_machine("192.0.2.1")


def test_every_command_is_listed() -> None:
    asks = {"login"}  # for a token, which this terminal does not give
    assert {*RUNS, *ORDERS, *LABELS, *SHOWN, *asks, "campaign", "up"} == set(COMMANDS)


@pytest.mark.prefect
@pytest.mark.parametrize("command", RUNS)
def test_nothing_leaves(command: str, server: Access, finished: Finished, tmp_path: Path) -> None:
    shutil.copytree(finished.warehouse, tmp_path / "w")
    start = make_start(Source(jobs=2).open(), Settings("fifo", one_pool(4), round_seconds=1800))
    unfinished = simulate(start, tmp_path / "w", rounds=1) if command == "resume" else ""
    (tmp_path / "cluster.toml").write_text(CLUSTER.format(folder=tmp_path))
    lookups = tmp_path / "lookups"
    env = newcomer(tmp_path / "home", lookups) | server.client_env()
    env |= {"SHOCKWAVE_WAREHOUSE": str(tmp_path / "w"), "PAGER": "cat"}
    for line, expected in RUNS[command]:
        words = [
            word.format(folder=tmp_path, run=finished.run, unfinished=unfinished).replace(
                "FROM_runs", "SELECT run FROM runs"
            )
            for word in line.split()
        ]
        code, shown = in_terminal([PROGRAM, *words], tmp_path, env)
        assert code == expected, shown
        assert "usage data" not in shown
    assert elsewhere(lookups) == []
    assert not (tmp_path / "home" / ".sdk_telemetry" / "notice_shown").exists()
