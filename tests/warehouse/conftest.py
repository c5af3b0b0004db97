"""A run under way in a warehouse, and the run that is laid out by hand."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.runs import Made, ended, write
from tests.warehouse.by_hand import records, warehouse_of
from warehouse.analytics.catalog import build
from warehouse.analytics.questions import Analytics
from warehouse.store.folder import place_of


@pytest.fixture(scope="module")
def made() -> Made:
    return ended(jobs=4)


@pytest.fixture(scope="session")
def analytics(tmp_path_factory: pytest.TempPathFactory) -> Analytics:
    """The run that is laid out by hand; read only."""
    return warehouse_of(tmp_path_factory.mktemp("by-hand"), records())


@pytest.fixture(scope="module")
def five(made: Made, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A warehouse with five rounds of a run under way, and the run's id; it is copied."""
    warehouse = tmp_path_factory.mktemp("five")
    return warehouse, write(warehouse, made.start, made.rounds[:5], compact=False)


@pytest.fixture
def part(tmp_path: Path, five: tuple[Path, str]) -> tuple[Path, str]:
    """The same, a test's own."""
    warehouse, run = five
    shutil.copytree(warehouse, tmp_path, dirs_exist_ok=True)
    return tmp_path, run


@pytest.fixture
def opened(part: tuple[Path, str]) -> tuple[Path, str]:
    """The same, with the database that analysts open."""
    build(part[0])
    return part


@pytest.fixture(scope="module")
def both(made: Made, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    """Warehouses with a run of which each round is a file, and with one that is all in one."""
    live, whole = (tmp_path_factory.mktemp(kind) for kind in ("live", "ended"))
    return {
        "live": (live, write(live, made.start, made.rounds[:6], compact=False)),
        "ended": (whole, write(whole, made.start, made.rounds)),
    }


@pytest.fixture(params=["live", "ended"])
def kept(
    request: pytest.FixtureRequest, tmp_path: Path, both: dict[str, tuple[Path, str]]
) -> tuple[Path, str]:
    """One of them, a test's own."""
    warehouse, run = both[request.param]
    shutil.copytree(warehouse, tmp_path, dirs_exist_ok=True)
    return tmp_path, run


def folder(warehouse: Path, run: str) -> Path:
    return place_of(warehouse, run)


def tree(*roots: Path) -> dict[Path, bytes]:
    files = (path for root in roots for path in root.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files}


@contextmanager
def process(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Another Python that says when it is ready and then waits for its standard input."""
    command = [sys.executable, "-c", code, *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as other:  # type: ignore[call-overload]
        try:
            assert other.stdout.readline() == "holding\n"
            yield other
        finally:
            other.kill()
