"""Refusals of `shockwave up` before it starts anything, and its deployments."""

import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
from prefect.exceptions import FailedRun
from prefect.settings import Settings as PrefectSettings
from prefect.settings import get_current_settings

from flows.cli import service
from flows.deployments.deployments import read_deployments
from flows.prefect_server import command
from flows.prefect_server.access import Access
from flows.prefect_server.children import run_child
from flows.prefect_server.failures import log_errors_once
from flows.scheduler.leadership import LeaseSite, lead
from flows.scheduler.options import DATABASE_URL, ServiceOptions
from flows.supervisor import service as supervision
from flows.supervisor.config import ListenAddress, Service
from flows.supervisor.service import SupervisedProcess, _processes, _server_env
from harness.dockerd import node_table
from harness.up import free_port
from harness.waiting import HANG_SECONDS, wait_for
from predictor.errors import InputError, WarehouseBusy, WarehouseError
from tests.flows.conftest import Command, assert_refused
from warehouse.inbox.inbox import Inbox
from warehouse.store.checks import check_warehouse

ROOT = Path(__file__).parents[2]


@pytest.fixture
def taken() -> Iterator[int]:
    """A port of a program that is no Prefect server."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def refused(here: Command, folder: Path, *options: object) -> str:
    """The line of a refusal; nothing may have been started or written."""
    ran = here("up", "--warehouse", folder / "warehouse", *options)
    assert_refused(ran)
    assert list(folder.iterdir()) == []
    return ran.err.strip()


@pytest.mark.process
def test_a_taken_port_is_reported(
    here: Command, tmp_path: Path, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "ANSWER_SECONDS", 0.5)  # which that program never gives
    assert refused(here, tmp_path, "--port", taken) == (
        f"error: --port: another program already listens on port {taken}; "
        "stop it, or give another port"
    )


def test_a_host_that_is_not_this_machine_is_reported(here: Command, tmp_path: Path) -> None:
    assert "--port: cannot listen on 192.0.2.1:4200" in refused(
        here, tmp_path, "--host", "192.0.2.1", "--behind-proxy", "https://gpu.example"
    )
    assert "--host: 'no such host' is not a known address" in refused(
        here, tmp_path, "--host", "no such host"
    )


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "is not a database URL"),
        ("mysql://somewhere/prefect", "mysql is not supported"),
        ("postgresql://somewhere/prefect", "postgresql is not supported"),
        ("sqlite+aiosqlite:////no/such/folder/file.db", "unable to open database file"),
    ],
)
def test_an_unusable_database_is_reported(
    here: Command, tmp_path: Path, url: str, said: str
) -> None:
    line = refused(here, tmp_path, "--port", free_port(), "--database-url", url)
    assert line.startswith("error: --database-url: ")
    assert said in line


@pytest.mark.parametrize("given", ["//ann:secret@{}/p", "//ann@{}/p?password=secret"])
def test_a_database_that_does_not_answer_is_reported_without_its_password(
    here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    url = f"postgresql+asyncpg:{given.format(f'127.0.0.1:{free_port()}')}"
    monkeypatch.setenv(DATABASE_URL, url)
    line = refused(here, tmp_path, "--port", free_port())
    assert "cannot be reached (" in line
    assert "@127.0.0.1" in line
    assert "secret" not in line
    with pytest.raises(WarehouseBusy) as error:
        Inbox(tmp_path, url)
    assert "@127.0.0.1" in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "given", ["//ann:secret@gpu1/p", "//:se@cret@gpu1", "//ann@gpu1/p?password=secret"]
)
def test_a_password_on_the_command_line_is_refused(
    here: Command, tmp_path: Path, given: str
) -> None:
    line = refused(here, tmp_path, "--database-url", f"postgresql+asyncpg:{given}")
    assert line.startswith("error: --database-url: has a password, which every user")
    assert DATABASE_URL in line
    assert "cret" not in line


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("{folder}", ": "),
        ("/proc/warehouse", "cannot be written ("),
        ("{folder}/file/warehouse", "cannot be written ("),
    ],
)
def test_a_folder_that_can_be_no_warehouse_is_reported(
    here: Command, tmp_path: Path, place: str, said: str
) -> None:
    (tmp_path / "file").write_text("not a folder")
    warehouse = place.format(folder=tmp_path)
    ran = here("up", "--port", free_port(), "--warehouse", warehouse)
    assert_refused(ran, f"error: {warehouse}", said)


def test_the_ui_is_kept_at_home_where_another_user_installed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Service(ListenAddress("127.0.0.1", 4200), "", tmp_path)
    assert "PREFECT_UI_STATIC_DIRECTORY" not in _server_env(given)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    home = get_current_settings().home
    assert _server_env(given)["PREFECT_UI_STATIC_DIRECTORY"] == str(home / "ui")


def test_a_client_lets_go_of_an_idle_connection_before_the_server_does() -> None:
    line = command.make_server_command("module:app", "127.0.0.1", 4200)
    kept = float(line[line.index("--timeout-keep-alive") + 1])
    expires = httpx.Limits().keepalive_expiry
    assert expires is not None
    assert kept > 2.0 * expires


@pytest.mark.process
def test_python_imports_nothing_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "uvicorn.py").write_text("print('ready', flush=True); input()")
    with (
        run_child("server", [sys.executable, "-m", "uvicorn", "--version"], {}) as server,
        pytest.raises(WarehouseError, match="Running uvicorn"),
    ):
        server.wait_until(server.reported_ready.is_set, Event())


@pytest.mark.slow
def test_a_standby_may_be_the_first_process(tmp_path: Path) -> None:
    warehouse = tmp_path / "w"
    place = LeaseSite(warehouse, "", "http://here", 1.0)
    with lead(place, Event(), lambda line: None, standby=True):
        Service(ListenAddress("127.0.0.1", free_port()), "", warehouse, standby=True).check()
    check_warehouse(warehouse)


# What the terminal shows


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (FailedRun("no such run"), ["Encountered it|"]),
        (InputError("gpus", "is 0", "give more"), ["Encountered it|"]),
        (ZeroDivisionError("real"), ["Encountered it|real", "Engine execution exited|real"]),
    ],
)
def test_errors_of_the_user_are_a_line_and_others_have_a_traceback(
    error: Exception, kept: list[str]
) -> None:
    log_errors_once()
    logger, logged = logging.getLogger("prefect.flow_runs"), []
    for said in ("Encountered it", "Engine execution exited"):
        record = logger.makeRecord(
            *(logger.name, logging.ERROR, "file", 1, said, ()), (type(error), error, None)
        )
        if logger.filter(record):
            logged.append(f"{said}|{record.exc_info[1] if record.exc_info else ''}")
    assert logged == kept


LEAKS = """\
nanobind: leaked 2 instances!
 - leaked instance 0x56256763b830 of type "any"
 - ... skipped remainder
