"""Audit of a whole warehouse: runs, campaigns and copies, compared with the ledger.

Every file that a query can read is in the ledger, and every file in the ledger is there as it was
written. What is derived from records (`marts`, `analytics.duckdb`) may be removed at any time.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from predictor.errors import InputError, ShockwaveError
from tasks.rows import from_row
from warehouse.store.arrow import read_parquet
from warehouse.store.audit import CHANGED, Audit, Finding, audit, in_ledger
from warehouse.store.campaigns import FinishedCell
from warehouse.store.checksums import CHECKSUMS, checksum, checksum_found
from warehouse.store.decoding import GARBLED
from warehouse.store.durable import regular
from warehouse.store.files import CELLS, CellRow, CellStatus
from warehouse.store.folder import EMPTY, SNAPSHOT, name_of, place_of, run_folders
from warehouse.store.ledger import LEDGER, Held, Ledger, enter, folder_name, is_entered, read_ledger

DERIVED = ("", "marts")
"""Folders whose files may be removed: they are made anew from the records."""

DATABASE_FILES = ("analytics.duckdb", "analytics.duckdb.wal", ".views")
"""The second is read with the first: it has what sessions wrote last."""

WAIT_SECONDS = 0.5
"""Time for a process that has written a file to add its entry. An engineering choice."""


@dataclass
class WarehouseAudit:
    """Scope and findings of an audit of a warehouse.

    Attributes:
        runs: The audits of its runs.
        files: Other files that were compared with the ledger.
        ledger: The ledger.
        findings: Findings, each with the run that it is about, or an empty text.
        missing: Files that the ledger lacks, by folder; of whole runs only.
        gone: Files in the ledger that do not exist, by folder.
    """

    ledger: Ledger
    runs: list[Audit] = field(default_factory=list)
    files: int = 0
    findings: list[tuple[str, Finding]] = field(default_factory=list)
    missing: dict[str, list[str]] = field(default_factory=dict)
    gone: dict[str, list[str]] = field(default_factory=dict)

    def add(self, findings: Iterable[Finding], run: str = "") -> None:
        """Add findings on a run, or on other files."""
        self.findings += ((run, finding) for finding in findings)

    @property
    def last_hash(self) -> str:
        """Hash of the ledger's last entry, which stands for all before it."""
        return self.ledger.entries[-1].hash if self.ledger.entries else ""


