"""No command, in a terminal of a new user, looks up or reaches another machine."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flows.cli.commands import COMMANDS
from flows.prefect_server.access import Access
from flows.runs.simulation import simulate
from flows.runs.start import make_start
from flows.runs.workload_source import Source
from harness.up import PROGRAM
from harness.waiting import HANG_SECONDS
from tasks.record import Settings, make_pool
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
    "compare": [
        (f"compare {SMALL} --policies fifo", 0),
        (f"compare {SMALL} --policies fifo --driver prefect", 0),
    ],
    "workload generate": [("workload generate {folder}/generated --jobs 2", 0)],
    "workload show": [("workload show --format sacct --trace {folder}/cluster.toml", 2)],
    "workload fetch": [("workload fetch pai", 0)],
    "cluster run": [("cluster run --cluster {folder}/cluster.toml --jobs 1 --round-seconds 2", 2)],
    "cluster profile": [
        (
            "cluster profile --cluster {folder}/cluster.toml --models LM --batch-sizes 5 "
            "--out {folder}/profile.json",
            2,
        )
    ],
    "resume": [("resume {unfinished}", 0)],
    "run replay": [("run replay {run}", 0)],
    "run audit": [("run audit {run}", 0), ("run audit --all", 0)],
    "why": [("why 0 --run {run}", 0)],
    "run whatif": [("run whatif {run} --round 1 --policy srtf", 0)],
    "report": [("report {run} --out {folder}/page.html", 0)],
    "run list": [("run list", 0)],
    "run show": [("run show {run}", 0)],
    "run diff": [("run diff {run} {run}", 0)],
    "campaign show": [("campaign show", 0)],
    "run name": [("run name {run} first", 0)],
    "run rm": [("run rm {run} --yes", 0)],
    "run export": [("run export {run} {folder}/run.tar", 0)],
    "run import": [("run import {folder}/cluster.toml", 2)],
    "policy list": [("policy list", 0)],
    "sql": [("sql FROM_runs", 0)],
    "views": [("views", 0)],
    "cluster pull": [("cluster pull {folder}/cluster.toml", 1)],
    "cluster check": [("cluster check {folder}/cluster.toml", 1)],
    "slurm advise": [("slurm advise --partition gpu --policy srtf", 2)],
    "slurm check": [("slurm check --partition gpu", 1)],
    "slurm release-all": [("slurm release-all --partition gpu", 2)],
    "submit": [("submit --model conv-small --batch-size 32 --epochs 2", 2)],
    "queue": [("queue", 2)],
    "deployments list": [("deployments list", 0)],
    "tenant list": [("tenant list", 2)],
    "token add": [("token add ann", 0)],
    "logout": [("logout", 0)],
}
ORDERS = {
    *("job cancel", "job hold", "job release", "job requeue", "job budget"),
    *("node drain", "node cordon", "node uncordon", "node image", "node add", "node remove"),
    *("node maintain", "node reserve", "node reopen"),
    "tenant set",
}
"""Commands that differ in a word only, and from `submit` in their entries."""
LABELS = {"run tag", "run note", "token list", "token rm"}
"""Commands that read or write a line, as `run name` and `token add` do."""
SHOWN = {
    *("job list", "job wait", "job logs", "node list", "node windows", "status", "down"),
    *("service events", "service forecast", "shell", "whoami"),
}
"""Commands that read what `queue` reads."""
SCHEDULES = {f"deployments {verb}" for verb in ("schedule", "pause", "resume", "unschedule")}
"""Commands that talk to the server that `deployments list` reads."""

"""Each command line and its exit code: those of containers find no daemon.

Recorded elsewhere are `up`, whenever a test starts it (tests/ui/service.py), and `campaign run`
on a server of its own (test_campaign_server.py) and on Dask and Ray (test_campaign.py).
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
    # A token, which this terminal does not give, and a log, as tests of hindsight have.
    asks = {"login", "hindsight"}
    assert {*RUNS, *ORDERS, *LABELS, *SHOWN, *SCHEDULES, *asks, "campaign run", "up"} == set(
        COMMANDS
    )


