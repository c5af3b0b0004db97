"""Trainers forked from a process that has loaded PyTorch, which takes each of them a second.

That process trains nothing: it has no thread whose locks a fork would find held.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

IMAGES = Path(__file__).parents[2] / "containers" / "images"

FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload([__name__])

if str(IMAGES) not in sys.path:  # as in the process that loads this module first
    sys.path.append(str(IMAGES))
import trainer.collective  # noqa: E402
import trainer.loop  # noqa: E402, F401
from trainer.__main__ import main  # noqa: E402


class Forked:
    """A trainer's process, with what tests ask of a `subprocess.Popen`.

    Args:
        folder: The job's.
        variables: All of the trainer's environment.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._said = folder.with_name(f"{folder.name}.said")
        self._said.unlink(missing_ok=True)
        arguments = (str(folder), dict(variables), str(self._said))
        self._process = FORKING.Process(target=_train, args=arguments, daemon=True)
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[None, str]:
        """Wait for its end; returns its output."""
        self._process.join(timeout)
        assert self.poll() is not None, f"it has not ended after {timeout} s"
        return None, self._said.read_text()


def _train(folder: str, variables: Mapping[str, str], said: str) -> None:
    with open(said, "ab") as file:
        os.dup2(file.fileno(), 2)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir("/")
    code = main([folder])
    sys.stderr.flush()
    os._exit(code)
