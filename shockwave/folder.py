"""The default warehouse, and the lookup of runs by name."""

import os
from pathlib import Path

from warehouse import DEFAULT_WAREHOUSE


def find_warehouse(folder: str | Path | None) -> Path:
    """Return the folder; by default that in `SHOCKWAVE_WAREHOUSE`, else `var/warehouse`."""
    return Path(folder or os.environ.get("SHOCKWAVE_WAREHOUSE") or DEFAULT_WAREHOUSE)


def find_id(run: str, folder: Path) -> str:
    """Return the id of a run, given its id or name."""
    from warehouse.store.labelling import find_run

    return find_run(folder, run)
