"""Where records are kept, unless a call says otherwise."""

import os
from pathlib import Path

from warehouse import DEFAULT_WAREHOUSE


def folder_of(warehouse: str | Path | None) -> Path:
    """The folder given; else that of `SHOCKWAVE_WAREHOUSE`, else `var/warehouse`."""
    return Path(warehouse or os.environ.get("SHOCKWAVE_WAREHOUSE") or DEFAULT_WAREHOUSE)
