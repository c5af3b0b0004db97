"""Frozen dataclasses as Arrow tables, and tables as Parquet files.

The types of a record are its schema: an int is an int64, a float a double, a string (or `StrEnum`)
a string, a datetime a timestamp in UTC, a tuple a list, a dataclass a struct.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from itertools import accumulate, chain
from operator import attrgetter
from pathlib import Path
from types import GenericAlias
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from predictor.errors import WarehouseError, first_line, remedy_of
from predictor.rows import get_typed_fields, is_record
from warehouse.store.durable import Ahead, check_regular, write_file
from warehouse.store.folder import RESTORE, is_run

_SCALARS = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
    datetime: pa.timestamp("us", tz="UTC"),
}


def arrow_schema(record: Any) -> pa.Schema:
    """Return the Arrow schema of a dataclass: a column per field."""
    return pa.schema([pa.field(name, _arrow_type(hint)) for name, hint in get_typed_fields(record)])


def to_table(schema: pa.Schema, *parts: Any) -> pa.Table:
    """Return a table of a single row: the fields of several dataclasses."""
    return rows_to_table(schema, *([part] for part in parts))


def rows_to_table(schema: pa.Schema, *parts: Sequence[Any]) -> pa.Table:
    """Return a table with a row per dataclass; several sequences become adjacent columns.

    Columns are built from buffers: from plain rows, `pyarrow` takes three times as long and imports
    pandas.

    Args:
        schema: The columns: the fields of the first sequence's class, then of the next.
        *parts: Sequences of equal length, at least 1, each of one dataclass.
    """
    columns: list[pa.Array] = []
    for part in parts:
        kind: Any = type(part[0])
        columns += (
            _array(hint, list(map(attrgetter(name), part))) for name, hint in get_typed_fields(kind)
        )
    return pa.Table.from_arrays(columns, schema=schema)


@cache
def _arrow_type(hint: Any) -> pa.DataType:
    if isinstance(hint, GenericAlias):
        return pa.list_(_arrow_type(get_args(hint)[0]))
    if is_record(hint):
        return pa.struct(list(arrow_schema(hint)))
    if issubclass(hint, Enum):
        return pa.string()
    return _SCALARS[hint]


def _array(hint: Any, values: Sequence[Any]) -> pa.Array:
    children: list[pa.Array] = []
    if isinstance(hint, GenericAlias):
        buffers = [None, _offsets(values)]
        children = [_array(get_args(hint)[0], list(chain.from_iterable(values)))]
    elif is_record(hint):
        buffers = [None]
        children = [
            _array(part, list(map(attrgetter(name), values)))
            for name, part in get_typed_fields(hint)
        ]
    elif issubclass(hint, str):
        texts = [str(value).encode() for value in values]
        buffers = [None, _offsets(texts), pa.py_buffer(b"".join(texts))]
    elif hint is bool:
        buffers = [None, pa.py_buffer(np.packbits(np.array(values, bool), bitorder="little"))]
    elif hint is datetime:
        buffers = [None, pa.py_buffer(np.array([_microseconds(value) for value in values]))]
    else:
        buffers = [None, pa.py_buffer(np.array(values, hint))]
    return pa.Array.from_buffers(_arrow_type(hint), len(values), buffers, children=children)


def _microseconds(moment: datetime) -> int:
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


def _offsets(values: Sequence[Any]) -> pa.Buffer:
    """Return Arrow's offsets of concatenated values: each start, and the last end."""
    return pa.py_buffer(np.array([0, *accumulate(map(len, values))], np.int32))


def write_table(path: Path, table: pa.Table, ahead: Ahead | None = None) -> None:
    """Write a small file atomically and durably."""
    # For a row or two, dictionaries and statistics cost more than they save. The buffer saves a
    # system call per column.
    memory = pa.BufferOutputStream()
    pq.write_table(table, memory, use_dictionary=False, write_statistics=False)
    with write_file(path, ahead) as file:
        file.write(memory.getvalue())


