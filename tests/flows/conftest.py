"""The command line, called in this process or as the installed program, and one small run."""

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer

from flows.cli import main as cli
from flows.cli.app import build_application
from harness.up import PROGRAM
from harness.waiting import HANG_SECONDS

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

    from flows.prefect_server.access import Access


def _no_constant(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


@dataclass(frozen=True)
class Ran:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Its output as one JSON object a line; any other line fails the test."""
        rows = [json.loads(line, parse_constant=_no_constant) for line in self.out.splitlines()]
        assert all(type(row) is dict for row in rows)
        return rows


def command_named(name: str) -> Any:
    """The command of a name such as `run list`."""
    command: Any = typer.main.get_command(build_application(name.split()))
    for word in name.split():
        command = command.commands[word]
    return command


def assert_refused(ran: Ran, *said: str, output: str = "") -> None:
    """Exit code 2 and a line with place, problem and remedy."""
    assert (ran.code, ran.out) == (2, output)
    (line,) = ran.err.splitlines()
    assert line.startswith("error: ")
    place_and_problem, remedy = line.removeprefix("error: ").rsplit("; ", 1)
    assert ": " in place_and_problem
    assert remedy
    for part in said:
        assert part in line


Command = Callable[..., Ran]


@pytest.fixture(scope="session")
def program() -> Command:
    """The installed console script in a process of its own."""

    def run(*arguments: object, cwd: Path | None = None) -> Ran:
        done = subprocess.run(
            [PROGRAM, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
            cwd=cwd,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


def enter(*arguments: object) -> int:
    """Run the same entry point in this process; its exit code."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cli, "end_process", lambda code: None)
        patched.setattr(sys, "argv", ["shockwave", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
    return int(end.value.code or 0)


@pytest.fixture
def here(capfd: pytest.CaptureFixture[str]) -> Command:
    """The program in this process, which saves the seconds of its imports."""

    def run(*arguments: object) -> Ran:
        capfd.readouterr()
        return Ran(enter(*arguments), *capfd.readouterr())

    return run


@pytest.fixture(scope="session")
def home(server: "Access", home_of_server: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's home of Prefect with a database, which takes seconds to make."""
    folder = tmp_path_factory.mktemp("home")
    with (
        closing(sqlite3.connect(home_of_server / "prefect.db")) as made,
        closing(sqlite3.connect(folder / "prefect.db")) as database,
    ):
        made.backup(database)
    return folder


@pytest.fixture(scope="session")
def home_of_server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the Prefect server that the tests of all files share."""
    return tmp_path_factory.mktemp("prefect")


_serving = ExitStack()
_to_be_served: set[str] = set()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note which tests use the Prefect server."""
    _to_be_served.update(item.nodeid for item in session.items if _uses_server(item))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Stop the Prefect server after the last test that uses it: idle, it takes 2 % of a core."""
    _to_be_served.discard(item.nodeid)
    if not _to_be_served:
        _serving.close()


def _uses_server(item: pytest.Item) -> bool:
    return "home_of_server" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def server(home_of_server: Path) -> Iterator["Access"]:
    """A Prefect server on a database of its own, for the tests of all files."""
    from prefect.settings import PREFECT_HOME, temporary_settings

    from flows.prefect_server.own_server import run_plain_server
    from flows.prefect_server.prefect_driver import SERVER_SETTINGS

    env = {setting.name: str(value) for setting, value in SERVER_SETTINGS.items()}
    with _serving:
        with temporary_settings({PREFECT_HOME: home_of_server}):
            access = _serving.enter_context(run_plain_server(env))
        yield access


@pytest.fixture(scope="module")
def client(server: "Access") -> Iterator["SyncPrefectClient"]:
    """A client of that server, which is this process's as long as a file's tests last."""
    from prefect import get_client

    from flows.prefect_server.own_server import apply_settings
    from flows.prefect_server.prefect_driver import embedded_prefect

    with (
        embedded_prefect(),
        # For all threads: a thread without an address would start a server.
        apply_settings(server.client_settings()),
        get_client(sync_client=True) as client,
    ):
        yield client


@dataclass(frozen=True)
class Finished:
    """A finished run."""

    warehouse: Path
    run: str
    ran: Ran


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A run of two jobs over a dozen rounds, made by the command; not to be changed."""
    warehouse = tmp_path_factory.mktemp("finished") / "warehouse"
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = enter(
            *("simulate", "--gpus", 4, "--jobs", 2, "--round-seconds", 900),
            *("--warehouse", warehouse, "--json"),
        )
    ran = Ran(code, out.getvalue(), err.getvalue())
    assert ran.code == 0, ran.err
    return Finished(warehouse, ran.rows[0]["run"], ran)


@pytest.fixture
def copied(finished: Finished, tmp_path: Path) -> Path:
    """A copy of that run's warehouse, to be changed."""
    return Path(shutil.copytree(finished.warehouse, tmp_path / "w"))


@pytest.fixture(scope="session")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with a run per policy, and the first of them a second time; not to be changed.

    Marts have copies, from which they are read in a tenth of the time.
    """
    from tests.runs import POLICIES, ended, write
    from warehouse.analytics.marts import materialise

    warehouse = tmp_path_factory.mktemp("several") / "warehouse"
    for policy in (*POLICIES, POLICIES[0]):
        made = ended(policy)
        write(warehouse, made.start, made.rounds)
    materialise(warehouse)
    return warehouse


@pytest.fixture
def warehouse(several: Path, tmp_path: Path) -> Path:
    """A copy of `several`, to be changed."""
    return Path(shutil.copytree(several, tmp_path / "warehouse"))


@pytest.fixture
def ask(here: Command, warehouse: Path) -> Command:
    """A command about that copy."""
    return lambda *parts: here(*parts, "--warehouse", warehouse)


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder, byte for byte."""

    def entries() -> Iterator[tuple[str, bytes | None]]:
        for path in sorted(folder.rglob("*")):
            yield str(path.relative_to(folder)), path.read_bytes() if path.is_file() else None

    return dict(entries())
