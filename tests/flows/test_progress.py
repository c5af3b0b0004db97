"""Progress of commands: regular lines, and estimates of the time left."""

import io
import itertools
import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.cli.progress import (
    FIRST_SECONDS,
    SAY_SECONDS,
    VARIABLE,
    Pace,
    Progress,
    progress,
    working,
)
from flows.runs.simulation import simulate
from harness.up import PROGRAM, outside
from tests.flows.conftest import Command, Finished, tree
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


@given(st.lists(st.floats(0.01, 9.0), min_size=1, max_size=200))
def test_a_line_comes_in_time_whatever_the_work(waits: list[float]) -> None:
    clock, said = Clock(), list[float]()
    shown = Progress("campaign", clock, lambda line: said.append(clock.now))
    show = shown.counted("cells", "cells")
    for number, seconds in enumerate(waits):
        end = clock.now + seconds
        while clock.now < end:  # as the thread does, twice a second
            clock.now = min(clock.now + 0.5, end)
            shown.tick()
        show(number, len(waits))
    times = [0.0, *said, clock.now]
    assert all(later - earlier <= 10.0 for earlier, later in itertools.pairwise(times))
    assert all(b - a >= SAY_SECONDS for a, b in itertools.pairwise(said))
    assert all(FIRST_SECONDS <= first <= FIRST_SECONDS + 0.5 for first in said[:1])
    assert said or clock.now < FIRST_SECONDS + 0.5


def test_the_estimate_is_exact_at_a_steady_pace_and_learns_a_new_one() -> None:
    pace = Pace(0.0, 0.0)
    for second in range(1, 101):
        pace.note(float(second), second / 1000)
    assert pace.left(100.0) == pytest.approx(900.0)
    for second in range(101, 201):  # from now on five times as fast
        pace.note(float(second), 0.1 + (second - 100) / 200)
    assert pace.left(200.0) == pytest.approx(80.0)


def test_work_that_was_done_before_does_not_count_for_the_pace() -> None:
    clock = Clock()
    shown = Progress("campaign", clock, lambda line: None)
    show = shown.counted("plan", "cells")
    show(50, 100)
    assert shown.text == "plan: 50 of 100 cells"
    clock.now = 10.0
    show(51, 100)
    assert shown.text == "plan: 51 of 100 cells, about 8 min left"


def test_the_first_cell_to_end_predicts_the_others_by_their_size() -> None:
    clock = Clock()
    shown = Progress("campaign", clock, lambda line: None)
    show = shown.counted("plan", "cells")
    show(0, 5)
    clock.now = 30.0
    assert shown.text == "plan: 0 of 5 cells"
    show(1, 5, 0.6)  # it has six tenths of all jobs
    assert shown.text == "plan: 1 of 5 cells, about 20 s left"
    clock.now = 45.0
    assert shown.text == "plan: 1 of 5 cells, about 30 s left"  # none has ended since
    clock.now = 90.0
    assert shown.text == "plan: 1 of 5 cells, about 60 s left"


def test_a_long_pace_is_bounded_in_memory_and_right() -> None:
    pace = Pace(0.0, 0.0)
    for second in range(100_000):
        pace.note(float(second), second / 200_000)
    assert len(pace._times) <= 256
    assert pace.left(99_999.0) == pytest.approx(100_001.0, rel=0.02)


def test_a_run_is_counted_in_jobs_and_estimated_by_their_epochs(
    finished: Finished, tmp_path: Path
) -> None:
    clock, texts = Clock(), list[str]()
    shown = Progress("simulate", clock, texts.append)
    start = Reader(finished.warehouse).start(finished.run)
    show = shown.run(start)

    def after(run: object) -> None:
        clock.now += 10.0
        show(run)  # type: ignore[arg-type]
        shown.tick()

    simulate(start, tmp_path / "w", progress=after)
    said = [LINE.match(line) for line in texts]
    assert [match and match[1].partition(",")[0] for match in said][-1] == "shockwave: 2 of 2 jobs"
    estimates = [match[1] for match in said if match and "left" in match[1]]
    assert len(estimates) >= len(texts) - 3
    assert shown.share == 1.0


