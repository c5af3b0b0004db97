"""The folder of a warehouse: how it begins, and whether what has to be in it is there.

WAREHOUSE/
analytics.duckdb                    views only (`warehouse.analytics`)
records/run=RUN/header.parquet      what the run started from
records/run=RUN/round=000012.parquet
records/run=RUN/round=all.parquet   the same rounds in one file, once the run ended
records/run=_/                      the columns of both, without rows
campaigns/                          see `warehouse.store.campaigns`

Who only asks questions looks here; the files' own columns are imported by those who need them.
"""

from collections.abc import Sequence
from pathlib import Path

from predictor.errors import InputError, WarehouseError
from warehouse.store.durable import writing

WHOLE = "round=all.parquet"
"""All rounds of a run that has ended."""
EMPTY = "run=_"
"""A partition without rows, so that the views' patterns always match a file."""


def round_of(path: Path) -> int | None:
    """The round that a file is named after; None for other files."""
    number = path.stem.removeprefix("round=")
    return int(number) if number.isdecimal() else None


def make_folder(warehouse: Path) -> None:
    """Make a warehouse's folders and its partitions without rows, as far as they are not there.

    Raises:
        WarehouseError: The folder cannot be written.
    """
    from warehouse.store.files import CELLS, HEADER, ROUND, read_schema, write_groups

    with writing(warehouse):
        empty = warehouse / "records" / EMPTY
        empty.mkdir(parents=True, exist_ok=True)
        for name, schema in (("header", HEADER), ("round=_", ROUND)):
            path = empty / f"{name}.parquet"
            if not path.exists() or read_schema(path) != schema:  # of an older layout
                write_groups(path, schema, [])
        cells = no_cells(warehouse)
        if not cells.exists():
            cells.parent.mkdir(parents=True, exist_ok=True)
            write_groups(cells, CELLS, [])


def no_cells(warehouse: Path) -> Path:
    """A file without rows, so that the pattern of campaigns always matches one."""
    return warehouse / "campaigns" / "_" / "cells.parquet"


def run_folder(warehouse: Path, run: str) -> Path:
    """Where a run's files are.

    Raises:
        InputError: There is no such run.
    """
    folder = warehouse / "records" / f"run={run}"
    if not (folder / "header.parquet").is_file() or folder.name == EMPTY:
        raise unknown_run(warehouse, run)
    return folder


def check_warehouse(warehouse: Path) -> None:
    """Refuse a folder that is no warehouse.

    Raises:
        InputError: It is none.
    """
    if not (warehouse / "records" / EMPTY).is_dir():
        raise InputError(str(warehouse), "is not a warehouse", "run shockwave simulate first")


def unknown_run(warehouse: Path, run: str) -> InputError:
    """What to raise for a run that is not in a warehouse."""
    return InputError(
        f"run {run!r}",
        f"not in the warehouse {warehouse}",
        'list them with: shockwave sql "SELECT run FROM runs"',
    )


def check_runs(warehouse: Path, runs: Sequence[str] | None = None) -> None:
    """Refuse runs of which a file is missing, as far as the names of the others tell.

    Raises:
        WarehouseError: One is missing; names it.
    """
    records = warehouse / "records"
    folders = records.glob("run=*") if runs is None else (records / f"run={run}" for run in runs)
    for folder in sorted(folders):
        rounds = [path.name for path in folder.glob("round=[0-9]*.parquet")]
        whole = (folder / WHOLE).exists()  # looked for last, as it comes last
        needed = ["header.parquet"] if rounds or whole else []
        if not whole:
            needed += [f"round={number:06d}.parquet" for number in range(len(rounds))]
        for name in needed:
            if name not in rounds and not (folder / name).exists():
                raise WarehouseError(str(folder / name), "is missing", "restore it from a backup")


def check_files(warehouse: Path) -> None:
    """Name the first damaged file, if there is one."""
    from warehouse.store.files import HEADER, ROUND, read_parquet

    for name, schema in (("header", HEADER), ("round=*", ROUND)):
        for path in sorted((warehouse / "records").glob(f"run=*/{name}.parquet")):
            try:
                read_parquet(path, schema)
            except WarehouseError:
                if path.exists():  # else it was compacted meanwhile
                    raise
