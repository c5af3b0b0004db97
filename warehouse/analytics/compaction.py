"""Compaction of runs that ended, but whose process was killed before it compacted them."""

from pathlib import Path

from predictor.errors import WarehouseBusy
from warehouse.analytics.questions import Analytics
from warehouse.store.folder import name_of, run_folders
from warehouse.store.parts import WHOLE, part_names
from warehouse.store.reader import Reader
from warehouse.store.writer import Writer


def compact_ended(warehouse: Path) -> list[str]:
    """Merge the rounds of each ended run into one file; return the runs that had several.

    Runs of services do not end. Runs that another process writes are left alone.

    Raises:
        ShockwaveError: A file is damaged, or the warehouse cannot be written.
    """
    several = [name_of(path) for path in run_folders(warehouse) if part_names(path) != [WHOLE]]
    if not several:
        return []
    _, rows = Analytics(warehouse).query("SELECT run FROM runs WHERE complete", several)
    compacted, reader = list[str](), Reader(warehouse)
    for (run,) in sorted(rows):
        start = reader.start(run)
        if start.header.service:
            continue
        try:
            with Writer(warehouse, start, run=run) as writer:
                writer.compact()
        except WarehouseBusy:
            continue
        compacted.append(run)
    return compacted
