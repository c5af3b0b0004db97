"""Conversion of DuckDB's values to JSON."""

import math
from decimal import Decimal
from typing import Any


def to_plain(value: Any) -> Any:
    """Convert a value of DuckDB to JSON; non-finite numbers become null."""
    match value:
        case dict():
            return {str(name): to_plain(part) for name, part in value.items()}
        case list() | tuple():
            return [to_plain(part) for part in value]
        case float() | Decimal():
            return float(value) if math.isfinite(value) else None
        case None | bool() | int() | str():
            return value
        case _:
            return str(value)
