"""Frozen dataclasses as plain rows, the form that is hashed, and back.

A `StrEnum` becomes its string, a tuple, named tuple or list a list, a dataclass a dict, a mapping a
list of pairs in its order, a frozen set a sorted list.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import chain
from types import GenericAlias, NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import orjson

Record = TypeVar("Record")


def to_row(value: Any) -> dict[str, Any]:
    """Convert a dataclass to plain dicts, lists and scalars, in the order of its fields."""
    record: Any = type(value)
    row: dict[str, Any] = _encoder(record)(value)
    return row


def from_row(record: type[Record], row: Mapping[str, Any]) -> Record:
    """Convert a row of `to_row` to a dataclass."""
    kind: Any = record
    decode: Callable[[Any], Record] = _decoder(kind)
    return decode(row)


def to_json(value: Any) -> str:
    """Convert a dataclass to JSON; see `to_row`."""
    return orjson.dumps(to_row(value)).decode()


def from_json(record: type[Record], text: str) -> Record:
    """Convert the text of `to_json` to a dataclass; empty text means all defaults."""
    return from_row(record, orjson.loads(text)) if text else record()


def is_record(hint: Any) -> bool:
    """Return whether a type is stored as a nested record."""
    return is_dataclass(hint)


@cache
def get_typed_fields(record: Any) -> tuple[tuple[str, Any], ...]:
    """Return names and types of a dataclass's fields, in order."""
    hints = get_type_hints(record)
    return tuple((field.name, hints[field.name]) for field in fields(record))


def _same(value: Any) -> Any:
    return value


def _parts(hint: Any) -> tuple[Any, ...]:
    """Return the types of a tuple's parts; empty for a tuple of any length."""
    found = get_args(hint)
    return () if get_origin(hint) is not tuple or found[-1] is Ellipsis else found


def _other(hint: UnionType) -> Any:
    """Return the type T of `T | None`."""
    (found,) = (part for part in get_args(hint) if part is not NoneType)
    return found


def _tuple_fields(hint: Any) -> Any:
    """Return a named tuple's fields as the type of a plain tuple; None for other types."""
    names = getattr(hint, "_fields", None)
    if names is None:
        return None
    hints = get_type_hints(hint)
    return tuple[tuple(hints[name] for name in names)]  # type: ignore[misc]


@cache
def _encoder(hint: Any) -> Callable[[Any], Any]:
    if isinstance(hint, UnionType):
        given = _encoder(_other(hint))
        return lambda value: None if value is None else given(value)
    if isinstance(hint, GenericAlias):
        if get_origin(hint) is Mapping:
            pair = _encoder(tuple[get_args(hint)])  # type: ignore[misc]
            return lambda items: list(map(pair, items.items()))
        if each := [_encoder(part) for part in _parts(hint)]:
            return lambda value: [part(v) for part, v in zip(each, value, strict=True)]
        if hint == tuple[tuple[float, ...], ...]:  # the trajectories of forecasts: most of a record
            return _encode_tuples_of_floats
        encode = _encoder(get_args(hint)[0])
        if get_origin(hint) is frozenset:
            return lambda items: sorted(map(encode, items))
        return lambda items: list(map(encode, items))
    if is_record(hint):
        return _record_encoder(hint)
    if fields_of_tuple := _tuple_fields(hint):
        return _encoder(fields_of_tuple)
    return str if issubclass(hint, Enum) else hint  # calling int or float also converts subtypes


def _encode_tuples_of_floats(values: Any) -> Any:
    """Return tuples of floats as they are: they have the same JSON, and need no new lists."""
    if {*map(type, chain.from_iterable(values))} <= {float}:
        return values
    return [list(map(float, value)) for value in values]


def _record_encoder(record: Any) -> Callable[[Any], dict[str, Any]]:
    """Return an encoder with the fields written out, which takes half the time of a loop."""
    named = get_typed_fields(record)
    parts = {f"encode_{name}": _encoder(hint) for name, hint in named}
    items = ", ".join(f"{name!r}: encode_{name}(value.{name})" for name, _ in named)
    encode: Callable[[Any], dict[str, Any]] = eval(f"lambda value: {{{items}}}", parts)
    return encode


@cache
def _decoder(hint: Any) -> Callable[[Any], Any]:
    if isinstance(hint, UnionType):
        given = _decoder(_other(hint))
        return lambda value: None if value is None else given(value)
    if isinstance(hint, GenericAlias):
        if get_origin(hint) is Mapping:
            pair = _decoder(tuple[get_args(hint)])  # type: ignore[misc]
            return lambda items: dict(map(pair, items))
        if each := [_decoder(part) for part in _parts(hint)]:
            return lambda value: tuple([part(v) for part, v in zip(each, value, strict=True)])
        decode = _decoder(get_args(hint)[0])
        if (kind := get_origin(hint)) in (frozenset, list):
            return lambda items: kind(map(decode, items))
        return tuple if decode is _same else lambda items: tuple(decode(item) for item in items)
    if fields_of_tuple := _tuple_fields(hint):
        decode = _decoder(fields_of_tuple)
        return lambda row: hint(*decode(row))
    if is_record(hint):
        parts = [(name, _decoder(part)) for name, part in get_typed_fields(hint)]
        return lambda row: hint(**{name: part(row[name]) for name, part in parts})
    return hint if issubclass(hint, Enum) else _same


def hash_content(row: Any) -> str:
    """Return the SHA-256 of plain data, independent of the storage format."""
    return hashlib.sha256(orjson.dumps(row, option=orjson.OPT_SORT_KEYS)).hexdigest()
