"""Kills of a service, its standby and its database lose nothing that was acknowledged."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containers.runtime import ContainerEvent, EventKind
from flows.scheduler.scheduler import open_run, schedule
from harness.attacks import promises, service_kills
from harness.attacks.promises import Acknowledged
from harness.attacks.service_kills import LONG, OPTIONS, SCENES
from harness.soak.accounts import compare_accounts, fold_leases
from harness.soak.kept import BAD
from tasks.commands import CommandKind
from tests.warehouse.by_hand import round_record
from warehouse.inbox.entries import SUBMIT
from warehouse.inbox.inbox import FILE, Inbox


def sampled(module: str, *options: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", f"harness.attacks.{module}", *options, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.process
@pytest.mark.slow
def test_kills_between_statements_lose_nothing_that_was_acknowledged() -> None:
    rows = sampled("service_kills", "--every", "500")
    assert [row["scene"] for row in rows] == [*SCENES]
    assert all(row["kills"] for row in rows)
    assert not any(row[figure] for row in rows for figure in service_kills.FIGURES[1:])


@pytest.mark.process
@pytest.mark.slow
def test_a_standby_takes_over_and_no_round_is_lost() -> None:
    (row,) = sampled("failover", "--kills", "2", "--jobs", "5", "--speed", "600")
    assert row["kills"] == 2
    assert row["accounts"] >= 22, "eleven places count each tenant that has jobs"
    assert not any(row[figure] for figure in (*BAD, "lost_rounds", "miscounted"))


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(
    "SHOCKWAVE_POSTGRES" not in os.environ and "CI" not in os.environ,
    reason="no SHOCKWAVE_POSTGRES, which says that a Postgres is there",
)
def test_kills_of_postgres_lose_nothing_that_was_acknowledged() -> None:
    (row,) = sampled("database_kills", "--kills", "6")
    assert row["kills"] == 6
    assert row["entries"] >= 6
    assert not any(row[figure] for figure in ("lost", "not_once", "unclean"))


def test_gpu_time_is_folded_from_events_only() -> None:
    crash = ContainerEvent(1, EventKind.CRASHED, 90.0, (0, 1))
    given_up = ContainerEvent(1, EventKind.FAILED, 120.0, ())
    started = ContainerEvent(1, EventKind.STARTED, 10.0, (0, 1))
    other = ContainerEvent(2, EventKind.STARTED, 0.0, (2,))
    moved = ContainerEvent(2, EventKind.RESUMED, 125.0, (0, 1, 2))
    rounds = [
        round_record(0, 0.0, (), events=(started, other)),
        round_record(1, 120.0, (), finished=(crash, given_up), events=(moved,)),
        round_record(2, 240.0, ()),
    ]
    assert fold_leases(rounds) == {1: 2 * 80.0, 2: 125.0 + 3 * 115.0}


def test_wrong_and_missing_accounts_are_counted(capfd: pytest.CaptureFixture[str]) -> None:
    places = ("SQL", {"a": 10.5, "b": 20.0, "z": 9.0}), ("API", {"a": 12.0}), ("metrics", {})
    figures = compare_accounts({"a": 10.0, "b": 20.0}, places)
    assert figures == {"accounts": 3, "differs_s": 2.0, "miscounted": 4}
    assert "miscounted: API, b: none, not 20.0" in capfd.readouterr().err


def test_broken_promises_are_noticed(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        inbox.submit(replace(LONG), key="k")
        inbox.command(CommandKind.BUDGET, 1, value=2.0, key="l")
        with open_run(tmp_path, inbox, OPTIONS) as run:
            schedule(run, tmp_path, rounds=1)
            name = run.name
        inbox.command(CommandKind.HOLD, 1, key="m")
    fields = ("k", SUBMIT, -1, 1), ("l", "budget", 1, 2), ("m", "hold", 1, 3)
    entries = [Acknowledged(*each) for each in fields]
    assert promises.in_inbox(tmp_path) == entries
    assert not [*promises.lost(tmp_path, entries)]
    assert not [*promises.not_once(tmp_path, name, all_taken=False)]
    assert not [*promises.without_effect(tmp_path, name, all_ended=False)]
    (problem,) = promises.not_once(tmp_path, name, all_taken=True)
    assert "2 of 3 entries were taken in" in problem
    (problem,) = promises.without_effect(tmp_path, name, all_ended=True)
    assert "0 of 1 jobs have ended" in problem
    with closing(sqlite3.connect(tmp_path / FILE)) as database, database:
        database.execute("UPDATE shockwave_entries SET kind = 'hold' WHERE number = 2")
        database.execute("DELETE FROM shockwave_entries WHERE number = 3")
    assert len([*promises.lost(tmp_path, entries)]) == 2
    assert "round 0 took entry 2" in next(promises.not_once(tmp_path, name, all_taken=False))


@pytest.mark.slow
def test_gpus_against_a_command_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.commands.Orders.not_running", frozenset())
    with Inbox(tmp_path) as inbox, open_run(tmp_path, inbox, OPTIONS) as run:
        inbox.submit(LONG)
        inbox.command(CommandKind.HOLD, 1)
        schedule(run, tmp_path, rounds=1)
        (problem,) = promises.without_effect(tmp_path, run.name, all_ended=False)
    assert problem == "round 0: job 1 has GPUs against a command"
