"""The Parquet files of a warehouse: schemas, readers and writers."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from containers.virtual.truth import GroundTruth
from predictor.errors import WarehouseError, first_line, remedy_of
from predictor.job import JobSpec
from tasks.record import Package, RoundRecord, RunHeader, RuntimeKind, Timings
from warehouse.store.arrow import arrow_schema, schema_with
from warehouse.store.durable import Ahead, regular, written


@dataclass(frozen=True, slots=True)
class HeaderLabel:
    """Columns of a header's file in addition to the header."""

    run: str
    created_at: datetime
    packages: tuple[Package, ...]
    hash: str


@dataclass(frozen=True, slots=True)
class RoundLabel:
    """Columns of a round's file in addition to the record."""

    run: str
    hash: str
    timings: Timings


@dataclass(frozen=True, slots=True)
class PlayedJob:
    """A row of a run's `workload.parquet`: a job and its ground truth."""

    run: str
    spec: JobSpec
    truth: GroundTruth


class CellStatus(StrEnum):
    """Status of a cell."""

    PENDING = "pending"
    """Not finished: waiting, running or interrupted."""
    FINISHED = "finished"
    """Its run has ended."""
    FAILED = "failed"
    """It failed; the row has the reason."""


@dataclass(frozen=True, slots=True)
class CellRow:
    """A row of `campaigns/CAMPAIGN/cells.parquet`: a cell and its run.

    Texts are empty and seconds are 0 where they do not apply.

    Attributes:
        campaign: The campaign's id.
        cell: The cell's name within it.
        run: Id of its run.
        policy: Name of the policy within the campaign.
        workload: Name of the workload.
        cluster: Name of the cluster.
        options: Name of the variant of the settings.
        seed: Seed of all that is drawn.
        status: Its status.
        hash: Last hash of its run.
        seconds: Wall time of its run.
        key: Hash of its start and of the code.
        reason: Reason of a failure.
    """

    campaign: str
    cell: str
    run: str
    policy: str
    workload: str
    cluster: str
    options: str
    seed: int
    status: CellStatus
    hash: str
    seconds: float
    key: str
    reason: str


HEADER = pa.schema([*arrow_schema(HeaderLabel), *schema_with(RunHeader)])
ROUND = pa.schema([*arrow_schema(RoundLabel), *schema_with(RoundRecord)])
WORKLOAD = arrow_schema(PlayedJob)
CELLS = arrow_schema(CellRow)
GROUP_ROUNDS = 64
"""Rounds in a row group of an ended run's file, which bounds the loss by a damaged group. An
engineering choice; no sweep is recorded."""


def header_columns(header: RunHeader) -> pa.Schema:
    """The columns of a run's header: all that its files have, those of services with more."""
    wanted = ["service"] * header.service + ["pairs"] * bool(header.pairs)
    wanted += ["losses"] * header.losses + ["spread"] * bool(header.spread)
    return pa.schema([*arrow_schema(HeaderLabel), *schema_with(RunHeader, wanted)])


def round_columns(header: RunHeader) -> pa.Schema:
    """The columns of a run's rounds: of a service with what it took in."""
    wanted = ["commands", "truths"] * header.service + ["pairs"] * bool(header.pairs)
    wanted += ["problems"] * (header.settings.runtime == RuntimeKind.DOCKER)
    wanted += ["losses"] * header.losses
    return pa.schema([*arrow_schema(RoundLabel), *schema_with(RoundRecord, wanted)])


def write_table(path: Path, table: pa.Table, ahead: Ahead | None = None) -> None:
    """Write a small file atomically and durably."""
    # For a row or two, dictionaries and statistics cost more than they save; the buffer
    # saves a system call per column.
    memory = pa.BufferOutputStream()
    pq.write_table(table, memory, use_dictionary=False, write_statistics=False)
    with written(path, ahead) as file:
        file.write(memory.getvalue())


