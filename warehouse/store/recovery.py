"""Recovery of a run whose last writer was killed."""

from pathlib import Path

from predictor.errors import WarehouseError
from warehouse.store.audit import check_file
from warehouse.store.checksums import CHECKSUMS, checksum, drop_sums, read_sums
from warehouse.store.durable import find_left_overs
from warehouse.store.ledger import LEDGER, folder_name, read_ledger
from warehouse.store.parts import part_names, replaces


def recover(warehouse: Path, folder: Path, run: str) -> dict[str, str]:
    """Complete the last writer's writes, and verify that nothing has changed since.

    Temporary files whose checksum is in `SHA256SUMS` get their names; others are removed. Returns
    the checksums by name of the files that the ledger lacks.

    Raises:
        WarehouseError: A file is missing, was changed, or is in no list.
    """
    known = read_sums(folder)
    if known is None:
        raise WarehouseError(str(folder / CHECKSUMS), "is gone", "restore it from a backup")
    for left_over in find_left_overs(folder):
        name = left_over.name[1:-33]  # without the dots and 32 hexadecimal digits
        if known.get(name) == checksum(left_over):
            left_over.replace(folder / name)
        else:
            left_over.unlink()
    names = part_names(folder)
    for name in names:
        if name not in known:  # a writer adds the checksum before the file gets its name
            problem, remedy = f"is not in {CHECKSUMS}", "move it elsewhere"
            raise WarehouseError(str(folder / name), problem, remedy)
    gone = [name for name in sorted(known) if not (folder / name).exists()]
    for name in gone:
        if not any(replaces(other, name) for other in names):
            raise WarehouseError(str(folder / name), "is gone", "restore it from a backup")
    drop_sums(folder, gone)
    entered = read_ledger(warehouse).folders.get(folder_name(warehouse, folder), {})
    for name, digest in entered.items():
        path = folder / name
        found = check_file(path, (LEDGER, digest)) if digest or path.exists() else None
        if found is not None:
            raise WarehouseError(str(path), found, f"see shockwave run audit {run}")
    return {name: known[name] for name in known if name not in {*entered, *gone}}
