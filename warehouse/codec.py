"""Frozen dataclasses to Arrow schemas and rows, and back.

The types of a record are its schema: an int is an int64, a float a double, a string
(or `StrEnum`) a string, a tuple a list, a dataclass a struct.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import GenericAlias
from typing import Any, TypeVar, get_args, get_type_hints

import pyarrow as pa

Record = TypeVar("Record")

_SCALARS = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}


def arrow_schema(record: Any) -> pa.Schema:
    """The Arrow schema of a dataclass: one column a field."""
    return pa.schema([pa.field(name, _arrow_type(hint)) for name, hint in _hints(record)])


def to_row(value: Any) -> dict[str, Any]:
    """Plain lists, dicts and scalars of a dataclass, in the order of its fields."""
    record: Any = type(value)
    row: dict[str, Any] = _encoder(record)(value)
    return row


def from_row(record: type[Record], row: Mapping[str, Any]) -> Record:
    """A dataclass from the row that `to_row` made of it."""
    kind: Any = record
    decode: Callable[[Any], Record] = _decoder(kind)
    return decode(row)


def _is_record(hint: Any) -> bool:
    return is_dataclass(hint)


@cache
def _hints(record: Any) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(record)
    return tuple((field.name, hints[field.name]) for field in fields(record))


def _arrow_type(hint: Any) -> pa.DataType:
    if isinstance(hint, GenericAlias):
        return pa.list_(_arrow_type(get_args(hint)[0]))
    if _is_record(hint):
        return pa.struct(list(arrow_schema(hint)))
    if issubclass(hint, Enum):
        return pa.string()
    return _SCALARS[hint]


def _same(value: Any) -> Any:
    return value


@cache
def _encoder(hint: Any) -> Callable[[Any], Any]:
    if isinstance(hint, GenericAlias):
        encode = _encoder(get_args(hint)[0])
        return lambda items: [encode(item) for item in items]
    if _is_record(hint):
        parts = [(name, _encoder(part)) for name, part in _hints(hint)]
        return lambda value: {name: part(getattr(value, name)) for name, part in parts}
    return str if issubclass(hint, Enum) else hint  # int and float also mend their subtypes


@cache
def _decoder(hint: Any) -> Callable[[Any], Any]:
    if isinstance(hint, GenericAlias):
        decode = _decoder(get_args(hint)[0])
        return tuple if decode is _same else lambda items: tuple(decode(item) for item in items)
    if _is_record(hint):
        parts = [(name, _decoder(part)) for name, part in _hints(hint)]
        return lambda row: hint(**{name: part(row[name]) for name, part in parts})
    return hint if issubclass(hint, Enum) else _same