See https://nanobind.readthedocs.io/en/latest/refleaks.html"""


@pytest.mark.process
def test_leaks_are_left_out_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    said = LEAKS + "said\n - more\n"
    says = f"import sys, time; time.sleep(1); sys.stderr.write({said!r})"
    with run_child("talking", [sys.executable, "-c", says], {}) as talking:
        assert talking.wait_until(lambda: True, Event())
        with pytest.raises(WarehouseError, match="ended with code 0"):
            wait_for(talking.check)
    assert capfd.readouterr().err == "said\n - more\n"


@pytest.mark.process
def test_what_follows_the_report_that_it_is_ready_is_in_the_log(
    capfd: pytest.CaptureFixture[str],
) -> None:
    says = "print('begins\\nready\\nfailed', flush=True); input()"
    with run_child("talking", [sys.executable, "-c", says], {}) as talking:
        assert talking.reported_ready.wait(HANG_SECONDS)  # though nobody asked
        assert wait_for(lambda: capfd.readouterr().err) == "failed\n"


@pytest.mark.parametrize("deployment", read_deployments(), ids=lambda deployment: deployment.name)
def test_every_parameter_of_a_deployment_is_described(deployment: Any) -> None:
    module, _, function = deployment.entrypoint.rpartition(".")
    flow = getattr(import_module(module), function)
    schema = flow.parameters.model_dump_for_openapi()
    assert "warehouse" in schema["properties"]
    models = schema.get("definitions", {})
    assert models
    for properties in (
        schema["properties"],
        *(model["properties"] for model in models.values() if "properties" in model),
    ):
        for name, field in properties.items():
            choice = models.get(field.get("$ref", "").rpartition("/")[2], {})  # Prefect's own words
            assert field.get("title") or choice.get("title"), name
            assert field.get("description") or choice.get("description"), name


