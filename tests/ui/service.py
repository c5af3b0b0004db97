"""`shockwave up` as started by a new user, and questions to its server."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flows.prefect_server.access import Access
from flows.prefect_server.secret import read_secret
from harness.up import Up, descendants, started
from tests.newcomer import elsewhere, lookups_of, newcomer, terminal


def own_server(process: int, home: Path) -> Access:
    """The Prefect server that a command has started for itself."""
    (server,) = [number for number in descendants(process) if serves(number)]
    line = Path(f"/proc/{server}/cmdline").read_text().split("\0")
    assert line[line.index("--host") + 1] == "127.0.0.1"
    url = f"http://127.0.0.1:{line[line.index('--port') + 1]}"
    return Access(url, read_secret(home / "shockwave-auth"))


def serves(number: int) -> bool:
    """Whether a process is a Prefect server."""
    return b"uvicorn" in line_of(number)


def line_of(process: int) -> bytes:
    """The command line of a process; empty if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


@contextmanager
def start(folder: Path, *options: str, **more: str) -> Iterator[Up]:
    """`shockwave up` in a folder until the context ends, on a home of its own.

    It looks up and reaches no other machine, and nor does what it starts.
    """
    folder.mkdir(exist_ok=True)
    env = newcomer(folder / "home", folder / "lookups") | {"NO_COLOR": "1", **more}
    with terminal() as shown, started(folder, *options, env=env, shown=shown) as up:
        yield up
    assert lookups_of(folder / "lookups")
    assert elsewhere(folder / "lookups") == []
    assert not (Path(env["PREFECT_HOME"]) / ".sdk_telemetry" / "notice_shown").exists()


@contextmanager
def ready(folder: Path, *options: str, **more: str) -> Iterator[Up]:
    """The same, once it is ready."""
    with start(folder, *options, **more) as up:
        up.until_ready()
        yield up
