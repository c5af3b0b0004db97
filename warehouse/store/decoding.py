"""Decoding of stored headers and rounds, with the hashes of their contents."""

from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from predictor.rows import from_row, hash_content
from tasks.layout import VERSION
from tasks.record import RoundRecord, RunHeader
from warehouse.store.files import HeaderLabel, RoundLabel
from warehouse.store.folder import other_layout

GARBLED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, MemoryError)
"""Exceptions that decoding a damaged row can raise."""

Record = TypeVar("Record", RunHeader, RoundRecord)


@dataclass(frozen=True, slots=True)
class Stored(Generic[Record]):
    """A stored header or round.

    Attributes:
        digest: The stored hash.
        content: The hash of the stored content.
    """

    record: Record
    digest: str
    content: str


def decode_header(row: dict[str, Any]) -> Stored[RunHeader]:
    """Decode the row of a header's file.

    Raises:
        InputError: The header has another layout.
        KeyError: A field is missing; other errors of `GARBLED` if the row is no header.
    """
    return _decode(row, RunHeader, HeaderLabel)


def decode_round(row: dict[str, Any]) -> Stored[RoundRecord]:
    """Decode a row of a file of rounds; raises as `decode_header` does."""
    return _decode(row, RoundRecord, RoundLabel)


def _decode(row: dict[str, Any], kind: type[Record], label: Any) -> Stored[Record]:
    if row["version"] != VERSION:
        raise other_layout(row["run"], row["version"])
    names = {field.name for field in fields(label)}
    content = hash_content({name: value for name, value in row.items() if name not in names})
    return Stored(from_row(kind, row), row["hash"], content)
