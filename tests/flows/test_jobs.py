"""Commands on the jobs of a service."""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from flows.api.authorization import open_local
from flows.api.submission import describe_launch, parse_job
from flows.cli import main
from flows.cli.app import build_application
from flows.cli.service import follow, lay_out
from flows.scheduler.process import announce
from predictor.errors import InputError
from predictor.job import JobKind
from tests.flows.served import SECRET, served
from tests.flows.test_api import FILE
from tests.flows.test_scheduler import JOB, go
from tests.flows.test_terminal import render
from tests.runs import ended, write
from warehouse.inbox.inbox import Inbox

pytestmark = pytest.mark.process

SMALL = ("--model", "conv-small", "--batch-size", "32", "--epochs", "40")


@pytest.fixture(params=["warehouse", "http"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The warehouse of a service that commands ask itself, or over HTTP."""
    with ExitStack() as opened:
        if request.param == "http":
            patched = opened.enter_context(pytest.MonkeyPatch.context())
            patched.setenv("SHOCKWAVE_URL", opened.enter_context(served(tmp_path)))
            patched.setenv("SHOCKWAVE_TOKEN", SECRET)
        yield tmp_path


def typed(warehouse: Path, *words: str) -> list[dict[str, Any]]:
    """What a command prints with `--json`.

    Raises:
        InputError: The error that the command reports.
    """
    at = words.index("--") if "--" in words else len(words)
    asked = [] if "SHOCKWAVE_URL" in os.environ else ["--warehouse", str(warehouse)]
    line = [*words[:at], *asked, "--json", *words[at:]]
    done = CliRunner().invoke(build_application(words), line)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return [json.loads(text) for text in done.stdout.splitlines()]


def test_jobs_are_handed_in_steered_and_shown(service: Path) -> None:
    tmp_path = service
    with Inbox(tmp_path) as inbox:
        inbox.submit(JOB)
    name = go(tmp_path, 1)
    (job,) = typed(tmp_path, "submit", *SMALL, "--gpus", "2", "--key", "k")
    assert typed(tmp_path, "submit", *SMALL, "--gpus", "2", "--key", "k") == [job]
    (file := tmp_path / "job.toml").write_text(
        'model = "translator"\nbatch_size = 64\nepochs = 9\n'
    )
    (other,) = typed(tmp_path, "submit", str(file), "--budget", "2", "--tenant", "b")
    (ahead,) = typed(tmp_path, "submit", str(file), "--dry-run")
    assert (
        ahead["starts_low_s"] <= ahead["starts_in_s"] <= ahead["ends_in_s"] <= ahead["ends_high_s"]
    )
    assert ahead["launch"] == {"model": "translator", "batch_size": 64, "epochs": 9}
    for words in (
        ("job", "hold", "2"),
        ("job", "budget", "1", "2.5"),
        ("node", "drain", "3"),
        ("job", "cancel", "3"),
    ):
        typed(tmp_path, *words)
    go(tmp_path, 1)
    assert [job["job_id"], other["job_id"]] == [2, 3]
    rows = {row["job_id"]: row for row in typed(tmp_path, "job", "list")}
    assert [rows[n]["status"] for n in (1, 2, 3)] == ["runs", "held", "cancelled"]
    assert (rows[3]["tenant"], rows[3]["model"]) == ("b", "translator")
    assert [row["job_id"] for row in typed(tmp_path, "queue")] == [1, 2, 3]
    kinds = [row["kind"] for row in typed(tmp_path, "service", "events")]
    assert {"submit", "hold", "budget", "drain", "cancel"} <= {*kinds}
    (status,) = typed(tmp_path, "status")
    runs = "running" if "SHOCKWAVE_URL" in os.environ else "stopped"
    assert (status["service"], status["run"], status["drained"]) == (runs, name, [3])
    ran = CliRunner().invoke(build_application(("queue",)), ["queue", "--warehouse", str(tmp_path)])
    assert ran.stderr.startswith("(the service is stopped")  # about the warehouse, served or not
    (answer,) = typed(tmp_path, "why", "1")
    assert (answer["run"], answer["job"]["job_id"], answer["status"]) == (name, 1, "runs")
    for words in (("job", "release", "2"), ("job", "requeue", "1"), ("node", "uncordon", "3")):
        typed(tmp_path, *words)
    go(tmp_path, 1)
    (status,) = typed(tmp_path, "status")
    assert (status["held"], status["drained"], status["pending"]) == (0, [], 0)


MISTAKES = {
    ("submit",): "model",
    ("submit", "--model", "conv-small", "--batch-size", "32"): "epochs",
    ("submit", *SMALL, "--model", "x", "--samples-per-epoch", "9"): "--model: there are no thr",
    ("submit", *SMALL, "--gpus", "64"): "--gpus: 64 are requested",
    ("submit", *SMALL, "--budget", "-1"): "budget",
    ("submit", *SMALL, "--priority", "0"): "priority",
    ("submit", "none.toml"): "none.toml",
    ("submit", "mine.csv", *SMALL): "'mine.csv' is not a job's file, which ends in .toml",
    ("submit", "a.toml", *SMALL, "--", "echo"): "'a.toml' is not a job's file",
    ("submit", *SMALL, "--after", "none"): "there is no job 'none'",
    ("submit", *SMALL, "--array", "3-1"): "array: '3-1' ends before it begins",
    ("submit", *SMALL, "--env", "SEED"): "--env: 'SEED' is not NAME=VALUE",
    ("submit", *SMALL, "--retries", "101"): "retries",
    ("submit", *SMALL, "--batch-size", "33"): "--batch-size: the service has no throughput for",
    ("submit", *SMALL, "--secret", "a/b"): "^--secret: 'a/b' is not",
    ("submit", *SMALL, "--env", "1=3"): "^--env: '1=3' is not",
    ("submit", *SMALL, "--batch-size", "-64"): "^--batch-size: -64 is refused",
    ("submit", *SMALL, "--max-batch-size", "8"): (
        "^--max-batch-size: is below the batch size, 32; raise it, or lower --batch-size$"
    ),
    ("submit", "--image", "x", "--", "echo"): "^--kind: is missing",
    ("why", "none"): "job none: is not in run|there is no job 'none'",
    ("job", "cancel", "9"): "there is no job '9'",
    ("job", "budget", "1", "0"): "is not a valid budget",
    ("job", "logs", "9"): "there is no job '9'",
    ("job", "logs", "1"): "job 1: is on a virtual cluster, where jobs print nothing",
    ("node", "drain", "x"): "there is no node 'x'",
}


def test_a_mistake_is_a_line_and_hands_nothing_in(service: Path) -> None:
    tmp_path = service
    with Inbox(tmp_path) as inbox:
        inbox.submit(JOB)
        go(tmp_path, 1)
        for words, problem in MISTAKES.items():
            with pytest.raises(InputError, match=problem):
                typed(tmp_path, *words)
        assert inbox.last() == 1


def test_mistakes_of_a_file_are_fields_and_those_of_options_are_options(service: Path) -> None:
    tmp_path = service
    with Inbox(tmp_path) as inbox:
        inbox.submit(JOB)
        go(tmp_path, 1)
    file = tmp_path / "job.toml"
    sizes = 'model = "conv-small"\nbatch_size = 32\nepochs = 40\n'
    for more, options, problem in (
        (
            "batchsize = 1\n",
            (),
            f"^{file}: batchsize: .* known are kind, .* max_seconds, .* batch_size",
        ),
        ("max_batch_size = 8\n", (), f"^{file}: max_batch_size: .* or lower batch_size$"),
        ("", ("--batch-size", "-64"), "^--batch-size: -64 is refused"),
    ):
        file.write_text(sizes + more)
        with pytest.raises(InputError, match=problem):
            typed(tmp_path, "submit", str(file), *options)


def test_why_says_of_which_of_two_runs_it_is(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        inbox.submit(JOB)
    own = go(tmp_path, 2)
    made = ended("fifo", jobs=2)
    other = write(tmp_path, made.start, made.rounds)

    def asked() -> tuple[str, str]:
        ran = CliRunner().invoke(
            build_application(("why",)), ["why", "1", "--warehouse", str(tmp_path)]
        )
        return ran.stderr.strip(), ran.stdout.splitlines()[0]

    said, first = asked()
    assert said == f"(shown: the newest run; for the service's: --run {own})"
    assert f" of {other}, " in first
    with announce(tmp_path, "http://127.0.0.1:9", 1.0):  # as a service that is running is
        said, first = asked()
    assert said == f"(shown: the service's run; for the newest: --run {other})"
    assert f" of {own}, " in first


def test_the_schema_of_a_jobs_file_is_printed(tmp_path: Path) -> None:
    done = CliRunner().invoke(build_application(("submit",)), ["submit", "--schema"])
    assert {"model", "batch_size", "epochs", "mode"} <= json.loads(done.stdout)["properties"].keys()


def test_jobs_of_any_image_are_played_on_a_virtual_cluster(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        inbox.submit(replace(JOB, epochs=500, total_steps=0))  # goes on all the time
    go(tmp_path, 1)
    line = ("--image", "python:3-slim", "--kind", "opaque", "--name", "etl", "--max-seconds", "900")
    (job,) = typed(tmp_path, "submit", *line, "--gpus", "2", "--", "python", "-c", "print(1)")
    go(tmp_path, 2)
    rows = {row["name"]: row for row in typed(tmp_path, "job", "list")}
    assert rows["etl"]["status"] == "runs"
    ran = CliRunner().invoke(
        build_application(("why",)), ["why", "2", "--warehouse", str(tmp_path)]
    )
    first, what, *_ = ran.stdout.splitlines()
    assert first.startswith("Job 2 (etl) runs in round")
    assert what.startswith("python:3-slim, opaque, 2 GPUs, tenant default, budget 1; it has held ")
    assert "of its limit of 900 s, " in what
    typed(tmp_path, "job", "cancel", "etl")
    go(tmp_path, 3)
    rows = {row["name"]: row for row in typed(tmp_path, "job", "list")}
    assert rows["etl"]["job_id"] == job["job_id"]
    assert rows["etl"]["status"] in ("finished", "withdrawn")


def test_an_array_waits_for_a_job_and_is_steered_as_a_whole_or_by_task(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        inbox.submit(JOB)
    go(tmp_path, 1)
    typed(tmp_path, "submit", *SMALL, "--name", "prepare", "--deadline", "90000")
    array = (*SMALL, "--name", "sweep", "--array", "5-8%1", "--after", "prepare", "--key", "k")
    jobs = typed(tmp_path, "submit", *array)
    assert [row["job_id"] for row in jobs] == [3, 4, 5, 6]
    assert typed(tmp_path, "submit", *array) == jobs
    go(tmp_path, 1)
    rows = {row["job_id"]: row for row in typed(tmp_path, "queue")}
    assert rows[3]["waits_for"] == "the end of job 2"
    assert rows[4]["starts_in_s"] > rows[3]["starts_in_s"] > 0.0
    assert (rows[2]["in_time"], rows[1]["deadline_in_s"]) == ("yes", None)
    assert [row["job_id"] for row in typed(tmp_path, "job", "cancel", "sweep[7]")] == [5]
    assert [row["job_id"] for row in typed(tmp_path, "job", "hold", "sweep")] == [3, 4, 5, 6]
    go(tmp_path, 1)
    rows = {row["job_id"]: row for row in typed(tmp_path, "job", "list")}
    assert [rows[job]["status"] for job in (3, 4, 5, 6)] == ["held", "held", "cancelled", "held"]
    (answer,) = typed(tmp_path, "why", "sweep[8]")
    assert (answer["job"]["job_id"], answer["obstacles"]["order"]) == (6, "held")
    typed(tmp_path, "job", "cancel", "prepare")
    go(tmp_path, 2)
    with pytest.raises(InputError, match="job 2 is withdrawn, so no job can start after it"):
        typed(tmp_path, "submit", *SMALL, "--after", "prepare")
    go(tmp_path, 1)
    rows = {row["job_id"]: row for row in typed(tmp_path, "job", "list")}
    assert {rows[job]["status"] for job in (3, 4, 5, 6)} == {"withdrawn"}
    assert rows[4]["reason"] == "job 2, before it, did not end well"


def test_a_login_selects_that_service_and_a_logout_the_warehouse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Inbox(tmp_path / "theirs") as inbox:
        inbox.submit(replace(JOB, name="theirs"))
    go(tmp_path / "theirs", 1)
    with Inbox(tmp_path / "own") as inbox:
        inbox.submit(replace(JOB, name="own"))
    go(tmp_path / "own", 1)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SHOCKWAVE_WAREHOUSE", str(tmp_path / "own"))
    file = tmp_path / "config" / "shockwave" / "login.json"

    def printed(*words: str, said: str = "") -> str:
        done = CliRunner().invoke(build_application(words), [*words], input=said)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.stdout

    with served(tmp_path / "theirs") as url:
        with pytest.raises(InputError, match="token: is not known"):
            printed("login", url, said="guess\n")
        assert not file.exists()
        assert f"logged in to {url} as shockwave, operator" in printed(
            "login", url, said=f"{SECRET}\n"
        )
        assert file.stat().st_mode & 0o777 == 0o600
        assert "theirs" in printed("job", "list")
        own = ("job", "list", "--warehouse", str(tmp_path / "own"))
        assert "theirs" not in printed(*own)
        file.chmod(0o644)
        with pytest.raises(InputError, match="others can read or change it"):
            printed("job", "list")
        assert printed("logout") == "logged out\n"
    assert "theirs" not in printed("job", "list")
    assert printed("logout") == "not logged in\n"


def test_terms_of_a_tenant_are_set_and_listed(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        inbox.submit(JOB)
    go(tmp_path, 1)
    words = ("tenant", "set", "a", "--gpu-hours", "0.001", "--window-hours", "100000")
    (entry,) = typed(tmp_path, *words, "--key", "k")
    assert typed(tmp_path, *words, "--key", "k") == [entry]
    typed(tmp_path, "tenant", "set", "a", "--budget", "2", "--image", "team/*")
    go(tmp_path, 2)
    rows = {row["tenant"]: row for row in typed(tmp_path, "tenant", "list")}
    assert rows["a"]["quota_hours"] == 0.001
    assert (rows["a"]["factor"], rows["a"]["budget"]) == (2.0, 2.0)
    assert rows["a"]["used_hours"] > 0.001
    (queued,) = typed(tmp_path, "queue")
    assert queued["waits_for"] == "the quota of its tenant, until 360,000,000 s"
    assert any(
        "0.001 GPU-hours in 100000 h" in row["reason"]
        for row in typed(tmp_path, "service", "events")
    )
    other = ("--kind", "opaque", "--max-seconds", "60", "--tenant", "a")
    with pytest.raises(InputError, match="image: tenant a may not use x"):
        typed(tmp_path, "submit", "--image", "x", *other)
    typed(tmp_path, "submit", "--image", "team/x", *other)
    with pytest.raises(InputError, match=r"window_hours: .* is refused"):
        typed(tmp_path, "tenant", "set", "a", "--window-hours", "0")


def test_shells_complete_commands_and_names_of_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Inbox(tmp_path) as inbox:
        for name in ("nightly", "night", "other"):
            inbox.submit(replace(JOB, name=name))
    go(tmp_path, 1)
    monkeypatch.setenv("SHOCKWAVE_WAREHOUSE", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def completed(how: str, words: str, place: int) -> list[str]:
        monkeypatch.setenv("_SHOCKWAVE_COMPLETE", how)
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(place))
        with pytest.raises(SystemExit):
            main._run([])
        return capsys.readouterr().out.splitlines()

    assert completed("complete_bash", "shockwave job cancel nigh", 3) == ["night", "nightly"]
    assert completed("complete_bash", "shockwave node uncor", 2) == ["uncordon"]
    monkeypatch.setenv("SHOCKWAVE_WAREHOUSE", str(tmp_path / "none"))
    assert completed("complete_bash", "shockwave job hold n", 3) == [""]
    assert any("_SHOCKWAVE_COMPLETE" in line for line in completed("source_bash", "", 0))


def test_top_shows_the_cluster_once_or_again_and_again(service: Path) -> None:
    with Inbox(service) as inbox:
        inbox.submit(replace(JOB, name="mine"))
    name = go(service, 1)
    (state,) = typed(service, "service", "top")
    assert (state["status"]["run"], state["status"]["busy_gpus"]) == (name, 2)
    assert [row["jobs"] for row in state["nodes"]] == [[1], [1], [], []]
    assert [row["name"] for row in state["queue"]] == ["mine"]
    looks = 0

    def wait() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            raise KeyboardInterrupt

    out = StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=24, highlight=False)
    with open_local(service) as commands:
        once = render(lay_out(commands, 80), 80)
        with pytest.raises(KeyboardInterrupt):
            follow(commands, console, wait)
    assert any("mine" in line for line in once)
    assert all(len(line) <= 80 for line in once)
    assert out.getvalue().count(name) == 3


def test_a_launch_is_described_in_words() -> None:
    asked = {"kind": JobKind.OPAQUE, "image": "a:1", "max_seconds": 9e3, "scale_factor": 2}
    more = {"command": ["sleep", "a b"], "environment": {"A": "1"}, "array": "0-3%2"}
    (trained, other) = (parse_job(Path("job"), fields) for fields in (FILE, asked | more))
    assert describe_launch(trained) == (
        "on 1 GPU: the image of its node, conv-small, static, batch size 32, 5 epochs"
    )
    assert describe_launch(other) == (
        "on 2 GPUs, each of the tasks 0-3%2: a:1, sleep 'a b', with A=1, for 9,000 s at most"
    )
