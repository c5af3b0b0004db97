"""Real processes, killed; acknowledged records are kept and resumed from."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from flows.explain.replay import replay
from flows.runs.resuming import resume
from flows.runs.simulation import simulate
from flows.runs.start import make_start
from flows.runs.workload_source import Source
from harness.up import PROGRAM
from harness.waiting import HANG_SECONDS
from tasks.record import Settings, make_pool
from tests.flows.conftest import Command, assert_refused, tree
from warehouse.analytics.questions import Analytics
from warehouse.store.checksums import CHECKSUMS
from warehouse.store.folder import run_folders
from warehouse.store.parts import part_names, rounds_of
from warehouse.store.reader import Reader

pytestmark = pytest.mark.process

ARGUMENTS = ["simulate", "--gpus", "4", "--jobs", "8", "--round-seconds", "60"]

INTERRUPTED = "error: shockwave: interrupted; run it again; recorded rounds are kept\n"


class Undisturbed:
    """The undisturbed run, which resumed runs must equal."""

    def __init__(self, warehouse: Path) -> None:
        start = make_start(
            Source(jobs=8).open(), Settings("shockwave", make_pool(4), round_seconds=60)
        )
        self.run = simulate(start, warehouse)
        self.outcome = outcome(warehouse, self.run)
        self.rounds = len(Reader(warehouse).records(self.run))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed(tmp_path_factory.mktemp("undisturbed"))


def outcome(warehouse: Path, run: str) -> list[object]:
    """Completeness, last hash and outcomes of all jobs."""
    analytics = Analytics(warehouse)
    (end,) = analytics.query(f"SELECT complete, last_hash FROM runs WHERE run = '{run}'")[1]
    jobs = analytics.query(
        f"SELECT * EXCLUDE (run) FROM job_outcomes WHERE run = '{run}' ORDER BY job_id"
    )
    return [end, jobs]


def start(warehouse: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [PROGRAM, *arguments, "--warehouse", warehouse],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_folder(warehouse: Path) -> Path | None:
    """The one run's folder, once its header is there."""
    found = [path for path in run_folders(warehouse) if (path / "header.parquet").exists()]
    return found[0] if found else None


def rounds_in(warehouse: Path) -> int:
    folder = run_folder(warehouse)
    parts = filter(None, map(rounds_of, part_names(folder) if folder else ()))
    return max((part.stop for part in parts), default=0)


def wait_until(process: subprocess.Popen[str], happened: Callable[[], object]) -> None:
    """Wait for an effect of a process."""
    deadline = time.monotonic() + HANG_SECONDS
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def kill(process: subprocess.Popen[str], signal_number: int) -> tuple[str, str]:
    process.send_signal(signal_number)
    return process.communicate(timeout=HANG_SECONDS)


def kept(warehouse: Path, run: str, rounds: int) -> list[tuple[object, ...]]:
    """The first rounds of a run with their hashes and timings."""
    return Analytics(warehouse).query(
        f"SELECT * FROM records WHERE run = '{run}' AND round < {rounds} ORDER BY round"
    )[1]


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A warehouse with a run that was stopped early by SIGINT, and its output."""
    warehouse = tmp_path_factory.mktemp("interrupted") / "its warehouse"
    process = start(warehouse, *ARGUMENTS)
    wait_until(process, lambda: rounds_in(warehouse) >= 3)
    out, err = kill(process, signal.SIGINT)
    assert (process.returncode, out) == (130, "")
    return warehouse, err


POINT = 90
"""After a file's first full row group of 64 rounds, and in the first half of the run's rounds: a
busy machine that sees them late still kills it on the way."""


def test_a_killed_run_goes_on_where_it_was(
    undisturbed: Undisturbed, program: Command, tmp_path: Path
) -> None:
    assert undisturbed.rounds > POINT
    process = start(tmp_path, *ARGUMENTS)
    wait_until(process, lambda: rounds_in(tmp_path) >= POINT)
    kill(process, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL

    folder = run_folder(tmp_path)
    assert folder is not None
    run = folder.name.removeprefix("run=")
    recorded = len(Reader(tmp_path).records(run))
    assert POINT <= recorded < undisturbed.rounds
    before = kept(tmp_path, run, recorded)
    # As if the process had died in the middle of writing the next round.
    half = folder / f".round={recorded:06d}.parquet.{'12' * 16}"
    half.write_bytes((folder / part_names(folder)[0]).read_bytes()[:1000])

    ran = program("resume", run, "--warehouse", tmp_path, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert kept(tmp_path, run, recorded) == before
    assert outcome(tmp_path, run) == undisturbed.outcome
    assert sorted(path.name for path in folder.iterdir()) == [
        ".lock",
        CHECKSUMS,
        "header.parquet",
        "round=all.parquet",
        "workload.parquet",
    ]
    comparison = replay(run, tmp_path)
    assert (comparison.rounds, comparison.differences) == (undisturbed.rounds, [])


def test_a_run_killed_while_it_is_compacted(undisturbed: Undisturbed, tmp_path: Path) -> None:
    process = start(tmp_path, *ARGUMENTS)
    wait_until(process, lambda: rounds_in(tmp_path))
    folder = run_folder(tmp_path)
    assert folder is not None
    wait_until(process, (folder / "round=all.parquet").exists)
    kill(process, signal.SIGKILL)

    run = folder.name.removeprefix("run=")
    assert outcome(tmp_path, run) == undisturbed.outcome  # even before it is resumed
    assert resume(run, tmp_path) == run
    assert outcome(tmp_path, run) == undisturbed.outcome
    assert rounds_in(tmp_path) == 0


def test_an_interrupted_run_says_how_to_go_on(
    undisturbed: Undisturbed, interrupted: tuple[Path, str], tmp_path: Path
) -> None:
    warehouse, said = interrupted
    (line,) = said.splitlines()
    hint = re.fullmatch(r"error: run '(.+)': interrupted in round \d+; continue with: (.+)", line)
    assert hint is not None
    run, command = hint.groups()
    assert run == undisturbed.run
    assert shlex.split(command) == ["shockwave", "resume", run, "--warehouse", str(warehouse)]

    copy = shutil.copytree(warehouse, tmp_path / "copy")
    process = start(copy, *shlex.split(command)[1:3], "--json")
    out, err = process.communicate(timeout=HANG_SECONDS)
    assert (process.returncode, err) == (0, "")
    assert run in out
    assert outcome(copy, run) == undisturbed.outcome


BLOCKING = """
import os, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["BLOCKED"]:
            sys.meta_path.remove(self)  # it is imported once more for the error
            open(os.environ["PIPE"]).read()
