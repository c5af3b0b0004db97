"""The default warehouse, and runs by name."""

import os
from pathlib import Path

from warehouse import DEFAULT_WAREHOUSE


def find_warehouse(folder: str | Path | None) -> Path:
    """Return the given folder; by default that of `SHOCKWAVE_WAREHOUSE`, else `var/warehouse`."""
    return Path(folder or os.environ.get("SHOCKWAVE_WAREHOUSE") or DEFAULT_WAREHOUSE)


def find_id(run: str, folder: Path) -> str:
    """Return the id of a run that is given by its id or name."""
    from warehouse.store.labelling import find_run

    return find_run(folder, run)
