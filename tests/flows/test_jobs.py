"""Commands on the jobs of a service, as they are typed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.cli.app import application
from predictor.errors import InputError
from tests.flows.test_scheduler import JOB, go
from warehouse.inbox.inbox import Inbox

SMALL = ("--model", "conv-small", "--batch-size", "32", "--epochs", "40")


def typed(warehouse: Path, *words: str) -> list[dict[str, Any]]:
    """What a command prints with `--json`.

    Raises:
        InputError: The error that the command reports.
    """
    at = words.index("--") if "--" in words else len(words)
    json_too = () if words[0] == "logs" else ("--json",)
    line = [*words[:at], "--warehouse", str(warehouse), *json_too, *words[at:]]
    done = CliRunner().invoke(application((words[0],)), line)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return [json.loads(text) for text in done.stdout.splitlines()]


def test_jobs_are_handed_in_steered_and_shown(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        inbox.submit(JOB)
    name = go(tmp_path, 1)
    (job,) = typed(tmp_path, "submit", *SMALL, "--gpus", "2", "--key", "k")
    assert typed(tmp_path, "submit", *SMALL, "--gpus", "2", "--key", "k") == [job]
    (file := tmp_path / "job.toml").write_text(
        'model = "translator"\nbatch_size = 64\nepochs = 9\n'
    )
    (other,) = typed(tmp_path, "submit", str(file), "--priority", "2", "--tenant", "b")
    (ahead,) = typed(tmp_path, "submit", str(file), "--dry-run")
    assert (
        ahead["starts_low_s"] <= ahead["starts_in_s"] <= ahead["ends_in_s"] <= ahead["ends_high_s"]
    )
    for words in (("hold", "2"), ("budget", "1", "2.5"), ("drain", "3"), ("cancel", "3")):
        typed(tmp_path, *words)
    go(tmp_path, 1)
    assert [job["job_id"], other["job_id"]] == [2, 3]
    rows = {row["job_id"]: row for row in typed(tmp_path, "jobs")}
    assert [rows[n]["status"] for n in (1, 2, 3)] == ["runs", "held", "cancelled"]
    assert (rows[3]["tenant"], rows[3]["model"]) == ("b", "translator")
    assert [row["job_id"] for row in typed(tmp_path, "queue")] == [1, 2, 3]
    kinds = [row["kind"] for row in typed(tmp_path, "events")]
    assert {"submit", "hold", "budget", "drain", "cancel"} <= {*kinds}
    (status,) = typed(tmp_path, "status")
    assert (status["service"], status["run"], status["drained"]) == ("stopped", name, [3])
    for words in (("release", "2"), ("requeue", "1"), ("uncordon", "3")):
        typed(tmp_path, *words)
    go(tmp_path, 1)
    (status,) = typed(tmp_path, "status")
    assert (status["held"], status["drained"], status["pending"]) == (0, [], 0)


MISTAKES = {
    ("submit",): "model",
    ("submit", "--model", "conv-small", "--batch-size", "32"): "epochs",
    ("submit", *SMALL, "--model", "x", "--samples-per-epoch", "9"): "--model: the service has no",
    ("submit", *SMALL, "--gpus", "64"): "--gpus: 64 are asked for",
    ("submit", *SMALL, "--priority", "-1"): "budget",
    ("submit", "none.toml"): "none.toml",
    ("cancel", "9"): "there is no job '9'",
    ("budget", "1", "0"): "is no budget",
    ("logs", "9"): "there is no job '9'",
    ("logs", "1"): "job 1: is on a virtual cluster, where jobs print nothing",
    ("drain", "x"): "there is no node 'x'",
}


def test_a_mistake_is_a_line_and_hands_nothing_in(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        inbox.submit(JOB)
        go(tmp_path, 1)
        for words, problem in MISTAKES.items():
            with pytest.raises(InputError, match=problem):
                typed(tmp_path, *words)
        assert inbox.last() == 1


def test_the_schema_of_a_jobs_file_is_printed(tmp_path: Path) -> None:
    done = CliRunner().invoke(application(("submit",)), ["submit", "--schema"])
    assert {"model", "batch_size", "epochs", "mode"} <= json.loads(done.stdout)["properties"].keys()


def test_jobs_of_any_image_are_played_on_a_virtual_cluster(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        inbox.submit(replace(JOB, epochs=500, total_steps=0))  # goes on all the time
    go(tmp_path, 1)
    line = ("--image", "python:3-slim", "--kind", "opaque", "--name", "etl", "--max-seconds", "900")
    (job,) = typed(tmp_path, "submit", *line, "--gpus", "2", "--", "python", "-c", "print(1)")
    go(tmp_path, 2)
    rows = {row["name"]: row for row in typed(tmp_path, "jobs")}
    assert rows["etl"]["status"] == "runs"
    told = CliRunner().invoke(application(("why",)), ["why", "2", "--warehouse", str(tmp_path)])
    first, what, *_ = told.stdout.splitlines()
    assert first.startswith("Job 2 (etl) runs in round")
    assert what.startswith("python:3-slim, opaque, 2 GPUs, tenant default, budget 1; it has held ")
    assert "of its limit of 900 s, " in what
    typed(tmp_path, "cancel", "etl")
    go(tmp_path, 3)
    rows = {row["name"]: row for row in typed(tmp_path, "jobs")}
    assert rows["etl"]["job_id"] == job["job_id"]
    assert rows["etl"]["status"] in ("finished", "withdrawn")
