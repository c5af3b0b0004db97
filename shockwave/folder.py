"""Where records are kept, unless a call says otherwise, and which run a call means."""

import os
from pathlib import Path

from warehouse import DEFAULT_WAREHOUSE


def folder_of(warehouse: str | Path | None) -> Path:
    """The folder given; else that of `SHOCKWAVE_WAREHOUSE`, else `var/warehouse`."""
    return Path(warehouse or os.environ.get("SHOCKWAVE_WAREHOUSE") or DEFAULT_WAREHOUSE)


def id_of(run: str, folder: Path) -> str:
    """The id of a run that is given by its id or name."""
    from warehouse.store.labels import run_named

    return run_named(folder, run)
