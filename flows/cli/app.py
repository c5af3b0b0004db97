"""The command line as a Typer application, with all commands or a subset."""

from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import version as installed_version
from keyword import iskeyword
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from flows.cli.commands import ABOUT, COMMANDS, OPTIONS, overview
from flows.cli.options import Command


class _Group(TyperGroup):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the overview of all commands, even if only a subset is loaded."""
        formatter.write(overview())


def application(names: Iterable[str] = tuple(COMMANDS)) -> typer.Typer:
    """The command line with the commands of these names; only their modules are imported."""
    app = typer.Typer(
        cls=_Group,
        help=ABOUT,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_shockwave)
    for name in names:
        module, _ = COMMANDS[name]
        attribute = name.replace("-", "_") + "_" * iskeyword(name)
        command = getattr(import_module(f"flows.cli.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name, cls=Command)(command)
    return app


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(installed_version("shockwave"))
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
