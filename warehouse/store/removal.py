"""Deletion of runs, with an entry in the ledger."""

import os
import shutil
from pathlib import Path
from uuid import uuid4

from warehouse.store.checksums import is_stored
from warehouse.store.durable import give_name, lock_run, writing
from warehouse.store.folder import place_of, unknown_run
from warehouse.store.labelling import forget_run
from warehouse.store.ledger import enter, folder_name, read_ledger
from warehouse.store.states import remove_states


def remove_run(warehouse: Path, run: str) -> None:
    """Delete a sound or damaged run and its label. After a crash, call this again with the id.

    Raises:
        InputError: There is no such run.
        WarehouseError: A process is writing the run, the labels are damaged, or the warehouse is
            not writable.
    """
    folder = place_of(warehouse, run)
    if not is_stored(folder):
        raise unknown_run(warehouse, run)
    with writing(warehouse):
        lock = lock_run(folder / ".lock", run)
        try:
            entered = read_ledger(warehouse).folders.get(folder_name(warehouse, folder), {})
            if any(entered.values()):
                enter(warehouse, folder, dict.fromkeys(entered, ""))
            forget_run(warehouse, run)  # before the id is free: no later run gets the label
            # If this process is killed, the next run that begins removes a folder of this name.
            left_over = folder.with_name(f".run={uuid4().hex}")
            give_name(folder, left_over)
            shutil.rmtree(left_over)
            remove_states(warehouse, run)
        finally:
            os.close(lock)
