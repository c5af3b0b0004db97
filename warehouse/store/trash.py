"""The trash of a warehouse: runs that were removed, and can be restored.

    WAREHOUSE/trash/records/layout=7/run=RUN/    the run's files, as they were

The ledger has an entry of what was moved here and one that it is gone from `records`. Both list
the checksums from before, so that changes are still found, here and after a restore.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from predictor.errors import InputError
from warehouse.store.checksums import is_stored, noted
from warehouse.store.durable import give_name, lock_run, writing
from warehouse.store.folder import RUN_NAME, name_of, place_of, unknown_run
from warehouse.store.labels import forget_run
from warehouse.store.ledger import Held, check_key, enter, folder_name, read_ledger

TRASH = "trash"


@dataclass(frozen=True, slots=True)
class Removed:
    """A run in the trash.

    Attributes:
        run: The run.
        megabytes: Size of its files.
    """

    run: str
    megabytes: float


def removed_runs(warehouse: Path) -> list[Removed]:
    """The runs in the trash, in the order of their names."""
    return [
        Removed(name_of(folder), sum(path.stat().st_size for path in folder.iterdir()) / 1e6)
        for folder in _folders(warehouse)
    ]


def is_removed(warehouse: Path, run: str) -> bool:
    """Whether a run is in the trash: no new run gets its id."""
    return any(name_of(folder) == run for folder in _folders(warehouse))


def remove(warehouse: Path, run: str) -> None:
    """Move a run to the trash, damaged ones too. Called again after a crash, it completes the move.

    Raises:
        InputError: There is no such run, or a run of this name is in the trash.
        WarehouseError: The run is being written, or the warehouse cannot be.
    """
    folder = place_of(warehouse, run)
    if not is_stored(folder):
        raise unknown_run(warehouse, run)
    place = warehouse / TRASH / folder_name(warehouse, folder)
    if place.exists():
        raise InputError(
            f"run {run!r}",
            "was removed before, and another one of this name is in the trash",
            "purge that one with shockwave rm",
        )
    with writing(warehouse):
        lock = lock_run(folder / ".lock", run)
        try:
            check_key(warehouse)
            place.parent.mkdir(parents=True, exist_ok=True)
            _move_entry(warehouse, folder, place)
            give_name(folder, place)
        finally:
            os.close(lock)


def restore(warehouse: Path, run: str) -> None:
    """Move a run back from the trash. Called again after a crash, it completes the move.

    Raises:
        InputError: It is not in the trash, or there is a run of this name.
        WarehouseError: The warehouse cannot be written.
    """
    place = _in_trash(warehouse, run)
    folder = warehouse / place.relative_to(warehouse / TRASH)
    if folder.exists():
        raise InputError(
            f"run {run!r}", "is in the warehouse", "remove it first, or purge the other"
        )
    with writing(warehouse):
        check_key(warehouse)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _move_entry(warehouse, place, folder)
        give_name(place, folder)


def purge(warehouse: Path, run: str) -> None:
    """Remove a run from the trash for good, and its label unless there is a run of this name.

    Raises:
        InputError: It is not in the trash.
        WarehouseError: The warehouse cannot be written.
    """
    place = _in_trash(warehouse, run)
    with writing(warehouse):
        check_key(warehouse)
        held = read_ledger(warehouse).held.get(folder_name(warehouse, place), Held())
        if not held.gone:
            enter(warehouse, place, dict.fromkeys(held.files, ""))
        shutil.rmtree(place)
    if not place_of(warehouse, run).exists():
        forget_run(warehouse, run)


def _move_entry(warehouse: Path, source: Path, target: Path) -> None:
    """Enter the move of a folder's files in the ledger; nothing if the run is not in the ledger."""
    here = read_ledger(warehouse).held.get(folder_name(warehouse, source), Held())
    if here.gone:  # already entered as moved, or never entered: then it is not in `target` either
        return
    last = here.states[-1] if here.states else None
    rounds, last_hash = (last.rounds, last.last_hash) if last else (0, "")
    # What a killed process noted but did not enter is entered with the rest, as `resume` does.
    files = {name: digest for name, digest in here.files.items() if digest}
    files |= {n: s for n, s in (noted(source) or {}).items() if n not in here.files}
    enter(warehouse, target, files, rounds=rounds, last_hash=last_hash)
    enter(warehouse, source, dict.fromkeys(here.files, ""))


def _in_trash(warehouse: Path, run: str) -> Path:
    folder = next((path for path in _folders(warehouse) if name_of(path) == run), None)
    if folder is None:
        raise InputError(f"run {run!r}", "is not in the trash", "shockwave runs can list the trash")
    return folder


def _folders(warehouse: Path) -> list[Path]:
    root = warehouse.resolve() / TRASH
    found = (warehouse / TRASH).glob("records/**/run=*")
    there = (path for path in found if path.resolve().is_relative_to(root))  # no link leads out
    return sorted((path for path in there if RUN_NAME.fullmatch(name_of(path))), key=name_of)
