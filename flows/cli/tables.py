"""Layout of tables as lines of text that fit a terminal.

A number is never broken, and no column is narrower than its numbers. Where a table is wider than
the terminal, long texts are wrapped at spaces; where that is not enough, columns are left out and
named, those that were asked for last; where a table has few rows, or would lose most of its
columns, each row becomes a block.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import accumulate, zip_longest

from rich.cells import cell_len, chop_cells

from flows.cli.errors import printable
from warehouse.analytics.values import plain
from warehouse.wording import counted

Line = tuple[str, str]
"""Text and its style: plain, `bold` or `dim`."""

GAP = 2
"""Spaces between columns. A choice of layout."""

TEXT_WIDTH = 32
"""Width that a column of texts keeps when it is wrapped, in characters. A choice of layout."""

FEW_ROWS = 4
"""Rows up to which a table that does not fit is shown in blocks, without losing a column. A choice
of layout."""

MOST_DIGITS = 1e15
"""Floats from this on are shown with an exponent: a double holds 15 decimal digits for certain."""


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    width: int | None,
    few: int = FEW_ROWS,
    asked: Sequence[str] = (),
) -> list[Line]:
    """A table's lines; numbers are right-aligned.

    Args:
        columns: The columns' names.
        rows: A value a column each.
        width: Characters of the terminal; None for as many as the table takes.
        few: Rows up to which it loses no column; of 0, rows stay lines whatever it loses.
        asked: Columns that are left out last, the most important first. The table's first column
            comes before them, all others after them in their order.
    """
    names = [printable(name) for name in columns]
    cells = [[shown(value) for value in row] for row in rows]
    numeric = [any(map(is_number, values)) for values in zip(*rows, strict=True)]
    numeric = numeric or [False] * len(names)
    natural = [
        max(map(cell_len, (name, *(row[column] for row in cells))), default=0)
        for column, name in enumerate(names)
    ]
    least = [
        wide if number else min(wide, max(TEXT_WIDTH, cell_len(name)))
        for wide, number, name in zip(natural, numeric, names, strict=True)
    ]
    kept = list(range(len(names)))
    if width is not None:
        ranks = {name: rank for rank, name in enumerate(dict.fromkeys([*columns[:1], *asked]))}
        kept.sort(key=lambda column: ranks.get(columns[column], len(ranks)))
        kept = _fitting(least, width, kept)
    left_out = [name for column, name in enumerate(names) if column not in kept]
    if left_out and (kept[:1] != [0] or len(rows) <= few or (few and len(left_out) > len(kept))):
        assert width is not None
        blocks = _blocks(names, cells, width) if rows else _named(names, width)
        return list(blocks)
    widths = [natural[column] for column in kept]
    if width is not None:
        widths = _narrowed(widths, [least[column] for column in kept], width)
    to_right = [numeric[column] for column in kept]
    lines = list(_row([names[column] for column in kept], widths, to_right, "bold"))
    for row in cells:
        lines += _row([row[column] for column in kept], widths, to_right, "")
    if left_out:
        lines += _left_out(left_out, width or 0)
    return lines


def side_by_side(rows: Sequence[Mapping[str, object]], heading: str, width: int) -> list[Line]:
    """Lines of records as columns; those that do not fit go below.

    Args:
        rows: The records, with the same fields.
        heading: The field that heads a record's column.
        width: Characters of the terminal.
    """
    fields = [name for name in rows[0] if name != heading]
    room = width - max(map(len, fields))
    widths = [GAP + max(cell_len(shown(value)) for value in row.values()) for row in rows]
    ends = list(accumulate(widths))
    first, lines = 0, list[Line]()
    while first < len(rows):
        before = ends[first] - widths[first]
        last = max(first + 1, sum(end - before <= room for end in ends))
        part = rows[first:last]
        if widths[first] > room:
            lines += _blocks(
                [*rows[first]], [[shown(value) for value in rows[first].values()]], width
            )
        else:
            columns = ["", *(str(row[heading]) for row in part)]
            lines += table(columns, [[name, *(row[name] for row in part)] for name in fields], None)
        first = last
    return lines


def fields(record: Mapping[str, object], width: int | None) -> list[Line]:
    """The lines of a record, at least one per field; of any width if `width` is None."""
    cells = [shown(value) for value in record.values()]
    most = max(map(cell_len, (*record, *cells)))
    return list(_blocks(list(record), [cells], 2 * most + GAP if width is None else width))


def is_number(value: object) -> bool:
    """Whether a value is shown as a number; truth values are not."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def shown(value: object) -> str:
    """A value as text, without control characters; times to the second."""
    if isinstance(value, datetime):
        value = value.replace(microsecond=0)
    if isinstance(value, float):
        if 100 <= abs(value) < MOST_DIGITS:
            return f"{value:,.1f}"
        return f"{value:.4g}"
    return "" if value is None else printable(str(plain(value)))


def wrapped(text: str, width: int) -> list[str]:
    """A text in lines, broken at spaces; a word that is wider than a line is broken anywhere."""
    lines, line = list[str](), ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if cell_len(longer) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        *full, line = chop_cells(word, width) or [""]
        lines += full
    return [*lines, line]


def _fitting(widths: Sequence[int], width: int, order: Iterable[int]) -> list[int]:
    """The columns that fit, in an order of preference; a column that is too wide is skipped."""
    kept, used = list[int](), -GAP
    for column in order:
        if used + GAP + widths[column] <= width:
            kept.append(column)
            used += GAP + widths[column]
    return sorted(kept)


def _narrowed(natural: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Widths of columns that fit, the widest made narrower first."""
    widths = list(natural)
    over = sum(widths) + GAP * (len(widths) - 1) - width
    for column in sorted(range(len(widths)), key=lambda column: -widths[column]):
        less = max(0, min(over, widths[column] - least[column]))
        widths[column] -= less
        over -= less
    return widths


def _row(
    texts: Sequence[str], widths: Sequence[int], to_right: Sequence[bool], style: str
) -> Iterator[Line]:
    """The lines of a row."""
    parts = [wrapped(text, width) for text, width in zip(texts, widths, strict=True)]
    for line in zip_longest(*parts, fillvalue=""):
        cells = map(_padded, line, widths, to_right)
        yield (" " * GAP).join(cells).rstrip(), style


def _padded(text: str, width: int, to_right: bool = False) -> str:
    space = " " * (width - cell_len(text))
    return space + text if to_right else text + space


def _named(names: Sequence[str], width: int) -> Iterator[Line]:
    """The names of a table without rows."""
    yield from ((line, "bold") for line in wrapped(" ".join(names), width))


def _blocks(names: Sequence[str], cells: Iterable[Sequence[str]], width: int) -> Iterator[Line]:
    """Each row as lines of a name and its value."""
    indent = max(map(cell_len, names)) + GAP
    for number, row in enumerate(cells):
        if number:
            yield "", ""
        for name, text in zip(names, row, strict=True):
            if cell_len(text) <= width - indent or width - indent >= TEXT_WIDTH:
                first, *rest = wrapped(text, width - indent)
                yield (_padded(name, indent) + first).rstrip(), ""
                yield from ((" " * indent + line, "") for line in rest)
            else:
                yield from ((line, "") for line in wrapped(name, width))
                yield from ((" " * GAP + line, "") for line in wrapped(text, width - GAP))


def _left_out(names: Sequence[str], width: int) -> Iterator[Line]:
    what = counted(len(names), "column")
    text = f"({what} left out: {', '.join(names)}; to see all, add: | less -S)"
    yield from ((line, "dim") for line in wrapped(text, width))
