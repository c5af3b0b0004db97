"""`shockwave up` as a process, and the processes that it starts."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flows.prefect_server.secret import read_secret
from harness.waiting import HANG_SECONDS, wait_for

if TYPE_CHECKING:
    from flows.prefect_server.access import Access

PROGRAM = Path(sys.executable).with_name("shockwave")
"""The command line."""


def outside(home: Path) -> dict[str, str]:
    """The environment of a program without a configured server."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return env | {"PREFECT_HOME": str(home)}


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class Up:
    """A service under way.

    Attributes:
        process: `shockwave up`.
        port: Port of the server.
        warehouse: Its warehouse.
        env: The environment that it was started in.
        log: File of its stderr.
    """

    process: subprocess.Popen[str]
    port: int
    warehouse: Path
    env: dict[str, str]
    log: Path

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def access(self) -> "Access":
        """What its users know."""
        from flows.prefect_server.access import Access

        return Access(self.url, read_secret(Path(self.env["PREFECT_HOME"]) / "shockwave-auth"))

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Tell it to stop; returns its exit code."""
        self.process.send_signal(number)
        return self.process.wait(HANG_SECONDS)

    def until_ready(self) -> None:
        """Wait until it says so."""

        def log() -> str:
            assert self.process.poll() is None, self.log.read_text()
            return self.log.read_text()

        wait_for(log, lambda text: "Ready: " in text)

    def descendants(self) -> set[int]:
        """Ids of its child processes and all their descendants."""
        return descendants(self.process.pid)


def descendants(process: int) -> set[int]:
    """Ids of a process's children and all their descendants."""
    parents = {number: stat[1] for number, stat in _stats().items()}
    ids = {process}
    while more := {child for child, parent in parents.items() if parent in ids} - ids:
        ids |= more
    return ids - {process}


def find_server(process: int, port: int | None = None) -> int:
    """Id of the Prefect server among a process's descendants, of any port by default.

    Raises:
        LookupError: There is none.
    """
    for number in descendants(process):
        with suppress(OSError):  # it has ended meanwhile
            words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
            if b"uvicorn" in words and (port is None or str(port).encode() in words):
                return number
    raise LookupError(f"process {process} has no Prefect server")


def _stats() -> dict[int, tuple[str, int]]:
    """State and parent of every process, by id."""
    states = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            states[int(path.parent.name)] = state, int(parent)
    return states


def running(ids: set[int]) -> set[int]:
    """The processes that have not ended."""
    return {number for number, (state, _) in _stats().items() if number in ids and state != "Z"}


@contextmanager
def started(
    folder: Path, *options: str, env: Mapping[str, str], shown: int = subprocess.DEVNULL
) -> Iterator[Up]:
    """`shockwave up` in a folder until the context ends.

    Args:
        folder: Its working folder, with its warehouse and its log.
        *options: Options of the command.
        env: Its environment.
        shown: Descriptor of its stdout.
    """
    up = launch(folder, free_port(), *options, env=env, shown=shown)
    try:
        yield up
    finally:
        left = up.descendants()
        if up.process.poll() is None:
            up.process.kill() if not left else up.process.terminate()
            up.process.wait(HANG_SECONDS)
        wait_for(lambda: running(left), lambda still: not still)


def launch(
    folder: Path,
    port: int,
    *options: str,
    env: Mapping[str, str],
    shown: int = subprocess.DEVNULL,
) -> Up:
    """Start `shockwave up` in a folder, on a port; see `started`."""
    warehouse, log = folder / "warehouse", folder / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [PROGRAM, "up", "--port", str(port), "--warehouse", str(warehouse), *options],
            cwd=folder,
            env=env,
            stdout=shown,
            stderr=file,
            text=True,
        )
    return Up(process, port, warehouse, dict(env), log)


@contextmanager
def ready(folder: Path, *options: str) -> Iterator[Up]:
    """`shockwave up` with its own home directory, once it is ready."""
    env = outside(folder / "home") | {"NO_COLOR": "1"}
    with started(folder, *options, env=env) as up:
        up.until_ready()
        yield up
