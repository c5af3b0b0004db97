"""Decodes rows of headers and rounds, of any supported layout, and computes their hashes."""

from dataclasses import dataclass, fields
from typing import Any

from containers.virtual.truth import GroundTruth
from predictor.job import JobSpec
from tasks.layouts import (
    FIRST_WITH_OPTIONAL,
    OLDEST,
    VERSION,
    header_upgraded,
    record_upgraded,
)
from tasks.record import RoundRecord, RunHeader
from tasks.rows import content_hash, drop_defaults, from_row
from warehouse.store.files import HeaderLabel, RoundLabel

Row = dict[str, Any]


GARBLED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, MemoryError)
"""Exceptions of decoding a damaged row."""


class LayoutError(ValueError):
    """The layout of a row is not supported."""


@dataclass(frozen=True)
class StoredHeader:
    """A run's stored header.

    Attributes:
        header: The header in the current layout.
        row: Its row in the current layout, for migrations of rounds.
        jobs: Jobs and ground truths in headers of layouts 3 to 5; else empty.
        digest: The stored hash.
        content: The hash computed from the stored content.
    """

    header: RunHeader
    row: Row
    jobs: tuple[tuple[JobSpec, GroundTruth], ...]
    digest: str
    content: str


@dataclass(frozen=True, slots=True)
class StoredRound:
    """A stored round.

    Attributes:
        record: The record in the current layout.
        digest: The stored hash.
        content: The hash computed from the stored content.
    """

    record: RoundRecord
    digest: str
    content: str


def stored_header(row: Row) -> StoredHeader:
    """A header from its file's row.

    Raises:
        LayoutError: The layout is not supported.
        KeyError: A field is missing; other errors if the row is no header.
    """
    content, digest = _content(row, RunHeader, HeaderLabel), row["hash"]
    header_upgraded(row)
    jobs = zip(row.get("specs", ()), row.get("truths", ()), strict=True)
    return StoredHeader(
        header=from_row(RunHeader, row),
        row=row,
        jobs=tuple((from_row(JobSpec, spec), from_row(GroundTruth, truth)) for spec, truth in jobs),
        digest=digest,
        content=content,
    )


def stored_round(row: Row, header: StoredHeader) -> StoredRound:
    """A round from a row of its file.

    Args:
        row: The row.
        header: Its run's header.

    Raises:
        LayoutError: The layout is not supported.
        KeyError: A field is missing; other errors if the row is no round.
    """
    content, digest = _content(row, RoundRecord, RoundLabel), row["hash"]
    return StoredRound(from_row(RoundRecord, record_upgraded(row, header.row)), digest, content)


def _content(row: Row, record: type, label: type[HeaderLabel] | type[RoundLabel]) -> str:
    """The hash of a row without its label."""
    if not OLDEST <= row["version"] <= VERSION:
        raise LayoutError(f"has layout {row['version']}, not {OLDEST} to {VERSION}")
    if row["version"] >= FIRST_WITH_OPTIONAL:
        drop_defaults(record, row)
    names = {field.name for field in fields(label)}
    return content_hash({name: value for name, value in row.items() if name not in names})
