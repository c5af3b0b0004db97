"""Frozen dataclasses to Arrow arrays.

The types of a record are its schema: an int is an int64, a float a double, a string
(or `StrEnum`) a string, a datetime a timestamp in UTC, a tuple a list, a dataclass a struct.
"""

from collections.abc import Collection, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from itertools import accumulate, chain
from operator import attrgetter
from types import GenericAlias
from typing import Any, get_args

import numpy as np
import pyarrow as pa

from tasks.rows import is_record, typed_fields

_SCALARS = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
    datetime: pa.timestamp("us", tz="UTC"),
}


def arrow_schema(record: Any) -> pa.Schema:
    """The Arrow schema of a dataclass: a column per field."""
    return pa.schema([pa.field(name, _arrow_type(hint)) for name, hint in typed_fields(record)])


def schema_with(record: Any, wanted: Collection[str] = ()) -> pa.Schema:
    """The Arrow schema of a dataclass, of its optional fields with the wanted ones."""
    optional = {field.name for field in fields(record) if "optional" in field.metadata}
    optional.difference_update(wanted)
    return pa.schema([column for column in arrow_schema(record) if column.name not in optional])


def to_table(schema: pa.Schema, *parts: Any) -> pa.Table:
    """A table of a single row: the fields of several dataclasses."""
    return rows_to_table(schema, *([part] for part in parts))


def rows_to_table(schema: pa.Schema, *parts: Sequence[Any]) -> pa.Table:
    """A row for each dataclass of a sequence; several sequences become adjacent columns.

    Args:
        schema: The columns: the fields of the first sequence's kind, then of the next; without
            optional ones that have no column.
        *parts: Sequences of one length, at least 1, each of dataclasses of one kind.

    Columns are built from buffers: from plain rows `pyarrow` takes three times as long, and
    imports pandas.
    """
    columns: list[pa.Array] = []
    names = {*schema.names}
    for part in parts:
        kind: Any = type(part[0])
        columns += (
            _array(hint, list(map(attrgetter(name), part)))
            for name, hint in typed_fields(kind)
            if name in names
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
            _array(part, list(map(attrgetter(name), values))) for name, part in typed_fields(hint)
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
    """Arrow's offsets of concatenated values: each start, and the last end."""
    return pa.py_buffer(np.array([0, *accumulate(map(len, values))], np.int32))
