"""Results on stdout: lines of text, and rows as JSON lines or as a table."""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import typer

from flows.cli.errors import printable
from flows.cli.progress import end_bar
from flows.cli.tables import FEW_ROWS, Line, fields, side_by_side, table
from warehouse.analytics.values import plain

if TYPE_CHECKING:
    from warehouse.analytics.paired import Difference


USUAL_WIDTH = 100
"""Width in characters if stdout is no terminal. A choice of layout."""


def terminal_width() -> int | None:
    """Width of the terminal on stdout, in characters; None if stdout is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def say(text: str, *, err: bool = False) -> None:
    """Print lines on stdout, on a terminal wrapped at spaces, or on stderr.

    Other control characters, such as of names, are escaped.
    """
    end_bar()
    width = None if err else terminal_width()
    for line in map(printable, text.split("\n")):
        lines = [line] if width is None else wrap(line, width, **_AT_SPACES) or [line]
        typer.echo("\n".join(lines), err=err)


def print_log(text: bytes) -> None:
    """Print the output of a program verbatim; on a terminal, escape control characters."""
    end_bar()
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
        return
    for line in text.decode(errors="replace").splitlines():
        typer.echo(printable(line))


_AT_SPACES: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def print_rows(
    rows: Iterable[dict[str, Any]],
    as_json: bool,
    *,
    paged: bool = False,
    asked: Sequence[str] = (),
) -> None:
    """Print rows: as JSON lines as they arrive, or as a table of all rows.

    Args:
        rows: The rows, with the same columns.
        as_json: Whether to print JSON lines.
        paged: Whether a table that is longer than the terminal goes to a pager.
        asked: Columns that are left out last where the table does not fit.
    """
    if as_json:
        for row in rows:
            typer.echo(json.dumps(plain(row), allow_nan=False))
    elif shown := list(rows):
        cells = [list(row.values()) for row in shown]
        print_table(list(shown[0]), cells, paged=paged, asked=asked)


def print_listed(
    rows: Sequence[dict[str, Any]],
    as_json: bool,
    asked: Sequence[str] = (),
    always: Sequence[str] = (),
) -> None:
    """Print rows that people look at often, paged.

    A table has a line per row, and no columns that are empty in all rows. If it does not fit,
    bounds of intervals are left out first, and the columns `asked` last.

    Args:
        rows: The rows.
        as_json: Whether they are printed as JSON.
        asked: Columns that are left out last where the table does not fit.
        always: Columns that a table has even where all are empty.
    """
    if as_json or not rows:
        print_rows(rows, as_json)
        return
    filled = {name for row in rows for name, value in row.items() if value not in (None, "")}
    columns = sorted(rows[0], key=lambda name: "_low_" in name or "_high_" in name)
    kept = [name for name in columns if name in filled or name in always]
    cells = [[row[name] for name in kept] for row in rows]
    print_table(kept, cells, paged=True, few=0, asked=asked)


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
    from rich.console import Console  # costs a tenth of a second to import
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    with ExitStack() as pager:
        if paged and len(lines) > console.height:
            os.environ.setdefault("LESS", "FRX")  # colours, and what was shown stays there
            pager.enter_context(console.pager(styles=console.color_system is not None))
        for text, style in lines:
            console.print(Text(text), style=style or None)


def less(after: float | None, before: float | None) -> float | None:
    """The difference of two figures; None if either is missing."""
    return None if after is None or before is None else after - before


def jct_row(difference: "Difference | None", as_json: bool) -> dict[str, Any]:
    """A difference of jobs' JCTs, in seconds, as a part of a row."""
    from warehouse.analytics.intervals import as_columns

    name, change = "jct_difference_s", None if difference is None else difference.change
    row: dict[str, Any] = (
        as_columns(name, change) if as_json else {name: None if change is None else str(change)}
    )
    counts = (None, None) if difference is None else (difference.less, difference.more)
    return row | dict(zip(("sooner", "later"), counts, strict=True))
