"""Commands on the jobs of a service."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from flows.api.commands import ServiceCommands, spread_out
from flows.api.submission import describe_launch, parse_job
from flows.cli import main
from flows.scheduler.process import announce
from predictor.allocation import Allocation
from predictor.job import JobKind
from tests.flows.conftest import Command, Ran, assert_refused
from tests.flows.served import SECRET, served
from tests.flows.test_api import FILE
from tests.flows.test_scheduler import JOB, go
from tests.runs import ended, write
from warehouse.inbox.database import Database
from warehouse.inbox.inbox import Inbox

pytestmark = pytest.mark.process

Typed = Callable[..., list[dict[str, Any]]]
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


@pytest.fixture
def ask(here: Command, tmp_path: Path) -> Command:
    """A command with `--json` about the warehouse of a test or, if there is one, its service."""

    def run(*words: str) -> Ran:
        at = words.index("--") if "--" in words else len(words)
        about = () if "SHOCKWAVE_URL" in os.environ else ("--warehouse", tmp_path)
        return here(*words[:at], *about, "--json", *words[at:])

    return run


@pytest.fixture
def typed(ask: Command) -> Typed:
    """What such a command prints."""

    def run(*words: str) -> list[dict[str, Any]]:
        ran = ask(*words)
        assert ran.code == 0, ran.err
        return ran.rows

    return run


def test_windows_of_a_rule_end_by_their_range(typed: Typed, ask: Command, service: Path) -> None:
    go(service, 1, jobs=[JOB])
    weekly = ("--start", "2999-01-01T12:00", "--zone", "UTC", "--rrule", "FREQ=WEEKLY;COUNT=3")
    made = typed("node", "maintain", "2", "--hours", "1", *weekly)
    assert [row["entry"] for row in made] == [2, 3, 4]
    assert_refused(ask("node", "maintain", "2", "--hours", "1", *weekly), "window 2", "already")
    typed("node", "reopen", "2-3")
    go(service, 1)
    (row,) = typed("node", "windows")
    assert (row["window"], row["start"]) == (4, "2999-01-15T12:00:00+00:00")
    for wrong in ("4-2", "0", "a", "1-101"):
        assert_refused(ask("node", "reopen", wrong), "windows: ", "give some such as 4 or 4-13")


def test_nodes_are_set_aside_and_reopened_in_spite_of_others(
    typed: Typed, ask: Command, service: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(service, 1, jobs=[JOB])
    later = ("--hours", "1", "--start", "2999-01-01T12:00")
    typed("node", "maintain", "0", *later)
    ran = ask("node", "maintain", "0", "9", "1", "2", *later)
    first, last = ran.err.splitlines()
    assert (ran.code, first.startswith("error: ")) == (2, True)
    assert "window 2 sets node 0 aside already" in first
    assert "there is no node '9'" in last
    assert [row["entry"] for row in ran.rows] == [3, 4]
    typed("node", "cordon", "3")
    typed("node", "maintain", "3", *later)
    go(service, 1)
    read, asked = Database.read, list[object]()

    def count(database: Database, work: Any) -> Any:
        asked.append(work)
        return read(database, work)

    with ServiceCommands(service) as commands:
        commands.read_history()
        monkeypatch.setattr(Database, "read", count)
        assert {row.start[:4] for row in commands.list_windows()} == {"2999"}
        assert len(asked) == 1, "for all nodes"
    ran = ask("node", "reopen", "3-6", "5", "4")
    assert_refused(ran, "there is no window 5", output=ran.out)
    assert len(ran.rows) == 4, "number 5 of a range is skipped"
    assert_refused(ask("node", "reopen", "7-9"), "there is no window")
    go(service, 1)
    assert [row["window"] for row in typed("node", "windows")] == [2]


def test_windows_are_told_of_by_number_and_date(here: Command, tmp_path: Path) -> None:
    go(tmp_path, 1, jobs=[JOB])
    twice = ("--start", "2999-01-01", "--rrule", "FREQ=WEEKLY;COUNT=2")
    ran = here("node", "maintain", "2", "--hours", "1", *twice, "--warehouse", tmp_path)
    assert "windows 2-3 of node 2 are accepted; they take effect" in ran.out + ran.err
    go(tmp_path, 1)
    assert "2999-01-08 00:00 " in here("node", "windows", "--warehouse", tmp_path).out
    assert "reopen [OPTIONS] WINDOWS...\n" in re.sub(
        " +\n", "\n", here("node", "reopen", "--help").out
    )


def test_an_elastic_job_holds_more_gpus_than_it_asks_for(typed: Typed, tmp_path: Path) -> None:
    go(tmp_path, 1, jobs=[JOB])
    (job,) = typed("submit", *SMALL, "--min-gpus", "1", "--max-gpus", "4")
    go(tmp_path, 1)
    row = next(row for row in typed("queue") if row["job_id"] == job["job_id"])
    assert (row["status"], row["gpus"]) == ("runs", 2)  # the other two are of a gang


def test_jobs_are_handed_in_steered_and_shown(typed: Typed, here: Command, service: Path) -> None:
    tmp_path = service
    name = go(tmp_path, 1, jobs=[JOB])
    (job,) = typed("submit", *SMALL, "--gpus", "2", "--key", "k")
    assert typed("submit", *SMALL, "--gpus", "2", "--key", "k") == [job]
    (file := tmp_path / "job.toml").write_text(
        'model = "translator"\nbatch_size = 64\nepochs = 9\n'
    )
    (other,) = typed("submit", str(file), "--budget", "2", "--tenant", "b")
    (ahead,) = typed("submit", str(file), "--dry-run")
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
        typed(*words)
    go(tmp_path, 1)
    assert [job["job_id"], other["job_id"]] == [2, 3]
    rows = {row["job_id"]: row for row in typed("job", "list")}
    assert [rows[n]["status"] for n in (1, 2, 3)] == ["runs", "held", "cancelled"]
    assert (rows[3]["tenant"], rows[3]["model"]) == ("b", "translator")
    assert typed("job", "list", "--only", "status=held|canc*,tenant=b") == [rows[3]]
    assert typed("job", "list", "--only", "status=failed") == []
    assert [row["job_id"] for row in typed("queue")] == [1, 2, 3]
    kinds = [row["kind"] for row in typed("service", "events")]
    assert {"submit", "hold", "budget", "drain", "cancel"} <= {*kinds}
    (status,) = typed("status")
    runs = "running" if "SHOCKWAVE_URL" in os.environ else "stopped"
    assert (status["service"], status["run"], status["drained"]) == (runs, name, [3])
    # About the warehouse, served or not:
    assert here("queue", "--warehouse", tmp_path).err.startswith("(the service is stopped")
    none = here("job", "list", "--only", "status=failed", "--warehouse", tmp_path)
    assert none.out.split()[:3] == ["job_id", "name", "tenant"]
    assert none.err == "(no job matches)\n"
    (answer,) = typed("why", "1")
    assert (answer["run"], answer["job"]["job_id"], answer["status"]) == (name, 1, "runs")
    (me,) = typed("whoami")
    assert (me["name"], me["role"]) == (rows[2]["by"], "operator")
    for words in (("job", "release", "2"), ("node", "uncordon", "3")):
        typed(*words)
    accepted = typed("job", "requeue", "1", "2", "--key", "both")
    assert typed("job", "requeue", "1", "2", "--key", "both") == accepted
    assert [row["job_id"] for row in accepted] == [1, 2]
    go(tmp_path, 1)
    (status,) = typed("status")
    assert (status["held"], status["drained"], status["pending"]) == (0, [], 0)


MISTAKES = {
    ("submit",): "model",
    ("job", "list", "--only", "state=runs"): "--only: there is no column state; give job_id",
    ("job", "list", "--only", "runs"): "--only: 'runs' is not of the form NAME=VALUE",
    ("job", "wait", "none"): "there is no job 'none'",
    ("submit", "--model", "conv-small", "--batch-size", "32"): "epochs",
    ("submit", *SMALL, "--model", "x", "--samples-per-epoch", "9"): "--model: there are no thr",
    ("submit", *SMALL, "--gpus", "64"): "--gpus: 64 are requested",
    ("submit", *SMALL, "--gpus", "2", "--max-gpus", "1"): "--max-gpus: 1 is below its 2 GPUs",
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
    ("submit", *SMALL, "--secret", "a/b"): "error: --secret: 'a/b' is not",
    ("submit", *SMALL, "--env", "1=3"): "error: --env: '1=3' is not",
    ("submit", *SMALL, "--batch-size", "-64"): "error: --batch-size: -64 is refused",
    ("submit", *SMALL, "--max-batch-size", "8"): (
        "error: --max-batch-size: is below the batch size, 32; raise it, or lower --batch-size"
    ),
    ("submit", "--image", "x", "--", "echo"): "error: --kind: is missing",
    ("why", "none"): "none'",
    ("job", "cancel", "9"): "there is no job '9'",
    ("job", "budget", "1", "0"): "is not a valid budget",
    ("job", "logs", "9"): "there is no job '9'",
    ("job", "logs", "1"): "job 1: is on a virtual cluster, where jobs print nothing",
    ("node", "drain", "x"): "there is no node 'x'",
}


def test_a_mistake_is_a_line_and_hands_nothing_in(ask: Command, service: Path) -> None:
    tmp_path = service
    with Inbox(tmp_path) as inbox:
        inbox.submit(JOB)
        go(tmp_path, 1)
        for words, problem in MISTAKES.items():
            assert_refused(ask(*words), problem)
        assert inbox.last() == 1


def test_mistakes_name_fields_of_a_file_or_options(ask: Command, tmp_path: Path) -> None:
    go(tmp_path, 1, jobs=[JOB])
    file = tmp_path / "job.toml"
    sizes = 'model = "conv-small"\nbatch_size = 32\nepochs = 40\n'
    for more, options, problem in (
        (
            "batchsize = 1\n",
            (),
            (f"error: {file}: batchsize: ", " choose from kind, ", " max_seconds, ", " batch_size"),
        ),
        ("max_batch_size = 8\n", (), (f"{file}: max_batch_size: ", "or lower batch_size")),
        ("", ("--batch-size", "-64"), ("error: --batch-size: -64 is refused",)),
    ):
        file.write_text(sizes + more)
        assert_refused(ask("submit", file, *options), *problem)


def test_why_says_of_which_of_two_runs_it_is(here: Command, tmp_path: Path) -> None:
    own = go(tmp_path, 2, jobs=[JOB])
    made = ended("fifo", jobs=2)
    other = write(tmp_path, made.start, made.rounds)

    def asked() -> tuple[str, str]:
        ran = here("why", "1", "--warehouse", tmp_path)
        return ran.err.strip(), ran.out

    said, first = asked()
    assert said == f"(shown: the newest run; for the service's: --run {own})"
    assert f" of {other}, " in first
    with announce(tmp_path, "http://127.0.0.1:9", 1.0):  # as a service that is running is
        said, first = asked()
    assert said == f"(shown: the service's run; for the newest: --run {other})"
    assert f" of {own}, " in first


def test_the_schema_of_a_jobs_file_is_printed(here: Command) -> None:
    fields = json.loads(here("submit", "--schema").out)["properties"]
    assert {"model", "batch_size", "epochs", "mode"} <= fields.keys()


def test_jobs_of_any_image_run_on_a_virtual_cluster(
    typed: Typed, ask: Command, here: Command, tmp_path: Path
) -> None:
    with Inbox(tmp_path) as inbox:
        inbox.submit(replace(JOB, epochs=500, total_steps=0))  # goes on all the time
    go(tmp_path, 1)
    line = ("--image", "python:3-slim", "--kind", "opaque", "--name", "etl", "--max-seconds", "900")
    (job,) = typed("submit", *line, "--gpus", "2", "--", "python", "-c", "print(1)")
    go(tmp_path, 2)
    rows = {row["name"]: row for row in typed("job", "list")}
    assert rows["etl"]["status"] == "runs"
    first, what, *_ = here("why", "2", "--warehouse", tmp_path).out.splitlines()
    assert first.startswith("Job 2 (etl) runs in round")
    assert what.startswith("python:3-slim, opaque, 2 GPUs, tenant default, budget 1; it has held ")
    assert "of its limit of 900 s, " in what
    typed("job", "cancel", "etl")
    go(tmp_path, 3)
    rows = {row["name"]: row for row in typed("job", "list")}
    assert rows["etl"]["job_id"] == job["job_id"]
    assert rows["etl"]["status"] in ("finished", "withdrawn")
    ended = ask("job", "wait", "etl")
    assert ended.rows == [rows["etl"]]
    assert ended.code == (0 if rows["etl"]["status"] == "finished" else 1)


def test_an_array_waits_for_a_job_and_is_steered_as_a_whole_or_by_task(
    typed: Typed, ask: Command, tmp_path: Path
) -> None:
    go(tmp_path, 1, jobs=[JOB])
    typed("submit", *SMALL, "--name", "prepare", "--deadline", "90000")
    array = (*SMALL, "--name", "sweep", "--array", "5-8%1", "--after", "prepare", "--key", "k")
    jobs = typed("submit", *array)
    assert [row["job_id"] for row in jobs] == [3, 4, 5, 6]
    assert typed("submit", *array) == jobs
    go(tmp_path, 1)
    rows = {row["job_id"]: row for row in typed("queue")}
    assert rows[3]["waits_for"] == "the end of job 2"
    assert rows[4]["starts_in_s"] > rows[3]["starts_in_s"] > 0.0
    assert (rows[2]["in_time"], rows[1]["deadline_in_s"]) == ("yes", None)
    assert [row["job_id"] for row in typed("job", "cancel", "sweep[7]")] == [5]
    assert [row["job_id"] for row in typed("job", "hold", "sweep")] == [3, 4, 5, 6]
    go(tmp_path, 1)
    rows = {row["job_id"]: row for row in typed("job", "list")}
    assert [rows[job]["status"] for job in (3, 4, 5, 6)] == ["held", "held", "cancelled", "held"]
    (answer,) = typed("why", "sweep[8]")
    assert (answer["job"]["job_id"], answer["obstacles"]["order"]) == (6, "held")
    typed("job", "cancel", "prepare")
    go(tmp_path, 2)
    refused = ask("submit", *SMALL, "--after", "prepare")
    assert_refused(refused, "job 2 is withdrawn, so no job can start after it")
    go(tmp_path, 1)
    rows = {row["job_id"]: row for row in typed("job", "list")}
    assert {rows[job]["status"] for job in (3, 4, 5, 6)} == {"withdrawn"}
    assert rows[4]["reason"] == "job 2, before it, did not end well"
    ended = ask("job", "wait", "sweep", "prepare")
    assert (ended.code, [row["job_id"] for row in ended.rows]) == (1, [3, 4, 5, 6, 2])


def test_a_login_selects_that_service_and_a_logout_the_warehouse(
    here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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

    def asked(*words: object, said: str = "") -> Ran:
        monkeypatch.setattr(sys, "stdin", StringIO(said))
        return here(*words)

    with served(tmp_path / "theirs") as url:
        assert_refused(asked("login", url, said="guess\n"), "token: is not known")
        assert not file.exists()
        greeting = asked("login", url, said=f"{SECRET}\n").out
        assert f"logged in to {url} as shockwave, operator" in greeting
        assert file.stat().st_mode & 0o777 == 0o600
        assert "theirs" in asked("job", "list").out
        assert "theirs" not in asked("job", "list", "--warehouse", tmp_path / "own").out
        file.chmod(0o644)
        assert_refused(asked("job", "list"), "others can read or change it")
        assert asked("logout").out == "logged out\n"
    assert "theirs" not in asked("job", "list").out
    assert asked("logout").out == "not logged in\n"


def test_terms_of_a_tenant_are_set_and_listed(typed: Typed, ask: Command, tmp_path: Path) -> None:
    go(tmp_path, 1, jobs=[JOB])
    words = ("tenant", "set", "a", "--gpu-hours", "0.001", "--window-hours", "100000")
    (entry,) = typed(*words, "--key", "k")
    assert typed(*words, "--key", "k") == [entry]
    typed("tenant", "set", "a", "--budget", "2", "--image", "team/*")
    go(tmp_path, 2)
    rows = {row["tenant"]: row for row in typed("tenant", "list")}
    assert rows["a"]["quota_hours"] == 0.001
    assert (rows["a"]["factor"], rows["a"]["budget"]) == (2.0, 2.0)
    assert rows["a"]["used_hours"] > 0.001
    (queued,) = typed("queue")
    assert queued["waits_for"] == "the quota of its tenant, until 360,000,000 s"
    assert any("0.001 GPU-hours in 100000 h" in row["reason"] for row in typed("service", "events"))
    other = ("--kind", "opaque", "--max-seconds", "60", "--tenant", "a")
    assert_refused(ask("submit", "--image", "x", *other), "image: tenant a may not use x")
    typed("submit", "--image", "team/x", *other)
    assert_refused(ask("tenant", "set", "a", "--window-hours", "0"), "window_hours: ", "refused")


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


def test_a_launch_is_described_in_words() -> None:
    asked = {"kind": JobKind.OPAQUE, "image": "a:1", "max_seconds": 9e3, "scale_factor": 2}
    more = {"command": ["sleep", "a b"], "environment": {"A": "1"}, "array": "0-3%2"}
    (trained, other) = (parse_job(Path("job"), fields) for fields in (FILE, asked | more))
    assert describe_launch(trained) == ("on 1 GPU: conv-small, static, batch size 32, 5 epochs")
    assert describe_launch(other) == (
        "on 2 GPUs, each of the tasks 0-3%2: a:1, sleep 'a b', with A=1, for 9,000 s at most"
    )


def test_a_dry_run_names_the_size_that_meets_a_deadline_in_least_gpu_time(
    typed: Typed, tmp_path: Path
) -> None:
    go(tmp_path, 1, jobs=[JOB])
    small = "--model", "conv-small", "--batch-size", "32", "--epochs", "400"
    asked = *small, "--min-gpus", "1", "--max-gpus", "4", "--dry-run", "--deadline"
    (ahead,) = typed("submit", *asked, "1000000")
    loose = ahead["size"]
    assert (loose["gpus"], loose["gpu_type"]) == (1, "")
    alone = loose["gpu_hours"] * 3600  # two GPUs are 5 % faster
    (ahead,) = typed("submit", *asked, str(0.975 * alone))
    assert ahead["size"]["gpus"] > 1
    assert ahead["size"]["ends_in_s"] <= 0.975 * alone
    assert ahead["size"]["gpu_hours"] > loose["gpu_hours"]
    (ahead,) = typed("submit", *asked, "1")
    assert ahead["size"] is None


def test_a_dry_run_says_in_words_which_size_meets_the_deadline(
    here: Command, tmp_path: Path
) -> None:
    go(tmp_path, 1, jobs=[JOB])
    small = "--model", "conv-small", "--batch-size", "32", "--epochs", "400", "--dry-run"

    def says(*more: str) -> str:
        ran = here("submit", *small, *more, "--warehouse", tmp_path)
        assert ran.code == 0, ran.err
        return ran.out

    none = "no number of GPUs that was tried is sure to meet its deadline"
    sizes = "--min-gpus", "1", "--max-gpus", "4", "--deadline"
    assert "cheapest size that meets the deadline: 1 GPU, " in says(*sizes, "1000000")
    assert none in says(*sizes, "1")
    one = says("--min-gpus", "1", "--max-gpus", "1", "--deadline", "1000000")
    assert ": yes" in one
    assert none not in one


def test_few_of_many_sizes_are_tried() -> None:
    sizes = [Allocation("", gpus) for gpus in range(1, 261)]
    tried = [entry.gpus for entry in spread_out(sizes, 8)]
    assert tried == [1, 2, 5, 11, 24, 53, 117, 260]
    assert spread_out(sizes[:8], 8) == sizes[:8]
    assert [entry.gpus for entry in spread_out(sizes[:9], 8)] == [1, 2, 3, 4, 5, 7, 9]
