"""Verification of the files that queries read."""

import contextlib
import glob
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Event

import duckdb

from predictor.errors import WarehouseError
from warehouse.analytics.catalog import find_copied, find_uncopied
from warehouse.analytics.copies import ANEW, Copies
from warehouse.analytics.definitions import MARTS, STAGING, find_needed
from warehouse.analytics.sources import quote_all
from warehouse.store.checksums import CHECKSUMS, read_sums
from warehouse.store.folder import EMPTY, MISPLACED, RESTORE, name_of, place_of, records_folder
from warehouse.store.verified import Verification


def start_verification(
    connection: duckdb.DuckDBPyConnection,
    warehouse: Path,
    runs: Sequence[str] | None,
    named: tuple[str, ...],
    copies: Copies,
    ended: Event,
) -> Callable[[], None]:
    """Verify in the background the files of a query; return a function that waits for the end.

    Files without checksums are not verified. `named` has the views that the query names; `ended`
    is set when the result is no longer needed.

    Raises:
        WarehouseError: A file was changed or added; the error names it. The returned function
            raises it, too.
    """
    names, folder = {*named} - {"campaign_cells"}, warehouse.resolve()
    copied = find_copied(copies, runs)
    read, marts = find_uncopied(warehouse, runs, copied), dict[Path, str]()
    if copied:
        marts = {copies.file(name): copies.checksums[name] for name in MARTS if name in names}
    read_by = find_needed(named)
    for (run, _), part in copies.parts.items():
        if run in read:
            marts |= {part.file(v): d for v, d in part.checksums.items() if v in read_by}
    if names.intersection(STAGING):
        read |= {*copied}
    stored = _checksums(folder, read) if names else {}
    both = [
        Verification(folder, marts, ANEW, ended),
        Verification(folder, stored, f"{RESTORE}; shockwave run audit says more", ended),
    ]
    return lambda: _finish(connection, both)


def verify_records(warehouse: Path, runs: Iterable[str]) -> None:
    """Verify the files of runs that have checksums.

    Raises:
        WarehouseError: A file was changed or added; the error names it.
    """
    stored = _checksums(warehouse, runs)
    begun = [Verification(warehouse, stored, f"{RESTORE}; shockwave run audit says more")]
    _finish(None, begun)


def _finish(connection: duckdb.DuckDBPyConnection | None, begun: Iterable[Verification]) -> None:
    for verification in begun:
        verification.finish()
        _check_names(connection, verification.fresh)
        verification.save()


def _check_names(connection: duckdb.DuckDBPyConnection | None, verified: Iterable[Path]) -> None:
    """Refuse a run's folder that was copied or renamed: its header has another name.

    Without a connection, DuckDB is started if there are headers.
    """
    headers = [path for path in verified if path.name == "header.parquet"]
    headers = [path for path in headers if path.parent.name != EMPTY]
    if not headers:
        return
    files = quote_all([glob.escape(str(path)) for path in headers])
    stored: list[tuple[str, str]] = []
    with contextlib.suppress(duckdb.Error), contextlib.ExitStack() as stack:
        if connection is None:
            connection = stack.enter_context(contextlib.closing(duckdb.connect()))
            connection.execute("SET enable_progress_bar = false")  # the bar would go to stdout
        rows = f"read_parquet([{files}], filename = true, hive_partitioning = false)"
        stored = connection.execute(f"SELECT filename, run FROM {rows}").fetchall()
    for name, run in stored:
        if name_of(Path(name).parent) != run:
            raise WarehouseError(name, f"is of run {run!r}", MISPLACED)


def _checksums(warehouse: Path, runs: Iterable[str]) -> dict[Path, str]:
    """Return the noted checksums of runs' files; refuse added files and runs without checksums."""
    folders = [place_of(warehouse, run) for run in sorted(runs)]
    folders.append(records_folder(warehouse) / EMPTY)
    stored: dict[Path, str] = {}
    for folder in folders:
        there = sorted(path.name for path in folder.glob("*.parquet"))
        sums = read_sums(folder)
        if sums is None:
            if there:
                raise WarehouseError(str(folder / CHECKSUMS), "is missing", RESTORE)
            continue
        stored |= {folder / name: digest for name, digest in sums.items()}
        for name in there:
            if name not in sums and (folder / name).exists():  # otherwise compacted in the meantime
                problem = f"is not in {CHECKSUMS}: it is none of the files that were written"
                remedy = "move it elsewhere; shockwave run audit says more"
                raise WarehouseError(str(folder / name), problem, remedy)
    return stored