def nothing_else() -> None:
    """What else is to be supervised."""


WORKER = """
import os, sys, time
with open(sys.argv[1], "a+") as pids:
    print(os.getpid(), file=pids, flush=True)
    pids.seek(0)
    starts = len(pids.readlines())
if starts != 2:
    print("ready", flush=True)
while True:
    print("alive", flush=True)
    time.sleep(0.01)
"""
"""Does not become ready at its second start."""


@pytest.mark.process
def test_a_process_that_is_killed_or_hangs_is_restarted(tmp_path: Path) -> None:
    reported, pids = list[str](), tmp_path / "pids"
    command = [sys.executable, "-c", WORKER, str(pids)]
    what = ("worker", command, {}, lambda child: child.reported_ready.is_set())
    process = SupervisedProcess(*what, HANG_SECONDS, 60.0, reported.append)

    def restarted(starts: int) -> list[str]:
        def again() -> list[str]:
            process.restart_if_failed()
            return pids.read_text().split()

        return wait_for(again, lambda found: len(found) == starts)

    with closing(process):
        assert process.wait_until_ready(Event(), nothing_else)
        process.restart_if_failed()
        assert reported == []
        os.kill(int(pids.read_text()), signal.SIGKILL)
        restarted(2)
        process._child._ready_seconds = 0.0
        _, unready, working = restarted(3)
        wait_for(process._child.reported_ready.is_set)
        os.kill(int(working), signal.SIGSTOP)
        process._silent_seconds = 0.5
        restarted(4)
        for number in (unready, working):
            with pytest.raises(ProcessLookupError):
                os.kill(int(number), 0)
    assert reported == [
        "worker ended with code -9; restarting it",
        "worker not ready after 0 s; restarting it",
        "worker makes no progress; restarting it",
    ]


@pytest.mark.process
def test_a_process_that_is_killed_again_and_again_is_restarted_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported, now, kills = list[str](), [0.0], 20
    monkeypatch.setattr(supervision, "monotonic", lambda: now[0])
    command = [sys.executable, "-c", "print('ready', flush=True); input()"]
    what = ("worker", command, {}, lambda child: child.reported_ready.is_set())
    with closing(SupervisedProcess(*what, HANG_SECONDS, math.inf, reported.append)) as process:
        assert process.wait_until_ready(Event(), nothing_else)
        for _ in range(kills):
            os.kill(process._child._process.pid, signal.SIGKILL)
            wait_for(lambda: process._child.was_killed)
            process.restart_if_failed()
            assert process.down.startswith("worker ended with code -9")
            now[0] += supervision.LONGEST_PAUSE  # no pause is longer
            process.restart_if_failed()
        assert process.wait_until_ready(Event(), nothing_else)
        process.restart_if_failed()
        assert process.down == ""
    assert len(reported) == kills


