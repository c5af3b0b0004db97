"""Commands show their progress: a bar or regular lines, with the time left."""

import io
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from flows.cli.progress import (
    VARIABLE,
    CommandProgress,
    _read_seconds,
    get_progress,
    show_progress,
)
from flows.runs.simulation import simulate
from harness.up import PROGRAM, outside
from tests.flows.conftest import Command, Finished, assert_refused, tree
from tests.flows.test_terminal import ESCAPES
from tests.newcomer import in_terminal
from warehouse.store.reader import Reader

SIMULATE = (PROGRAM, "simulate", "--gpus", "16")
LINE = re.compile(r"^ *\d+ s  (.+)$")


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_count_is_shown_with_an_estimate_of_the_time_left() -> None:
    clock = Clock()
    shown = CommandProgress("campaign", clock)
    assert shown.text == "campaign: running"
    shown._bar = shown._make_bar()
    show = shown.count("plan", "cells")
    show(50, 100)  # finished earlier: they do not count for the pace
    assert shown.text == "plan: 50 of 100 cells"
    for done in (51, 52, 53):
        clock.now += 10.0
        show(done, 100)
    assert shown.text == "plan: 53 of 100 cells, about 0:07:50 left"
    show(54, 100, 0.9)  # a large cell, which has much of the work
    assert "54 of 100 cells, about 0:00:" in shown.text
    shown.begin("writing")
    assert shown.text == "writing"


def test_a_line_comes_every_ten_seconds_or_sooner_and_none_in_the_first_three(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, minute = Clock(), 60.0
    monkeypatch.delenv(VARIABLE, raising=False)
    shown = CommandProgress("sql", clock)

    class Ended(Event):
        """Is set after a minute of the clock, which moves while somebody waits."""

        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            clock.now += timeout
            if clock.now >= minute:
                self.set()
            return self.is_set()

    shown._ended = Ended()
    shown.show(_read_seconds(), bar=False)
    at = [float(line.split()[0]) for line in capsys.readouterr().err.splitlines()]
    assert at[0] >= 3.0
    assert all(later - sooner <= 10.0 for sooner, later in pairwise([0.0, *at, minute]))


def test_several_tasks_are_numbered() -> None:
    shown = CommandProgress("compare", Clock())
    shown.expect(2)
    shown.begin("importing Prefect")
    assert shown.text == "importing Prefect"
    for number, name in enumerate(("fifo", "gavel"), start=1):
        shown.count(name, "jobs")(2, 4)
        assert shown.text == f"{number} of 2, {name}: 2 of 4 jobs"


def test_a_run_is_counted_in_jobs(finished: Finished, tmp_path: Path) -> None:
    clock, texts = Clock(), list[str]()
    shown = CommandProgress("simulate", clock)
    start = Reader(finished.warehouse).start(finished.run)
    show = shown.count_jobs(start)

    def after(run: Any) -> None:
        clock.now += 10.0
        show(run)
        texts.append(shown.text)

    simulate(start, tmp_path / "w", progress=after)
    assert texts[0] == "shockwave: 0 of 2 jobs"
    assert texts[-1] == "shockwave: 2 of 2 jobs"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("run replay {run}", "replaying: "),
        ("run audit --all", "auditing: "),
        ("run whatif {run} --round 1 --policy fifo", "fifo: "),
        ("views", ""),
        ("simulate --gpus 4 --jobs 2 --round-seconds 900", "shockwave: "),
        ("sql FROM+run_summary", "sql: running"),
        ("why 1", "why: running"),
        ("workload generate {folder}/out --jobs 500", "workload generate: running"),
    ],
)
@pytest.mark.slow
def test_no_command_is_mute(
    here: Command,
    finished: Finished,
    copied: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    says: str,
) -> None:
    monkeypatch.setenv("SHOCKWAVE_WAREHOUSE", str(copied))
    monkeypatch.setenv(VARIABLE, "0.001")
    parts = command.format(run=finished.run, folder=tmp_path).split()
    ran = here(*(part.replace("+", " ") for part in parts))
    assert ran.code == 0, ran.err
    said = [LINE.match(line) for line in ran.err.splitlines()]
    assert said
    assert all(said)
    assert any(match and match[1].startswith(says) for match in said)


