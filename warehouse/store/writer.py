"""Writes runs to a warehouse: a file per round, merged into larger files as the run goes on.

An unfinished run has the parts of `warehouse.store.parts.tidy_parts`, an ended run a single file.
Rounds that can be simulated again may be written together, see `Writer`. A file's checksum is
stored before the file gets its name, and replaced files are removed last. So at every moment, each
round is in a file with a checksum, and every file in the ledger exists.
"""

import contextlib
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from time import monotonic
from types import TracebackType

import pyarrow as pa

from predictor.errors import ShockwaveError, WarehouseError
from tasks.record import Package, RoundRecord, Start, Timings
from warehouse.store.arrow import read_groups, rows_to_table, to_table, write_groups, write_table
from warehouse.store.audit import check_file
from warehouse.store.checksums import (
    CHECKSUMS,
    add_sum,
    checksum,
    drop_sums,
    has_other_lines,
    read_sums,
)
from warehouse.store.creation import make_folder
from warehouse.store.durable import find_left_overs, give_name, lock_run, make_held_folder, writing
from warehouse.store.files import (
    GROUP_ROUNDS,
    HEADER,
    ROUND,
    WORKLOAD,
    HeaderLabel,
    PlayedJob,
    RoundLabel,
)
from warehouse.store.folder import EMPTY, SERVICE, WORKLOAD_FILE, place_of, records_folder
from warehouse.store.ledger import HEADER_FILE, LEDGER, enter, folder_name, read_ledger
from warehouse.store.parts import (
    FAN,
    WHOLE,
    largest_part,
    part_name,
    part_names,
    replaces,
    round_files,
    rounds_of,
    tidy_parts,
)

READ_SECONDS = 10.0
"""Time until replaced files are removed; a query may have listed them. An engineering choice; no
sweep is recorded."""

ENTRY_SECONDS = 300.0
"""Least time between a run's entries in the ledger. An engineering choice; no sweep is recorded."""

DELAY_SECONDS = 3.0
"""Time after which waiting rounds of a virtual cluster are written with the next full part. A crash
loses waiting rounds. An engineering choice; no sweep is recorded."""

MOST_WAITING = GROUP_ROUNDS
"""Most rounds that wait, which bounds memory and what a crash loses. An engineering bound."""

_Waiting = tuple[RoundLabel, RoundRecord]


