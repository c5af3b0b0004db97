"""Forecasts of a service's rounds: made once, kept, and served with their age."""

import json
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from flows.api.authorization import open_local
from flows.api.commands import ServiceCommands
from flows.api.forecast import forecast_change
from flows.api.forecaster import NICENESS
from flows.api.requests import WhatIf
from flows.api.round_forecasts import FILE, ForecastFile, RoundForecasts
from flows.cli.job import print_queue
from flows.explain.facts import Unforecast
from flows.scheduler.process import announce
from flows.web.page.views import load_templates, make_overview
from harness.waiting import wait_for
from predictor.allocation import Demand
from predictor.job import Mode
from tasks import rollouts
from tasks.rollouts import ExpectedTimes, Predicted
from tests.flows.test_scheduler import JOB, go

LONG = replace(JOB, mode=Mode.STATIC, max_batch_size=32, epochs=4_000, total_steps=0)


def test_forecasts_are_made_once_a_round_and_read_by_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(tmp_path, 1, jobs=[LONG, replace(LONG, demand=Demand.gang(4))])
    with ServiceCommands(tmp_path) as first:
        first.explain(1)
    monkeypatch.setattr(rollouts, "_simulate", lambda *_: pytest.fail("simulates again"))
    with ServiceCommands(tmp_path) as other:
        queue = {row.job_id: row for row in other.list_queue()}
        finish = other.explain(1).prospects.finish_seconds
        assert finish
        assert finish.median == other.known.state.clock_seconds + queue[1].ends_in_s  # type: ignore[union-attr,operator]
    assert {row.forecast_age_s for row in queue.values()} == {0.0}


def test_while_a_service_runs_answers_have_the_last_forecasts_with_their_age(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go(tmp_path, 1, jobs=[LONG])
    with ServiceCommands(tmp_path) as commands, announce(tmp_path, "", 1.0):
        (early,) = commands.list_queue()
        assert (early.status, early.ends_in_s, early.forecast_age_s) == ("runs", None, None)
        assert commands.get_status().forecast_age_s is None
        assert commands.explain(1).prospects.missing is Unforecast.PENDING
        assert "When it should end has not been forecast yet." in str(commands.explain(1))
        commands.make_forecasts(history := commands.read_history())
        (now,) = commands.list_queue()
        go(tmp_path, 2, jobs=[replace(LONG, demand=Demand.gang(4))])
        passed = commands.read_history().state.clock_seconds - history.state.clock_seconds
        later, new = sorted(commands.list_queue(), key=lambda row: row.job_id)
        assert (now.forecast_age_s, later.forecast_age_s) == (0.0, passed)
        assert commands.get_status().forecast_age_s == passed
        assert later.ends_in_s == pytest.approx(now.ends_in_s - passed)  # type: ignore[operator]
        assert (new.ends_in_s, new.forecast_age_s) == (None, None)
        at = f"as forecast at {history.state.clock_seconds:,.0f} s"
        assert at in str(commands.explain(1))
        assert commands.explain(2).prospects.missing is Unforecast.PENDING
        print_queue(tmp_path)
        told = capsys.readouterr()
        assert f"(forecasts are from {passed:,.0f} s before the last round)" in told.err
        assert "forecast_age_s" not in told.out
        with closing(open_local(tmp_path)) as api:
            page = load_templates().get_template("overview.html.j2")
            content = make_overview(api)
        text = page.render(caller=api.caller, problem="", root="", script="", style="", **content)
        assert f"Forecasts are from {passed / 60.0:.0f} min before it." in text
        made = ForecastFile(tmp_path).read(commands.run)
        assert made
        (row, _) = forecast_change(commands, WhatIf())
        assert row.forecast_age_s == passed
        past = ExpectedTimes(one := Predicted(1.0, 1.0, 1.0), one, None, None)
        times = {1: past, 2: past, 9: past}
        ForecastFile(tmp_path).write(replace(made, digest="other", times=times))
        (late, waits) = sorted(commands.list_queue(), key=lambda row: row.job_id)
        assert (late.starts_in_s, late.ends_low_s, late.ends_in_s) == (0.0, 0.0, 0.0)
        half = commands.header.settings.round_seconds / 2
        assert (waits.status, waits.starts_in_s, waits.ends_low_s) == ("waits", half, half)
        far = ExpectedTimes(one := Predicted(1e6, 1e6, 1e6), one, None, None)
        ForecastFile(tmp_path).write(replace(made, digest="other", times={1: far}))
        (runs, _) = sorted(commands.list_queue(), key=lambda row: row.job_id)
        assert (runs.status, runs.starts_in_s) == ("runs", 0.0)


@pytest.mark.process
def test_a_process_of_low_priority_forecasts_new_rounds(tmp_path: Path) -> None:
    go(tmp_path, 1, jobs=[LONG])
    line = [sys.executable, "-m", "flows.api.forecaster", str(tmp_path)]
    with (
        announce(tmp_path, "", 1.0),
        ServiceCommands(tmp_path) as commands,
        subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
    ):
        for _ in range(2):
            digest = commands.read_history().state.last_hash
            wait_for((tmp_path / FILE).exists)
            wait_for(lambda: json.loads((tmp_path / FILE).read_text())["digest"], digest.__eq__)
            (row,) = commands.list_queue()
            assert row.forecast_age_s == 0.0
            go(tmp_path, 1)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == NICENESS
        assert process.stdin
        process.stdin.close()  # as its parent's end does
        process.wait(60.0)


def test_a_thread_that_finds_a_damaged_file_disturbs_no_other(tmp_path: Path) -> None:
    made = RoundForecasts("ours", "digest", 0.0, {})
    (tmp_path / FILE).parent.mkdir()
    file = ForecastFile(tmp_path)
    file.write(made)

    class Run(str):
        """The name of a run; during comparisons, another thread finds the file damaged."""

        def __eq__(self, other: object) -> bool:
            (tmp_path / FILE).write_text("{")
            assert file.read("ours") is None
            return str(self) == str(other)

        __hash__ = str.__hash__

    assert file.read(Run("ours")) == made


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run": 1}', "\xff"])
def test_a_damaged_file_is_made_anew(tmp_path: Path, text: str) -> None:
    go(tmp_path, 1, jobs=[LONG])
    (tmp_path / FILE).write_text(text, encoding="latin-1")
    with ServiceCommands(tmp_path) as commands:
        (row,) = commands.list_queue()
        assert row.ends_in_s
    assert json.loads((tmp_path / FILE).read_text())["times"]
