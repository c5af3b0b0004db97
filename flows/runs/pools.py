"""Clusters of several pools, as a line of text."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from predictor.errors import InputError
from solver.cells.declared import TenantCells, TypeLevel
from solver.inventory import Pool

_POOL = re.compile(
    r"(?P<type>[A-Za-z0-9][\w.-]*):(?P<nodes>[0-9]{1,99})x(?P<gpus>[0-9]{1,99})(@(?P<price>.+))?"
)
_PRICE = re.compile(r"[0-9]+(\.[0-9]+)?")
_CELLS = re.compile(
    r"(?P<tenant>[^:,\s]+):((?P<type>[A-Za-z0-9][\w.-]*):)?(?P<level>[a-z][\w-]*):(?P<count>[0-9]{1,7})"
)
_LEVEL = re.compile(r"((?P<type>[A-Za-z0-9][\w.-]*):)?(?P<name>[a-z][\w-]*):(?P<parts>[0-9]{1,7})")


class Machines(NamedTuple):
    """A cluster: its pools, levels of cells by GPU type, and cells promised to tenants."""

    pools: tuple[Pool, ...]
    levels: tuple[TypeLevel, ...] = ()
    cells: tuple[TenantCells, ...] = ()


def parse_cells(text: str) -> tuple[TenantCells, ...]:
    """Parse promised cells, `TENANT:TYPE:LEVEL:COUNT,…`, such as `vision:v100:node:2`.

    TYPE is optional on a cluster of one GPU type.

    Raises:
        InputError: A part has another form.
    """
    parts = filter(str.strip, text.split(","))
    matches = _matched(parts, _CELLS, "cells", "vision:v100:node:2", "TENANT:TYPE:LEVEL:COUNT")
    return tuple(
        TenantCells(part["tenant"], part["type"] or "", part["level"], int(part["count"]))
        for part in matches
    )


def parse_levels(text: str) -> tuple[TypeLevel, ...]:
    """Parse levels, `TYPE:NAME:PARTS,…`, from the lowest up, such as `v100:pair:2,v100:node:4`.

    TYPE is optional on a cluster of one GPU type. PARTS is the number of cells of the level below
    in a cell of this level.

    Raises:
        InputError: A part has another form.
    """
    parts = filter(str.strip, text.split(","))
    form = "TYPE:NAME:PARTS, from the lowest up"
    matches = _matched(parts, _LEVEL, "levels", "v100:node:8", form)
    return tuple(TypeLevel(m["type"] or "", m["name"], int(m["parts"])) for m in matches)


def parse_pools(text: str) -> tuple[Pool, ...]:
    """Parse pools, `TYPE:NODESxGPUS[@PRICE],…`, such as `v100:12x1@2.48,k80:3x4`.

    GPUS is the number of a node's GPUs, PRICE the price of a GPU-hour.

    Raises:
        InputError: A part has another form, or a pool is out of bounds.
    """
    pools, form = [], "TYPE:NODESxGPUS or TYPE:NODESxGPUS@PRICE"
    for match in _matched(text.split(","), _POOL, "pools", "v100:12x1", form):
        per_node, price = int(match["gpus"]), match["price"] or "0"
        try:
            if not _PRICE.fullmatch(price):
                raise InputError("price", f"{price!r} is not a price", "give 0 or more")
            gpus = int(match["nodes"]) * per_node
            pools.append(Pool(match["type"], gpus, per_node, float(price)))
        except InputError as error:
            raise InputError("pools", f"{match[0]}: {error.problem}", error.remedy) from None
    return tuple(pools)


def format_pools(pools: Iterable[Pool]) -> str:
    """Format pools without prices, as `parse_pools` reads them."""
    return ",".join(f"{pool.gpu_type}:{pool.nodes}x{pool.gpus_per_node}" for pool in pools)


def _matched(
    parts: Iterable[str], shape: re.Pattern[str], field: str, example: str, form: str
) -> Iterator[re.Match[str]]:
    """Match the parts of a text with a pattern; refuse a part that does not match."""
    for part in map(str.strip, parts):
        match = shape.fullmatch(part)
        if match is None:
            problem = f"{part!r} is not like {example}"
            raise InputError(field, problem, f"give {form}, separated by commas")
        yield match
