"""Verification of the files that queries read."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Event

from predictor.errors import WarehouseError
from warehouse.analytics.catalog import find_copied, find_uncopied
from warehouse.analytics.copies import ANEW, Copies
from warehouse.analytics.definitions import MARTS, STAGING, find_needed
from warehouse.store.checksums import CHECKSUMS, read_sums
from warehouse.store.folder import EMPTY, MISPLACED, RESTORE, name_of, place_of, records_folder
from warehouse.store.verified import Verification


def start_verification(
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
    return lambda: _finish(both)


def verify_records(warehouse: Path, runs: Iterable[str]) -> None:
    """Verify the files of runs that have checksums.

    Raises:
        WarehouseError: A file was changed or added; the error names it.
    """
    stored = _checksums(warehouse, runs)
    _finish([Verification(warehouse, stored, f"{RESTORE}; shockwave run audit says more")])


def _finish(begun: Iterable[Verification]) -> None:
    for verification in begun:
        verification.finish()
        for path in verification.fresh:
            if path.name == "header.parquet" and path.parent.name != EMPTY and path.exists():
                _check_name(path)
        verification.save()


def _check_name(header: Path) -> None:
    """Refuse a run's folder that was copied or renamed: its header has another name."""
    from warehouse.store.arrow import read_from  # imports Arrow, needed once in a run's life

    run = read_from(header, 0, ["run"])["run"][0].as_py()
    if run != name_of(header.parent):
        raise WarehouseError(str(header), f"belongs to run {run!r}", MISPLACED)


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
