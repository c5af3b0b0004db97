"""Clusters of several pools, as a line of text."""

import re

from predictor.errors import InputError
from solver.inventory import Pool

_POOL = re.compile(
    r"(?P<type>[A-Za-z0-9][\w.-]*):(?P<nodes>\d{1,7})x(?P<gpus>\d{1,7})(@(?P<price>\d+(\.\d+)?))?"
)


def parse_pools(text: str) -> tuple[Pool, ...]:
    """The pools of `TYPE:NODESxGPUS,…`, such as `v100:12x1@2.48,k80:3x4`.

    Args:
        text: For each pool GPU type, nodes, GPUs of a node and, if it has one, the price of a
            GPU-hour.

    Raises:
        InputError: A part is not of that form, or a pool is out of bounds.
    """
    pools = []
    for part in text.split(","):
        match = _POOL.fullmatch(part.strip())
        if match is None:
            raise InputError(
                "pools",
                f"{part.strip()!r} is not like v100:12x1",
                "give TYPE:NODESxGPUS or TYPE:NODESxGPUS@PRICE, separated by commas",
            )
        per_node = int(match["gpus"])
        try:
            price = float(match["price"] or 0.0)
            pools.append(Pool(match["type"], int(match["nodes"]) * per_node, per_node, price))
        except InputError as error:
            raise InputError("pools", f"{part.strip()}: {error.problem}", error.remedy) from None
    return tuple(pools)
