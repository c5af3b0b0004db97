"""The newest run of a warehouse, found without DuckDB."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from predictor.errors import WarehouseError
from warehouse.analytics.copies import ANEW, Copies, read_copies
from warehouse.store.arrow import read_from
from warehouse.store.checks import check_warehouse
from warehouse.store.checksums import read_sums
from warehouse.store.folder import MISPLACED, RESTORE, is_begun, name_of, run_folders
from warehouse.store.verified import verify

HEADER = "header.parquet"


def newest_run(warehouse: Path) -> str | None:
    """The run that was created last; None if there is none.

    Raises:
        InputError: There is no warehouse.
        WarehouseError: A file is damaged.
    """
    check_warehouse(warehouse)
    created = _of_copies(warehouse, read_copies(warehouse))
    others = [folder for folder in run_folders(warehouse) if name_of(folder) not in created]
    created |= _of_headers(warehouse, others)
    return max(created, key=lambda run: (created[run], run), default=None)


def _of_copies(warehouse: Path, copies: Copies) -> dict[str, int]:
    """When the runs with copies were created."""
    if not copies.runs:
        return {}
    path = copies.file("runs")
    verify(warehouse.resolve(), {path: copies.checksums["runs"]}, ANEW)
    created = _created(path)
    return {run: created[run] for run in copies.runs}


def _of_headers(warehouse: Path, folders: Sequence[Path]) -> dict[str, int]:
    """When the runs in these folders were created, as far as they are begun.

    Raises:
        WarehouseError: A header is damaged, or was copied or renamed with its folder.
    """
    found = dict[str, int]()
    for folder in folders:
        try:
            created = _created(folder / HEADER)
        except WarehouseError:
            if is_begun(folder):  # else it has none yet, or was removed in the meantime
                raise
            continue
        for run in created:
            if run != name_of(folder):
                raise WarehouseError(str(folder / HEADER), f"is of run {run!r}", MISPLACED)
        found |= created
    sums = {folder / HEADER: (read_sums(folder) or {}).get(HEADER) for folder in folders}
    verify(warehouse, {path: digest for path, digest in sums.items() if digest}, RESTORE)
    return found


def _created(path: Path) -> dict[str, int]:
    """When the runs in a file were created, in microseconds: times of Arrow would import pandas."""
    stored = read_from(path, 0, ["run", "created_at"])
    at = stored["created_at"]
    numbers = at.cast(pa.timestamp("us", at.type.tz)).cast(pa.int64())
    return dict(zip(stored["run"].to_pylist(), numbers.to_pylist(), strict=True))
