"""Audit of a run: completeness and integrity of its records.

It verifies the files' checksums, the hash chain, the completeness of rounds and jobs, the
invariants of each round (`tasks.invariants`), and what the ledger holds of the run.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from predictor.errors import ShockwaveError
from tasks.chain import broken
from tasks.invariants import Invariants
from tasks.sources import Workload
from warehouse.store.arrow import read_groups, read_parquet
from warehouse.store.checks import check_links
from warehouse.store.checksums import CHECKSUMS, checksum_found, is_stored, noted, spoilt
from warehouse.store.decoding import (
    GARBLED,
    StoredHeader,
    StoredRound,
    stored_header,
    stored_round,
)
from warehouse.store.durable import left_overs
from warehouse.store.files import GROUP_ROUNDS
from warehouse.store.folder import (
    WHOLE,
    WORKLOAD_FILE,
    name_of,
    part_name,
    place_of,
    rounds_of,
    unknown_run,
)
from warehouse.store.ledger import LEDGER, Held, Ledger, folder_name, read_ledger
from warehouse.store.reader import read_workload, taken_in

CHANGED = f"was changed: {LEDGER} has another checksum"
"""The problem of a file whose checksum differs from the ledger."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A defect that an audit found.

    Attributes:
        round: The record; None for the header or a file as a whole.
        place: The file or record, as shown to users.
        problem: Description of the defect.
    """

    round: int | None
    place: str
    problem: str


@dataclass(frozen=True)
class Audit:
    """Scope and findings of an audit.

    Attributes:
        run: The run.
        files: Files read.
        rounds: Records read.
        jobs: Jobs of the run.
        unended: Jobs without an end, of a run that is under way.
        entered: Rounds that the ledger holds; None if it holds nothing of the run.
        last_hash: Hash of the last record, or of the header; empty if there is none.
        findings: Findings on the header, then by round, then on whole files.
    """

    run: str
    files: int
    rounds: int
    jobs: int
    unended: int
    entered: int | None
    last_hash: str
    findings: tuple[Finding, ...]

    @property
    def first_broken(self) -> int | None:
        """The first round with a finding."""
        return min((f.round for f in self.findings if f.round is not None), default=None)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A stored round and its place."""

    place: str
    round: StoredRound


def audit(
    warehouse: Path, run: str, expected: str | None = None, ledger: Ledger | None = None
) -> Audit:
    """Audit a run.

    Args:
        warehouse: The folder.
        run: The run.
        expected: A hash that one of its records, or its header, must have.
        ledger: The ledger; by default it is read, and findings on it are among the run's.

    Raises:
        InputError: There is no such run, or the ledger's key cannot be used.
        WarehouseError: A folder is a link, or the ledger cannot be read.
    """
    check_links(warehouse)
    folder = place_of(warehouse, run)
    if not is_stored(folder):
        raise unknown_run(warehouse, run)
    name = folder_name(warehouse, folder)
    read = read_ledger(warehouse) if ledger is None else ledger
    state = read.held.get(name)
    while True:
        before = noted(folder)  # rounds added during the audit are left out
        files = sorted(folder.glob("*.parquet"))
        found = _audit(folder, run, files, before, state, expected)
        if found.findings:
            earlier, state = state, read_ledger(warehouse).held.get(name)
            if earlier != state or not all(path.exists() for path in files):
                continue  # the run was written during the audit
        of_ledger = in_ledger(read) if ledger is None else ()
        return replace(found, findings=(*found.findings, *of_ledger))


def in_ledger(ledger: Ledger) -> Iterator[Finding]:
    """The defects of the ledger itself, as findings."""
    for line, problem in ledger.problems:
        yield Finding(None, f"{LEDGER}, line {line}", problem)


