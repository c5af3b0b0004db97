"""Make or complete the virtual environment, with progress: called by `make`.

    python tools/environment.py FOLDER [EXTRA …]

installs the project of the current folder, with these extras, in the exact versions of
`constraints.txt`, and of each only files with one of the SHA-256 sums that stand there. What an
interrupted call installed is kept, what it left half installed is installed anew. pip brings uv,
which installs all else in a quarter of pip's time, from where pip is configured to. But for the
extra `dev`, first comes PyTorch, alone and by pip: its builds without CUDA have an index of their
own, `TORCH_INDEX`. Where that does not answer, uv takes what it finds elsewhere.
"""

import ast
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TextIO

CONSTRAINTS = Path("constraints.txt")

SAY_SECONDS = 5.0
"""Time between two lines of progress."""

UNREACHABLE = re.compile("Retrying|[Cc]onnection|[Tt]ime(d |-)?out|error sending request")
"""Pattern of the output of pip or uv if an index did not answer."""

UV_SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
"""Variables of uv by option of pip's configuration, which uv does not read."""


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
        if self._packages("pip"):
            pip = [str(self._python), "-m", "pip", "--version"]
            if subprocess.run(pip, capture_output=True, check=False).returncode == 0:
                return
        broken = ["--clear"] if (self.folder / "pyvenv.cfg").exists() else []
        with tempfile.TemporaryFile("w+") as log:
            if self._run([sys.executable, "-m", "venv", *broken, self.folder], log):
                log.seek(0)
                raise SetupError(
                    f"{self.folder} cannot be made; that takes Python's venv module and a folder "
                    f"that you may write to.\n{log.read().strip()}"
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

    def bring(self, name: str, *options: str, build: str = "") -> None:
        """Run `pip install` of one package alone.

        Args:
            name: The package.
            options: Further options.
            build: Suffix of the version of the wanted build, such as `+cpu`.

        Raises:
            SetupError: pip failed.
        """
        # pip checks sums of requirements only, and wants their versions beside them. It compiles
        # nothing, as all takes longer than installing it: Python compiles what is used.
        locked = re.search(rf"^({name}==[\w.]+)((?:.*\\\n)*.*)$", CONSTRAINTS.read_text(), re.M)
        asked = self.folder / "setup.txt"
        asked.write_text(f"{locked[1]}{build}{locked[2]}\n" if locked else f"{name}\n")
        pip = [self._python, "-m", "pip", "install", "--no-compile", "--no-input", "--no-deps"]
        pip += ["--disable-pip-version-check", *options, "--requirement", asked]
        self._install("pip", pip)

    def install(self, *arguments: str) -> None:
        """Run `uv pip install`.

        Raises:
            SetupError: uv failed.
        """
        uv = [self.folder / "bin" / "uv", "pip", "install", "--python", self._python]
        uv += ["--constraint", CONSTRAINTS, "--build-constraints", CONSTRAINTS]
        self._install("uv", [*uv, *arguments], self._configured())

    def _install(
        self, name: str, command: Sequence[str | Path], variables: Mapping[str, str] | None = None
    ) -> None:
        with self.log.open("w+", errors="replace") as log:
            failed = self._run(command, log, variables)
            if failed < 0:
                raise SetupError(f"{name} was killed ({signal.Signals(-failed).name})")
            if failed:
                log.seek(0)
                raise SetupError(_reason(log.read()))

    def _configured(self) -> dict[str, str]:
        """Variables of uv from pip's configuration, unless they are set."""
        pip = [self._python, "-m", "pip", "config", "list"]
        lines = subprocess.run(pip, capture_output=True, text=True, check=True).stdout.splitlines()
        settings = [line.partition("=") for line in lines]
        variables = {
            UV_SETTINGS[option]: ast.literal_eval(value)
            for key, _, value in settings
            if (option := key.rpartition(".")[2]) in UV_SETTINGS
        }
        return {"UV_INDEX_STRATEGY": "unsafe-best-match", **variables, **os.environ}

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

    def _run(
        self,
        command: Sequence[str | Path],
        log: TextIO,
        variables: Mapping[str, str] | None = None,
    ) -> int:
        """Run a command; returns its exit code."""
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            env=variables,
            pass_fds=[self._lock],
            start_new_session=True,  # Ctrl-C reaches it once, through us
        )
        try:
            process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
        return process.returncode

    def doing(self) -> str:
        """The present activity, from the last output of pip or uv."""
        if not self.log.exists():
            return "making the environment"
        for line in reversed(self.log.read_text(errors="replace").splitlines()):
            if match := re.match("Installing collected packages: (.+)", line):
                names = match[1].split(", ")
                what = f"{len(names)} packages" if names[1:] else names[0]
                return f"unpacking {what}, {len(self._packages())} are there"
            if match := re.match(r"(?:Collecting |Processing .*/)([\w.]+(?:-[a-z]\w*)*)", line):
                return f"looking up {match[1]}"
            if match := re.match(r"Prepared (\d+) packages", line):
                return f"unpacking {match[1]} packages, {len(self._packages())} are there"
            if match := re.match(r" *(Building|Downloading) ([\w.-]+)", line):
                return f"{match[1].lower()} {match[2]}"
            if "Retrying" in line:
                return "the package index does not answer; trying again"
        return "looking up what belongs together"


