"""The command `shell`: this terminal becomes that of a program in a job's container."""

import os
import shutil
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.connection import connect
from flows.cli.job import JobName
from flows.cli.options import Warehouse
from flows.cli.output import say
from predictor.errors import InputError
from warehouse import DEFAULT_WAREHOUSE

if TYPE_CHECKING:
    from containers.docker.daemon import Shell
    from flows.api.authorization import AuthorizedApi
    from flows.api.client import Client
    from flows.api.shell import RemoteShell

POLL_SECONDS = 1.0
"""Interval at which a job is looked up that has no container yet. An engineering choice."""

END_OF_FILE = b"\x04"
"""What a terminal sends at the end of its input."""


def open_shell(
    job: JobName,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="After --: a program in place of /bin/sh.", show_default=False),
    ] = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
) -> None:
    """Open a shell in a running job, or wait until it runs."""
    with (
        connect(warehouse) as service,
        closing(_open(service, job, command or ())) as shell,
        _raw_terminal(shell),
    ):
        Thread(target=_send, args=[shell], daemon=True).start()
        while text := shell.receive():
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()
        code = shell.wait()
    raise typer.Exit(1 if code is None else code)


def _open(
    service: "AuthorizedApi | Client", job: str, command: Sequence[str]
) -> "Shell | RemoteShell":
    """Open a shell once the job has a container; its image may have to be pulled first."""
    said = False
    while True:
        row = service.get_job(job)
        waits = f"is {row.status}"
        if row.ended_s is not None or row.status == "refused":
            raise InputError(f"job {row.job_id}", f"{waits}, so it has no shell", "submit it again")
        if row.status == "runs":
            try:
                return service.open_shell(job, command)
            except InputError as error:
                from flows.api.commands import NO_SHELL

                if error.problem != NO_SHELL:
                    raise
            waits = "has no container yet"
        if not said:
            say(f"job {row.job_id} {waits}; its shell opens when it runs", err=True)
        said = True
        time.sleep(POLL_SECONDS)


def _send(shell: "Shell | RemoteShell") -> None:
    while keys := os.read(sys.stdin.fileno(), 2**12):
        shell.send(keys)
    shell.send(END_OF_FILE)


@contextmanager
def _raw_terminal(shell: "Shell | RemoteShell") -> Iterator[None]:
    """Pass all keys on, Ctrl-C among them, and the size of the terminal."""
    if not sys.stdin.isatty():
        yield
        return

    def resize(*_: int | FrameType | None) -> None:
        size = shutil.get_terminal_size()
        shell.resize(size.lines, size.columns)

    before, handler = termios.tcgetattr(sys.stdin), signal.signal(signal.SIGWINCH, resize)
    resize()
    tty.setraw(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, handler)
