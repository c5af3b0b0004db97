"""The folder of a warehouse: its structure and its creation.

WAREHOUSE/
analytics.duckdb                    views only (`warehouse.analytics`)
records/layout=1/run=RUN/           a run whose records have the present layout
    header.parquet                  the run's header
    workload.parquet                its jobs and their ground truths
    round=000000-000007.parquet     a part of its rounds, see `tidy_parts`
    round=000008.parquet
    round=all.parquet               all rounds in a single file, once the run has ended
    SHA256SUMS
records/layout=1/run=_/             the columns of these files, without rows
campaigns/                          see `warehouse.store.campaigns`

Queries import this module and `checks`; the files' schemas are imported where they are needed.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from predictor.errors import InputError, WarehouseError, likely
from tasks.record import VERSION
from warehouse.store.durable import find_left_overs, hold_lock, write_file, writing

if TYPE_CHECKING:
    import pyarrow as pa

WHOLE = "round=all.parquet"
"""All rounds of a run that has ended."""
WORKLOAD_FILE = "workload.parquet"
"""The workload of a run."""
EMPTY = "run=_"
"""A partition without rows, so that the views' patterns always match a file."""
SERVICE = "service"
"""Beginning of the ids of services' runs, whose jobs are in their rounds."""
SNAPSHOT = Path("inbox") / "snapshot.json"
"""State of a service's run at a recent round, from which its next start resumes."""

RUN_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
"""Names of runs, also used for folders and containers."""

RESTORE = "restore it from a backup, or remove its run with shockwave run rm"
"""Remedy for a damaged file."""
MISPLACED = "move the folder out of the warehouse, or give it its run's name back"
"""Remedy for a run's folder that was copied or renamed."""

READ_ELSEWHERE = "read it with the version of Shockwave that wrote it"
"""Remedy for records of another layout."""

FAN = 8
"""Number of parts that are merged into one. A query of a run under way opens at most FAN - 1 files
of each size; each round is rewritten once for each size. At 3,000 rounds, such a query takes 1.2
times as long as for an ended run with 8, up to 1.5 times with 16 (`benchmarks/under_way.py`)."""

MOST_ROUNDS = FAN**4
"""Rounds of the largest part of a run under way, which bounds what a writer rewrites at once. An
engineering bound; no sweep is recorded."""


def part_name(rounds: range) -> str:
    """The name of the file with some rounds."""
    last = "" if len(rounds) == 1 else f"-{rounds[-1]:06d}"
    return f"round={rounds.start:06d}{last}.parquet"


def rounds_of(name: str) -> range | None:
    """The rounds of a file, by its name; None for other files and the file of all rounds."""
    found = _PART.fullmatch(name)
    return range(int(found[1]), int(found[2] or found[1]) + 1) if found else None


_PART = re.compile(r"round=(\d{6,18})(?:-(\d{6,18}))?\.parquet")


def replaces(name: str, other: str) -> bool:
    """Whether a file has all rounds of another, by their names."""
    ours, theirs = rounds_of(name), rounds_of(other)
    if theirs is None or name == other:
        return False
    within = ours is not None and ours.start <= theirs.start and theirs.stop <= ours.stop
    return within or name == WHOLE


def tidy_parts(count: int) -> list[range]:
    """The parts of a run with a number of rounds: of a power of FAN each, large ones first."""
    parts, start, size = list[range](), 0, 1
    while size * FAN <= min(count, MOST_ROUNDS):
        size *= FAN
    while start < count:
        while start + size > count:
            size //= FAN
        parts.append(range(start, start + size))
        start += size
    return parts


def part_names(folder: Path) -> list[str]:
    """The names of the files with a run's rounds, in order, the larger first at equal starts.

    They are listed twice, as a listing during a merge can miss both the old and the new files.
    """
    before, names = None, _round_files(folder)
    while before is None or not before <= names:
        before, names = names, _round_files(folder)
    whole = [WHOLE] if WHOLE in names else []
    parts = {name: found for name in names if (found := rounds_of(name)) is not None}
    return whole + sorted(parts, key=lambda name: (parts[name].start, -parts[name].stop))


