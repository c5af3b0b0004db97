"""Creation of a warehouse's folders, and of the files without rows that its views need."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from warehouse.store.checksums import CHECKSUMS, hash_contents, with_sums
from warehouse.store.durable import find_left_overs, hold_lock, write_file, writing
from warehouse.store.folder import EMPTY, empty_cells, records_folder

if TYPE_CHECKING:
    import pyarrow as pa


def make_folder(warehouse: Path) -> None:
    """Create missing folders and empty partitions of a warehouse.

    Waits while another process does the same.

    Raises:
        WarehouseError: The folder cannot be written.
    """
    with writing(warehouse):
        empty = records_folder(warehouse) / EMPTY
        empty.mkdir(parents=True, exist_ok=True)
        if not _stale(warehouse):
            return
        with hold_lock(empty / ".lock"):
            stale = _stale(warehouse)
            for folder in dict.fromkeys(path.parent for path in stale):
                forms = {path.name: form for path, form in stale.items() if path.parent == folder}
                _write_forms(warehouse, folder, forms)


def _write_forms(warehouse: Path, folder: Path, forms: "Mapping[str, pa.Schema]") -> None:
    """Write files without rows after their entry; after a kill, the next process writes them."""
    from warehouse.store.arrow import encode_empty
    from warehouse.store.ledger import enter

    folder.mkdir(parents=True, exist_ok=True)
    for left_over in find_left_overs(folder):
        left_over.unlink()
    contents = {name: encode_empty(form) for name, form in forms.items()}
    if folder.name == EMPTY:
        contents = {CHECKSUMS: with_sums(folder, hash_contents(contents)), **contents}
    enter(warehouse, folder, hash_contents(contents))
    for name, content in contents.items():
        with write_file(folder / name) as file:
            file.write(content)


def _stale(warehouse: Path) -> "dict[Path, pa.Schema]":
    """Return the missing or outdated empty files, with their columns.

    The files of a folder are written together, because each entry of such a folder has all of them.
    """
    from warehouse.store.arrow import open_parquet
    from warehouse.store.files import CELLS, HEADER, ROUND, WORKLOAD

    empty = records_folder(warehouse) / EMPTY
    found: dict[Path, pa.Schema] = {}
    now = {"header": HEADER, "round=_": ROUND, "workload": WORKLOAD}
    forms = {empty / f"{name}.parquet": schema for name, schema in now.items()}
    for path, form in forms.items():
        if not path.exists():
            found |= forms
            continue
        with open_parquet(path) as file:
            if file.schema_arrow != form:
                found |= forms
    cells = empty_cells(warehouse)
    if not cells.exists():
        found[cells] = CELLS
    return found
