"""A shell in a job's container: on this machine and through a service, for who may have one."""

import os
import pty
import select
import sqlite3
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from flows.api.authorization import open_local
from flows.api.client import Client
from flows.api.submission import parse_job, read_job_fields
from flows.prefect_server.secret import authorization
from flows.scheduler.options import ServiceOptions
from flows.web import shells
from flows.web.shells import MOST_SHELLS
from harness.dockerd import PLAIN, Dockerd, node_table
from harness.waiting import HANG_SECONDS, wait_for
from predictor.errors import InputError, WarehouseBusy
from tasks.commands import CommandKind
from tests.flows.served import SECRET, drive, head, served
from warehouse.inbox.inbox import FILE, Inbox
from warehouse.inbox.tokens import Role, Tokens

PROGRAM = Path(sys.executable).with_name("shockwave")
NOTEBOOK = Path(__file__).parents[2] / "examples" / "jobs" / "jupyter.toml"


@dataclass
class Served:
    """A service with job 1, `desk`, of tenant a, which runs."""

    warehouse: Path
    url: str
    tokens: dict[str, str]
    go: Callable[[int], None]


@pytest.fixture
def desk(daemon: Dockerd, storage: Path, tmp_path: Path) -> Iterator[Served]:
    (file := tmp_path / "cluster.toml").write_text(
        f'''{head(storage)}images = ["{PLAIN.partition(":")[0]}:*"]
{node_table("one", daemon.endpoint)}'''
    )
    options = ServiceOptions(cluster=file, round_seconds=1.0, restart_seconds=0.5, driver="plain")
    job = {"image": PLAIN, "kind": "opaque", "max_seconds": 600.0, "name": "desk", "tenant": "a"}
    with ExitStack() as stack:
        inbox = stack.enter_context(Inbox(tmp_path))
        url = stack.enter_context(served(tmp_path))

        def go(rounds: int) -> None:
            drive(tmp_path, inbox, options, rounds)

        go(0)
        with Tokens(tmp_path) as tokens:
            given = {
                "reader": tokens.add("reader", Role.READER),
                "tenant": tokens.add("ann", Role.TENANT, "a"),
                "other": tokens.add("bob", Role.TENANT, "b"),
                "operator": tokens.add("olga", Role.OPERATOR),
            }
        with Client(url, given["operator"]) as client:
            client.submit(job | {"command": ["sleep", "600"]})
        go(1)
        stack.callback(daemon.remove_containers)
        yield Served(tmp_path, url, given, go)


def read_all(shell: Any) -> str:
    text = b""
    while part := shell.receive():
        text += part
    return text.decode()


def test_a_shell_has_a_terminal_an_exit_code_and_a_record(desk: Served) -> None:
    for service in (Client(desk.url, desk.tokens["tenant"]), open_local(desk.warehouse)):
        with closing(service), closing(service.open_shell("desk")) as shell:
            shell.resize(33, 111)
            shell.send(b"id -u; stty size; touch /x; echo $SHOCKWAVE_LEASE; exit 7\n")
            said = read_all(shell)
            assert shell.wait() == 7
        assert "1000\r\n" in said
        assert "33 111\r\n" in said
        assert "Read-only file system" in said
        assert "-job-1-round-0-node-0\r\n" in said
    desk.go(1)
    with Client(desk.url, SECRET) as client:
        opened = [row for row in client.list_events() if row.kind == "shell"]
        assert [row.job_id for row in opened] == [1, 1]
        assert "by ann" in opened[0].reason
        client.cancel("desk")
        with closing(client.open_shell("desk", ["cat"])) as shell:
            desk.go(2)
            assert read_all(shell) == ""
        with pytest.raises(InputError, match="has no shell: none of its containers runs"):
            client.open_shell("desk")
    with Inbox(desk.warehouse) as inbox:
        entries = inbox.entries_after(0)
    assert sum(entry.kind == CommandKind.SHELL for entry in entries) == 3, "none of the refused"


def test_only_the_owner_and_operators_have_a_shell(desk: Served, daemon: Dockerd) -> None:
    for who, problem in (
        ("reader", "a reader changes nothing"),
        ("other", "there is no job 'desk'"),
    ):
        with Client(desk.url, desk.tokens[who]) as client, pytest.raises(InputError, match=problem):
            client.open_shell("desk")
    with Client(desk.url, "unknown") as client, pytest.raises(InputError, match="is not known"):
        client.open_shell("desk")
    with Client(desk.url, desk.tokens["tenant"]) as client:
        with pytest.raises(InputError, match="there is no job '9'"):
            client.open_shell("9")
        with closing(client.open_shell("desk", ["no-such-program"])) as shell:
            assert "no-such-program" in read_all(shell)
    address = f"ws{desk.url.removeprefix('http')}/v1/jobs/desk/shell"
    headers = {"Authorization": authorization(SECRET)}
    with pytest.raises(InvalidStatus, match="403"):
        connect(address, additional_headers=headers, origin=Origin("http://evil.example"))
    (container,) = daemon.containers(Inbox(desk.warehouse).run)
    assert len(container.top()["Processes"]) == 2, "its init and its program"