def audit_all(
    warehouse: Path,
    expected: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> WarehouseAudit:
    """Audit a warehouse.

    Args:
        warehouse: The folder.
        expected: A hash that one of the ledger's entries must have.
        progress: Called with the number of audited runs, and of all.

    Raises:
        InputError: The ledger's key cannot be used.
        WarehouseError: The ledger cannot be read.
    """
    found = _audit_all(warehouse, expected, progress)
    if not found.findings:
        return found
    time.sleep(WAIT_SECONDS)
    if len(read_ledger(warehouse).entries) == len(found.ledger.entries):
        return found
    again = _audit_all(warehouse, expected, progress)  # it was written to: what is wrong stays so
    later = read_ledger(warehouse).entries[len(found.ledger.entries) :]
    written = {f"{entry.folder}/{name}".lstrip("/") for entry in later for name in entry.files}
    again.findings = [
        (run, finding)
        for run, finding in again.findings
        # A file that was written in between may have been caught before its entry both times.
        if (run, finding) in found.findings
        and not (finding.problem == CHANGED and finding.place in written)
    ]
    again.missing = {name: again.missing[name] for name in again.missing if name in found.missing}
    again.gone = {name: again.gone[name] for name in again.gone if name in found.gone}
    return again


def _audit_all(
    warehouse: Path, expected: str | None, progress: Callable[[int, int], None]
) -> WarehouseAudit:
    ledger = read_ledger(warehouse)
    found = WarehouseAudit(ledger)
    found.add(in_ledger(ledger))
    if not ledger.exists:
        found.add([Finding(None, LEDGER, "is missing")])
    if expected is not None and all(entry.hash != expected for entry in ledger.entries):
        found.add([Finding(None, LEDGER, f"has no entry with the hash {expected}")])
    states = ledger.held
    of_runs = {name: state for name, state in states.items() if _of_run(name)}
    _runs(warehouse, found, of_runs, progress)
    kept = SNAPSHOT.parent.as_posix()
    others = {n: state for n, state in states.items() if not _of_run(n) and n != kept}
    _others(warehouse, found, others)
    found.add(_snapshot(warehouse))
    found.add(_cells(warehouse, {audited.run: audited.last_hash for audited in found.runs}))
    found.add(_foreign(warehouse))
    return found


def _of_run(folder: str) -> bool:
    """Whether a folder is a run's."""
    return folder.startswith("records/") and not folder.endswith(EMPTY)


def _runs(
    warehouse: Path,
    found: WarehouseAudit,
    states: dict[str, Held],
    progress: Callable[[int, int], None],
) -> None:
    """Audit the runs, and compare them with the ledger."""
    folders = run_folders(warehouse)
    for number, folder in enumerate(folders):
        progress(number, len(folders))
        run, name = name_of(folder), folder_name(warehouse, folder)
        try:
            audited = audit(warehouse, run, ledger=found.ledger)
        except InputError:
            continue  # nothing is in it
        found.runs.append(audited)
        found.add(audited.findings, run)
        state = states.pop(name, None)
        if state is None:
            found.add([Finding(None, folder.name, f"is not in {LEDGER}")], run)
            if not audited.findings:
                found.missing[name] = sorted(path.name for path in folder.glob("*.parquet"))
    for name, state in states.items():
        if not state.gone:
            run = name_of(Path(name))
            found.add([Finding(None, name, f"is gone, and {LEDGER} has it")], run)
            found.gone[name] = sorted(state.files)


def _others(warehouse: Path, found: WarehouseAudit, states: dict[str, Held]) -> None:
    """Compare the files that belong to no run with the ledger."""
    there = {path.relative_to(warehouse).as_posix(): path for path in _files(warehouse)}
    found.files = len(there)
    entered = {
        (folder, name): checksum
        for folder, state in states.items()
        for name, checksum in state.files.items()
        if checksum
    }
    for (folder, name), noted in entered.items():
        path = there.pop(f"{folder}/{name}".lstrip("/"), None)
        place = f"{folder}/{name}".lstrip("/")
        if path is None:
            if folder not in DERIVED:
                found.add([Finding(None, place, f"is gone, and {LEDGER} has it")])
                found.gone.setdefault(folder, []).append(name)
        elif checksum_found(path) != noted:
            found.add([Finding(None, place, CHANGED)])
    for place, path in there.items():
        found.add([Finding(None, place, f"is not in {LEDGER}")])
        if not place.startswith("marts/"):  # `shockwave views` makes them anew
            name = folder_name(warehouse, path.parent)
            found.missing.setdefault(name, []).append(path.name)


def _files(warehouse: Path) -> Iterator[Path]:
    """The files that queries, campaigns and analysts read, but those of runs."""
    runs = {*run_folders(warehouse)}
    for path in _below(warehouse / "records"):
        beside = path.parent not in runs and not path.parent.name.startswith(".")  # one that begins
        if beside and (path.suffix == ".parquet" or path.name == CHECKSUMS):
            yield path
    for name in ("campaigns", "marts"):
        for path in _below(warehouse / name):
            hidden = any(part.startswith(".") for part in path.relative_to(warehouse).parts)
            if path.is_file() and not hidden and path.suffix not in (".lock", ".run"):
                yield path
    yield from filter(Path.is_file, (warehouse / name for name in DATABASE_FILES))


def _below(folder: Path) -> list[Path]:
    """All files and folders below one, sorted, also while runs begin and rename theirs.

    `Path.rglob` raises where a folder is gone before it has been listed.
    """
    return sorted(
        Path(root, name) for root, folders, files in os.walk(folder) for name in (*folders, *files)
    )


def _foreign(warehouse: Path) -> Iterator[Finding]:
    """Files among the records that belong to no run."""
    for path in _below(warehouse / "records"):
        place = path.relative_to(warehouse)
        begins = any(part.startswith(".run=") for part in place.parts)
        known = path.suffix == ".parquet" or path.name in (CHECKSUMS, ".lock")
        being_written = re.fullmatch(r"\..+\.[0-9a-f]{32}", path.name)
        if path.is_symlink() or not (path.is_dir() or begins or known or being_written):
            yield Finding(None, place.as_posix(), "is none of a run's files: move it elsewhere")


def _snapshot(warehouse: Path) -> Iterator[Finding]:
    """A service's snapshot that is in no entry of the ledger; it may be an older one."""
    path = warehouse / SNAPSHOT
    digest = checksum_found(path)
    with suppress(OSError):  # without a ledger, which is a finding by itself
        if digest is not None and not is_entered(warehouse, path, digest):
            problem = f"is not as {LEDGER} has it, and is not used: remove it"
            yield Finding(None, SNAPSHOT.as_posix(), problem)


def _cells(warehouse: Path, last_hashes: Mapping[str, str]) -> Iterator[Finding]:
    """Finished cells whose run has another last hash; runs that are gone have findings."""
    folder = warehouse / "campaigns"
    for path in sorted(folder.glob("*/cells.parquet")):
        with suppress(ShockwaveError, *GARBLED):
            rows = [from_row(CellRow, row) for row in read_parquet(path, CELLS).to_pylist()]
            for row in rows:
                if row.status is CellStatus.FINISHED:
                    yield from _cell(path, row.cell, row.run, row.hash, last_hashes)
    for path in sorted((folder / "cells").glob("*.json")):
        with suppress(OSError, *GARBLED):
            cell = FinishedCell(**orjson.loads(regular(path).read_bytes()))
            yield from _cell(path, path.stem[:8], cell.run, cell.hash, last_hashes)


def _cell(
    path: Path, cell: str, run: str, digest: str, last_hashes: Mapping[str, str]
) -> Iterator[Finding]:
    if last_hashes.get(run, digest) != digest:
        place = path.relative_to(path.parents[2]).as_posix()
        yield Finding(None, place, f"cell {cell} is of another run {run} than there is")


def accept(warehouse: Path, found: WarehouseAudit) -> None:
    """Enter the files that the ledger lacks, as they are, and the removal of missing ones.

    Args:
        warehouse: The folder.
        found: Its audit.

    Raises:
        InputError: The entries cannot be signed.
        WarehouseError: The ledger cannot be written.
    """
    runs = {
        folder_name(warehouse, place_of(warehouse, audited.run)): audited for audited in found.runs
    }
    for name, names in found.missing.items():
        folder, audited = warehouse / name, runs.get(name)
        files = {file: checksum(folder / file) for file in names}
        rounds, last_hash = (audited.rounds, audited.last_hash) if audited else (0, "")
        enter(warehouse, folder, files, rounds=rounds, last_hash=last_hash)
    for name, names in found.gone.items():
        enter(warehouse, warehouse / name, dict.fromkeys(names, ""))
