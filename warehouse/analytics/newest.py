"""The newest run of a warehouse, found without starting DuckDB."""

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
    """Return the run that was created last; None in an empty warehouse.

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
    if not copies.runs:
        return {}
    path = copies.file("runs")
    verify(warehouse.resolve(), {path: copies.checksums["runs"]}, ANEW)
    created = _created(path)
    return {run: created[run] for run in copies.runs}


def _of_headers(warehouse: Path, folders: Sequence[Path]) -> dict[str, int]:
    """Return the creation times of the runs in these folders, once begun; verify their headers."""
    found = dict[str, int]()
    for folder in folders:
        try:
            created = _created(folder / HEADER)
        except WarehouseError:
            if is_begun(folder):  # otherwise it has no header yet, or was just removed
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
    """Return the creation times in a file, in microseconds: Arrow's times would import pandas."""
    stored = read_from(path, 0, ["run", "created_at"])
    at = stored["created_at"]
    numbers = at.cast(pa.timestamp("us", at.type.tz)).cast(pa.int64())
    return dict(zip(stored["run"].to_pylist(), numbers.to_pylist(), strict=True))