def test_several_tasks_are_estimated_together() -> None:
    clock = Clock()
    shown = Progress("compare", clock, lambda line: None)
    shown.expect(2)
    shown.stage("starting Prefect")
    assert shown.text == "starting Prefect"
    show = shown.counted("fifo", "jobs")
    for done in (0, 1, 2):
        clock.now += 10.0
        show(done, 4)
    assert shown.text == "1 of 2, fifo: 2 of 4 jobs, about 20 s left of this one"
    clock.now += 20.0
    show(4, 4)
    second = shown.counted("gavel", "jobs")  # four times as slow
    for done in (0, 1, 2):
        clock.now += 40.0
        second(done, 4)
    assert shown.text == "2 of 2, gavel: 2 of 4 jobs, about 80 s left"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("run replay {run}", "replaying: "),
        ("run audit --all", "auditing: "),
        ("run whatif {run} --round 1 --policy fifo", "fifo: "),
        ("views", ""),
        ("simulate --gpus 4 --jobs 2 --round-seconds 900", "shockwave: "),
        ("sql FROM+run_summary", "sql: under way"),
        ("why 1", "why: under way"),
        ("workload generate {folder}/out --jobs 500", "workload generate: under way"),
    ],
)
@pytest.mark.slow
def test_no_command_is_mute(
    here: Command,
    finished: Finished,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    says: str,
) -> None:
    shutil.copytree(finished.warehouse, tmp_path / "w")
    monkeypatch.setenv("SHOCKWAVE_WAREHOUSE", str(tmp_path / "w"))
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
    with working("sql"):
        while said.getvalue().count("sql: under way") < 3:
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
    counted = [match[1] for match in said if match and "of 25 jobs, round" in match[1]]
    assert any(re.search(r", about \d+ (s|min|h) left$", text) for text in counted)


IN_A_TERMINAL = """
import time
from flows.cli.output import say
from flows.cli.progress import PATIENCE_SECONDS, progress, working
with working("campaign"):
    progress().counted("[bold]plan[/x]", "cells")(7, 60)
    time.sleep(PATIENCE_SECONDS + 1.0)
    say("results")
"""


@pytest.mark.process
def test_a_terminal_shows_a_bar_that_is_gone_in_the_end(tmp_path: Path) -> None:
    env = outside(tmp_path) | {"TERM": "xterm-256color", "COLUMNS": "100", VARIABLE: ""}
    code, shown = in_terminal([sys.executable, "-c", IN_A_TERMINAL], Path.cwd(), env)
    assert code == 0
    assert re.search(r"\d s  \[bold\]plan\[/x\]: 7 of 60 cells", shown)
    assert shown.rpartition("\x1b[2K")[2].strip().endswith("results")


def test_progress_can_be_switched_off_and_is_none_outside_a_command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    with working("sql"):
        progress().tick(0.0)
    assert "sql: under way" in capfd.readouterr().err
    progress().stage("nothing")
    assert capfd.readouterr() == ("", "")


def test_work_of_several_threads_ends_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    with ExitStack() as first, working("second"):
        first.enter_context(working("third"))
        own = progress()
        with ExitStack() as other:
            other.enter_context(working("fourth"))
            first.close()
            assert progress() is not own
            assert progress().text == "fourth: under way"
        assert progress().text == "second: under way"


def test_what_is_no_number_of_seconds_is_refused(
    here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "often")
    ran = here("policy", "list")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "error: SHOCKWAVE_PROGRESS: 'often' is no number of seconds; give one, or 0 for none\n"
    )


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
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert ran.err.startswith("error: ")
    assert "cannot be written (Not a directory); choose a place that is writable" in ran.err
    assert (tree(finished.warehouse), [*tmp_path.iterdir()]) == (before, [file])


def test_a_missing_job_is_reported_without_reading_the_rounds(
    here: Command, finished: Finished, tmp_path: Path
) -> None:
    shutil.copytree(finished.warehouse, tmp_path, dirs_exist_ok=True)
    (whole,) = tmp_path.glob("records/*/run=shock*/round=all.parquet")
    whole.write_bytes(b"")
    ran = here("why", 9999, "--run", finished.run, "--warehouse", tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "job 9999: is not in run" in ran.err
