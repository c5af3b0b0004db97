"""Checks of a warehouse's folder: links, missing files, unreadable files."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from predictor.errors import InputError, WarehouseError
from warehouse.store.folder import (
    EMPTY,
    MISPLACED,
    READ_ELSEWHERE,
    RESTORE,
    STATES,
    WORKLOAD_FILE,
    check_no_link,
    is_run,
    names_in,
    place_of,
    records_folder,
    run_folders,
)
from warehouse.store.parts import WHOLE, first_missing, part_names


def check_warehouse(warehouse: Path) -> None:
    """Refuse a folder that is not a warehouse.

    Raises:
        InputError: The folder is not a warehouse.
        WarehouseError: A folder in it is a link.
    """
    check_links(warehouse)
    if warehouse.is_file():
        raise InputError(str(warehouse), "is a file, not a folder", "name a warehouse's folder")
    if not (records_folder(warehouse) / EMPTY).is_dir():
        others = sorted(path.name for path in (warehouse / "records").glob("layout=*"))
        if others:
            problem = f"has records of {', '.join(others)}, not {records_folder(warehouse).name}"
            raise InputError(str(warehouse), problem, READ_ELSEWHERE)
        raise InputError(str(warehouse), "is not a warehouse", "run shockwave simulate first")


def check_links(warehouse: Path) -> None:
    """Refuse links in place of a warehouse's own folders.

    Raises:
        WarehouseError: There is such a link.
    """
    records = (warehouse / "records", records_folder(warehouse))
    others = (warehouse / name for name in ("campaigns", "marts", STATES))
    for folder in (*records, *others):
        check_no_link(folder)


def check_runs(warehouse: Path, runs: Sequence[str] | None = None) -> None:
    """Refuse runs that lack files, as far as the names of their other files show it.

    Raises:
        WarehouseError: A file is missing or not regular, or a folder that is not a run's matches
            the views' pattern; the error names it.
    """
    if runs is None:
        _check_folders(warehouse)
    folders = run_folders(warehouse)
    if runs is not None:
        folders = [place_of(warehouse, run) for run in sorted(runs)]
    campaigns = warehouse / "campaigns"
    for folder in (
        records_folder(warehouse) / EMPTY,
        *(campaigns / name for name in names_in(campaigns)),
    ):
        _check_files_only(folder)
    for folder in folders:
        if {WHOLE, "header.parquet", WORKLOAD_FILE} <= _check_files_only(folder):
            continue
        parts = part_names(folder)
        needed = ["header.parquet", WORKLOAD_FILE] if parts else []
        for name in filter(None, (first_missing(folder, parts), *needed)):
            if not os.path.exists(f"{folder}/{name}"):
                raise WarehouseError(str(folder / name), "is missing", RESTORE)


def _check_folders(warehouse: Path) -> None:
    """Refuse folders that match the views' pattern with a name that no run can have."""
    for name in sorted(names_in(records_folder(warehouse))):
        if name.startswith("run=") and name != EMPTY and not is_run(name):
            folder = records_folder(warehouse) / name
            if folder.is_dir():
                raise WarehouseError(str(folder), "has a name that no run can have", MISPLACED)


def _check_files_only(folder: Path) -> set[str]:
    """Return the names of the files that queries open; refuse links, folders and pipes."""
    found = set[str]()
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".parquet"):
                if not entry.is_file(follow_symlinks=False):
                    raise WarehouseError(entry.path, "is not a regular file", RESTORE)
                found.add(entry.name)
    return found


def check_files(warehouse: Path) -> None:
    """Raise the error of the first damaged file, if there is one."""
    from warehouse.store.arrow import read_parquet  # imports pyarrow

    for folder in run_folders(warehouse):
        for path in sorted(folder.glob("*.parquet")):
            try:
                read_parquet(path)
            except WarehouseError:
                if path.exists():  # otherwise merged in the meantime
                    raise
