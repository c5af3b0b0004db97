"""Parsers of text files; their errors name the line and the column."""

import csv
import io
import math
import re
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from predictor.errors import InputError, check_plain
from warehouse.workloads.opening import check_is_file

Number = TypeVar("Number", int, float)

LARGEST = 2**53
"""Largest number in a file: floats represent all integers up to it."""

JOB_TYPE = re.compile(r"(?P<model>.+) \(batch size (?P<batch_size>[0-9]{1,18})\)")
"""A model and its batch size in tables and traces."""

SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
"""Unsupported separators and their names."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table.

    Attributes:
        place: File and line.
        values: Fields by column.

    Raises:
        InputError: A field is not what a method returns; the error names file, line and column.
    """

    place: str
    values: Mapping[str, str]

    def number(self, column: str, kind: Callable[[str], Number]) -> Number:
        """Return a field as a number."""
        try:
            value = kind(check_plain(self.values[column]))
        except ValueError:
            wanted = "a whole number" if kind is int else "a number"
            text = self.values[column]
            raise self.refusal(column, f"{text!r} is not {wanted}", suggest_mending(text)) from None
        if LARGEST < abs(value) < math.inf:
            raise self.refusal(column, f"{value} is too large", "correct the field")
        return value

    def positive(self, column: str, kind: Callable[[str], Number]) -> Number:
        """Return a field as a positive, finite number."""
        value = self.number(column, kind)
        if not 0 < value < math.inf:
            problem = f"{value} is not {'finite' if value > 0 else 'positive'}"
            raise self.refusal(column, problem, "give a positive number")
        return value

    def name(self, column: str) -> str:
        """Return a field as a name: not empty, and on one line."""
        text = self.values[column].strip()
        if not text or not text.isprintable():
            raise self.refusal(column, f"{text!r} is not a name", "give printable text")
        return text

    def refusal(self, column: str, problem: str, remedy: str) -> InputError:
        """Return the error that names a field."""
        return InputError(f"{self.place}, {column}", problem, remedy)


def suggest_mending(text: str) -> str:
    """Return the remedy for a field that is not a number."""
    if "," in text or "_" in text:
        return "write digits only, with a point before decimals, as in 5400.5"
    return "correct the field"


def read_text(path: Path) -> str:
    """Read a file of UTF-8 text, without a byte order mark.

    Raises:
        InputError: The file cannot be read.
    """
    check_is_file(path)
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise InputError(str(path), str(reason), "give a readable file") from None


def read_rows(path: Path, wanted: Collection[str]) -> Iterator[Row]:
    """Read a CSV table with a header.

    Args:
        path: The table.
        wanted: Required columns; the table can have others.

    Raises:
        InputError: The file cannot be read, a column is missing, or a line's width differs from the
            header's; the error names the line.
    """
    return parse_rows(path, read_text(path), wanted)


def parse_rows(path: Path, text: str, wanted: Collection[str]) -> Iterator[Row]:
    """Return the rows of a CSV table's text; see `read_rows`."""
    table = csv.reader(io.StringIO(text), strict=True)
    try:
        header = next(table, [])
        _check_header(f"{path}:1", header, wanted)
        for cells in filter(None, table):
            place = f"{path}:{table.line_num}"
            if len(cells) != len(header):
                problem = f"{len(cells)} fields instead of {len(header)}"
                raise InputError(place, problem, f"the header has {_listed(header)}")
            yield Row(place, dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        remedy = "correct the line"
        raise InputError(f"{path}:{table.line_num}", f"is not CSV ({error})", remedy) from None


def _check_header(place: str, header: list[str], wanted: Collection[str]) -> None:
    if header and header[0].lstrip().startswith(("{", "[")):
        raise InputError(place, "is JSON, not CSV", f"give a table of {', '.join(wanted)}")
    for column in wanted:
        if column not in header:
            for mark, name in SEPARATORS.items():
                if len(header) == 1 and mark in header[0]:
                    problem, remedy = f"columns are separated by {name}", "separate them by commas"
                    raise InputError(place, problem, remedy)
            remedy = f"the header has {_listed(header) or 'none'}"
            raise InputError(place, f"missing column {column!r}", remedy)
        if header.count(column) > 1:
            raise InputError(place, f"column {column!r} is there twice", "rename one of them")


def _listed(header: list[str]) -> str:
    return textwrap.shorten(", ".join(header), 200, placeholder=" …")
