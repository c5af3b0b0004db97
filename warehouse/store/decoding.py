"""Decodes stored headers and rounds, and computes the hashes of what is stored.

Records of the present layout are read (`tasks.rows.VERSION`); those of any other are refused.
"""

from dataclasses import dataclass, fields
from typing import Any

from tasks.record import RoundRecord, RunHeader
from tasks.rows import VERSION, content_hash, from_row
from warehouse.store.files import HeaderLabel, RoundLabel
from warehouse.store.folder import other_layout

Row = dict[str, Any]


GARBLED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, MemoryError)
"""Exceptions of decoding a damaged row."""


@dataclass(frozen=True)
class StoredHeader:
    """A run's stored header.

    Attributes:
        header: The header.
        digest: The stored hash.
        content: The hash computed from the stored content.
    """

    header: RunHeader
    digest: str
    content: str


@dataclass(frozen=True, slots=True)
class StoredRound:
    """A stored round.

    Attributes:
        record: The record.
        digest: The stored hash.
        content: The hash computed from the stored content.
    """

    record: RoundRecord
    digest: str
    content: str


def decode_header(row: Row) -> StoredHeader:
    """A header from its file's row.

    Raises:
        InputError: The header has another layout.
        KeyError: A field is missing; other errors if the row is no header.
    """
    content = _content(row, HeaderLabel)
    return StoredHeader(from_row(RunHeader, row), row["hash"], content)


def decode_round(row: Row) -> StoredRound:
    """A round from a row of its file.

    Raises:
        InputError: The round has another layout.
        KeyError: A field is missing; other errors if the row is no round.
    """
    content = _content(row, RoundLabel)
    return StoredRound(from_row(RoundRecord, row), row["hash"], content)


def _content(row: Row, label: type[HeaderLabel] | type[RoundLabel]) -> str:
    """The hash of a row without its label."""
    if row["version"] != VERSION:
        raise other_layout(row["run"], row["version"])
    names = {field.name for field in fields(label)}
    return content_hash({name: value for name, value in row.items() if name not in names})
