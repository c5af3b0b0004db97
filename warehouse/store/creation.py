"""Creation of a warehouse's folders, and of the files without rows that its views need."""

from pathlib import Path
from typing import TYPE_CHECKING

from warehouse.store.checksums import CHECKSUMS, format_sums, hash_contents
from warehouse.store.durable import find_left_overs, hold_lock, write_file, writing
from warehouse.store.folder import EMPTY, WORKLOAD_FILE, empty_cells, records_folder

if TYPE_CHECKING:
    import pyarrow as pa


def make_folder(warehouse: Path) -> None:
    """Create missing folders and empty partitions of a warehouse.

    Waits while another process does the same.

    Raises:
        WarehouseError: The folder cannot be written.
    """
    empty, cells = records_folder(warehouse) / EMPTY, empty_cells(warehouse)
    with writing(warehouse):
        empty.mkdir(parents=True, exist_ok=True)
        # The last files to be written; cells may be those of a warehouse of another layout.
        if cells.exists() and (empty / WORKLOAD_FILE).exists():
            return
        with hold_lock(empty / ".lock"):
            from warehouse.store.files import CELLS, HEADER, ROUND, WORKLOAD

            forms = {"header.parquet": HEADER, "round=_.parquet": ROUND, WORKLOAD_FILE: WORKLOAD}
            for folder, files in ((empty, forms), (cells.parent, {cells.name: CELLS})):
                if not all((folder / name).exists() for name in files):
                    _write_forms(warehouse, folder, files)


def _write_forms(warehouse: Path, folder: Path, forms: "dict[str, pa.Schema]") -> None:
    """Write files without rows after their entry; after a kill, the next process writes them."""
    from warehouse.store.arrow import encode_empty
    from warehouse.store.ledger import enter

    folder.mkdir(parents=True, exist_ok=True)
    for left_over in find_left_overs(folder):
        left_over.unlink()
    contents = {name: encode_empty(form) for name, form in forms.items()}
    if folder.name == EMPTY:
        contents = {CHECKSUMS: format_sums(hash_contents(contents)), **contents}
    enter(warehouse, folder, hash_contents(contents))
    for name, content in contents.items():
        with write_file(folder / name) as file:
            file.write(content)
