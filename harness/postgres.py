"""A private Postgres, which may be killed."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from harness.up import descendants, free_port, running
from harness.waiting import wait_for

USER = "postgres"
"""The user that runs it, as it refuses to run as root."""


def _program(name: str) -> Path:
    """One of its programs."""
    if path := shutil.which(name):
        return Path(path)
    return max(Path("/usr/lib/postgresql").glob("*/bin")) / name


def _as_user() -> dict[str, Any]:
    return {"user": USER, "group": USER, "extra_groups": []} if os.geteuid() == 0 else {}


class Postgres:
    """A Postgres with synchronous commits that listens on 127.0.0.1.

    Args:
        folder: Folder of its files, owned by its user.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._data, self._port = folder, folder / "data", free_port()
        make = [*map(str, (_program("initdb"), "-D", self._data, "-A", "trust", "-U", USER))]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL, cwd=folder, **_as_user())
        self.start()

    @property
    def url(self) -> str:
        """URL of its database."""
        return f"postgresql+asyncpg://{USER}@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        """Start it, and wait until it has recovered."""
        at = ["-p", str(self._port), "-k", str(self._folder), "-c", "listen_addresses=127.0.0.1"]
        at += ["-c", "recovery_init_sync_method=syncfs"]  # not each file, which takes seconds
        with (self._folder / "log").open("a") as log:
            self._first = subprocess.Popen(
                [str(_program("postgres")), "-D", str(self._data), *at],
                stderr=log,
                cwd=self._folder,
                **_as_user(),
            )
        wait_for(self._says_ready)

    def _says_ready(self) -> bool:
        assert self._first.poll() is None, (self._folder / "log").read_text()
        with suppress(OSError, ValueError):  # not there yet, or not written
            first, *_, state = (self._data / "postmaster.pid").read_text().split()
            return int(first) == self._first.pid and state == "ready"
        return False

    def kill(self) -> None:
        """Kill -9 all of its processes, and wait until they are gone."""
        others = descendants(self._first.pid)
        self._first.kill()
        self._first.wait()
        for number in others:
            with suppress(ProcessLookupError):  # it ended with the first process
                os.kill(number, signal.SIGKILL)
        wait_for(lambda: running(others), lambda left: not left)


@contextmanager
def postgres() -> Iterator[Postgres]:
    """An empty Postgres within the context."""
    with tempfile.TemporaryDirectory() as name:
        if os.geteuid() == 0:
            shutil.chown(name, USER)
        made = Postgres(Path(name))
        try:
            yield made
        finally:
            made.kill()