@pytest.mark.process
@pytest.mark.parametrize(("says", "count"), [("ready", ""), ("hello", " (2 times in a row)")])
def test_a_process_is_steady_only_once_it_was_ready_for_a_while(
    says: str, count: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(supervision, "monotonic", lambda: now[0])
    command = [sys.executable, "-c", f"print({says!r}, flush=True); input()"]
    what = ("worker", command, {}, lambda child: child.reported_ready.is_set())
    with closing(SupervisedProcess(*what, HANG_SECONDS, math.inf, [].append)) as process:
        for _ in range(2):
            if says == "ready":
                assert process.wait_until_ready(Event(), nothing_else)
            now[0] += 2.0 * supervision.STEADY_SECONDS
            os.kill(process._child._process.pid, signal.SIGKILL)
            wait_for(lambda: process._child.was_killed)
            process.restart_if_failed()
            down = process.down
            now[0] += supervision.LONGEST_PAUSE
            process.restart_if_failed()
    assert down == f"worker ended with code -9{count}"


@pytest.mark.process
def test_a_process_that_gives_signs_of_life_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    reported, silent = list[str](), 60.0
    command = [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(3600)"]
    what = ("worker", command, {}, lambda child: child.reported_ready.is_set())
    with closing(SupervisedProcess(*what, HANG_SECONDS, silent, reported.append)) as process:
        assert process.wait_until_ready(Event(), nothing_else)
        child = process._child
        for now in range(0, 3600, 59):  # an hour of signs, each just in time
            child.heard_at = float(now)
            monkeypatch.setattr(supervision, "monotonic", lambda now=now: now + silent)
            process.restart_if_failed()
        child.check()
        assert (process._child, reported) == (child, [])


@pytest.mark.parametrize("days", [0.0, 0.05, float("nan"), float("inf")])
def test_prefect_keeps_flow_runs_for_at_least_hours(tmp_path: Path, days: float) -> None:
    listening = ListenAddress("127.0.0.1", free_port())
    with pytest.raises(InputError, match=r"prefect_days: .* is out of range; give at least 0"):
        Service(listening, "", tmp_path / "w", prefect_days=days).check()


def test_prefect_deletes_ended_flow_runs_and_events_after_days(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(ListenAddress("127.0.0.1", 4200), "", tmp_path, prefect_days=1.5)
    server, *_ = _processes(service, Access("http://127.0.0.1:4200", "shockwave:secret"), 1)
    for name, value in server[2].items():
        monkeypatch.setenv(name, value)
    settings = PrefectSettings().server
    vacuum = settings.services.db_vacuum
    assert vacuum.enabled_vacuum_types >= {"events", "flow_runs"}
    assert vacuum.retention_period == timedelta(days=1.5)
    assert settings.events.retention_period == timedelta(days=1.5)


def test_a_scheduler_may_wait_as_the_cluster_file_says(tmp_path: Path) -> None:
    grace = 3600.0
    (file := tmp_path / "cluster.toml").write_text(
        f'storage = "{tmp_path}"\nuser = "1000:1000"\ngrace_seconds = {grace}\n'
        + node_table("one", "unix:///nowhere")
    )
    service = Service(ListenAddress("127.0.0.1", 4200), "", tmp_path, ServiceOptions(cluster=file))
    access = Access("http://127.0.0.1:4200", "shockwave:secret")
    (scheduler,) = (each for each in _processes(service, access, 1) if each[0] == "scheduler")
    *_, ready, silent = scheduler
    assert min(ready, silent) > 2.0 * grace  # jobs end where they lose GPUs, and at a launch


@pytest.mark.process
def test_a_log_whose_disk_is_full_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import sys; from pathlib import Path; print('ready', flush=True); sys.stdin.read(1);"
        "print('x\\n' * 10**6, flush=True); Path(sys.argv[1]).touch()"  # more than a pipe holds
    )
    command, done = [sys.executable, "-c", program, str(tmp_path / "done")], tmp_path / "done"
    with run_child("talker", command, {}) as talker, open("/dev/full", "w") as full:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", full)
            assert talker.wait_until(talker.reported_ready.is_set, Event())
            assert talker._process.stdin
            talker._process.stdin.write("x")
            talker._process.stdin.flush()
            assert wait_for(done.exists, lambda there: there)
            service._print_line("Ready" + " " * 2**16)
        with suppress(OSError):
            full.close()
