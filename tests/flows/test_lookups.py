"""No command, in a terminal of a new user, looks up or reaches another machine."""

import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from prefect._internal.analytics.ci_detection import CI_ENV_VARS

from flows.cli.commands import COMMANDS
from flows.runs.simulation import simulate
from flows.runs.start import make_start
from flows.runs.workload_source import Source
from tasks.record import Settings, one_pool
from tests.flows.conftest import PROGRAM, Finished
from tests.ui.service import free_port, outside
from tests.waiting import HANG_SECONDS, wait_for

RECORDER = Path(__file__).parent / "recorder"
PLAN = """
name = "quiet"
policies = ["fifo"]
[settings]
round_seconds = 1800
[[workloads]]
name = "drawn"
jobs = 1
[[clusters]]
name = "four"
gpus = 4
"""
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
RUNS: dict[str, Sequence[tuple[str, int]]] = {
    "simulate": [(f"simulate {SMALL}", 0), (f"simulate {SMALL} --driver prefect", 0)],
    "compare": [(f"compare {SMALL} --policies fifo", 0)],
    "campaign": [
        (f"campaign {{folder}}/plan.toml --fresh --workers 1 --runner {runner}", 0)
        for runner in ("processes", "dask", "ray")
    ],
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
    "audit": [("audit {run}", 0)],
    "why": [("why 0 --run {run}", 0)],
    "whatif": [("whatif {run} --round 1 --policy srtf", 0)],
    "report": [("report {run} --out {folder}/page.html", 0)],
    "policies": [("policies", 0)],
    "conformance": [("conformance {folder}", 2)],
    "forecast-error": [("forecast-error --jobs 2", 0)],
    "solve": [("solve {folder}/plan.toml", 2)],
    "sql": [("sql FROM_runs", 0)],
    "views": [("views", 0)],
    "up": [("up --port {port}", 130)],
    "cluster": [("cluster check {folder}/cluster.toml", 1)],
}
"""Each command as it is typed, and its exit code: those of containers find no daemon."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new user's home of Prefect, and a database in it after the first server's start."""
    return tmp_path_factory.mktemp("home")


def in_terminal(
    command: Sequence[object], folder: Path, env: dict[str, str], watch: Callable[[str], int | None]
) -> tuple[int, str]:
    """Run a command in a terminal of its own; exit code and what it showed.

    Args:
        watch: Is asked with what was shown so far for a signal to send.
    """
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        [PROGRAM, *map(str, command)],
        cwd=folder,
        env=env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown: list[str] = []

    def read() -> None:
        with suppress(OSError):  # the other end is closed
            while part := os.read(ours, 4096):
                shown.append(part.decode(errors="replace"))

    reader = Thread(target=read, daemon=True)
    reader.start()

    def ended() -> bool:
        if number := watch("".join(shown)):
            program.send_signal(number)
        return program.poll() is not None

    wait_for(ended, every=0.1)
    reader.join(HANG_SECONDS)
    os.close(ours)
    return program.returncode, "".join(shown)


def is_this_machine(whom: str | None) -> bool:
    """Whether a name or address is looked up nowhere else, and reaches nobody else."""
    if whom in (None, "", "localhost", socket.gethostname()):
        return True
    try:
        family = socket.AF_INET6 if ip_address(str(whom)).version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as own:
            own.bind((whom, 0))  # only an address of this machine can be bound
    except (ValueError, OSError):
        return False
    return True


def of_ray(entry: list[Any]) -> bool:
    """Whether it is the question of a local Ray cluster which cloud it is in.

    Ray asks it even with its usage statistics off, and sends nothing (docs/security.md).
    """
    _, whom, program = entry
    asks = any(word.endswith("ray/dashboard/dashboard.py") for word in program)
    return asks and whom in ("169.254.169.254", "metadata.google.internal")


def lookups(file: Path) -> list[list[Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.process
def test_the_recorder_sees_lookups_of_grandchildren(tmp_path: Path) -> None:
    look = (
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))"
    )
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {look!r}])"
    env = os.environ | {"PYTHONPATH": str(RECORDER), "LOOKUPS": str(tmp_path / "lookups")}
    subprocess.run([sys.executable, "-c", start], env=env, check=False)
    assert [(event, whom) for event, whom, _ in lookups(tmp_path / "lookups")] == [
        ("socket.connect", "192.0.2.1")
    ]
    assert not is_this_machine("192.0.2.1")


def test_every_command_is_listed() -> None:
    assert set(RUNS) == set(COMMANDS)


@pytest.mark.prefect
@pytest.mark.parametrize("command", RUNS)
def test_nothing_leaves(command: str, home: Path, finished: Finished, tmp_path: Path) -> None:
    shutil.copytree(finished.warehouse, tmp_path / "w")
    start = make_start(Source(jobs=2).open(), Settings("fifo", one_pool(4), round_seconds=1800))
    unfinished = simulate(start, tmp_path / "w", rounds=1) if command == "resume" else ""
    (tmp_path / "plan.toml").write_text(PLAN)
    (tmp_path / "cluster.toml").write_text(CLUSTER.format(folder=tmp_path))
    file = tmp_path / "lookups"
    env = {name: text for name, text in outside(home).items() if name not in CI_ENV_VARS}
    env |= {
        "PYTHONPATH": os.pathsep.join([str(RECORDER), os.environ.get("PYTHONPATH", "")]),
        "LOOKUPS": str(file),
        "SHOCKWAVE_WAREHOUSE": str(tmp_path / "w"),
        "TERM": "xterm",
    }
    env.pop("DO_NOT_TRACK", None)
    for line, expected in RUNS[command]:
        words = [
            word.format(
                folder=tmp_path, run=finished.run, unfinished=unfinished, port=free_port()
            ).replace("FROM_runs", "FROM runs")
            for word in line.split()
        ]
        sent: list[int] = []

        def stop_when_ready(shown: str, sent: list[int] = sent) -> int | None:
            if "Ready: " not in shown or sent:
                return None
            sent.append(signal.SIGINT)
            return signal.SIGINT

        code, shown = in_terminal(words, tmp_path, env, stop_when_ready)
        assert code == expected, shown
        assert "usage data" not in shown
    left = [entry for entry in lookups(file) if not is_this_machine(entry[1])]
    assert [entry for entry in left if not of_ray(entry)] == []
    assert not (home / ".sdk_telemetry" / "notice_shown").exists()
