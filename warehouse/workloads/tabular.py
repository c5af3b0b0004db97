"""Tables as clusters export them: any delimiter and order of columns, header inside or apart."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from predictor.errors import InputError
from warehouse.workloads.opening import open_text

DELIMITERS = "\x1f", "\t", "|", ";", ","
"""Delimiters that are recognised; a header has the right one most often."""

MOST_FIELD = 2**20
"""Longest field in characters. An engineering bound."""

PAIR = re.compile(r"([a-z]+(?:/[\w:.-]+)?)=\S+$")
"""An item of a list of resources in Slurm's notation."""

UNQUOTED = "\x1f", "|"
"""Delimiters of files in which a quotation mark is a character like any other (`sacct`)."""


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table that is read once, line by line.

    Attributes:
        columns: Positions of the columns, by name.
        lines: Number of each line, and its fields; a line of another width than the header's has
            None in their place.
    """

    columns: Mapping[str, int]
    lines: Iterator[tuple[int, list[str] | None]]


@contextmanager
def open_table(
    path: Path,
    known: Sequence[str] = (),
    *,
    header: Sequence[str] = (),
    free_text: str = "",
    members: Sequence[str] = (),
    of_lines: bool = False,
) -> Iterator[OpenTable]:
    """Open a table of text.

    Args:
        path: The table; see `open_text`.
        known: Columns, some of which its header has.
        header: Columns of a file without a header; used if its first line has none of `known`,
            and as many fields.
        free_text: The only column whose text may hold the delimiter; surplus fields belong to it.
        members: Stems of file names, to choose among the files of an archive.
        of_lines: Whether no field has a line break; a quotation mark that nothing closes within
            its line is then a character like any other.

    Raises:
        InputError: The file cannot be read, or has no header.
    """
    with open_text(path, members) as text:
        first = text.readline(MOST_FIELD)
        if not first.strip("\0\r\n") or len(first) == MOST_FIELD:
            problem = "begins with no header"
            raise InputError(str(path), problem, "give a table of text with a header")
        delimiter = max(DELIMITERS, key=first.count)
        headless = known and not _has_any(first.split(delimiter), known)
        if headless:  # lists in its fields may have more commas than it has delimiters
            fits = [each for each in DELIMITERS if first.count(each) == len(header) - 1]
            delimiter = fits[0] if fits else delimiter
        rows = _read_rows(path, chain([first], text), delimiter, of_lines)
        start = next(rows, (1, []))
        names = [name.strip() for name in start[1]]
        if headless and not _has_any(names, known):
            if len(header) != len(names):
                problem = f"its first line has none of the columns {', '.join(known[:12])}"
                remedy = f"set header to its columns; the first line has {shorten(names)}"
                raise InputError(f"{path}:1", problem, remedy)
            names, rows = list(header), chain([start], rows)
        ended = len(names) > 1 and not names[-1]  # by a delimiter, as some of `sacct`
        names = names[:-1] if ended else names
        _check_names(path, names)
        yield OpenTable(
            {name: at for at, name in enumerate(names)},
            _fit(rows, names, free_text, delimiter, ended),
        )


def shorten(names: Iterable[str]) -> str:
    """Return names as a list for error messages."""
    text = ", ".join(names)
    return text if len(text) <= 300 else f"{text[:300]}…"


def _has_any(names: Iterable[str], known: Iterable[str]) -> bool:
    """Return whether names are there, in any case, that are known."""
    return not {name.strip().casefold() for name in names}.isdisjoint(k.casefold() for k in known)


def _read_rows(
    path: Path, lines: Iterable[str], delimiter: str, of_lines: bool
) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the fields of each line; empty lines are skipped."""
    csv.field_size_limit(MOST_FIELD)
    if of_lines and delimiter not in UNQUOTED:
        for number, line in enumerate(lines, start=1):
            if line := line.rstrip("\r\n"):
                yield number, _split(line, delimiter)
        return
    quoted = delimiter not in UNQUOTED
    table = csv.reader(
        lines, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    )
    try:
        for row in table:
            if row:
                yield table.line_num, row
    except csv.Error as error:
        place = f"{path}:{table.line_num}"
        raise InputError(place, f"is not a table ({error})", "correct the line") from None


def _split(line: str, delimiter: str) -> list[str]:
    """Return the fields of a line, quoted or not."""
    if '"' in line:
        with suppress(csv.Error):
            (row,) = csv.reader([line], delimiter=delimiter, strict=True)
            return row
    return line.split(delimiter)


def _fit(
    rows: Iterator[tuple[int, list[str]]],
    names: Sequence[str],
    free_text: str,
    delimiter: str,
    ended: bool,
) -> Iterator[tuple[int, list[str] | None]]:
    """Yield lines with as many fields as the header, or None."""
    width = len(names)
    at = next((n for n, name in enumerate(names) if name.casefold() == free_text), None)
    for number, row in rows:
        if ended and not row[-1]:
            row.pop()
        if len(row) > width and delimiter == ",":
            row = _join_pairs(row)
        if len(row) > width and at is not None:
            surplus = len(row) - width
            row[at : at + surplus + 1] = [delimiter.join(row[at : at + surplus + 1])]
        yield number, row if len(row) == width else None


def _join_pairs(row: list[str]) -> list[str]:
    """Join what was split at the unquoted commas of lists such as `cpu=8,gres/gpu=2`.

    A name that comes again begins another list.
    """
    joined: list[str] = []
    seen: set[str] = set()
    for field in row:
        found = PAIR.match(field)
        if found and seen and found[1] not in seen:
            joined[-1] += f",{field}"
        else:
            joined.append(field)
            seen = set()
        seen |= {found[1]} if found else set()
    return joined


def _check_names(path: Path, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}:1", f"column {name!r} is there twice", "rename one of them")