def write_groups(
    path: Path, schema: pa.Schema, groups: Iterable[pa.Table], ahead: Ahead | None = None
) -> None:
    """Write a large file atomically and durably, by row group."""
    with write_file(path, ahead) as file, pq.ParquetWriter(file, schema) as writer:
        for group in groups:
            writer.write_table(group.combine_chunks())  # one-row chunks take twice the time


def encode_empty(schema: pa.Schema) -> bytes:
    """Return the content of a file without rows."""
    memory = pa.BufferOutputStream()
    pq.ParquetWriter(memory, schema).close()
    return bytes(memory.getvalue())


@contextmanager
def open_parquet(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a file to read; `pq.read_table` would import pandas.

    Raises:
        WarehouseError: The file is damaged or missing.
    """
    try:
        with pq.ParquetFile(check_regular(path)) as file:
            yield file
    except MemoryError:  # Arrow's own is an ArrowException, too, and says nothing of the file
        raise
    except (pa.ArrowException, OSError, KeyError, UnicodeError) as error:
        usual = RESTORE if is_run(path.parent.name) else "restore it from a backup"
        reason = getattr(error, "strerror", None) or first_line(error)
        problem, remedy = f"cannot be read ({reason})", remedy_of(error, usual)
        raise WarehouseError(str(path), problem, remedy) from None


def read_groups(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """Read a file's columns by row group; raise as `open_parquet` does."""
    with open_parquet(path) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, schema.names).select(schema.names)


def read_few(path: Path, rows: int, first: int) -> Iterator[pa.Table]:
    """Read a file from the row `first` on, a few rows at a time; raise as `open_parquet` does."""
    with open_parquet(path) as file:
        for group in range(file.num_row_groups):
            held = file.metadata.row_group(group).num_rows
            for batch in file.iter_batches(rows, row_groups=[group]) if first < held else ():
                if first < len(batch):
                    yield pa.Table.from_batches([batch])[first:]
                first, held = max(first - len(batch), 0), held - len(batch)
            first = max(first - held, 0)


def read_parquet(path: Path, schema: pa.Schema | None = None) -> pa.Table:
    """Read a file's columns, by default all; raise as `open_parquet` does."""
    with open_parquet(path) as file:
        return file.read() if schema is None else file.read(schema.names).select(schema.names)


def read_from(path: Path, first: int, names: list[str] | None = None) -> pa.Table:
    """Read a file from the row `first` on, by default all columns; raise as `open_parquet` does."""
    with open_parquet(path) as file:
        groups = range(file.num_row_groups)
        ends = list(accumulate(file.metadata.row_group(group).num_rows for group in groups))
        wanted = [group for group in groups if ends[group] > first]
        skipped = ends[wanted[0] - 1] if wanted and wanted[0] else 0
        return file.read_row_groups(wanted, names)[first - skipped :]


def drop_empty_rows(table: pa.Table) -> pa.Table:
    """Drop the rows of a table in which all lists are empty."""
    lists = [column for column in table.columns if pa.types.is_list(column.type)]
    lengths = (column.combine_chunks().value_lengths() for column in lists)
    (wanted,) = np.nonzero(sum(length.to_numpy(zero_copy_only=False) for length in lengths))
    return table.take(wanted)


def keep_job(table: pa.Table, job_id: int) -> pa.Table:
    """Keep only a job's elements in the lists of a table; all must have a `job_id`."""
    for place, name in enumerate(table.column_names):
        if pa.types.is_list(table.schema.types[place]):
            column = table.column(place).combine_chunks()
            elements = column.flatten()
            ids = np.asarray(elements.field("job_id"))
            (own,) = np.nonzero(ids == job_id)
            rows = np.asarray(column.value_parent_indices())[own]
            ends = np.cumsum(np.bincount(rows, minlength=len(table)))
            offsets = pa.array(np.array([0, *ends], np.int32))
            lists = pa.ListArray.from_arrays(offsets, elements.take(own), column.type)
            table = table.set_column(place, name, lists)
    return table
