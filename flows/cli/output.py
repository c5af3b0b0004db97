"""Rows on stdout: JSON lines, or a table; and nothing on stderr at the end."""

import json
import math
import os
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import typer


def print_rows(rows: Iterable[dict[str, Any]], as_json: bool) -> None:
    """Print rows: as JSON each as soon as there is one, else as one table."""
    if as_json:
        for row in rows:
            typer.echo(json.dumps(plain(row), allow_nan=False))
    elif table := list(rows):
        from flows.cli.terminal import print_table

        print_table(list(table[0]), [list(row.values()) for row in table])


def plain(value: Any) -> Any:
    """A value of DuckDB's as JSON has it; what is not a finite number is null."""
    match value:
        case dict():
            return {str(name): plain(part) for name, part in value.items()}
        case list() | tuple():
            return [plain(part) for part in value]
        case float() | Decimal():
            return float(value) if math.isfinite(value) else None
        case None | bool() | int() | str():
            return value
        case _:
            return str(value)


def silence_teardown() -> None:
    """Drop what native modules print while the interpreter is taken down.

    Prefect's threads outlive it, and DuckDB's bindings then report a page of leaks.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
