"""The command line. Heavy imports wait until a command needs them."""

import atexit
import signal
import sys
from importlib.metadata import version
from types import FrameType
from typing import Annotated

import typer

from flows.cli import campaigns, history, judging, live, reports, runs, service, workloads
from flows.cli.errors import Command
from flows.servers.teardown import silence_teardown
from predictor.errors import Interrupted, ShockwaveError

app = typer.Typer(
    help="A fair, efficient, auditable scheduler for GPU clusters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

COMMANDS = (
    runs.simulate,
    runs.compare,
    campaigns.campaign,
    workloads.generate,
    live.run,
    live.profile,
    runs.resume,
    history.replay,
    history.audit,
    history.why,
    history.whatif,
    reports.report,
    judging.policies,
    judging.conformance,
    judging.forecast_error,
    judging.solve,
    history.sql,
    history.views,
    service.up,
)
"""In the order of `--help`; a command is named as its function, with hyphens."""

for command in COMMANDS:
    app.command(cls=Command)(command)
app.add_typer(live.cluster, name="cluster")


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(version("shockwave"))
        raise typer.Exit


@app.callback()
def _shockwave(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass


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
        app(prog_name="shockwave")
    except BaseException as error:
        told = error
        # Imports, DuckDB, Prefect and Typer each make something else of it.
        if interruptions and not isinstance(error, Interrupted):
            told = Interrupted("shockwave", "interrupted", "run it again, what it recorded is kept")
        if not isinstance(told, ShockwaveError):
            raise
        typer.secho(f"error: {_printable(str(told))}", fg=typer.colors.RED, err=True)
        sys.exit(told.exit_code)
