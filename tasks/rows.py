"""Conversion of frozen dataclasses to plain rows, the form for hashes and migrations, and back.

A `StrEnum` becomes its string, a tuple or list a list, a dataclass a dict, a mapping a list of
pairs in its order, a frozen set a sorted list. A field with the metadata `optional` is left out
where it has its default: rows without it have the hash that they had before there was such a field.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import GenericAlias, NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

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


def drop_defaults(record: Any, row: dict[str, Any]) -> None:
    """Leave optional fields at their default out of a stored row, in place, as `to_row` does."""
    drop = _dropper(record)
    if drop:
        drop(row)


def is_record(hint: Any) -> bool:
    """Whether a type is stored as a nested record."""
    return is_dataclass(hint)


@cache
def typed_fields(record: Any) -> tuple[tuple[str, Any], ...]:
    """Names and types of a dataclass's fields, in order."""
    hints = get_type_hints(record)
    return tuple((field.name, hints[field.name]) for field in fields(record))


@cache
def _defaults(record: Any) -> Mapping[str, Any]:
    """The defaults of a dataclass's optional fields as plain data, by name."""
    hints = dict(typed_fields(record))
    return {
        field.name: _encoder(hints[field.name])(field.default)
        for field in fields(record)
        if "optional" in field.metadata
    }


def _same(value: Any) -> Any:
    return value


def _parts(hint: Any) -> tuple[Any, ...]:
    """Types of the parts of a tuple of fixed length; empty for one that repeats its first."""
    found = get_args(hint)
    return () if get_origin(hint) is not tuple or found[-1] is Ellipsis else found


def _other(hint: UnionType) -> Any:
    """The type that is given or None."""
    (found,) = (part for part in get_args(hint) if part is not NoneType)
    return found


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
        encode = _encoder(get_args(hint)[0])
        if get_origin(hint) is frozenset:
            return lambda items: sorted(map(encode, items))
        return lambda items: list(map(encode, items))
    if is_record(hint):
        return _record_encoder(hint)
    return str if issubclass(hint, Enum) else hint  # int and float also convert their subtypes


def _record_encoder(record: Any) -> Callable[[Any], dict[str, Any]]:
    hints, defaults = dict(typed_fields(record)), _defaults(record)
    if not defaults:
        parts = [(name, _encoder(hint)) for name, hint in hints.items()]
        return lambda value: {name: part(getattr(value, name)) for name, part in parts}
    optional = {field.name: field.default for field in fields(record) if field.name in defaults}
    absent = object()
    known = [(name, _encoder(hint), optional.get(name, absent)) for name, hint in hints.items()]

    def plain(value: Any) -> dict[str, Any]:
        row = {}
        for name, part, default in known:
            found = getattr(value, name)
            if found is not default:  # which most are that have one, and are left out unencoded
                row[name] = part(found)
        return _without(defaults, row)

    return plain


def _without(defaults: Mapping[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """A row without the fields that have their default, in place."""
    for name, default in defaults.items():
        if name in row and row[name] == default:
            del row[name]
    return row


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
    if is_record(hint):
        parts = [(name, _decoder(part)) for name, part in typed_fields(hint)]

        def whole(row: Mapping[str, Any]) -> Any:
            return hint(**{name: part(row[name]) for name, part in parts})

        defaults = _defaults(hint)
        return (lambda row: whole({**defaults, **row})) if defaults else whole
    return hint if issubclass(hint, Enum) else _same


def content_hash(row: Any) -> str:
    """SHA-256 of plain data, independent of the storage format."""
    return hashlib.sha256(orjson.dumps(row, option=orjson.OPT_SORT_KEYS)).hexdigest()


@cache
def _dropper(hint: Any) -> Callable[[Any], None] | None:
    """What leaves defaults out of stored rows of a type; None if it has no optional fields."""
    if isinstance(hint, GenericAlias):
        drop = _dropper(get_args(hint)[0])
        if drop is None:
            return None

        def drop_each(rows: list[Any]) -> None:
            for row in rows:
                drop(row)

        return drop_each
    if not is_record(hint):
        return None
    defaults = _defaults(hint)
    parts = [(name, drop) for name, part in typed_fields(hint) if (drop := _dropper(part))]

    def drop_all(row: dict[str, Any]) -> None:
        for name, drop in parts:
            if name in row:
                drop(row[name])
        _without(defaults, row)

    return drop_all if defaults or parts else None
