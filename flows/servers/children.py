"""Processes that a service starts, watches, and stops with all that they started in turn."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import IO

from predictor.errors import WarehouseError

READY_SECONDS = 900.0
"""A first start makes the database: 20 s on an idle machine, minutes on a busy one."""

STOP_SECONDS = 60.0
"""After which what does not stop is killed."""

POLL_SECONDS = 0.2

READY = "ready"
"""The line with which a process says that it is ready, if it says so."""

_ERROR = re.compile(r"^\S*(Error|Exception)\b")
_NOISE = re.compile(
    r"nanobind: .*\n| - (leaked |\.\.\. skipped).*\n|See https://nanobind\S*?refleaks\.html"
)
"""What native modules print while the interpreter of a flow run is taken down; it ends without
a newline, so that what another process says comes right behind it."""


class Child:
    """A process in a group of its own.

    The terminal's Ctrl-C does not reach it. It holds one end of a pipe, its standard input,
    whose other end goes with this process.

    Args:
        name: For people.
        command: What to run.
        env: Added to this process's environment.
    """

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> None:
        self.name = name
        self.said_ready = Event()
        self._ready = False
        self._last: deque[str] = deque(maxlen=50)
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert self._process.stdout
        self._reader = Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, lines: IO[str]) -> None:
        """Pass its output on once it is ready; before that, keep the end of it."""
        for line in lines:
            if line.strip() == READY:
                self.said_ready.set()
            elif self._ready:
                sys.stderr.write(_NOISE.sub("", line))
            else:
                self._last.append(line.rstrip())

    def wait_until(self, ready: Callable[[], bool], stop: Event) -> bool:
        """Wait until it is ready.

        Args:
            ready: Asks whether it is.
            stop: Set when there is no point in waiting any more.

        Returns:
            Whether it is ready, and not stopped.

        Raises:
            WarehouseError: It ended, or is not ready in time.
        """
        deadline = time.monotonic() + READY_SECONDS
        while not stop.wait(POLL_SECONDS):
            self.check()
            if ready():
                self._ready = True
                return True
            if time.monotonic() > deadline:
                raise WarehouseError(
                    self.name, f"not ready after {READY_SECONDS:.0f} s", "see whether it is busy"
                )
        return False

    def check(self) -> None:
        """Make sure that it still runs.

        Raises:
            WarehouseError: It ended by itself.
        """
        code = self._process.poll()
        if code is not None:
            self._reader.join(1.0)
            errors = [line for line in self._last if _ERROR.match(line)] or list(self._last)
            why = f" ({errors[-1]})" if errors else ""
            raise WarehouseError(self.name, f"ended with code {code}{why}", "start it again")

    def stop(self) -> None:
        """Stop it, and kill what is left of its group."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(1.0)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()


@contextmanager
def child(name: str, command: Sequence[str], env: Mapping[str, str]) -> Iterator[Child]:
    """A process for as long as the context lasts."""
    started = Child(name, command, env)
    try:
        yield started
    finally:
        started.stop()


def end_with_parent() -> None:
    """Stop this process when the one that started it ends, however that ends.

    That is, when the other end of standard input is closed.
    """

    def watch() -> None:
        os.read(sys.stdin.fileno(), 1)
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=watch, daemon=True).start()