sys.meta_path.insert(0, Finder())
"""
"""Makes a program wait where it imports a module, for what comes through a pipe."""


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("flows.cli.app", "run list"),
        ("duckdb", "run list"),
        ("flows.runs.simulation", "simulate --gpus 4"),
    ],
)
def test_interrupted_while_it_starts(tmp_path: Path, module: str, command: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKING)
    os.mkfifo(pipe := tmp_path / "pipe")
    env = {"PYTHONPATH": str(tmp_path), "BLOCKED": module, "PIPE": str(pipe)}
    process = subprocess.Popen(
        [PROGRAM, *command.split(), "--warehouse", tmp_path / "none"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | env,
    )
    writing: list[int] = []

    def reads() -> bool:  # the program imports the module
        with suppress(OSError):  # nobody reads yet
            writing.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        return bool(writing)

    wait_until(process, reads)
    _, err = kill(process, signal.SIGINT)
    os.close(writing[0])
    assert (process.returncode, err) == (130, INTERRUPTED)
    assert not (tmp_path / "none").exists()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="cannot tell when it asks DuckDB")
def test_interrupted_in_a_query(interrupted: tuple[Path, str]) -> None:
    process = start(interrupted[0], "sql", "SELECT sum(hash(range)) FROM range(1_000_000_000_000)")
    maps = Path(f"/proc/{process.pid}/maps")
    wait_until(process, lambda: "duckdb" in maps.read_text())
    out, err = kill(process, signal.SIGINT)
    assert (process.returncode, out, err) == (130, "", INTERRUPTED)


def test_of_two_resumes_at_once_one_is_refused(
    undisturbed: Undisturbed, program: Command, interrupted: tuple[Path, str], tmp_path: Path
) -> None:
    warehouse = shutil.copytree(interrupted[0], tmp_path / "copy")
    recorded = rounds_in(warehouse)
    first = start(warehouse, "resume", undisturbed.run)
    wait_until(first, lambda: rounds_in(warehouse) > recorded)
    first.send_signal(signal.SIGSTOP)
    try:
        # A thread runs on for a moment, and may write its round.
        stopped = os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert stopped is not None
        assert stopped.si_code == os.CLD_STOPPED
        before = tree(warehouse)
        second = program("resume", undisturbed.run, "--warehouse", warehouse)
        said = "is being written by another process; wait for it or stop it"
        assert_refused(second, f"error: run '{undisturbed.run}': {said}")
        assert tree(warehouse) == before
        # Readers are not held up.
        asked = program("sql", "SELECT complete FROM runs", "--warehouse", warehouse, "--json")
        assert asked.rows == [{"complete": False}]
    finally:
        first.send_signal(signal.SIGCONT)
    _, err = first.communicate(timeout=HANG_SECONDS)
    assert (first.returncode, err) == (0, "")
    assert outcome(warehouse, undisturbed.run) == undisturbed.outcome


def test_a_new_run_of_the_same_settings_does_not_touch_the_interrupted_one(
    undisturbed: Undisturbed, program: Command, interrupted: tuple[Path, str], tmp_path: Path
) -> None:
    warehouse = shutil.copytree(interrupted[0], tmp_path / "copy")
    folder = run_folder(warehouse)
    assert folder is not None
    before = tree(folder)
    (row,) = program(*ARGUMENTS, "--warehouse", warehouse, "--json").rows
    assert row["run"] == undisturbed.run.removesuffix("-1") + "-2"
    assert tree(folder) == before
    assert outcome(warehouse, row["run"]) == undisturbed.outcome
