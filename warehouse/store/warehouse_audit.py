"""Audit of a whole warehouse: runs, campaigns and copies, compared with the ledger.

Every file that a query can read must be in the ledger, and every file in the ledger must exist
unchanged. Files derived from records (`marts`, `analytics.duckdb`) can be removed at any time.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from predictor.errors import InputError
from warehouse.store.audit import Audit, AuditFinding, audit, check_file, ledger_findings
from warehouse.store.campaigns import CellStore
from warehouse.store.checksums import CHECKSUMS, find_checksum
from warehouse.store.folder import EMPTY, SNAPSHOT, STATES, name_of, run_folders
from warehouse.store.ledger import (
    LEDGER,
    WarehouseLedger,
    enter,
    folder_name,
    is_entered,
    read_ledger,
)

DERIVED = ("", "marts")
"""Folders whose files can be removed, because they are derived from the records."""

CACHES = (SNAPSHOT.parent.as_posix(), STATES)
"""Folders with states of runs. A state that differs from the ledger is not used."""

DATABASE_FILES = ("analytics.duckdb", "analytics.duckdb.wal", ".views")
"""DuckDB reads the log (.wal) with the database: it has the last writes of sessions."""

WAIT_SECONDS = 0.5
"""Time for a process that has written a file to enter it. An engineering choice."""


@dataclass
class WarehouseAudit:
    """Scope and findings of an audit of a warehouse.

    Attributes:
        files: Number of other files compared with the ledger.
        findings: Findings on the ledger, the runs, and other files.
        acceptable: By folder, checksums of sound files that the ledger lacks; empty for files that
            the ledger has but do not exist.
    """

    ledger: WarehouseLedger
    runs: list[Audit] = field(default_factory=list)
    files: int = 0
    findings: list[AuditFinding] = field(default_factory=list)
    acceptable: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def last_hash(self) -> str:
        """Hash of the ledger's last entry; by the chain, it covers all entries."""
        return self.ledger.entries[-1].hash if self.ledger.entries else ""