def write_groups(
    path: Path, schema: pa.Schema, groups: Iterable[pa.Table], ahead: Ahead | None = None
) -> None:
    """Write a large file atomically and durably, by row group."""
    with written(path, ahead) as file, pq.ParquetWriter(file, schema) as writer:
        for group in groups:
            writer.write_table(group.combine_chunks())  # of one-row chunks it takes twice the time


def without_rows(schema: pa.Schema) -> bytes:
    """The content of a file without rows."""
    memory = pa.BufferOutputStream()
    pq.ParquetWriter(memory, schema).close()
    return bytes(memory.getvalue())


def read_schema(path: Path) -> pa.Schema:
    """A file's columns as they are stored.

    Raises:
        WarehouseError: The file is damaged or missing.
    """
    try:
        return pq.read_schema(regular(path))
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise _damaged(path, error) from None


def count_rows(path: Path) -> int:
    """The number of rows of a file.

    Raises:
        WarehouseError: The file is damaged or missing.
    """
    try:
        return int(pq.read_metadata(regular(path)).num_rows)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise _damaged(path, error) from None


def read_groups(path: Path) -> Iterator[pa.Table | None]:
    """Read a damaged file by row group; None for each row group that cannot be read.

    Raises:
        WarehouseError: Not even its metadata can be read.
    """
    try:
        with pq.ParquetFile(regular(path)) as file:
            groups = file.num_row_groups
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise _damaged(path, error) from None
    for group in range(groups):
        try:
            with pq.ParquetFile(path) as file:
                yield file.read_row_group(group)
        except (pa.ArrowException, OSError):
            yield None


def each_group(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """Read a file's columns by row group.

    Raises:
        WarehouseError: The file is damaged or missing.
    """
    try:
        with pq.ParquetFile(regular(path)) as file:
            there = [name for name in schema.names if name in file.schema_arrow.names]
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, there).select(there)
    except (pa.ArrowException, OSError, KeyError, UnicodeError) as error:
        raise _damaged(path, error) from None


def read_parquet(path: Path, schema: pa.Schema | None = None) -> pa.Table:
    """Read a file's columns, by default as they are stored.

    Raises:
        WarehouseError: The file is damaged or missing.
    """
    try:
        with pq.ParquetFile(regular(path)) as file:  # `read_table` would import pandas
            return file.read() if schema is None else file.read(schema.names).select(schema.names)
    except (pa.ArrowException, OSError, KeyError, UnicodeError) as error:
        raise _damaged(path, error) from None


def read_from(path: Path, first: int, names: list[str] | None = None) -> pa.Table:
    """Read the last rows of a file.

    Args:
        path: The file.
        first: The first row to read; 0 for all.
        names: Columns; by default, all.

    Raises:
        WarehouseError: The file is damaged or missing.
    """
    try:
        with pq.ParquetFile(regular(path)) as file:
            groups = range(file.num_row_groups)
            ends = list(accumulate(file.metadata.row_group(group).num_rows for group in groups))
            wanted = [group for group in groups if ends[group] > first]
            skipped = ends[wanted[0] - 1] if wanted and wanted[0] else 0
            return file.read_row_groups(wanted, names)[first - skipped :]
    except (pa.ArrowException, OSError, KeyError, UnicodeError) as error:
        raise _damaged(path, error) from None


def filled_rows(table: pa.Table) -> pa.Table:
    """The rows of a table in which one of its lists is not empty."""
    lists = [column for column in table.columns if pa.types.is_list(column.type)]
    lengths = (column.combine_chunks().value_lengths() for column in lists)
    (wanted,) = np.nonzero(sum(length.to_numpy(zero_copy_only=False) for length in lengths))
    return table.take(wanted)


def _damaged(path: Path, error: Exception) -> WarehouseError:
    remedy = remedy_of(error, "restore it from a backup")
    reason = getattr(error, "strerror", None) or first_line(error)
    return WarehouseError(str(path), f"cannot be read ({reason})", remedy)
