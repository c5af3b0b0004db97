"""Compaction of runs that ended, but whose process was killed before it compacted them."""

from pathlib import Path

from predictor.errors import ShockwaveError, WarehouseBusy
from warehouse.analytics.questions import Analytics
from warehouse.store.folder import name_of, place_of, run_folders
from warehouse.store.parts import WHOLE, part_names
from warehouse.store.reader import Reader
from warehouse.store.writer import Writer


def compact_ended(warehouse: Path) -> list[str]:
    """Merge the rounds of each ended run into one file; return the runs that had several.

    Runs of services do not end. Runs that another process writes are left alone.

    Raises:
        ShockwaveError: A file is damaged, or the warehouse cannot be written; the other runs are
            compacted.
    """
    compacted, failed = list[str](), list[ShockwaveError]()
    for run in sorted(map(name_of, run_folders(warehouse))):
        try:
            if _compact(warehouse, run):
                compacted.append(run)
        except WarehouseBusy:
            continue
        except ShockwaveError as error:
            failed.append(error)
    if failed:
        raise failed[0]
    return compacted


def _compact(warehouse: Path, run: str) -> bool:
    """Merge the rounds of a run if it has ended; return whether it had several files."""
    if part_names(place_of(warehouse, run)) == [WHOLE]:
        return False
    _, rows = Analytics(warehouse).query("SELECT run FROM runs WHERE complete", [run])
    if not rows:
        return False
    start = Reader(warehouse).start(run)
    if start.header.service:
        return False
    with Writer(warehouse, start, run=run) as writer:
        writer.compact()
    return True
