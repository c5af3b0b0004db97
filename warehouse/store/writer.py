"""Writes runs to a warehouse: a file per round, compacted into one file when the run ends."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from time import monotonic
from types import TracebackType

import pyarrow as pa

from predictor.errors import InputError, ShockwaveError, WarehouseBusy, WarehouseError
from tasks.layouts import VERSION
from tasks.record import Package, RoundRecord, Start, Timings
from tasks.rows import from_row
from warehouse.store.arrow import rows_to_table, to_table
from warehouse.store.checksums import checksum, mend, note, noted
from warehouse.store.durable import writing
from warehouse.store.files import (
    GROUP_ROUNDS,
    HEADER,
    ROUND,
    WORKLOAD,
    HeaderLabel,
    PlayedJob,
    RoundLabel,
    count_rows,
    read_parquet,
    write_groups,
    write_table,
)
from warehouse.store.folder import (
    WHOLE,
    WORKLOAD_FILE,
    make_folder,
    place_of,
    round_of,
)
from warehouse.store.ledger import (
    HEADER_FILE,
    Held,
    check_key,
    enter,
    folder_name,
    read_ledger,
)

KEPT_BYTES = 2**28
"""Bound on rounds kept in memory, so that compaction need not read them again. An engineering
bound; no sweep is recorded."""

ENTRY_SECONDS = 300.0
"""Time between a run's entries in the ledger, at least. An engineering choice; no sweep is
recorded."""


_HASH = pa.schema([ROUND.field("hash")])


class Writer:
    """Writes the records of a run, and its entries in the ledger.

    The ledger gets an entry when a run begins, is released or has ended, and every five minutes.
    Use as a context manager; leaving it releases the run.

    Args:
        warehouse: The folder.
        run: An existing run to resume, or None for a new run.
        start: Header and workload of the run.
        packages: Installed packages.
        taken: Returns whether a name is in use elsewhere, so that a new run cannot have it.

    Raises:
        InputError: The run's records are of an older layout, or the ledger cannot be signed.
        WarehouseError: The folder cannot be written, or another process writes the run.
    """

    def __init__(
        self,
        warehouse: Path,
        start: Start,
        *,
        run: str | None = None,
        packages: Sequence[Package] = (),
        taken: Callable[[str], bool] = lambda name: False,
    ) -> None:
        if start.header.version != VERSION:
            raise InputError(
                f"run {run!r}",
                f"has records of layout {start.header.version}, to which none can be added",
                "go on with the version that began it, or fork it with shockwave whatif",
            )
        self._warehouse = warehouse
        self._kept: dict[int, pa.Table] = {}
        self._kept_bytes = 0
        self._new: dict[str, str] = {}  # checksums of files that the ledger lacks
        self._entered_at = monotonic()
        with writing(warehouse):
            check_key(warehouse)
            make_folder(warehouse)
            self.run = self._claim(start, taken) if run is None else run
            self._folder = place_of(warehouse, self.run)
            self._lock = _lock(self._folder / ".lock", self.run)
            try:
                self._begin(start, packages, new=run is None)
            except BaseException:
                if run is None:  # a run without a header cannot be read
                    shutil.rmtree(self._folder, ignore_errors=True)
                os.close(self._lock)
                raise

    def _begin(self, start: Start, packages: Sequence[Package], *, new: bool) -> None:
        """Recover from a crash; write the workload and the header of a new run."""
        for left_over in self._folder.glob(".*.*"):
            left_over.unlink()
        if not new:
            self._mend_checksums()
            self._new = self._not_entered()
            return
        jobs = zip(start.workload.specs, start.workload.truths, strict=True)
        played = [PlayedJob(self.run, spec, truth) for spec, truth in jobs]
        path = self._folder / WORKLOAD_FILE
        write_groups(path, WORKLOAD, [rows_to_table(WORKLOAD, played)] if played else [])
        self._new[path.name] = note(path)
        label = HeaderLabel(self.run, datetime.now(UTC), tuple(packages), start.digest)
        path = self._folder / "header.parquet"
        write_table(path, to_table(HEADER, label, start.header))
        self._new[path.name] = note(path)
        self._enter(0, start.digest)

    def _mend_checksums(self) -> None:
        """Add checksums that are missing after a crash: at most that of the newest file.

        Raises:
            WarehouseError: A file with a checksum is missing, and its rounds are in no other.
        """
        names = sorted(path.name for path in self._folder.glob("*.parquet"))
        known = noted(self._folder)
        if known is None:
            return
        kept = self._compacted()
        for name in sorted(known.keys() - set(names)):
            number = round_of(Path(name))
            if number is None or number >= kept:
                raise WarehouseError(
                    str(self._folder / name), "is gone", "restore it from a backup"
                )
        parts = [name for name in names if name.startswith("round=")]
        mend(self._folder, trusted=parts[-1:])

    def _compacted(self) -> int:
        """Number of rounds in the file of all rounds, whose own files may be gone."""
        whole = self._folder / WHOLE
        return count_rows(whole) if whole.exists() else 0

    def _not_entered(self) -> dict[str, str]:
        """Checksums of files that the last writer, which was killed, did not enter.

        Raises:
            WarehouseError: A file that was entered has been changed or removed since.
        """
        entries = read_ledger(self._warehouse).held
        state = entries.get(folder_name(self._warehouse, self._folder), Held())
        kept = self._compacted()
        for name, digest in state.files.items():
            path, number = self._folder / name, round_of(Path(name))
            if path.exists():
                problem = "was changed: the ledger has another checksum"
                sound = checksum(path) == digest
            else:
                problem = "is gone, and the ledger has it"
                sound = not digest or (number is not None and number < kept)
            if not sound:
                raise WarehouseError(str(path), problem, f"see shockwave audit {self.run}")
        sums = noted(self._folder) or {}
        return {name: sums[name] for name in sums if name not in state.files}

    def _claim(self, start: Start, taken: Callable[[str], bool]) -> str:
        """Create the run's folder under the first free name; its creation is atomic."""
        stem = f"{start.header.settings.policy}-{start.digest[:6]}"
        for number in count(1):
            name = f"{stem}-{number}"
            with contextlib.suppress(FileExistsError):
                if not taken(name):
                    place_of(self._warehouse, name).mkdir(parents=True)
                    return name
        raise AssertionError("names do not end")

    def append(self, record: RoundRecord, record_digest: str, timings: Timings) -> None:
        """Write a round durably: once this returns, a crash does not lose it.

        Raises:
            WarehouseError: It cannot be written.
        """
        label = RoundLabel(self.run, record_digest, timings)
        table, path = to_table(ROUND, label, record), self._part(record.round)
        with writing(self._warehouse):
            write_table(path, table)
            self._new[path.name] = note(path)
            if monotonic() - self._entered_at > ENTRY_SECONDS:
                self._enter(record.round + 1, record_digest)
        if self._kept_bytes < KEPT_BYTES:
            self._kept[record.round] = table
            self._kept_bytes += table.nbytes

    def _part(self, number: int) -> Path:
        return self._folder / f"round={number:06d}.parquet"

    def compact(self) -> None:
        """Compact the rounds of an ended run into one file.

        Raises:
            WarehouseError: A file is damaged, or the folder cannot be written.
        """
        parts = sorted(self._folder.glob("round=[0-9]*.parquet"))
        if not parts:
            return
        with writing(self._warehouse):
            whole = self._folder / WHOLE
            write_groups(whole, ROUND, self._groups(parts))
            # With their file's entry the rounds' files need none of their own.
            self._new = {n: s for n, s in self._new.items() if round_of(Path(n)) is None}
            self._new[whole.name] = note(whole)
            self._enter_all()  # before an audit can see it as all that there is
            for part in parts:
                part.unlink()
            mend(self._folder, trusted=())
        self._kept, self._kept_bytes = {}, 0

    def _enter_all(self) -> None:
        """Add an entry with the rounds that are on disk, and all files that it lacks."""
        newest = max(self._folder.glob("round=*.parquet"), default=None)
        if newest is None:
            rounds, rows = 0, read_parquet(self._folder / HEADER_FILE, _HASH)
        else:
            rows = read_parquet(newest, _HASH)
            rounds = rows.num_rows if newest.name == WHOLE else (round_of(newest) or 0) + 1
        self._enter(rounds, rows["hash"][-1].as_py())

    def _enter(self, rounds: int, last_hash: str) -> None:
        enter(self._warehouse, self._folder, self._new, rounds=rounds, last_hash=last_hash)
        self._new, self._entered_at = {}, monotonic()

    def _groups(self, parts: Sequence[Path]) -> Iterator[pa.Table]:
        """The rounds of a run in order, as row groups."""
        whole = self._folder / WHOLE
        rounds = [number for part in parts if (number := round_of(part)) is not None]
        if whole.exists():  # after a crash before the clean-up, rounds are in both
            table = _read_rounds(whole)
            yield table
            rounds = sorted(set(rounds) - set(table["round"].to_pylist()))
        for first in range(0, len(rounds), GROUP_ROUNDS):
            yield pa.concat_tables(map(self._round, rounds[first : first + GROUP_ROUNDS]))

    def _round(self, number: int) -> pa.Table:
        kept = self._kept.get(number)
        return _read_rounds(self._part(number)) if kept is None else kept

    def __enter__(self) -> "Writer":
        """The writer itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the run, with an entry for what the ledger lacks of it."""
        try:
            if self._new:
                self._enter_all()
        except ShockwaveError:
            if error is None:  # else that one says more
                raise
        finally:
            os.close(self._lock)


def _read_rounds(path: Path) -> pa.Table:
    """Stored rounds in the present columns; a field that there was not yet has its default."""
    table = read_parquet(path, ROUND)
    if table.schema.equals(ROUND):
        return table
    rows = table.to_pylist()
    labels = [from_row(RoundLabel, row) for row in rows]
    return rows_to_table(ROUND, labels, [from_row(RoundRecord, row) for row in rows])


def _lock(path: Path, run: str) -> int:
    """Lock a run for this process; the operating system releases the lock when the process ends."""
    import fcntl

    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise WarehouseBusy(
            f"run {run!r}", "is being written by another process", "wait for it or stop it"
        ) from None
    return handle
