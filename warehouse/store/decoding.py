"""Rows of headers and rounds, of any layout, as they are stored: decoded, and their hashes."""

from dataclasses import dataclass, fields
from typing import Any

from containers.virtual.truth import GroundTruth
from predictor.job import JobSpec
from tasks.layouts import OLDEST, VERSION, header_upgraded, record_upgraded
from tasks.record import RoundRecord, RunHeader, content_hash
from tasks.rows import from_row
from warehouse.store.files import HeaderLabel, RoundLabel

Row = dict[str, Any]


class LayoutError(ValueError):
    """A row's layout is not one that can be read."""


@dataclass(frozen=True)
class StoredHeader:
    """A run's header as it is stored.

    Attributes:
        header: In the present layout.
        row: Its row in the present layout, which migrations of rounds look into.
        jobs: The jobs and truths of a layout that kept them in the header; else none.
        digest: The hash that is stored with it.
        content: The hash of what is stored.
    """

    header: RunHeader
    row: Row
    jobs: tuple[tuple[JobSpec, GroundTruth], ...]
    digest: str
    content: str


@dataclass(frozen=True, slots=True)
class StoredRound:
    """A round as it is stored.

    Attributes:
        record: In the present layout.
        digest: The hash that is stored with it.
        content: The hash of what is stored.
    """

    record: RoundRecord
    digest: str
    content: str


def stored_header(row: Row) -> StoredHeader:
    """A header from its file's row.

    Raises:
        LayoutError: Its layout is not one that can be read.
        KeyError: A field is missing; other errors where it does not hold a header at all.
    """
    content, digest = _content(row, HeaderLabel), row["hash"]
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
        LayoutError: Its layout is not one that can be read.
        KeyError: A field is missing; other errors where it does not hold a round at all.
    """
    content, digest = _content(row, RoundLabel), row["hash"]
    return StoredRound(from_row(RoundRecord, record_upgraded(row, header.row)), digest, content)


def _content(row: Row, label: type[HeaderLabel] | type[RoundLabel]) -> str:
    """The hash of a row but for its label."""
    if not OLDEST <= row["version"] <= VERSION:
        raise LayoutError(f"has layout {row['version']}, not {OLDEST} to {VERSION}")
    names = {field.name for field in fields(label)}
    return content_hash({name: value for name, value in row.items() if name not in names})