def _round_files(folder: Path) -> set[str]:
    return {
        name for name in names_in(folder) if name.startswith("round=") and name.endswith(".parquet")
    }


def closed_parts(folder: Path) -> list[str]:
    """The names of the parts of a run under way that are not merged until it ends."""
    names = part_names(folder)
    if WHOLE in names:
        return []
    return [name for name in names if len(rounds_of(name) or ()) >= MOST_ROUNDS]


def round_files(folder: Path) -> list[Path]:
    """The files with a run's rounds, in order, without those whose rounds are all in others.

    Raises:
        WarehouseError: The file of all rounds is damaged.
    """
    found, end = list[Path](), 0
    names = part_names(folder)
    for name in names:
        path, rounds = folder / name, rounds_of(name)
        if rounds is None:
            found.append(path)
            if len(names) > 1:
                from warehouse.store.arrow import open_parquet

                with open_parquet(path) as file:
                    end = file.metadata.num_rows
        elif rounds.stop > end:
            end = rounds.stop
            found.append(path)
    return found


def make_folder(warehouse: Path) -> None:
    """Create a warehouse's folders and its empty partitions, unless they exist.

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
    """Write files without rows, after their entry: a killed process leaves them to the next."""
    from warehouse.store.arrow import encode_empty
    from warehouse.store.checksums import CHECKSUMS, with_sums
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


def hash_contents(contents: Mapping[str, bytes]) -> dict[str, str]:
    """SHA-256 of contents, in hexadecimal digits."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}


def _stale(warehouse: Path) -> "dict[Path, pa.Schema]":
    """Empty files that are missing or have other columns, with their columns.

    Those of a folder are written together, as each entry of such a folder has all of its files.
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


def empty_cells(warehouse: Path) -> Path:
    """A table without cells, so that the views' pattern of campaigns always matches a file."""
    return warehouse / "campaigns" / "_" / "cells.parquet"


def records_folder(warehouse: Path) -> Path:
    """The folder of the runs."""
    return warehouse / "records" / f"layout={VERSION}"


def place_of(warehouse: Path, run: str) -> Path:
    """The folder of a run, whether or not it exists.

    Raises:
        InputError: No run can have this id.
        WarehouseError: It is a link.
    """
    if not RUN_NAME.fullmatch(run):
        raise unknown_run(warehouse, run)
    return check_no_link(records_folder(warehouse) / f"run={run}")


def run_folders(warehouse: Path) -> list[Path]:
    """The folders of all runs, in the order of their names.

    Raises:
        WarehouseError: One of them is a link.
    """
    root = records_folder(warehouse)
    return [check_no_link(root / name) for name in sorted(filter(is_run, names_in(root)))]


def is_run(name: str) -> bool:
    """Whether a folder has the name of a run's."""
    return name.startswith("run=") and RUN_NAME.fullmatch(name.removeprefix("run=")) is not None


def names_in(folder: Path) -> list[str]:
    """The names in a folder; empty if there is no such folder."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def name_of(folder: Path) -> str:
    """The id of the run in a folder."""
    return folder.name.removeprefix("run=")


def is_begun(folder: Path) -> bool:
    """Whether a run's folder has its header."""
    return os.path.isfile(f"{folder}/header.parquet")


def run_folder(warehouse: Path, run: str) -> Path:
    """The folder of an existing run.

    Raises:
        InputError: There is no such run.
    """
    folder = place_of(warehouse, run)
    if not is_begun(folder) or folder.name == EMPTY:
        raise unknown_run(warehouse, run)
    return folder


def check_no_link(folder: Path) -> Path:
    """Return a folder of a warehouse, refuse a link: queries follow none out of it."""
    if os.path.islink(folder):
        remedy = "move the whole warehouse instead, and link to that"
        raise WarehouseError(str(folder), "is a link, not a folder", remedy)
    return folder


def unknown_run(warehouse: Path, run: str) -> InputError:
    """The error for a text that is no run's id or name."""
    from warehouse.store.labels import read_labels  # which needs this module

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
    """The error for a run whose records have another layout."""
    problem = f"has records of layout {layout}, not {VERSION}"
    return InputError(f"run {run!r}", problem, READ_ELSEWHERE)
