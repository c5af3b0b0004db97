"""Audit of a run: files against checksums, records against their chain, both against the ledger.

The folder's `SHA256SUMS` has every file's SHA-256, and so has the warehouse's ledger a few minutes
later at most. Every record has the hash of the record before. The audit verifies all of these, and
each round's invariants (`tasks.invariants`).

A run from an untrusted source is audited in a process of bounded memory, because a Parquet file of
a few KiB can declare any number of rows, and false sizes. The process is
`python -m warehouse.store.audit WAREHOUSE RUN MIB`.
"""

import math
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path

import orjson

from predictor.errors import InputError, ShockwaveError
from tasks.invariants import Invariants
from tasks.record import RoundRecord, RunHeader, check_chain
from tasks.sources import Workload
from warehouse.store.arrow import read_parquet
from warehouse.store.checks import check_links
from warehouse.store.checksums import (
    CHECKSUMS,
    find_checksum,
    has_other_lines,
    is_stored,
    read_sums,
)
from warehouse.store.durable import find_left_overs
from warehouse.store.folder import WORKLOAD_FILE, name_of, place_of, unknown_run
from warehouse.store.ledger import HEADER_FILE, LEDGER, WarehouseLedger, folder_name, read_ledger
from warehouse.store.parts import WHOLE, replaces, rounds_of
from warehouse.store.reader import (
    GARBLED,
    Stored,
    add_taken_in,
    decode_header,
    decode_round,
    read_workload,
)

