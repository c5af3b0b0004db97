"""The run of a warehouse that was created last, for what reads records: without DuckDB."""

from pathlib import Path

import pyarrow as pa

from warehouse.analytics.copies import ANEW, Copies, read_copies
from warehouse.store.files import read_from
from warehouse.store.folder import check_warehouse, is_begun, name_of, run_folders
from warehouse.store.verified import Verification


def newest_run(warehouse: Path) -> str | None:
    """The run that was created last; None if there is none.

    Raises:
        InputError: There is no warehouse.
        WarehouseError: A file is damaged.
    """
    check_warehouse(warehouse)
    created = _of_copies(warehouse, read_copies(warehouse))
    for path in run_folders(warehouse):
        if name_of(path) not in created and is_begun(path):
            created |= _created(path / "header.parquet")
    return max(created, key=lambda run: (created[run], run), default=None)


def _of_copies(warehouse: Path, copies: Copies) -> dict[str, int]:
    """When the runs with copies were created."""
    if not copies.runs:
        return {}
    path = copies.file("runs")
    verification = Verification(warehouse.resolve(), {path: copies.checksums["runs"]}, ANEW)
    verification.finish()
    verification.note()
    created = _created(path)
    return {run: created[run] for run in copies.runs}


def _created(path: Path) -> dict[str, int]:
    """When the runs in a file were created, in microseconds: times of Arrow would import pandas."""
    stored = read_from(path, 0, ["run", "created_at"])
    at = stored["created_at"]
    numbers = at.cast(pa.timestamp("us", at.type.tz)).cast(pa.int64())
    return dict(zip(stored["run"].to_pylist(), numbers.to_pylist(), strict=True))
