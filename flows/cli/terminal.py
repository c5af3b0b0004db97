"""Tables on the terminal."""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import typer
from rich.console import Console
from rich.text import Text

from flows.cli.output import terminal_width
from flows.cli.progress import end_bar
from flows.cli.tables import FEW_ROWS, Line, fields, side_by_side, table

USUAL_WIDTH = 100
"""Width in characters if stdout is no terminal. A choice of layout."""


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    paged: bool = False,
    few: int = FEW_ROWS,
    asked: Sequence[str] = (),
) -> None:
    """Print a table on stdout: of any width into a pipe or file, fitting on a terminal.

    Args:
        columns: The columns' names.
        rows: A value a column each; texts are shown verbatim (no markup).
        paged: Whether a table that is longer than the terminal goes to a pager.
        few: See `table`.
        asked: See `table`.
    """
    _print(table(columns, rows, terminal_width(), few, asked), paged)


def print_side_by_side(rows: Sequence[Mapping[str, object]], heading: str) -> None:
    """Print records as columns, headed by one of their fields; columns that do not fit go below."""
    _print(side_by_side(rows, heading, terminal_width() or USUAL_WIDTH))


def print_fields(record: Mapping[str, object]) -> None:
    """Print a record, a field a line; on a terminal, long values are wrapped below each other."""
    _print(fields(record, terminal_width()), paged=True)


def _print(lines: Sequence[Line], paged: bool = False) -> None:
    end_bar()
    if terminal_width() is None:
        typer.echo("\n".join(text for text, _ in lines))
        return
    console = Console(highlight=False, soft_wrap=True)
    with ExitStack() as pager:
        if paged and len(lines) > console.height:
            os.environ.setdefault("LESS", "FRX")  # colours, and what was shown stays there
            pager.enter_context(console.pager(styles=console.color_system is not None))
        for text, style in lines:
            console.print(Text(text), style=style or None)