def test_lines_come_while_python_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    monkeypatch.setenv(VARIABLE, "0.01")
    with show_progress("sql"):
        while said.getvalue().count("sql: running") < 3:
            sum(range(1_000))


@pytest.mark.process
def test_a_program_without_a_terminal_says_how_far_it_is(tmp_path: Path) -> None:
    done = subprocess.run(
        [*SIMULATE, "--jobs", "25", "--json", "--warehouse", tmp_path / "w"],
        capture_output=True,
        text=True,
        env=os.environ | {VARIABLE: "0.05"},
    )
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
    said = [LINE.match(line) for line in done.stderr.splitlines()]
    assert all(said)
    assert any(
        match and re.search(r"of 25 jobs, about \d+:\d\d:\d\d left$", match[1]) for match in said
    )


IN_A_TERMINAL = """
import time
from flows.cli.output import say
from flows.cli.progress import BAR_SECONDS, get_progress, show_progress
with show_progress("campaign"):
    get_progress().count("[bold]plan[/x]", "cells")(7, 60)
    time.sleep(BAR_SECONDS + 1.0)
    say("results")
"""


@pytest.mark.process
def test_a_terminal_shows_a_bar_that_is_gone_in_the_end(tmp_path: Path) -> None:
    env = outside(tmp_path) | {"TERM": "xterm-256color", "COLUMNS": "100", VARIABLE: ""}
    code, shown = in_terminal([sys.executable, "-c", IN_A_TERMINAL], Path.cwd(), env)
    assert code == 0
    assert re.search(r"0:00:0\d \[bold\]plan\[/x\]: 7 of 60 cells", ESCAPES.sub("", shown))
    assert shown.rpartition("\x1b[2K")[2].strip().endswith("results")


def test_progress_can_be_switched_off_and_is_invisible_outside_a_command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    with show_progress("sql"):
        get_progress().count("cells", "cells")(1, 2)
    get_progress().begin("nothing")
    assert capfd.readouterr() == ("", "")


def test_what_is_no_number_of_seconds_is_refused(
    here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "often")
    ran = here("policy", "list")
    said = "SHOCKWAVE_PROGRESS: 'often' is not a number of seconds; give one, or 0 for none"
    assert_refused(ran, said)


@pytest.mark.parametrize(
    "command",
    [
        "report {run} --out {file}/x/page.html",
        "report {run} --figures {file}/x",
        "report {run} --figures {file}",
        "run whatif {run} --round 1 --keep {file}/x",
        "workload generate {file}/x --jobs 5",
        "compare --jobs 2 --warehouse {file}/x",
        "campaign run examples/campaign.toml --warehouse {file}/x",
    ],
)
def test_outputs_are_checked_before_the_work(
    here: Command, finished: Finished, tmp_path: Path, command: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    before = tree(finished.warehouse)
    parts = command.format(run=finished.run, file=file).split()
    kept = () if "--warehouse" in parts or parts[0] == "workload" else ("--warehouse",)
    ran = here(*parts, *kept, *([finished.warehouse] if kept else []))
    assert_refused(ran, "cannot be written (Not a directory); choose a place that is writable")
    assert (tree(finished.warehouse), [*tmp_path.iterdir()]) == (before, [file])


def test_a_missing_job_is_reported_without_reading_the_rounds(
    here: Command, finished: Finished, copied: Path
) -> None:
    (whole,) = copied.glob("records/*/run=shock*/round=all.parquet")
    whole.write_bytes(b"")
    ran = here("why", 9999, "--run", finished.run, "--warehouse", copied)
    assert_refused(ran, "job 9999: is not in run")