def _audit(
    folder: Path,
    run: str,
    files: Sequence[Path],
    before: dict[str, str] | None,
    state: Held | None,
    expected: str | None,
) -> Audit:
    findings: list[Finding] = []
    header = _header(folder, findings)
    workload = _workload(folder, header, findings) if header else None
    stored = _rounds(files, run, findings) if header else {}
    unread = {number for finding in findings for number in rounds_of(finding.place) or ()}
    findings += _bytes(folder, files, stored, before, state)
    unended: list[int] = []
    if header is not None:
        findings += _chain(stored, header.content, unread)
    if header is not None and workload is not None:
        if header.header.service:
            kept = [stored[number].round.record for number in sorted(stored)]
            workload = taken_in(workload, kept)
        invariants = Invariants(header.header, workload)
        for number in range(len(stored)):
            if number not in stored:
                break  # later rounds cannot be verified
            located = stored[number]
            findings += (
                Finding(number, located.place, problem)
                for problem in invariants.broken(located.round.record)
            )
        unended = invariants.unended
        if unended and folder / WHOLE in files:
            last = max(stored, default=None)
            findings.append(
                Finding(last, WHOLE, f"the run was closed, yet job {unended[0]} has no end")
            )
    hashes = {-1: header.digest} if header else {}
    hashes |= {number: located.round.digest for number, located in stored.items()}
    if expected is not None and expected not in hashes.values():
        findings.append(Finding(None, run, f"has no record with the hash {expected}"))
    if state is not None:
        findings += _held(folder, state, hashes, stored, findings)
    return Audit(
        run=run,
        files=len(files),
        rounds=len(stored),
        jobs=len(workload.specs) if workload else 0,
        unended=len(unended),
        entered=None if state is None else max((entry.rounds for entry in state.states), default=0),
        last_hash=hashes[max(hashes)] if hashes else "",
        findings=tuple(sorted(findings, key=_position)),
    )


def _position(finding: Finding) -> float:
    if finding.round is not None:
        return finding.round
    return -1 if finding.place == "header.parquet" else math.inf


def _header(folder: Path, findings: list[Finding]) -> StoredHeader | None:
    """The header, if it exists and can be read."""
    place = "header.parquet"
    try:
        # Conversion of timestamps would import pandas, which takes longer than the rest.
        (row,) = read_parquet(folder / place).drop_columns(["created_at"]).to_pylist()
        found = stored_header(row)
    except (ShockwaveError, *GARBLED) as error:
        findings.append(Finding(None, place, _unreadable(error)))
        return None
    if found.content != found.digest:
        findings.append(Finding(None, place, "was changed: its contents have another hash"))
    if name_of(folder) != row.get("run"):
        findings.append(Finding(None, place, f"is of run {row.get('run')!r}"))
    return found


def _workload(folder: Path, header: StoredHeader, findings: list[Finding]) -> Workload | None:
    """The run's workload, if it exists and is unchanged."""
    try:
        return read_workload(folder, header.header)
    except (ShockwaveError, *GARBLED) as error:
        findings.append(Finding(None, WORKLOAD_FILE, _unreadable(error)))
        return None


def _rounds(files: Sequence[Path], run: str, findings: list[Finding]) -> dict[int, _Stored]:
    """The records by round."""
    stored: dict[int, _Stored] = {}
    for path in files:
        if not path.name.startswith("round="):
            continue
        first = _first(path.name) or 0
        rows = _rows(path, findings)
        for number, row in enumerate(rows, start=first):
            if row is None:
                continue
            place = f"{path.name}, row {number - first}"
            try:
                found = stored_round(row)
            except (ShockwaveError, *GARBLED) as error:
                findings.append(Finding(number, place, _unreadable(error)))
                continue
            if found.record.round != number or row.get("run") != run:
                holds = f"holds round {found.record.round} of run {row.get('run')!r}"
                findings.append(Finding(number, place, holds))
            stored.setdefault(found.record.round, _Stored(place, found))
    return stored


def _rows(path: Path, findings: list[Finding]) -> list[dict[str, Any] | None]:
    """The rows of a file, None for those that cannot be read."""
    try:
        return list(read_parquet(path).to_pylist())
    except (ShockwaveError, *GARBLED) as error:
        problem = _unreadable(error)
    rows: list[dict[str, Any] | None] = []
    try:
        for group in read_groups(path):
            if group is None:
                last = len(rows) + GROUP_ROUNDS - 1
                spoilt = f"rounds {len(rows)} to {last} at most: cannot be read"
                findings.append(Finding(len(rows), path.name, spoilt))
                rows += [None] * GROUP_ROUNDS
            else:
                rows += group.to_pylist()
    except (ShockwaveError, *GARBLED):
        findings.append(Finding(_first(path.name), path.name, problem))
    return rows


def _first(name: str) -> int | None:
    """The first round of a file, by its name."""
    rounds = rounds_of(name)
    return None if rounds is None else rounds.start


