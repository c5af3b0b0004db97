"""Programs as a new user starts them in a terminal, and the hosts that they look up and reach."""

import json
import os
import pty
import socket
import subprocess
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from typing import Any

from prefect._internal.analytics.ci_detection import CI_ENV_VARS

from harness.up import outside
from harness.waiting import HANG_SECONDS

RECORDER = Path(__file__).parent / "recorder"


def newcomer(home: Path, lookups: Path) -> dict[str, str]:
    """The same of a new user, whose Python processes record whom they look up and reach."""
    unset = {*CI_ENV_VARS, "DO_NOT_TRACK"}  # with these Prefect sends nothing
    env = {name: text for name, text in outside(home).items() if name not in unset}
    path = [str(RECORDER), *filter(None, [env.get("PYTHONPATH")])]
    return env | {
        "PYTHONPATH": os.pathsep.join(path),
        "LOOKUPS": str(lookups),
        "TERM": "xterm",
    }


@contextmanager
def terminal() -> Iterator[int]:
    """A terminal for what a program prints, which nobody reads."""
    ours, theirs = pty.openpty()
    try:
        yield theirs
    finally:
        os.close(ours)
        os.close(theirs)


def in_terminal(
    command: Sequence[object],
    folder: Path,
    env: dict[str, str],
    seconds: float = HANG_SECONDS,
    columns: int = 80,
) -> tuple[int, str]:
    """Run a command in a terminal of its own, to its end; exit code and what it showed."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, (24, columns))
    program = subprocess.Popen(
        [*map(str, command)],
        cwd=folder,
        env=env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # the other end is closed
            while part := os.read(ours, 4096):
                shown.append(part)

    reader = Thread(target=read, daemon=True)
    reader.start()
    program.wait(seconds)
    reader.join(HANG_SECONDS)
    os.close(ours)
    return program.returncode, b"".join(shown).decode(errors="replace")


def lookups_of(file: Path) -> list[list[Any]]:
    """What was recorded: event, name or address, and the first words of the command line."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def elsewhere(file: Path) -> list[list[Any]]:
    """What was recorded of other machines."""
    return [entry for entry in lookups_of(file) if not is_this_machine(entry[1])]


def is_this_machine(whom: str | None) -> bool:
    """Whether a name or address is looked up nowhere else, and reaches nobody else."""
    if whom in (None, "", "localhost", socket.gethostname()):
        return True
    try:
        family = socket.AF_INET6 if ip_address(str(whom)).version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as own:
            own.bind((whom, 0))  # only an address of this machine can be bound
    except (ValueError, OSError):
        return False
    return True
