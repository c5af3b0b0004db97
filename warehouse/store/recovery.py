"""Recovery after a killed writer, and checks for changes since."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from predictor.errors import WarehouseError
from warehouse.store.checksums import CHECKSUMS, checksum, noted
from warehouse.store.durable import left_overs
from warehouse.store.folder import replaces
from warehouse.store.ledger import Held, folder_name, read_ledger


def finish_writes(folder: Path) -> None:
    """Give temporary files their names where their checksums were noted; remove others."""
    known = noted(folder) or {}
    for left_over in left_overs(folder):
        name = left_over.name[1:-33]
        if known.get(name) == checksum(left_over):
            left_over.replace(folder / name)
        else:
            left_over.unlink()


def check_noted(folder: Path, names: Sequence[str], known: Mapping[str, str]) -> None:
    """Refuse a run without one of its files, or with another that has rounds of several.

    Raises:
        WarehouseError: A file is missing, and its rounds are in no other, or is not noted.
    """
    for name in names:
        if name not in known and any(replaces(name, other) for other in names):
            problem, remedy = f"is not in {CHECKSUMS}", "move it elsewhere"
            raise WarehouseError(str(folder / name), problem, remedy)
    for name in sorted(known):
        replaced = any(replaces(other, name) for other in names)
        if not replaced and not (folder / name).exists():
            raise WarehouseError(str(folder / name), "is gone", "restore it from a backup")


def not_entered(warehouse: Path, folder: Path, run: str) -> dict[str, str]:
    """Checksums of files that the last writer, which was killed, did not enter.

    Raises:
        WarehouseError: A file that was entered has been changed or removed since.
    """
    entries = read_ledger(warehouse).held
    state = entries.get(folder_name(warehouse, folder), Held())
    for name, digest in state.files.items():
        path = folder / name
        if path.exists():
            problem = "was changed: the ledger has another checksum"
            sound = checksum(path) == digest
        else:
            problem = "is gone, and the ledger has it"
            sound = not digest
        if not sound:
            raise WarehouseError(str(path), problem, f"see shockwave audit {run}")
    sums = noted(folder) or {}
    return {name: sums[name] for name in sums if name not in state.files}
