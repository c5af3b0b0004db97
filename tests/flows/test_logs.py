"""The log of a service: lines of text, or JSON objects with ids."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flows.prefect_server.logs import FORMAT, LOG, LogFormat, log_line, pass_on, start_log
from flows.scheduler.scheduler import open_run, schedule
from flows.scheduler.sinks import LoggingSink
from predictor.allocation import Demand
from tasks.commands import CommandKind, NewNode
from tests.flows.test_scheduler import FAST, JOB
from warehouse.inbox.inbox import Inbox


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(FORMAT, "text")
    yield
    LOG.handlers = []


def test_text_is_as_it_was_said(capsys: pytest.CaptureFixture[str]) -> None:
    start_log(LogFormat.TEXT)
    log_line("up", "it runs at 100 %", run="r", job=7)
    pass_on("Prefect server", "an error\n")
    assert capsys.readouterr().err == "it runs at 100 %\nan error\n"


@pytest.mark.slow
def test_rounds_and_what_happens_in_them_have_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start_log(LogFormat.JSON)
    assert os.environ[FORMAT] == "json"  # for the processes that it starts
    with Inbox(tmp_path) as inbox, open_run(tmp_path, inbox, FAST) as run:
        inbox.submit(JOB)
        inbox.submit(replace(JOB, demand=Demand.gang(64)))
        inbox.command(CommandKind.DRAIN, 1, by="ann")
        inbox.command(CommandKind.BUDGET, 1, value=2.5, by="ann")
        inbox.tenant("a", {"budget": 2.0}, by="ann")
        inbox.add(NewNode("", "gpu", 2), ("gpus",), by="ann")
        inbox.add(NewNode("", "x", 2), ("gpu_type", "gpus"), by="ann")
        run.sink = LoggingSink(run.sink, run.name)
        schedule(run, tmp_path, rounds=1)
    pass_on("Prefect server", '{"half": \n')
    own = {"time": "t", "process": "scheduler", "message": "as it is"}
    others = '{"message": "of a library"}', '{"deep": ' + "[" * 50_000
    pass_on("scheduler", json.dumps(own) + "\n")
    for other in others:
        pass_on("Prefect server", other + "\n")
    rows = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert tuple(row["message"] for row in rows[-2:]) == others
    assert {row["process"] for row in rows[-2:]} == {"Prefect server"}
    del rows[-2:]
    assert rows.pop() == own
    assert (rows[-1]["process"], rows.pop()["message"]) == ("Prefect server", '{"half":')
    times, whole = [row.pop("time") for row in rows], rows.pop()
    assert times == sorted(times)
    assert whole["message"].startswith("round 0: 1 jobs hold ")
    about = {"process": "scheduler", "run": run.name, "round": 0}
    assert {**whole, "message": ""} == {"level": "info", "message": "", **about}
    assert rows[:2] == [
        {"level": "info", "message": "job 1 arrived", **about, "job": 1},
        {"level": "info", "message": "job 1 started", **about, "job": 1},
    ]
    refused, drain, *others = rows[2:]
    assert (refused["level"], refused["job"]) == ("warning", 2)
    assert refused["message"].startswith("refused job 2: gpus: 64 are requested")
    drained = "drain node 1 by ann"
    assert drain == {"level": "info", "message": drained, **about, "node": 1}
    budget, tenant, added, refused = others
    assert (budget["message"], budget["job"]) == ("budget job 1: 2.5 by ann", 1)
    assert tenant["message"] == "tenant a: budget 2 by ann"
    assert added["message"] == "add node of 2 GPUs gpu by ann"
    assert refused["level"] == "warning"
    assert refused["message"].startswith("refused node of 2 GPUs x: gpu_type: ")
    assert not {"job", "node"} & {*tenant, *added, *refused}
