"""Links to the files that a query reads, which stay while a writer replaces and removes these."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from warehouse.analytics.limits import SPILL
from warehouse.store.folder import (
    EMPTY,
    WORKLOAD_FILE,
    place_of,
    records_folder,
    run_folders,
)
from warehouse.store.ledger import HEADER_FILE
from warehouse.store.parts import round_files

TRIES = 100
"""Most tries to link the files of a run. An engineering bound."""


@contextmanager
def pin_files(warehouse: Path, runs: Sequence[str] | None) -> Iterator[Path]:
    """Yield a folder like the warehouse, with links to the present files of runs, by default all.

    It is the warehouse itself if that cannot be written, or its disk has no such links.
    """
    try:
        made = TemporaryDirectory(prefix=SPILL, dir=warehouse, ignore_cleanup_errors=True)
    except OSError:
        yield warehouse
        return
    with made as name:
        pinned = Path(name)
        try:
            _link_all(warehouse, runs, pinned)
        except OSError:
            pinned = warehouse
        yield pinned


def _link_all(warehouse: Path, runs: Sequence[str] | None, pinned: Path) -> None:
    folders = run_folders(warehouse) if runs is None else [place_of(warehouse, run) for run in runs]
    for folder in folders:
        place = pinned / folder.relative_to(warehouse)
        # A file can be replaced between listing and linking, which takes milliseconds.
        if not any(_link(folder, place) for _ in range(TRIES)):
            raise FileNotFoundError(str(folder))
    others = [*(records_folder(warehouse) / EMPTY).glob("*.parquet")]
    for path in (*others, *warehouse.glob("campaigns/*/cells.parquet")):
        place = pinned / path.relative_to(warehouse)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, place)


def _link(folder: Path, place: Path) -> bool:
    """Link the files of a run; return whether none was replaced in the meantime."""
    place.mkdir(parents=True)
    names = [HEADER_FILE, WORKLOAD_FILE, *(path.name for path in round_files(folder))]
    try:
        for name in names:
            os.link(folder / name, place / name)
    except FileNotFoundError:
        shutil.rmtree(place)
        return not (folder / HEADER_FILE).exists()  # the run was removed
    return True
