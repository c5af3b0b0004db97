"""The folder of a warehouse: its structure, and the folders of its runs.

WAREHOUSE/
analytics.duckdb                    views only (`warehouse.analytics`)
records/layout=1/run=RUN/           a run whose records have the present layout
    header.parquet                  the run's header
    workload.parquet                its jobs and their ground truths
    round=000000-000007.parquet     a part of its rounds, see `warehouse.store.parts`
    round=000008.parquet
    round=all.parquet               all rounds in a single file, once the run has ended
    SHA256SUMS
records/layout=1/run=_/             the columns of these files, without rows
campaigns/                          see `warehouse.store.campaigns`
states/                             see `warehouse.store.states`

Queries import this module, which imports no pyarrow.
"""

import os
import re
from pathlib import Path

from predictor.errors import InputError, WarehouseError, likely
from tasks.layout import VERSION
from warehouse.store.labels import read_labels

WORKLOAD_FILE = "workload.parquet"
"""The workload of a run."""
EMPTY = "run=_"
"""A partition without rows, so that the views' patterns always match a file."""
SERVICE = "service"
"""Prefix of the ids of services' runs; their jobs are in their rounds."""
STATES = "states"
"""Folder of the states of large runs, see `warehouse.store.states`."""
SNAPSHOT = Path("inbox") / "snapshot.json"
"""State of a service's run at a recent round, from which its next start resumes."""

RUN_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
"""Names of runs, also used for folders and containers."""

RESTORE = "restore it from a backup, or remove its run with shockwave run rm"
"""Remedy for a damaged file."""
MISPLACED = "move the folder out of the warehouse, or rename it after its run"
"""Remedy for a run's folder that was copied or renamed."""

READ_ELSEWHERE = "read it with the version of Shockwave that wrote it"
"""Remedy for records of another layout."""


def empty_cells(warehouse: Path) -> Path:
    """Return a table without cells; with it, the views' pattern of campaigns always matches."""
    return warehouse / "campaigns" / "_" / "cells.parquet"


def records_folder(warehouse: Path) -> Path:
    """Return the folder of the runs."""
    return warehouse / "records" / f"layout={VERSION}"


def place_of(warehouse: Path, run: str) -> Path:
    """Return the folder of a run, whether or not it exists.

    Raises:
        InputError: No run can have this id.
        WarehouseError: The folder is a link.
    """
    if not RUN_NAME.fullmatch(run):
        raise unknown_run(warehouse, run)
    return check_no_link(records_folder(warehouse) / f"run={run}")


def run_folders(warehouse: Path) -> list[Path]:
    """Return the folders of all runs, sorted by name.

    Raises:
        WarehouseError: A folder is a link.
    """
    root = records_folder(warehouse)
    return [check_no_link(root / name) for name in sorted(filter(is_run, names_in(root)))]


def is_run(name: str) -> bool:
    """Return whether a folder's name is that of a run's folder."""
    return name.startswith("run=") and RUN_NAME.fullmatch(name.removeprefix("run=")) is not None


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder; empty if there is no such folder."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def name_of(folder: Path) -> str:
    """Return the id of the run in a folder."""
    return folder.name.removeprefix("run=")


def is_begun(folder: Path) -> bool:
    """Return whether a run's folder has its header."""
    return os.path.isfile(f"{folder}/header.parquet")


def run_folder(warehouse: Path, run: str) -> Path:
    """Return the folder of an existing run.

    Raises:
        InputError: There is no such run.
    """
    folder = place_of(warehouse, run)
    if not is_begun(folder) or folder.name == EMPTY:
        raise unknown_run(warehouse, run)
    return folder


def check_no_link(folder: Path) -> Path:
    """Return a folder of a warehouse; refuse a link, because queries follow none out of it."""
    if os.path.islink(folder):
        remedy = "move the whole warehouse instead, and link to that"
        raise WarehouseError(str(folder), "is a link, not a folder", remedy)
    return folder


def unknown_run(warehouse: Path, run: str) -> InputError:
    """Return the error for a text that is not a run's id or name."""
    for folder in {*(warehouse / "records").glob("layout=*")} - {records_folder(warehouse)}:
        if RUN_NAME.fullmatch(run) and (folder / f"run={run}").is_dir():
            return other_layout(run, folder.name.removeprefix("layout="))
    shown = run if len(run) <= 40 else f"{run[:40]}…"
    ids = [name_of(folder) for folder in run_folders(warehouse) if is_begun(folder)]
    names = [label.name for of, label in read_labels(warehouse).items() if label.name and of in ids]
    remedy = f"{likely(run, [*ids, *names])}list them with: shockwave run list"
    if run in {file.parent.name for file in (warehouse / "campaigns").glob("*/cells.parquet")}:
        remedy = f"it is a campaign; see it with: shockwave campaign show {run}"
    return InputError(f"run {shown!r}", f"not in the warehouse {warehouse}", remedy)


def other_layout(run: str, layout: int | str) -> InputError:
    """Return the error for a run whose records have another layout."""
    problem = f"has records of layout {layout}, not {VERSION}"
    return InputError(f"run {run!r}", problem, READ_ELSEWHERE)
