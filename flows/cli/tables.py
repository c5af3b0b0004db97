"""Tables that fit a terminal: no number breaks; columns that do not fit are left out and named."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from flows.cli.errors import escape
from warehouse.analytics.values import to_plain
from warehouse.wording import counted

GAP = 2
"""Spaces between columns. A choice of layout."""

TEXT_WIDTH = 32
"""Width to which a column of texts may be wrapped, in characters. A choice of layout."""

MOST_DIGITS = 1e15
"""Floats from this on are shown with an exponent: a double holds 15 decimal digits for certain."""


def make_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    width: int,
    important: Sequence[str] = (),
) -> Iterator[RenderableType]:
    """Lay out a table of `width` characters, and a note that names the columns left out.

    Those in `important` are kept longest after the first column, the most important first.
    """
    cells = [[to_text(value) for value in row] for row in rows]
    numeric = [any(map(is_number, values)) for values in zip(*rows, strict=True)]
    numeric = numeric or [False] * len(columns)
    least = []
    for place, name in enumerate(columns):
        natural = max(map(cell_len, (escape(name), *(row[place] for row in cells))))
        least.append(natural if numeric[place] else min(natural, max(TEXT_WIDTH, cell_len(name))))
    ranks = {name: rank for rank, name in enumerate(dict.fromkeys([*columns[:1], *important]))}
    order = sorted(range(len(columns)), key=lambda place: ranks.get(columns[place], len(ranks)))
    fitting, used = set[int](), -GAP
    for place in order:
        if used + GAP + least[place] <= width:
            fitting.add(place)
            used += GAP + least[place]
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    for place in sorted(fitting):
        table.add_column(
            Text(escape(columns[place])),
            justify="right" if numeric[place] else "left",
            no_wrap=numeric[place],
            min_width=least[place],
            overflow="fold",
        )
    for row in cells:
        table.add_row(*(Text(row[place]) for place in sorted(fitting)))
    if fitting:
        yield table
    if left_out := [escape(name) for place, name in enumerate(columns) if place not in fitting]:
        what = f"{counted(len(left_out), 'column')} left out: {', '.join(left_out)}"
        yield Text(f"({what}; to see all, add: | less -S)", style="dim")


def join_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Return the lines of a table of any width; Rich takes a third of a millisecond per cell."""
    cells = [[*map(escape, columns)], *([to_text(value) for value in row] for row in rows)]
    numeric = [any(map(is_number, values)) for values in zip(*rows, strict=True)]
    numeric = numeric or [False] * len(columns)
    widths = [max(map(cell_len, texts)) for texts in zip(*cells, strict=True)]
    for row in cells:
        parts = []
        for text, width, to_right in zip(row, widths, numeric, strict=True):
            space = " " * (width - cell_len(text))
            parts.append(space + text if to_right else text + space)
        yield (" " * GAP).join(parts).rstrip()


def make_records(
    rows: Sequence[Mapping[str, object]], heading: str, width: int
) -> Iterator[RenderableType]:
    """Lay out records as columns, headed by one of their fields; what does not fit goes below."""
    fields = [name for name in rows[0] if name != heading]
    widths = [max(cell_len(to_text(value)) for value in row.values()) for row in rows]
    first = 0
    while first < len(rows):
        last, used = first, max(map(len, fields))
        while last == first or (last < len(rows) and used + GAP + widths[last] <= width):
            used += GAP + widths[last]
            last += 1
        part = rows[first:last]
        cells = [[name, *(row[name] for row in part)] for name in fields]
        yield from make_table(["", *(str(row[heading]) for row in part)], cells, max(width, used))
        first = last


def make_fields(record: Mapping[str, object]) -> RenderableType:
    """Lay out a record, one field a line."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, GAP, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in record.items():
        table.add_row(Text(name), Text(to_text(value)))
    return table


def is_number(value: object) -> bool:
    """Whether a value is shown as a number; truth values are not."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def to_text(value: object) -> str:
    """Return a value as text without control characters; times to the second."""
    if isinstance(value, datetime):
        value = value.replace(microsecond=0)
    if isinstance(value, float):
        return f"{value:,.1f}" if 100 <= abs(value) < MOST_DIGITS else f"{value:.4g}"
    return "" if value is None else escape(str(to_plain(value)))
