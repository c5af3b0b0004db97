"""The command line as a Typer application."""

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version as installed_version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from flows.cli.commands import ABOUT, COMMANDS, GROUPS, OPTIONS, find_command, format_overview
from flows.cli.options import ShockwaveCommand

CITE = "To cite: CITATION.cff, or Zheng et al., Shockwave (NSDI '23), which it implements."


class _Overview(TyperGroup):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the overview of all commands, of which only some are loaded."""
        formatter.write(format_overview())


def build_application(words: Sequence[str] = ()) -> typer.Typer:
    """Build the command line with only the command or group that a line begins with, or with all.

    Importing a command's module takes tenths of a second.
    """
    app = typer.Typer(
        cls=_Overview,
        help=ABOUT,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_shockwave)
    command_name = find_command(words)
    if command_name:
        names = [command_name]
    else:
        beginning = f"{words[0]} " if words and words[0] in GROUPS else ""
        names = [name for name in COMMANDS if name.startswith(beginning)]
    groups: dict[str, typer.Typer] = {}
    for name in names:
        where, summary = COMMANDS[name]
        group, _, verb = name.rpartition(" ")
        if group and group not in groups:
            groups[group] = typer.Typer(help=GROUPS[group])
            app.add_typer(groups[group], name=group)
        module, _, function = where.partition(":")
        command = getattr(import_module(f"flows.cli.{module}"), function)
        groups.get(group, app).command(
            verb or name, cls=ShockwaveCommand, help=command.__doc__ or summary, short_help=summary
        )(command)
    return app


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"shockwave {installed_version('shockwave')}\n{CITE}")
        raise typer.Exit


def _shockwave(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help=OPTIONS["--version"]
        ),
    ] = False,
) -> None:
    pass
