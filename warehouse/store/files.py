"""The Parquet files of a warehouse: their columns, and how they are written and read.

Every file is written under a temporary name, flushed and renamed, so that a reader never
sees half of one and a crash loses nothing that was acknowledged.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from containers.virtual.truth import GroundTruth
from predictor.errors import WarehouseBusy, WarehouseError
from predictor.job import JobSpec
from tasks.record import Package, RoundRecord, RunHeader, Timings
from warehouse.store.arrow import arrow_schema


@dataclass(frozen=True, slots=True)
class HeaderLabel:
    """What a header's file tells besides the header."""

    run: str
    created_at: datetime
    packages: tuple[Package, ...]
    hash: str


@dataclass(frozen=True, slots=True)
class RoundLabel:
    """What a round's file tells besides the record."""

    run: str
    hash: str
    timings: Timings


@dataclass(frozen=True, slots=True)
class PlayedJob:
    """A row of a run's `workload.parquet`: a job, and what it will really do."""

    run: str
    spec: JobSpec
    truth: GroundTruth


class CellStatus(StrEnum):
    """How far a cell is."""

    PENDING = "pending"
    """Not finished: it waits, runs, or was interrupted."""
    FINISHED = "finished"
    """Its run has ended."""
    FAILED = "failed"
    """It cannot be run; the reason is told."""


@dataclass(frozen=True, slots=True)
class CellRow:
    """A row of `campaigns/CAMPAIGN/cells.parquet`: what was asked for, and its run.

    Texts are empty, and seconds 0, where there is nothing to tell.

    Attributes:
        campaign: The campaign's id.
        cell: The cell's name within it.
        run: The run that answers it.
        policy: Name of the policy within the campaign.
        workload: Name of the workload.
        cluster: Name of the cluster.
        options: Name of the variant of the settings.
        seed: Seed of all that is drawn.
        status: How far it is.
        hash: Last hash of its run.
        seconds: Wall time that its run took.
        key: Hash of all that it starts from and of the code.
        reason: Why it failed.
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


HEADER = pa.schema([*arrow_schema(HeaderLabel), *arrow_schema(RunHeader)])
ROUND = pa.schema([*arrow_schema(RoundLabel), *arrow_schema(RoundRecord)])
WORKLOAD = arrow_schema(PlayedJob)
CELLS = arrow_schema(CellRow)
GROUP_ROUNDS = 64
"""Rounds in a row group of an ended run's file."""

WHOLE = "round=all.parquet"
"""All rounds of a run that has ended."""
WORKLOAD_FILE = "workload.parquet"
"""The jobs that a run plays."""

EMPTY = "run=_"
"""A partition without rows, so that the views' patterns always match a file."""


def round_of(path: Path) -> int | None:
    """The round that a file is named after; None for other files."""
    number = path.stem.removeprefix("round=")
    return int(number) if number.isdecimal() else None


def temporary_name(path: Path) -> Path:
    """A name beside a file that no pattern of the views matches."""
    return path.with_name(f".{path.name}.{uuid4().hex}")


def write_table(path: Path, table: pa.Table) -> None:
    """Write a small file whole or not at all, and durably."""
    # On a row or two, dictionaries and statistics take longer to make than they save, and
    # each column's write is a call of its own.
    memory = pa.BufferOutputStream()
    pq.write_table(table, memory, use_dictionary=False, write_statistics=False)
    with _written(path) as file:
        file.write(memory.getvalue())


def write_text(path: Path, text: str) -> None:
    """Write a small text whole or not at all, and durably."""
    with _written(path) as file:
        file.write(text.encode())


def write_groups(path: Path, schema: pa.Schema, groups: Iterable[pa.Table]) -> None:
    """Write a large file whole or not at all, and durably, a row group at a time."""
    with _written(path) as file, pq.ParquetWriter(file, schema) as writer:
        for group in groups:
            writer.write_table(group)


@contextlib.contextmanager
def _written(path: Path) -> Iterator[BinaryIO]:
    temporary = temporary_name(path)
    with temporary.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)  # the new name must outlive a power cut too
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_schema(path: Path) -> pa.Schema:
    """A file's columns as they are stored.

    Raises:
        WarehouseError: It is damaged or gone.
    """
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from None


def count_rows(path: Path) -> int:
    """How many rows a file holds.

    Raises:
        WarehouseError: It is damaged or gone.
    """
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from None


def read_groups(path: Path) -> Iterator[pa.Table | None]:
    """Read a damaged file's row groups one by one; None for one that cannot be read.

    Raises:
        WarehouseError: Not even its metadata can be read.
    """
    try:
        with pq.ParquetFile(path) as file:
            groups = file.num_row_groups
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from None
    for group in range(groups):
        try:
            with pq.ParquetFile(path) as file:
                yield file.read_row_group(group)
        except (pa.ArrowException, OSError):
            yield None


def read_parquet(path: Path, schema: pa.Schema | None = None) -> pa.Table:
    """Read a file's columns, by default as they are stored.

    Raises:
        WarehouseError: It is damaged or gone.
    """
    try:
        return pq.read_table(path, schema=schema, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> WarehouseError:
    return WarehouseError(
        str(path), f"cannot be read ({first_line(error)})", "restore it from a backup"
    )


@contextlib.contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Wait until no other process or thread holds a lock, and hold it.

    Args:
        lock: Its file, which stays; in a folder that is there.

    Raises:
        WarehouseError: The file cannot be written.
    """
    import fcntl

    with writing(lock):
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def writing(warehouse: Path) -> Iterator[None]:
    """Turn what the operating system refuses into a `WarehouseBusy`."""
    try:
        yield
    except OSError as error:
        raise WarehouseBusy(
            str(error.filename or warehouse),
            f"cannot be written ({error.strerror or error})",
            "choose a writable warehouse with room on its disk",
        ) from None


def first_line(error: Exception) -> str:
    """An error in one line."""
    return str(error).strip().splitlines()[0]
