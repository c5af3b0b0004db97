"""`pytest --quick`, the inner loop: no process, server, daemon or browser, and few examples.

What is left out is so by its marker. What is not, and starts a process or listens for
connections all the same, fails: a marker cannot be forgotten.
"""

import re
import socket
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

LEFT_OUT = ("slow", "process", "docker", "slurm", "prefect", "browser")
FOLDERS = {
    "conformance": "slow",
    "images": "process",
    "stored": "slow",
    "tools": "process",
    "ui": "prefect",
}
"""What all tests of a folder are marked with."""

_WHOLE_FILE = re.compile(rf"^pytestmark = [^#]*?\bmark\.({'|'.join(LEFT_OUT)})\b", re.MULTILINE)
_STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec")


class Quick:
    """The plugin that `--quick` registers."""

    def __init__(self) -> None:
        self._under_test = False

    def pytest_configure(self, config: pytest.Config) -> None:
        own = config.option.markexpr
        kept = f"not ({' or '.join(LEFT_OUT)})"
        config.option.markexpr = f"({own}) and {kept}" if own else kept
        sys.addaudithook(self._audit)
        listen = socket.socket.listen

        def refused(this: socket.socket, *args: int) -> None:
            self._refuse("listens for connections")
            listen(this, *args)

        socket.socket.listen = refused  # type: ignore[method-assign]

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Spare the imports of files of which nothing is left."""
        if collection_path.name in FOLDERS:
            return True
        if collection_path.suffix != ".py":
            return None
        return bool(_WHOLE_FILE.search(collection_path.read_text(encoding="utf-8"))) or None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self._under_test = True
        try:
            return (yield)
        finally:
            self._under_test = False

    def _audit(self, event: str, args: tuple[object, ...]) -> None:
        if event in _STARTS:
            self._refuse(f"starts a process ({event} {args[0] if args else ''})")

    def _refuse(self, what: str) -> None:
        if self._under_test:
            pytest.fail(f"{what}: mark it with one of {', '.join(LEFT_OUT)}")