@contextmanager
def saying(doing: Callable[[], str]) -> Iterator[None]:
    """Print the present activity in a line every few seconds within the context."""
    started, ended = time.monotonic(), Event()

    def say() -> None:
        while not ended.wait(SAY_SECONDS):
            print(f"{time.monotonic() - started:5.0f} s  {doing()}", flush=True)

    thread = Thread(target=say, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _finished(info: Path) -> bool:
    """Whether pip has written its own list of the package's files, which it does last."""
    record = info / "RECORD"
    return record.exists() and f"{info.name}/INSTALLER," in record.read_text()


def _reason(log: str) -> str:
    lines = [line.strip() for line in log.splitlines()]
    said = [number for number, line in enumerate(lines) if line.startswith(("error:", "×"))]
    errors = [line for line in dict.fromkeys(lines) if line.startswith("ERROR:")]
    errors = errors or [line.removeprefix("error: ") for line in lines[said[0] if said else -3 :]]
    if UNREACHABLE.search(log):
        errors.insert(
            0, "a package index cannot be reached; connect, or name another one in PIP_INDEX_URL"
        )
    return "\n".join(errors)


def complete(folder: Path, extras: Sequence[str]) -> None:
    """Make or complete an environment for the project of the current folder.

    Args:
        folder: Where the environment is, or will be.
        extras: Extras of the project; none for running only.

    Raises:
        SetupError: It could not be completed.
    """
    with open("pyproject.toml") as locked:  # two concurrent pips would damage the environment
        try:
            fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another setup of this folder is under way; waiting for its end", flush=True)
            with saying(lambda: "waiting for the other setup"):
                fcntl.flock(locked, fcntl.LOCK_EX)
        environment = Environment(folder, locked.fileno())
        with saying(environment.doing):
            _complete(environment, extras)


def _complete(environment: Environment, extras: Sequence[str]) -> None:
    what = f"for running and for {', '.join(extras)}" if extras else "for running"
    print(
        f"Setting up {environment.folder} {what}; pip's output is in {environment.log}", flush=True
    )
    for name in environment.discard_unfinished():
        print(f"{name} was left half installed: installing it anew", flush=True)
    environment.create()
    index = os.environ.get("TORCH_INDEX")
    if "dev" in extras and index and sys.platform == "linux":
        asking = ["--extra-index-url", index, "--retries", "1", "--timeout", "10"]
        try:
            environment.bring("torch", *asking, build="+cpu")
        except SetupError:
            print(
                "PyTorch comes with CUDA, which takes several GB more and Shockwave does not "
                f"use: {index} (TORCH_INDEX) had no other build",
                flush=True,
            )
    environment.bring("uv")
    environment.install("--editable", f".[{','.join(extras)}]" if extras else ".")
    print(environment.summary(), flush=True)


if __name__ == "__main__":
    try:
        complete(Path(sys.argv[1]), sys.argv[2:])
    except (SetupError, OSError) as error:
        print(f"error: {error}\nOnce that is mended, make goes on from here.", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\ninterrupted; make goes on from here the next time", file=sys.stderr)
        sys.exit(130)