class Writer:
    """Writer of a run's records and of its entries in the ledger.

    The ledger gets an entry when a run begins, is released or has ended, and every five minutes.
    Use the writer as a context manager; leaving it releases the run.

    Args:
        warehouse: The folder.
        run: An existing run to resume, or None for a new run.
        start: Header and workload of the run.
        packages: Installed packages.
        taken: Returns whether a name is used elsewhere, and so not free for a new run.
        delay_seconds: Longest wait of rounds that are written together; 0 to write each round
            before `append` returns.

    Raises:
        WarehouseError: A file is damaged, the folder cannot be written, or another process writes
            the run.
    """

    def __init__(
        self,
        warehouse: Path,
        start: Start,
        *,
        run: str | None = None,
        packages: Sequence[Package] = (),
        taken: Callable[[str], bool] = lambda name: False,
        delay_seconds: float = 0.0,
    ) -> None:
        self._warehouse = warehouse
        self._delay_seconds, self._wrote_at = delay_seconds, monotonic()
        self._waiting: list[_Waiting] = []  # rounds to write
        self._parts: list[str] = []  # files, in order; each round is in exactly one
        self._loose: dict[str, pa.Table] = {}  # rounds in files of their own
        self._replaced: dict[str, float] = {}  # replaced files, and when
        self._new: dict[str, str] = {}  # checksums that the ledger lacks
        self._entered_at = monotonic()
        with writing(warehouse):
            make_folder(warehouse)
            if run is None:
                self._begin(start, packages, taken)
            else:
                self.run, self._folder = run, place_of(warehouse, run)
                self._lock = lock_run(self._folder / ".lock", run)
                try:
                    self._recover()
                except BaseException:
                    os.close(self._lock)
                    raise

    def _begin(
        self, start: Start, packages: Sequence[Package], taken: Callable[[str], bool]
    ) -> None:
        """Make a run with a header and a workload, under the first free name.

        The folder is renamed once it has both; the rename is atomic.
        """
        header, root = start.header, records_folder(self._warehouse)
        stem = f"{SERVICE if header.service else header.settings.policy}-{start.digest[:6]}"
        self._folder, self._lock = make_held_folder(root, ".run=", root / EMPTY / ".lock")
        try:
            for number in count(1):
                self.run = f"{stem}-{number}"
                folder = place_of(self._warehouse, self.run)
                if folder.exists() or taken(self.run):
                    continue
                self._write_start(start, packages)
                # If another process takes the name first, try the next number.
                with contextlib.suppress(FileExistsError):
                    give_name(self._folder, folder)
                    self._folder = folder
                    break
            self._enter_all()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            os.close(self._lock)
            raise

    def _write_start(self, start: Start, packages: Sequence[Package]) -> None:
        (self._folder / CHECKSUMS).unlink(missing_ok=True)  # it names files of another run name
        header, workload = start.header, start.workload
        if header.service:  # a service's jobs are in its rounds
            workload = replace(workload, specs=(), truths=())
        jobs = zip(workload.specs, workload.truths, strict=True)
        played = [PlayedJob(self.run, spec, truth) for spec, truth in jobs]
        groups = [rows_to_table(WORKLOAD, played)] if played else []
        write_groups(self._folder / WORKLOAD_FILE, WORKLOAD, groups, self._add_sum)
        label = HeaderLabel(self.run, datetime.now(UTC), tuple(packages), start.digest)
        table = to_table(HEADER, label, header)
        write_table(self._folder / HEADER_FILE, table, self._add_sum)

    def _add_sum(self, path: Path, temporary: Path) -> None:
        """Add the checksum of a file before it gets its name."""
        self._new[path.name] = add_sum(path, temporary)

    def _recover(self) -> None:
        """Complete the writes of the last writer, which may have been killed."""
        self._new = _recover(self._warehouse, self._folder, self.run)
        names = part_names(self._folder)
        self._parts = [path.name for path in round_files(self._folder)]
        self._replace([name for name in names if name not in self._parts])
        if WHOLE not in names:
            self._fold(max((part.stop for part in map(rounds_of, self._parts) if part), default=0))
            self._clear()

    def append(self, record: RoundRecord, record_digest: str, timings: Timings) -> None:
        """Write a round durably; with `delay_seconds`, write it later, with a full part."""
        self._waiting.append((RoundLabel(self.run, record_digest, timings), record))
        waited = monotonic() - self._wrote_at
        # A file of one round takes as long as one of FAN rounds, and would soon be merged.
        full = self._delay_seconds == 0.0 or (record.round + 1) % FAN == 0
        if (full and waited >= self._delay_seconds) or len(self._waiting) >= MOST_WAITING:
            self._write_waiting()

    def _write_waiting(self) -> None:
        """Write the waiting rounds into their parts.

        After an error no round waits, so that none is written without its predecessors.
        """
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        stop = waiting[-1][1].round + 1
        with writing(self._warehouse):
            while waiting:
                part = largest_part(waiting[0][1].round, stop)
                self._write_part(part, waiting[: len(part)])
                del waiting[: len(part)]
            self._clear(monotonic() - READ_SECONDS)
            self._fold(stop)
            if monotonic() - self._entered_at > ENTRY_SECONDS:
                self._enter_all()
        self._wrote_at = monotonic()

    def _write_part(self, part: range, rounds: Sequence[_Waiting]) -> None:
        table, path = _make_table(rounds), self._folder / part_name(part)
        write_table(path, table, self._add_sum)
        self._parts.append(path.name)
        if len(part) == 1:
            self._loose[path.name] = table

    def compact(self) -> None:
        """Write the rounds of an ended run into one file."""
        if self._parts:
            self._write_waiting()
        with writing(self._warehouse):
            if self._waiting:  # all rounds, so there is nothing to merge
                self._write_whole()
            elif self._parts not in ([], [WHOLE]):
                self._merge(WHOLE)
                if self._new:
                    self._enter_all()  # before an audit finds the file without its parts
                self._clear()

    def _write_whole(self) -> None:
        """Write all rounds into their file at once."""
        waiting, self._waiting = self._waiting, []
        starts = range(0, len(waiting), GROUP_ROUNDS)
        groups = (_make_table(waiting[at : at + GROUP_ROUNDS]) for at in starts)
        write_groups(self._folder / WHOLE, ROUND, groups, self._add_sum)
        self._parts = [WHOLE]
        self._enter_all()

    def _fold(self, rounds: int) -> None:
        """Merge the rounds of an unfinished run into their parts."""
        if WHOLE in self._parts:
            return
        for name in map(part_name, tidy_parts(rounds)):
            if name not in self._parts and any(replaces(name, part) for part in self._parts):
                self._merge(name)

    def _merge(self, name: str) -> None:
        """Write a file with all rounds of others, and replace these."""
        parts = [part for part in self._parts if part == name or replaces(name, part)]
        write_groups(self._folder / name, ROUND, self._groups(parts), self._add_sum)
        at = self._parts.index(parts[0])
        self._parts[at : at + len(parts)] = [name]
        self._replace([part for part in parts if part != name])

    def _groups(self, parts: Iterable[str]) -> Iterator[pa.Table]:
        waiting: list[pa.Table] = []
        for part in parts:
            loose = self._loose.get(part)
            for table in read_groups(self._folder / part, ROUND) if loose is None else [loose]:
                waiting.append(table)
                if sum(map(len, waiting)) >= GROUP_ROUNDS:
                    *full, rest = _split(pa.concat_tables(waiting))
                    yield from full
                    waiting = [rest]
        if any(map(len, waiting)):
            yield pa.concat_tables(waiting)

    def _replace(self, names: Sequence[str]) -> None:
        """Replace files; if they are in the ledger, enter the new ones first."""
        entered = any(name not in self._new for name in names)
        self._new = {name: new for name, new in self._new.items() if name not in names}
        if entered:
            self._enter_all()
        self._replaced |= dict.fromkeys(names, monotonic())
        self._loose = {part: table for part, table in self._loose.items() if part not in names}

    def _clear(self, until: float = math.inf) -> None:
        """Remove the files that were replaced before a moment."""
        gone = {name for name, at in self._replaced.items() if at <= until}
        for name in gone:
            (self._folder / name).unlink(missing_ok=True)
            del self._replaced[name]
        if gone:  # last, because an audit takes a file without a checksum for an added one
            drop_sums(self._folder, gone)

    def _enter_all(self) -> None:
        """Enter all files that the ledger lacks."""
        enter(self._warehouse, self._folder, self._new)
        self._new, self._entered_at = {}, monotonic()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write the waiting rounds, enter what the ledger lacks, and release the run."""
        try:
            self._write_waiting()
            there = {name for name in self._new if (self._folder / name).exists()}
            self._new = {name: self._new[name] for name in there}  # other writes failed
            if self._new:
                self._enter_all()
            with writing(self._warehouse):
                self._clear()
        except ShockwaveError:
            if error is None:  # otherwise the first error says more
                raise
        finally:
            os.close(self._lock)


def _make_table(rounds: Sequence[_Waiting]) -> pa.Table:
    labels, records = zip(*rounds, strict=True)
    return rows_to_table(ROUND, labels, records)


def _split(table: pa.Table) -> list[pa.Table]:
    """Split a table into row groups; the last one is not full, and may be empty."""
    return [table[at : at + GROUP_ROUNDS] for at in range(0, len(table) + 1, GROUP_ROUNDS)]


def _recover(warehouse: Path, folder: Path, run: str) -> dict[str, str]:
    """Complete the last writer's writes, and verify that nothing has changed since.

    Temporary files whose checksum is in `SHA256SUMS` get their names; others are removed. Returns
    the checksums by name of the files that the ledger lacks.

    Raises:
        WarehouseError: A file is missing, was changed, or is in no list.
    """
    known = read_sums(folder)
    if known is None:
        raise WarehouseError(str(folder / CHECKSUMS), "is gone", "restore it from a backup")
    for left_over in find_left_overs(folder):
        name = left_over.name[1:-33]  # without the dots and 32 hexadecimal digits
        if known.get(name) == checksum(left_over):
            left_over.replace(folder / name)
        else:
            left_over.unlink()
    names = part_names(folder)
    for name in names:
        if name not in known:  # a writer adds the checksum before the file gets its name
            problem, remedy = f"is not in {CHECKSUMS}", "move it elsewhere"
            raise WarehouseError(str(folder / name), problem, remedy)
    gone = [name for name in sorted(known) if not (folder / name).exists()]
    for name in gone:
        if not any(replaces(other, name) for other in names):
            raise WarehouseError(str(folder / name), "is gone", "restore it from a backup")
    if gone or has_other_lines(folder, half_a_line=True):
        drop_sums(folder, gone)
    entered = read_ledger(warehouse).folders.get(folder_name(warehouse, folder), {})
    for name, digest in entered.items():
        path = folder / name
        found = check_file(path, (LEDGER, digest)) if digest or path.exists() else None
        if found is not None:
            raise WarehouseError(str(path), found, f"see shockwave run audit {run}")
    return {name: known[name] for name in known if name not in {*entered, *gone}}
