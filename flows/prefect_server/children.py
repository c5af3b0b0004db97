"""Child processes: start, monitor, and stop them with their process groups."""

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

from flows.prefect_server.command import ROOT
from flows.prefect_server.environment import private_env
from flows.prefect_server.logs import pass_on
from predictor.errors import WarehouseError

READY_SECONDS = 900.0
"""Timeout for a start; the first start creates the database, in 20 s to minutes. An engineering
bound."""

STOP_SECONDS = 60.0
"""Grace period between SIGTERM and SIGKILL. An engineering bound."""

POLL_SECONDS = 0.2
"""Poll interval while a child starts or ends. An engineering choice."""

READY = "ready"
"""Line on stdout with which a process reports that it is ready."""

ALIVE = "alive"
"""Line on stdout with which a process reports progress."""

_ERROR = re.compile(r"^\S*(Error|Exception)\b")
_NOISE = re.compile(
    r"nanobind: .*\n| - (leaked |\.\.\. skipped).*\n|See https://nanobind\S*?refleaks\.html"
)
"""Output of native modules when a flow run's interpreter exits. It may end without a newline, so
that another process's output follows on the same line."""


class Child:
    """A child process in a process group of its own.

    The terminal's Ctrl-C does not reach it. Its standard input is a pipe that closes when this
    process ends. Its Python imports nothing from the working folder.

    Args:
        name: Its name in error messages.
        command: Its command line.
        env: Variables added to this process's environment.
        ready_seconds: Timeout for its start.

    Attributes:
        heard_at: When it last reported readiness or progress, on the monotonic clock.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        ready_seconds: float = READY_SECONDS,
    ) -> None:
        self.name = name
        self.reported_ready = Event()
        self.heard_at = self._began = time.monotonic()
        self._ready_seconds = ready_seconds
        self._ready = False
        self._last: deque[str] = deque(maxlen=50)
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **private_env(), **make_import_env(), **env},
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
        """Forward the child's output once it is ready; until then, keep the last lines."""
        with suppress(ValueError):  # `stop` has closed the pipe
            for line in lines:
                if (said := line.strip()) in (READY, ALIVE):
                    self.heard_at = time.monotonic()
                    if said == READY:
                        self.reported_ready.set()
                elif self._ready or self.reported_ready.is_set():
                    pass_on(self.name, _NOISE.sub("", line))
                else:
                    self._last.append(line.rstrip())

    def wait_until(self, ready: Callable[[], bool], stop: Event) -> bool:
        """Wait until the process is ready; return False if `stop` is set first.

        Raises:
            WarehouseError: The process ended, or is not ready in time.
        """
        while not stop.wait(POLL_SECONDS):
            if self.is_ready(ready):
                return True
        return False

    def is_ready(self, ready: Callable[[], bool]) -> bool:
        """Return whether the process is or was ready; see `wait_until`.

        Raises:
            WarehouseError: The process ended, or is not ready in time.
        """
        self.check()
        self._ready = self._ready or ready()
        if not self._ready and time.monotonic() > self._began + self._ready_seconds:
            problem = f"not ready after {self._ready_seconds:.0f} s"
            raise WarehouseError(self.name, problem, "check the load of the machine")
        return self._ready

    @property
    def was_killed(self) -> bool:
        """Whether a signal ended the process."""
        return (self._process.poll() or 0) < 0

    def check(self) -> None:
        """Check that the process is running.

        Raises:
            WarehouseError: The process has ended by itself.
        """
        code = self._process.poll()
        if code is not None:
            self._reader.join(1.0)
            errors = [line for line in self._last if _ERROR.match(line)] or list(self._last)
            why = f" ({errors[-1]})" if errors else ""
            raise WarehouseError(self.name, f"ended with code {code}{why}", "start it again")

    def stop(self, grace_seconds: float = STOP_SECONDS) -> None:
        """Terminate the process, and kill the rest of its process group after a grace period."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_seconds)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(1.0)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()


def make_import_env() -> dict[str, str]:
    """Return variables that keep a process from importing packages of its working folder.

    Without them, `python -m` and flow runs look there first: a folder named like one of our
    packages would hide it.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(paths)}


@contextmanager
def run_child(name: str, command: Sequence[str], env: Mapping[str, str]) -> Iterator[Child]:
    """Run a child process within the context."""
    started = Child(name, command, env)
    try:
        yield started
    finally:
        started.stop()


def end_with_parent() -> None:
    """Terminate this process when its parent process ends, even if the parent is killed.

    The end of the parent closes the pipe that is standard input.
    """

    def watch() -> None:
        os.read(sys.stdin.fileno(), 1)
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=watch, daemon=True).start()
