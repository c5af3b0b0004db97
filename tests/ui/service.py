"""`shockwave up` as a process, and what is asked of the server that it starts."""

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from flows.servers.access import Access
from flows.servers.secret import read_secret
from tests.flows.conftest import PROGRAM
from tests.newcomer import elsewhere, lookups_of, newcomer, terminal
from tests.waiting import HANG_SECONDS, wait_for


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
        port: Where the server listens.
        warehouse: What it serves.
        env: The environment that it was started in.
        log: What it wrote to stderr.
    """

    process: subprocess.Popen[str]
    port: int
    warehouse: Path
    env: dict[str, str]
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def access(self) -> Access:
        return Access(self.url, read_secret(Path(self.env["PREFECT_HOME"]) / "shockwave-auth"))

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Tell it to stop; returns its exit code."""
        self.process.send_signal(number)
        return self.process.wait(HANG_SECONDS)

    def descendants(self) -> set[int]:
        """Ids of all processes that it started, and that those started."""
        return descendants(self.process.pid)


def descendants(process: int) -> set[int]:
    """Ids of all processes that a process started, and that those started."""
    parents = {number: stat[1] for number, stat in _stats().items()}
    found = {process}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {process}


def _stats() -> dict[int, tuple[str, int]]:
    """State and parent of every process, by id."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            found[int(path.parent.name)] = state, int(parent)
    return found


def own_server(process: int, home: Path) -> Access:
    """The Prefect server that a command has started for itself; it has one."""
    (server,) = [number for number in descendants(process) if serves(number)]
    line = Path(f"/proc/{server}/cmdline").read_text().split("\0")
    assert line[line.index("--host") + 1] == "127.0.0.1"
    url = f"http://127.0.0.1:{line[line.index('--port') + 1]}"
    return Access(url, read_secret(home / "shockwave-auth"))


def serves(number: int) -> bool:
    """Whether a process is a Prefect server."""
    try:
        return b"uvicorn" in Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:  # it has ended meanwhile
        return False


def running(ids: set[int]) -> set[int]:
    """Those of the processes that have not ended."""
    return {number for number, (state, _) in _stats().items() if number in ids and state != "Z"}


@contextmanager
def start(folder: Path, *options: str, home: Path | None = None, **more: str) -> Iterator[Up]:
    """`shockwave up` in a folder until the context ends, on a home of its own if none is given.

    It looks up and reaches no other machine, and nor does what it starts.
    """
    port, warehouse, log = free_port(), folder / "warehouse", folder / "log"
    folder.mkdir(exist_ok=True)
    env = newcomer(home or folder / "home", folder / "lookups") | {"NO_COLOR": "1", **more}
    with log.open("w") as file, terminal() as shown:
        process = subprocess.Popen(
            [PROGRAM, "up", "--port", str(port), "--warehouse", str(warehouse), *options],
            env=env,
            stdout=shown,
            stderr=file,
            text=True,
        )
        up = Up(process, port, warehouse, env, log)
        try:
            yield up
        finally:
            started = up.descendants()
            if process.poll() is None:
                process.kill() if not started else process.terminate()
                process.wait(HANG_SECONDS)
            wait_for(lambda: running(started), lambda left: not left)
    assert lookups_of(folder / "lookups")
    assert elsewhere(folder / "lookups") == []
    assert not (Path(env["PREFECT_HOME"]) / ".sdk_telemetry" / "notice_shown").exists()


@contextmanager
def ready(folder: Path, *options: str, home: Path | None = None, **more: str) -> Iterator[Up]:
    """The same, once it is ready."""
    with start(folder, *options, home=home, **more) as up:

        def log() -> str:
            assert up.process.poll() is None, up.log.read_text()
            return up.log.read_text()

        wait_for(log, lambda text: "Ready: " in text)
        yield up