IN_TURN = """
import json, os, sys
from flows.cli import main as cli
from flows.prefect_server.teardown import end_process
cli.end_process = lambda code: None
codes = []
for words, warehouse in json.loads(sys.argv[1]):
    os.environ["SHOCKWAVE_WAREHOUSE"] = warehouse
    sys.argv = ["shockwave", *words]
    try:
        cli.main()
    except SystemExit as end:
        codes.append(end.code or 0)
    print(f"\\n{MARK}", flush=True)
open("codes", "w").write(json.dumps(codes))
end_process([0])
"""
"""Runs commands one after another: to start a process for each takes longer than they do."""

MARK = "~~~~"
"""Marks the end of each command's output."""


@pytest.fixture(scope="module")
def ran(
    server: Access, finished: Finished, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[tuple[int, str]]]:
    """All commands in one terminal: the exit code and output of each line."""
    folder = tmp_path_factory.mktemp("lookups")
    lines = list[tuple[list[str], str]]()
    for command, asked in RUNS.items():
        own = folder / command.replace(" ", "-")  # no path in a URL may have a space
        warehouse = own / "w"
        shutil.copytree(finished.warehouse, warehouse)
        start = make_start(
            Source(jobs=2).open(), Settings("fifo", make_pool(4), round_seconds=1800)
        )
        unfinished = simulate(start, warehouse, rounds=1) if command == "resume" else ""
        (own / "cluster.toml").write_text(CLUSTER.format(folder=own))
        for line, _ in asked:
            words = [
                word.format(folder=own, run=finished.run, unfinished=unfinished).replace(
                    "FROM_runs", "SELECT run FROM runs"
                )
                for word in line.split()
            ]
            lines.append((words, str(warehouse)))
    env = newcomer(folder / "home", folder / "looked-up") | server.client_env() | {"PAGER": "cat"}
    script = IN_TURN.replace("{MARK}", MARK)
    program = [sys.executable, "-c", script, json.dumps(lines)]
    code, shown = in_terminal(program, folder, env, 4 * HANG_SECONDS)
    assert code == 0, shown
    assert "usage data" not in shown
    assert lookups_of(folder / "looked-up")
    assert elsewhere(folder / "looked-up") == []
    assert not (folder / "home" / ".sdk_telemetry" / "notice_shown").exists()
    codes = json.loads((folder / "codes").read_text())
    in_turn = iter(zip(codes, shown.split(MARK)[:-1], strict=True))
    return {command: [next(in_turn) for _ in asked] for command, asked in RUNS.items()}


@pytest.mark.prefect
@pytest.mark.parametrize("command", RUNS)
def test_nothing_leaves(command: str, ran: dict[str, list[tuple[int, str]]]) -> None:
    """None looks up or reaches another machine, which `ran` has made sure of, and all ran."""
    assert [code for code, _ in ran[command]] == [code for _, code in RUNS[command]], ran[command]


@pytest.mark.prefect
def test_the_installed_program_leaves_nothing_as_it_starts_and_ends(
    server: Access, finished: Finished, tmp_path: Path
) -> None:
    """As `ran` imports it once, and ends but once."""
    env = newcomer(tmp_path / "home", tmp_path / "looked-up") | server.client_env()
    env |= {"SHOCKWAVE_WAREHOUSE": str(finished.warehouse), "PAGER": "cat"}
    code, shown = in_terminal([PROGRAM, "run", "list"], tmp_path, env)
    assert code == 0, shown
    assert finished.run in shown
    assert "usage data" not in shown
    assert elsewhere(tmp_path / "looked-up") == []
    assert not (tmp_path / "home" / ".sdk_telemetry" / "notice_shown").exists()