def audit_all(
    warehouse: Path,
    expected: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> WarehouseAudit:
    """Audit a warehouse.

    `expected` is a hash that some entry of the ledger must have. `progress` is called with the
    number of audited runs, and of all.

    Raises:
        WarehouseError: The ledger cannot be read.
    """
    found = _audit_all(warehouse, expected, progress)
    if not found.findings:
        return found
    time.sleep(WAIT_SECONDS)
    if len(read_ledger(warehouse).entries) == len(found.ledger.entries):
        return found
    # Another process was writing, so only findings of both audits count.
    again = _audit_all(warehouse, expected, progress)
    later = read_ledger(warehouse).entries[len(found.ledger.entries) :]
    written = {f"{entry.folder}/{name}".lstrip("/") for entry in later for name in entry.files}
    again.findings = [
        finding
        for finding in again.findings
        # Both audits can read a file before its entry, if it is written in between.
        if finding in found.findings
        and not (finding.problem.startswith("was changed") and finding.place in written)
    ]
    again.acceptable = {n: again.acceptable[n] for n in again.acceptable if n in found.acceptable}
    return again


def _audit_all(
    warehouse: Path, expected: str | None, progress: Callable[[int, int], None]
) -> WarehouseAudit:
    ledger = read_ledger(warehouse)
    found = WarehouseAudit(ledger, findings=ledger_findings(ledger))
    if not ledger.exists:
        found.findings.append(AuditFinding(LEDGER, "is missing"))
    if expected is not None and all(entry.hash != expected for entry in ledger.entries):
        found.findings.append(AuditFinding(LEDGER, f"has no entry with the hash {expected}"))
    _audit_runs(warehouse, found, progress)
    _audit_files(warehouse, found)
    return found


def _of_run(folder: str) -> bool:
    return folder.startswith("records/") and not folder.endswith(EMPTY)


def _audit_runs(
    warehouse: Path, found: WarehouseAudit, progress: Callable[[int, int], None]
) -> None:
    folders = run_folders(warehouse)
    entered = {name: state for name, state in found.ledger.folders.items() if _of_run(name)}
    for number, folder in enumerate(folders):
        progress(number, len(folders))
        run, name = name_of(folder), folder_name(warehouse, folder)
        try:
            audited = audit(warehouse, run, ledger=found.ledger)
        except InputError:
            continue  # the folder is empty
        found.runs.append(audited)
        found.findings += audited.findings
        if entered.pop(name, None) is None:
            found.findings.append(AuditFinding(folder.name, f"is not in {LEDGER}", run))
            if not audited.findings:
                found.acceptable[name] = _checksums(folder.glob("*.parquet"))
    for name, state in entered.items():
        if any(state.values()):
            run = name_of(Path(name))
            found.findings.append(AuditFinding(name, f"is gone, and {LEDGER} has it", run))
            found.acceptable[name] = dict.fromkeys(state, "")


def _audit_files(warehouse: Path, found: WarehouseAudit) -> None:
    """Compare the files outside of runs with the ledger."""
    there = {path.relative_to(warehouse).as_posix(): path for path in _files(warehouse)}
    found.files = len(there)
    entered = {
        f"{folder}/{name}".lstrip("/"): (folder, name, digest)
        for folder, state in found.ledger.folders.items()
        for name, digest in state.items()
        if digest and not _of_run(folder) and folder not in CACHES
    }
    for place in sorted({*there, *entered}):
        folder, name, digest = entered.get(place, ("", "", None))
        if place not in there and folder in DERIVED:
            continue
        problem = check_file(warehouse / place, (LEDGER, digest))
        if problem:
            found.findings.append(AuditFinding(place, problem))
        if place not in there:
            found.acceptable.setdefault(folder, {})[name] = ""
        elif digest is None and not place.startswith("marts/"):  # `shockwave views` renews these
            path = warehouse / place
            if path.parent.name == EMPTY or not place.startswith("records/"):
                folder = folder_name(warehouse, path.parent)
                if sound := _checksums([path]):
                    found.acceptable.setdefault(folder, {}).update(sound)
    for key in CellStore(warehouse).find_replaced():
        problem = "is of another run than there is: run its campaign again"
        found.findings.append(AuditFinding(f"campaigns/cells/{key}.json", problem))
    for path in (warehouse / SNAPSHOT, *sorted((warehouse / STATES).glob("[!.]*"))):
        cached = find_checksum(path)
        if cached is not None and not _is_used(warehouse, path, cached):
            problem = f"differs from {LEDGER}, and is not used: remove it"
            place = path.relative_to(warehouse).as_posix()
            found.findings.append(AuditFinding(place, problem))


def _checksums(paths: Iterable[Path]) -> dict[str, str]:
    """Return the checksums of files by name, without those that cannot be read."""
    return {path.name: digest for path in paths if (digest := find_checksum(path))}


def _is_used(warehouse: Path, path: Path, digest: str) -> bool:
    """Return whether a state on disk is read; a snapshot can be older than the last entry."""
    try:
        return digest != "" and is_entered(warehouse, path, digest)
    except (OSError, ValueError):  # there is no ledger, or the folder is a link elsewhere
        return False


def _files(warehouse: Path) -> Iterator[Path]:
    """Yield the files that queries, campaigns and analysts read, and strays among the records."""
    runs = {*run_folders(warehouse)}
    for path in _below(warehouse / "records"):
        begins = any(part.startswith(".run=") for part in path.relative_to(warehouse).parts)
        temporary = re.fullmatch(r"\..+\.[0-9a-f]{32}", path.name) or path.name == ".lock"
        of_run = path.parent in runs and (path.suffix == ".parquet" or path.name == CHECKSUMS)
        strange = path.is_symlink() or not (path.is_dir() or of_run)
        if strange and not begins and not temporary:
            yield path
    for name in ("campaigns", "marts"):
        for path in _below(warehouse / name):
            hidden = any(part.startswith(".") for part in path.relative_to(warehouse).parts)
            read = path.is_symlink() or (path.exists() and not path.is_dir())
            if read and not hidden and path.suffix not in (".lock", ".run"):
                yield path
    yield from filter(os.path.lexists, (warehouse / name for name in DATABASE_FILES))


def _below(folder: Path) -> list[Path]:
    """Return all files and folders below one, sorted, even while runs begin and rename theirs.

    `Path.rglob` raises if a folder disappears before it is listed.
    """
    return sorted(
        Path(root, name) for root, folders, files in os.walk(folder) for name in (*folders, *files)
    )


def accept(warehouse: Path, found: WarehouseAudit) -> None:
    """Enter sound files that the ledger lacks, and the removal of missing files.

    Raises:
        WarehouseError: The ledger cannot be written.
    """
    for name, files in found.acceptable.items():
        enter(warehouse, warehouse / name, files)
