"""The command line's entrance. Imports wait until a command needs them."""

import atexit
import os
import signal
import sys
from types import FrameType

from flows.cli.commands import COMMANDS, overview
from flows.servers.teardown import silence_teardown
from predictor.errors import Interrupted, ShockwaveError


def _run(arguments: list[str]) -> None:
    """Run a command, of which only its own module is imported."""
    if arguments[:1] in ([], ["--help"]):
        _tell_overview()
        sys.exit(0 if arguments else 2)
    from flows.cli.app import application

    known = arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS
    application(known)(prog_name="shockwave")


def _tell_overview() -> None:
    try:
        print(overview(), end="", flush=True)
    except BrokenPipeError:  # whoever read it has gone; what is left must not be flushed again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _printable(text: str) -> str:
    """A text on one line, without what would steer the terminal."""
    return "".join(
        part if part.isprintable() else part.encode("unicode_escape").decode() for part in text
    )


def main() -> None:
    """Run the command line; user errors and interruptions are one line and an exit code."""
    atexit.register(silence_teardown)  # registered first, so it runs last
    interruptions: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        interruptions.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is to be ignored
        signal.signal(signal.SIGINT, interrupt)
    try:
        _run(sys.argv[1:])
    except BaseException as error:
        told = error
        # Imports, DuckDB, Prefect and Typer each make something else of it.
        if interruptions and not isinstance(error, Interrupted):
            told = Interrupted("shockwave", "interrupted", "run it again, what it recorded is kept")
        if not isinstance(told, ShockwaveError):
            raise
        import typer

        typer.secho(f"error: {_printable(str(told))}", fg=typer.colors.RED, err=True)
        sys.exit(told.exit_code)
