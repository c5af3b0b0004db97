"""Entry point of the command line. Imports are deferred until a command needs them."""

import atexit
import os
import signal
import sys
from contextlib import nullcontext
from types import FrameType

from flows.cli.commands import find_command, format_overview
from flows.cli.errors import convert_error, escape
from flows.cli.progress import show_progress
from flows.prefect_server.environment import private_env
from flows.prefect_server.teardown import end_process
from predictor.errors import Interrupted

COMPLETION = "_SHOCKWAVE_COMPLETE"
"""Environment variable with which a shell requests completions."""

ON_THEIR_OWN = ("up", "service events")
"""Commands that report by themselves until they are stopped."""


def _run(arguments: list[str]) -> None:
    """Run a command and show its progress."""
    if COMPLETION in os.environ:
        _complete()
    if arguments[:1] in ([], ["--help"]):
        _print_overview()
        sys.exit(0 if arguments else 2)
    command = find_command(arguments)
    runs_until_stopped = command in ON_THEIR_OWN and "--detach" not in arguments
    silent = not command or runs_until_stopped or "--help" in arguments
    with nullcontext() if silent else show_progress(command, lines="--json" in arguments):
        from flows.cli.app import build_application

        sys.exit(build_application(arguments)(prog_name="shockwave", standalone_mode=False))


def _complete() -> None:
    """Answer a shell's request for completions and exit."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    from flows.cli.app import build_application

    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    _, *words = line.split() or [""]
    completion_init()
    sys.exit(build_application(words)(prog_name="shockwave", standalone_mode=False))


def _print_overview() -> None:
    try:
        print(format_overview(), end="", flush=True)
    except BrokenPipeError:  # the reader closed the pipe: the rest must not be flushed at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def main() -> None:
    """Run the command line; report errors and interruptions in one line, with an exit code."""
    os.environ.update(private_env())  # before Prefect is imported, which reads it
    ended = [1]  # of a traceback, unless set below
    atexit.register(end_process, ended)  # registered first, so it runs last
    interruptions: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        interruptions.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise SIGINT is ignored
        signal.signal(signal.SIGINT, interrupt)
    try:
        _run(sys.argv[1:])
    except BaseException as error:
        failure = convert_error(error)
        # Imports, DuckDB, Prefect and Typer each convert KeyboardInterrupt to another exception.
        if interruptions and not isinstance(error, Interrupted):
            failure = Interrupted(
                "shockwave", "interrupted", "run it again; recorded rounds are kept"
            )
        if failure is None:
            if isinstance(error, SystemExit):
                ended.append(int(error.code or 0))
            raise
        import typer

        colour = False if os.environ.get("NO_COLOR") else None  # None: on a terminal
        line = f"error: {escape(str(failure))}"
        typer.secho(line, fg=typer.colors.RED, err=True, color=colour)
        ended.append(failure.exit_code)
        sys.exit(failure.exit_code)
