"""The command line, called in this process or as the installed program, and one small run."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flows.cli import main as cli

PROGRAM = Path(sys.executable).with_name("shockwave")


def _no_constant(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Its output as one JSON object a line; any other line fails the test."""
        rows = [json.loads(line, parse_constant=_no_constant) for line in self.out.splitlines()]
        assert all(type(row) is dict for row in rows)
        return rows


Command = Callable[..., Ran]


@pytest.fixture(scope="session")
def program() -> Command:
    """The installed console script in a process of its own."""

    def run(*arguments: object, cwd: Path | None = None) -> Ran:
        done = subprocess.run(
            [PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120, cwd=cwd
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """The same entry point in this process, without the seconds that imports take."""
    monkeypatch.setattr(cli, "silence_teardown", lambda: None)

    def run(*arguments: object) -> Ran:
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["shockwave", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return Ran(int(end.value.code or 0), *capfd.readouterr())

    return run


@dataclass(frozen=True)
class Finished:
    """A finished run."""

    warehouse: Path
    run: str
    ran: Ran


@pytest.fixture(scope="session")
def finished(program: Command, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A run of two jobs over a dozen rounds, made by the program; not to be changed."""
    warehouse = tmp_path_factory.mktemp("finished") / "warehouse"
    ran = program(
        *("simulate", "--gpus", 4, "--jobs", 2, "--round-seconds", 900),
        *("--warehouse", warehouse, "--json"),
    )
    assert ran.code == 0, ran.err
    return Finished(warehouse, ran.rows[0]["run"], ran)


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder, byte for byte."""

    def entries() -> Iterator[tuple[str, bytes | None]]:
        for path in sorted(folder.rglob("*")):
            yield str(path.relative_to(folder)), path.read_bytes() if path.is_file() else None

    return dict(entries())
