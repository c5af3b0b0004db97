"""Conversion of frozen dataclasses to plain rows, the form for hashes and migrations, and back.

A `StrEnum` becomes its string, a tuple a list, a dataclass a dict.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import GenericAlias
from typing import Any, TypeVar, get_args, get_type_hints

import orjson

Record = TypeVar("Record")


def to_row(value: Any) -> dict[str, Any]:
    """A dataclass as plain dicts, lists and scalars, in the order of its fields."""
    record: Any = type(value)
    row: dict[str, Any] = _encoder(record)(value)
    return row


def from_row(record: type[Record], row: Mapping[str, Any]) -> Record:
    """A dataclass from a row of `to_row`."""
    kind: Any = record
    decode: Callable[[Any], Record] = _decoder(kind)
    return decode(row)


def is_record(hint: Any) -> bool:
    """Whether a type is stored as a nested record."""
    return is_dataclass(hint)


@cache
def typed_fields(record: Any) -> tuple[tuple[str, Any], ...]:
    """Names and types of a dataclass's fields, in order."""
    hints = get_type_hints(record)
    return tuple((field.name, hints[field.name]) for field in fields(record))


def _same(value: Any) -> Any:
    return value


@cache
def _encoder(hint: Any) -> Callable[[Any], Any]:
    if isinstance(hint, GenericAlias):
        encode = _encoder(get_args(hint)[0])
        return lambda items: list(map(encode, items))
    if is_record(hint):
        parts = [(name, _encoder(part)) for name, part in typed_fields(hint)]
        return lambda value: {name: part(getattr(value, name)) for name, part in parts}
    return str if issubclass(hint, Enum) else hint  # int and float also convert their subtypes


@cache
def _decoder(hint: Any) -> Callable[[Any], Any]:
    if isinstance(hint, GenericAlias):
        decode = _decoder(get_args(hint)[0])
        return tuple if decode is _same else lambda items: tuple(decode(item) for item in items)
    if is_record(hint):
        parts = [(name, _decoder(part)) for name, part in typed_fields(hint)]
        return lambda row: hint(**{name: part(row[name]) for name, part in parts})
    return hint if issubclass(hint, Enum) else _same


def content_hash(row: Any) -> str:
    """SHA-256 of plain data, independent of the storage format."""
    return hashlib.sha256(orjson.dumps(row, option=orjson.OPT_SORT_KEYS)).hexdigest()