USUAL_MIB = 2048
"""Default memory limit of the process in MiB. An engineering bound."""


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A defect that an audit found.

    Attributes:
        place: The file or record, as shown to users.
        run: The run with the defect; None if it is in no run.
        round: The round with the defect; None for the header or a whole file.
    """

    place: str
    problem: str
    run: str | None = None
    round: int | None = None


@dataclass(frozen=True)
class Audit:
    """Scope and findings of an audit.

    Attributes:
        unended: Number of jobs without an end.
        entered: Number of rounds that the ledger covers; None if it lacks the run.
        last_hash: Hash of the last record, or of the header; empty if neither can be read.
        findings: Findings on the header, then by round, then on whole files.
    """

    run: str
    files: int
    rounds: int
    jobs: int
    unended: int
    entered: int | None
    last_hash: str
    findings: tuple[AuditFinding, ...]

    @property
    def first_broken(self) -> int | None:
        """The first round with a finding."""
        return min((f.round for f in self.findings if f.round is not None), default=None)


def audit(
    warehouse: Path, run: str, expected: str | None = None, ledger: WarehouseLedger | None = None
) -> Audit:
    """Audit a run.

    `expected` is a hash that some record, or the header, must have. By default the ledger is read,
    and its defects are among the findings.

    Raises:
        InputError: There is no such run.
        WarehouseError: A folder is a link, or the ledger cannot be read.
    """
    check_links(warehouse)
    folder = place_of(warehouse, run)
    if not is_stored(folder):
        raise unknown_run(warehouse, run)
    name = folder_name(warehouse, folder)
    read = read_ledger(warehouse) if ledger is None else ledger
    state = read.folders.get(name)
    while True:
        files = sorted(folder.glob("*.parquet"))
        found = _Pass(folder, files, state).audit(expected)
        if found.findings:
            earlier, state = state, read_ledger(warehouse).folders.get(name)
            if earlier != state or not all(path.exists() for path in files):
                continue  # a process wrote the run during the audit
        of_ledger = ledger_findings(read) if ledger is None else []
        return replace(found, findings=(*found.findings, *of_ledger))


def ledger_findings(ledger: WarehouseLedger) -> list[AuditFinding]:
    """Return the defects of the ledger itself."""
    return [AuditFinding(f"{LEDGER}, line {n}", problem) for n, problem in ledger.problems]


def check_file(path: Path, *expected: tuple[str, str | None]) -> str | None:
    """Return a file's problem, after comparing it with its checksums; None if it has none.

    `expected` has names of lists, each with the file's checksum in it; None if the list lacks the
    file.
    """
    found = find_checksum(path)
    if found == "":
        return "is not a file that can be read"
    for listed_in, digest in expected:
        if found is None:
            return f"is gone, and {listed_in} has it"
        if digest is None:
            return f"is not in {listed_in}"
        if digest != found:
            return f"was changed: {listed_in} has another checksum"
    return None


class _Pass:
    """One pass over a run, which other processes may be writing.

    `state` has the checksums of its files in the ledger; None if the ledger lacks the run.
    """

    def __init__(
        self, folder: Path, files: Sequence[Path], state: Mapping[str, str] | None
    ) -> None:
        self._folder, self._files, self._run = folder, files, name_of(folder)
        self._state, self._entered = state, state or {}
        self._names = {path.name for path in files}
        self._findings: list[AuditFinding] = []
        self._rounds: dict[int, tuple[str, Stored[RoundRecord]]] = {}  # each with its place
        self._lost: set[int] = set()  # rounds in missing or unreadable files
        self._jobs = self._unended = 0

    def audit(self, expected: str | None) -> Audit:
        self._check_files()
        header, hashes = self._read_header(), dict[int, str]()
        if header is not None:
            for path in self._files:
                if path.name.startswith("round="):
                    self._read_rounds(path)
            hashes = {-1: header.digest}
            hashes |= {number: stored.digest for number, (_, stored) in self._rounds.items()}
            workload = self._read_workload(header)
            self._check_chain(header.content)
            if workload is not None:
                self._check_invariants(header, workload)
        if expected is not None and expected not in hashes.values():
            self._add(self._run, f"has no record with the hash {expected}")
        return Audit(
            run=self._run,
            files=len(self._files),
            rounds=len(self._rounds),
            jobs=self._jobs,
            unended=self._unended,
            entered=self._count_entered(),
            last_hash=hashes[max(hashes)] if hashes else "",
            findings=tuple(sorted(self._findings, key=_position)),
        )

    def _add(self, place: str, problem: str, number: int | None = None) -> None:
        self._findings.append(AuditFinding(place, problem, self._run, number))

    def _check_files(self) -> None:
        """Find files that were changed, removed or added."""
        sums, entered = read_sums(self._folder), self._entered
        if sums is None:
            self._add(CHECKSUMS, "is gone")
        elif has_other_lines(self._folder, half_a_line=WHOLE in self._names):
            self._add(CHECKSUMS, "has a line that is not a checksum")
        for name in sorted({*self._names, *(sums or ()), *entered}):
            of_ledger = [(LEDGER, entered[name])] if name in entered else []
            if name in self._names:
                listed = [] if sums is None else [(CHECKSUMS, sums.get(name))]
                problem = check_file(self._folder / name, *listed, *of_ledger)
            elif entered.get(name):
                problem = check_file(self._folder / name, *of_ledger)
            elif name in (sums or {}) and self._is_gone(name, sums[name] if sums else ""):
                problem = f"is gone, and {CHECKSUMS} has it"
            else:
                problem = None
            if problem:
                self._add(name, problem, _first(name))
                self._lost |= {*(rounds_of(name) or ())} if "is gone" in problem else set()
        parts = any(rounds_of(name) for name in self._names)
        if self._state is not None and WHOLE in self._names and not parts and WHOLE not in entered:
            self._add(WHOLE, f"is not in {LEDGER}: after a crash, shockwave resume adds it")

    def _is_gone(self, name: str, digest: str) -> bool:
        """Return whether a listed file is lost: in no larger file, and not about to be renamed."""
        if any(replaces(other, name) for other in self._names):
            return False
        begun = any(find_checksum(path) == digest for path in find_left_overs(self._folder, name))
        return not begun and not (self._folder / name).exists()

    def _read_header(self) -> Stored[RunHeader] | None:
        try:
            # Converting timestamps would import pandas, which takes longer than the rest.
            table = read_parquet(self._folder / HEADER_FILE).drop_columns(["created_at"])
            (row,) = table.to_pylist()
            found = decode_header(row)
        except (ShockwaveError, *GARBLED) as error:
            self._add(HEADER_FILE, _unreadable(error))
            return None
        if found.content != found.digest:
            self._add(HEADER_FILE, "was changed: its contents have another hash")
        if self._run != row.get("run"):
            self._add(HEADER_FILE, f"belongs to run {row.get('run')!r}")
        return found

    def _read_workload(self, header: Stored[RunHeader]) -> Workload | None:
        try:
            return read_workload(self._folder, header.record)
        except (ShockwaveError, *GARBLED) as error:
            self._add(WORKLOAD_FILE, _unreadable(error))
            return None

    def _read_rounds(self, path: Path) -> None:
        first = _first(path.name)
        try:
            rows = read_parquet(path).to_pylist()
        except (ShockwaveError, *GARBLED) as error:
            self._add(path.name, _unreadable(error), first)
            self._lost |= {*(rounds_of(path.name) or ())}
            return
        for number, row in enumerate(rows, start=first or 0):
            place = f"{path.name}, row {number - (first or 0)}"
            try:
                found = decode_round(row)
            except (ShockwaveError, *GARBLED) as error:
                self._add(place, _unreadable(error), number)
                self._lost.add(number)
                continue
            if found.record.round != number or row.get("run") != self._run:
                holds = f"holds round {found.record.round} of run {row.get('run')!r}"
                self._add(place, holds, number)
            self._rounds.setdefault(found.record.round, (place, found))

    def _check_chain(self, before: str) -> None:
        """Find changed records, records that do not follow the one before, and gaps."""
        previous = -1
        for number in sorted(number for number in self._rounds if number >= 0):
            gap = [n for n in range(previous + 1, number) if n not in self._lost]
            if gap:
                several = f"rounds {gap[0]} to {gap[-1]}", "are missing"
                self._add(*(several if gap[1:] else (f"round {gap[0]}", "is missing")), gap[0])
            place, found = self._rounds[number]
            known = before if number == previous + 1 else ""
            for problem in check_chain(found.record, found.content, found.digest, known):
                self._add(place, problem, number)
            previous, before = number, found.digest

    def _check_invariants(self, header: Stored[RunHeader], workload: Workload) -> None:
        """Check every round before the first gap, and that all jobs of a closed run have ended."""
        if header.record.service:
            records = (self._rounds[number][1].record for number in sorted(self._rounds))
            workload = add_taken_in(workload, records)
        invariants = Invariants(header.record, workload)
        for number in count():
            if number not in self._rounds:
                break
            place, found = self._rounds[number]
            for problem in invariants.check(found.record):
                self._add(place, problem, number)
        self._jobs, self._unended = len(workload.specs), len(invariants.unended)
        if invariants.unended and WHOLE in self._names and self._rounds:
            problem = f"the run was closed, yet job {invariants.unended[0]} has no end"
            self._add(WHOLE, problem, max(self._rounds))

    def _count_entered(self) -> int | None:
        """Return the number of rounds in files that the ledger has; None if it lacks the run."""
        if self._state is None:
            return None
        if WHOLE in self._entered:
            return len(self._rounds)
        parts = (rounds_of(name) for name, digest in self._entered.items() if digest)
        return max((part.stop for part in parts if part), default=0)


def _position(finding: AuditFinding) -> float:
    if finding.round is not None:
        return finding.round
    return -1 if finding.place == HEADER_FILE else math.inf


def _first(name: str) -> int | None:
    """Return the first round of a file, from its name."""
    rounds = rounds_of(name)
    return None if rounds is None else rounds.start


def _unreadable(error: BaseException) -> str:
    return error.problem if isinstance(error, ShockwaveError) else "does not hold a record"


def audit_within(memory_mib: int, warehouse: Path, run: str, place: str) -> Audit:
    """Audit a run without a ledger; `place` is its origin, for errors.

    Raises:
        InputError: The audit exceeds its memory, or the run cannot be read.
    """
    command = [
        sys.executable,
        "-P",
        "-m",
        "warehouse.store.audit",
        str(warehouse),
        run,
        str(memory_mib),
    ]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if ran.returncode:
        problem = f"cannot be audited in {memory_mib:,} MiB of memory"
        raise InputError(place, problem, "give it more memory if you trust where it is from")
    row = orjson.loads(ran.stdout)
    if "remedy" in row:
        raise InputError(place, f"is not whole ({row['problem']})", row["remedy"])
    return Audit(**{**row, "findings": tuple(AuditFinding(**found) for found in row["findings"])})


def _main(warehouse: str, run: str, memory_mib: str) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory_mib) * 2**20, hard))
    try:
        row = asdict(audit(Path(warehouse), run, ledger=WarehouseLedger()))
    except ShockwaveError as error:
        row = {"problem": f"{error.place}: {error.problem}", "remedy": error.remedy}
    sys.stdout.buffer.write(orjson.dumps(row))


if __name__ == "__main__":
    _main(*sys.argv[1:])