def type_too_much(shell: Any) -> None:
    """Type what no buffers hold, for a program that does not read."""

    def send() -> None:
        for _ in range(2**9):
            shell.send(b"\n" * 2**16)

    Thread(target=send, daemon=True).start()


@pytest.mark.parametrize("reads", [True, False])
def test_a_shell_ends_with_its_token(desk: Served, reads: bool) -> None:
    program = ["cat"] if reads else ["sleep", "600"]
    with (
        Client(desk.url, desk.tokens["tenant"]) as client,
        closing(client.open_shell("desk", program)) as shell,
    ):
        if not reads:
            type_too_much(shell)
        with Tokens(desk.warehouse) as tokens:
            tokens.remove("ann")
        assert read_all(shell).strip("^CD\r\n") == ""
    with Client(desk.url, desk.tokens["operator"]) as client:
        assert client.get_job("desk").status == "runs"


def test_a_shell_ends_whose_program_does_not_read(
    desk: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shells, "SEND_SECONDS", 1.0)
    with (
        Client(desk.url, desk.tokens["tenant"]) as client,
        closing(client.open_shell("desk", ["sleep", "600"])) as shell,
    ):
        type_too_much(shell)
        with pytest.raises(WarehouseBusy, match="did not read for 1 s"):
            read_all(shell)
    with closing(open_local(desk.warehouse)) as local:
        shell = local.open_shell("desk", ["sleep", "600"])
        type_too_much(shell)
        shell.receive()  # the terminal's echo: what is typed arrives
        shell.close()


def test_a_shell_says_why_its_caller_cannot_be_looked_up(desk: Served) -> None:
    with (
        Client(desk.url, desk.tokens["tenant"]) as client,
        closing(client.open_shell("desk", ["cat"])) as shell,
    ):
        with closing(sqlite3.connect(desk.warehouse / FILE)) as database, database:
            database.execute("UPDATE shockwave_tokens SET role = 'king'")
        with pytest.raises(WarehouseBusy, match="token 'ann': was changed"):
            read_all(shell)


def test_nobody_waits_for_a_shell_behind_others(desk: Served) -> None:
    with ExitStack() as stack:
        for who in ("tenant", "operator"):
            client = stack.enter_context(Client(desk.url, desk.tokens[who]))
            for _ in range(MOST_SHELLS // 2):
                shell = stack.enter_context(closing(client.open_shell("desk", ["cat"])))
        last = stack.enter_context(Client(desk.url, SECRET))
        with pytest.raises(WarehouseBusy, match="16 are open already; try again later"):
            last.open_shell("desk")
        shell.close()

        def opens() -> bool:
            with suppress(WarehouseBusy), closing(last.open_shell("desk", ["true"])):
                return True
            return False

        wait_for(opens)


def test_the_command_passes_keys_and_the_terminal_on(desk: Served) -> None:
    here, there = pty.openpty()
    before = termios.tcgetattr(there)
    environment = {**os.environ, "SHOCKWAVE_URL": desk.url}
    environment |= {"SHOCKWAVE_TOKEN": desk.tokens["tenant"]}
    command = [str(PROGRAM), "shell", "desk"]
    with (
        subprocess.Popen(command, stdin=there, stdout=there, stderr=there, env=environment) as run,
        ExitStack() as stack,
    ):
        stack.callback(run.kill)
        said = b""

        def shows(text: bytes) -> bool:
            nonlocal said
            while select.select([here], [], [], 0)[0]:
                said += os.read(here, 2**12)
            return text in said

        wait_for(lambda: shows(b"$ "))
        os.write(here, b"sleep 600\n")
        wait_for(lambda: shows(b"sleep 600"))
        os.write(here, b"\x03echo $((6 * 7))\n")
        wait_for(lambda: shows(b"42\r\n"))
        os.write(here, b"exit 3\n")
        assert run.wait(HANG_SECONDS) == 3
    assert termios.tcgetattr(there) == before
    os.close(here)
    os.close(there)


def test_the_command_waits_for_a_container(desk: Served, daemon: Dockerd) -> None:
    (container,) = daemon.containers(Inbox(desk.warehouse).run)
    container.stop(timeout=0)
    environment = {**os.environ, "SHOCKWAVE_URL": desk.url}
    environment |= {"SHOCKWAVE_TOKEN": desk.tokens["tenant"]}
    with subprocess.Popen(
        [str(PROGRAM), "shell", "desk", "--", "echo", "42"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stderr is not None
        said = run.stderr.readline()
        assert said == "job 1 has no container yet; its shell opens when it runs\n"
        container.start()
        assert run.communicate() == ("42\n", "")
        assert run.returncode == 0


def test_the_notebook_of_the_examples_is_a_job() -> None:
    job = parse_job(NOTEBOOK, read_job_fields(NOTEBOOK, {}))
    assert (job.kind, job.network, job.max_seconds) == ("opaque", "host", 7200)
