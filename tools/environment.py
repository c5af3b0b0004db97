"""Make the virtual environment, or complete it, and say how it goes: what `make` calls.

    python tools/environment.py FOLDER [EXTRA …]

installs the project of the current folder, with these extras, in the exact versions of
`constraints.txt`. What an interrupted call installed is kept, what it left half installed is
installed anew. PyTorch comes first and alone: its builds without CUDA have an index of their
own, `TORCH_INDEX`. Where that does not answer, pip takes what it finds elsewhere.
"""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

SAY_SECONDS = 5.0
"""Between two lines about what pip does."""

UNREACHABLE = re.compile("Retrying|[Cc]onnection|[Tt]ime(d |-)?out")
"""What pip's output has where an index did not answer."""


class SetupError(Exception):
    """The environment could not be completed; the text says why and what to do."""


class Environment:
    """A virtual environment.

    Args:
        folder: Where it is, or will be.
        lock: Descriptor of a locked file; pip holds it, too, should it outlive us.
    """

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self.log = folder / "setup.log"
        self._python = folder / "bin" / "python"
        self._lock = lock
        self._started = time.monotonic()

    def create(self) -> None:
        """Make it, unless it is there and its pip works.

        Raises:
            SetupError: It cannot be made.
        """
        if self._python.exists() and _run(self._python, "-m", "pip", "--version").returncode == 0:
            return
        made = _run(sys.executable, "-m", "venv", "--clear", self.folder)
        if made.returncode:
            raise SetupError(
                f"{self.folder} cannot be made\n{made.stdout.strip()}\n"
                "Mend that (it takes Python's venv module and a folder that you may write to)"
            )

    def discard_unfinished(self) -> list[str]:
        """Forget packages that were being installed when pip was killed, or pip would keep them.

        Returns:
            Their metadata folders, by name.
        """
        unfinished = [info for info in self._packages() if not _finished(info)]
        for info in unfinished:
            shutil.rmtree(info)
        return [info.name for info in unfinished]

    def install(self, *arguments: str) -> None:
        """Run `pip install`, with a line every few seconds.

        Raises:
            SetupError: pip failed.
        """
        # Compiling all takes longer than installing it; Python compiles what is used.
        options = ["--no-compile", "--no-input", "--disable-pip-version-check"]
        options += ["--constraint", "constraints.txt", *arguments]
        with self.log.open("w") as log:
            pip = subprocess.Popen(
                [self._python, "-m", "pip", "install", *options],
                stdout=log,
                stderr=log,
                pass_fds=[self._lock],
                start_new_session=True,  # Ctrl-C reaches it once, through us
            )
        try:
            while pip.poll() is None:
                try:
                    pip.wait(SAY_SECONDS)
                except subprocess.TimeoutExpired:
                    seconds = time.monotonic() - self._started
                    print(f"{seconds:5.0f} s  {self._doing()}", flush=True)
        except KeyboardInterrupt:
            pip.send_signal(signal.SIGINT)
            pip.wait()
            raise
        if pip.returncode:
            raise SetupError(_reason(self.log.read_text(errors="replace")))

    def torch(self) -> str:
        """The version of PyTorch that is installed."""
        return self._packages("torch")[0].name.split("-")[1]

    def summary(self) -> str:
        """What is installed, and how long it took."""
        size = sum(
            os.lstat(os.path.join(folder, name)).st_blocks * 512
            for folder, _, files in os.walk(self.folder)
            for name in files
        )
        return (
            f"{self.folder} is ready: {len(self._packages())} packages, {size / 2**30:.1f} GB, "
            f"in {time.monotonic() - self._started:.0f} s"
        )

    def _packages(self, name: str = "*") -> list[Path]:
        return sorted(self.folder.glob(f"lib/python3*/site-packages/{name}-*.dist-info"))

    def _doing(self) -> str:
        for line in reversed(self.log.read_text(errors="replace").splitlines()):
            if match := re.match("Installing collected packages: (.+)", line):
                names = match[1].split(", ")
                what = f"{len(names)} packages" if names[1:] else names[0]
                return f"unpacking {what}, {len(self._packages())} are there"
            if match := re.match(r"(?:Collecting|Processing) (\S+)", line):
                return f"looking up {Path(match[1]).name}"
            if "Retrying" in line:
                return "the package index does not answer; trying again"
        return "starting pip"


def _run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def _finished(info: Path) -> bool:
    """Whether pip has written its own list of the package's files, which it does last."""
    record = info / "RECORD"
    return record.exists() and f"{info.name}/INSTALLER," in record.read_text()


def _reason(log: str) -> str:
    lines = log.splitlines()
    errors = [line for line in lines if line.startswith("ERROR:")] or lines[-5:]
    if UNREACHABLE.search(log):
        errors.append(
            "The package index cannot be reached: connect to the network, or name another in "
            "PIP_INDEX_URL"
        )
    return "\n".join(["pip failed", *errors])


def complete(folder: Path, extras: Sequence[str]) -> None:
    """Make or complete an environment for the project of the current folder.

    Args:
        folder: Where the environment is, or will be.
        extras: Of the project; none for what running needs.

    Raises:
        SetupError: It could not be completed.
    """
    with open("pyproject.toml") as locked:  # two pips at a time would spoil the environment
        try:
            fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another setup of this folder is under way; waiting for its end", flush=True)
            fcntl.flock(locked, fcntl.LOCK_EX)
        environment = Environment(folder, locked.fileno())
        what = f"for running and for {', '.join(extras)}" if extras else "for running"
        print(f"Setting up {folder} {what}; pip's output is in {environment.log}", flush=True)
        environment.create()
        for name in environment.discard_unfinished():
            print(f"{name} was left half installed: installing it anew", flush=True)
        index = os.environ.get("TORCH_INDEX")
        if index and sys.platform == "linux":
            asking = ["--extra-index-url", index, "--retries", "1", "--timeout", "10"]
            environment.install("--no-deps", *asking, "torch")
            if "+" not in environment.torch():
                print(
                    "PyTorch comes with CUDA, which takes several GB more and Shockwave does not "
                    f"use: {index} (TORCH_INDEX) had no other build",
                    flush=True,
                )
        environment.install("--editable", f".[{','.join(extras)}]" if extras else ".")
        print(environment.summary(), flush=True)


if __name__ == "__main__":
    try:
        complete(Path(sys.argv[1]), sys.argv[2:])
    except (SetupError, OSError) as error:
        print(f"error: {error}; then run make again, it goes on from here", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\ninterrupted; run make again, it goes on from here", file=sys.stderr)
        sys.exit(130)
