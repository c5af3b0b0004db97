"""Lines and rows on stdout: JSON lines, or a table."""

import json
from collections.abc import Iterable
from typing import Any

import typer

from flows.cli.errors import printable
from warehouse.analytics.values import plain


def say(text: str, *, err: bool = False) -> None:
    """Print lines on stdout, or on stderr; other control characters, such as of names, escaped."""
    typer.echo("\n".join(map(printable, text.split("\n"))), err=err)


def print_rows(rows: Iterable[dict[str, Any]], as_json: bool) -> None:
    """Print rows: as JSON lines as they arrive, or as a table of all rows."""
    if as_json:
        for row in rows:
            typer.echo(json.dumps(plain(row), allow_nan=False))
    elif table := list(rows):
        from flows.cli.terminal import print_table

        print_table(list(table[0]), [list(row.values()) for row in table])