def _bytes(
    folder: Path,
    files: Sequence[Path],
    stored: dict[int, _Stored],
    before: dict[str, str] | None,
    state: Held | None,
) -> Iterator[Finding]:
    """Files that were modified, removed or added since they were written.

    Args:
        folder: The run's folder.
        files: Its files.
        stored: The records in them.
        before: Checksums read before the files were listed.
        state: What the ledger holds of the run.
    """
    sums = noted(folder)
    if sums is None:
        yield Finding(None, CHECKSUMS, "is gone, so the files' bytes cannot be checked")
        return
    if spoilt(folder, whole_lines=folder / WHOLE not in files):
        yield Finding(None, CHECKSUMS, "has a line that is no checksum")
    for path in files:
        if path.name not in sums:
            yield Finding(_first(path.name), path.name, f"is not in {CHECKSUMS}")
        elif (found := checksum_found(path)) is None:
            yield Finding(_first(path.name), path.name, "is gone")
        elif not found:
            yield Finding(_first(path.name), path.name, "is not a file that can be read")
        elif found != sums[path.name]:
            problem = "was changed: its bytes are not those that were written"
            if path.name == WHOLE and all(
                located.round.content == located.round.digest for located in stored.values()
            ):
                problem += f"; the {len(stored)} records that can be read in it are whole"
            yield Finding(_first(path.name), path.name, problem)
    for name, digest in (before or {}).items():
        if folder / name in files or stored.keys() >= {*(rounds_of(name) or (-1,))}:
            continue  # it is there, or was replaced
        under_way = any(checksum_found(path) == digest for path in left_overs(folder, name))
        if not under_way and not (folder / name).exists():
            yield Finding(_first(name), name, "is gone")


def _held(
    folder: Path,
    state: Held,
    hashes: dict[int, str],
    stored: dict[int, _Stored],
    before: Sequence[Finding],
) -> Iterator[Finding]:
    """Differences from the ledger, of files without other findings.

    Args:
        folder: The run's folder.
        state: What the ledger holds of it.
        hashes: Hash by round; of the header as round -1.
        stored: The records in them.
        before: Other findings.
    """
    found = {finding.place.partition(",")[0] for finding in before}
    whole = (folder / WHOLE).exists()
    for name, noted_sum in sorted(state.files.items()):
        if name in found:
            continue
        actual = checksum_found(folder / name)
        if actual != noted_sum:
            found.add(name)
            problem = CHANGED
            if actual is None:
                problem = f"is gone, and {LEDGER} has it"
            yield Finding(_first(name), name, problem)
    parts = next(folder.glob("round=[0-9]*.parquet"), None)
    if whole and not parts and WHOLE not in state.files and WHOLE not in found:
        problem = f"is not in {LEDGER}: shockwave resume adds it if the run's process was killed"
        yield Finding(None, WHOLE, problem)
    for entry in state.states:
        number = entry.rounds - 1
        place = WHOLE if whole else part_name(range(number, number + 1))
        if number in stored:
            place = stored[number].place.partition(",")[0]
        elif number < 0:
            place = "header.parquet"
        if hashes.get(number) != entry.last_hash and place not in found:
            found.add(place)
            problem = "is missing" if number not in hashes else "was changed"
            yield Finding(
                None if number < 0 else number,
                f"round {number}" if number >= 0 else place,
                f"{problem}: line {entry.number + 1} of {LEDGER} has its hash",
            )


def _chain(stored: dict[int, _Stored], first_hash: str, unread: set[int]) -> Iterator[Finding]:
    """Records that were changed, or that break the hash chain; gaps but those of unread files."""
    previous, before = -1, first_hash
    for number in sorted(number for number in stored if number >= 0):
        gone = range(previous + 1, number)
        for named, group in groupby(gone, unread.__contains__):
            gap = [*group]
            if not named:
                several = len(gap) > 1
                place = f"rounds {gap[0]} to {gap[-1]}" if several else f"round {gap[0]}"
                yield Finding(gap[0], place, "are missing" if several else "is missing")
        located = stored[number]
        found = located.round
        for problem in broken(found.record, found.content, found.digest, "" if gone else before):
            yield Finding(number, located.place, problem)
        previous, before = number, found.digest


def _unreadable(error: BaseException) -> str:
    return error.problem if isinstance(error, ShockwaveError) else "does not hold a record"
