"""Reads the records of runs: headers, workloads and rounds."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa

from predictor.errors import WarehouseError
from predictor.rows import from_row, get_typed_fields, hash_content
from tasks.layout import VERSION
from tasks.record import Package, RoundRecord, RunHeader, Start, check_chain
from tasks.sources import Workload
from warehouse.store.arrow import drop_empty_rows, keep_job, read_few, read_from, read_parquet
from warehouse.store.checksums import read_sums
from warehouse.store.files import WORKLOAD, HeaderLabel, PlayedJob, RoundLabel
from warehouse.store.folder import (
    MISPLACED,
    RESTORE,
    WORKLOAD_FILE,
    name_of,
    other_layout,
    run_folder,
)
from warehouse.store.parts import WHOLE, first_missing, round_files, rounds_of
from warehouse.store.verified import verify

GARBLED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, MemoryError)
"""Exceptions that decoding a damaged row can raise."""

FEW_ROUNDS = 8
"""Rounds that `walk` decodes together. An engineering choice; no sweep is recorded."""

Decoded = TypeVar("Decoded")
Part = TypeVar("Part")
Record = TypeVar("Record", RunHeader, RoundRecord)


@dataclass(frozen=True, slots=True)
class Stored(Generic[Record]):
    """A stored header or round.

    Attributes:
        digest: The stored hash.
        content: The hash of the stored content.
    """

    record: Record
    digest: str
    content: str


def decode_header(row: dict[str, Any]) -> Stored[RunHeader]:
    """Decode the row of a header's file.

    Raises:
        InputError: The header has another layout.
        KeyError: A field is missing; other errors of `GARBLED` if the row is not a header.
    """
    return _decode_row(row, RunHeader, HeaderLabel)


def decode_round(row: dict[str, Any]) -> Stored[RoundRecord]:
    """Decode a row of a file of rounds; raises as `decode_header` does."""
    return _decode_row(row, RoundRecord, RoundLabel)


def _decode_row(row: dict[str, Any], kind: type[Record], label: Any) -> Stored[Record]:
    if row["version"] != VERSION:
        raise other_layout(row["run"], row["version"])
    names = {field.name for field in fields(label)}
    content = hash_content({name: value for name, value in row.items() if name not in names})
    return Stored(from_row(kind, row), row["hash"], content)


@dataclass(frozen=True)
class Reader:
    """Read-only access to the records of a warehouse.

    Raises:
        InputError: There is no such run.
        WarehouseError: A file is damaged or was changed, or a round is missing or does not follow
            the round before.
    """

    warehouse: Path

    def header(self, run: str) -> RunHeader:
        """Return the header of a run."""
        return self._header(run_folder(self.warehouse, run)).record

    def start(self, run: str) -> Start:
        """Return header and workload of a run; a service's workload is what it took in so far."""
        start = self.original_start(run)
        if start.header.service:
            rounds = [record for record, _ in self.records(run)]
            return replace(start, workload=add_taken_in(start.workload, rounds))
        return start

    def original_start(self, run: str) -> Start:
        """Return header and workload of a run at its start, when a service's workload was empty."""
        folder = run_folder(self.warehouse, run)
        stored = self._header(folder)
        return Start(stored.record, read_workload(folder, stored.record), stored.digest)

    def created_at(self, run: str) -> datetime:
        """Return the creation time of a run; raise as `header` does."""
        made: datetime = self._read_label(run, "created_at", lambda at: at)
        return made.replace(tzinfo=made.tzinfo or UTC)

    def packages(self, run: str) -> tuple[Package, ...]:
        """Return the packages and container images of a run; raise as `header` does."""
        return self._read_label(run, "packages", lambda rows: tuple(Package(**r) for r in rows))

    def _read_label(self, run: str, name: str, decode: Callable[[Any], Decoded]) -> Decoded:
        path = run_folder(self.warehouse, run) / "header.parquet"
        return _decode(path, lambda: decode(read_parquet(path)[name][0].as_py()))

    def records(self, run: str, first: int = 0, before: str = "") -> list[tuple[RoundRecord, str]]:
        """Return the rounds of a run in order, each with its hash, after verifying their chain.

        `before` is the hash of the round before the first, if known.
        """
        folder = run_folder(self.warehouse, run)
        header, rounds = self._header(folder), dict[int, Stored[RoundRecord]]()
        files = round_files(folder)
        gone = None if files else first_missing(folder, [])
        if gone and (folder / gone).exists():
            return self.records(run, first, before)  # merged in the meantime
        if gone:
            raise WarehouseError(str(folder / gone), "is missing", RESTORE)
        for path in files:
            part = rounds_of(path.name)
            if part and part.stop < first:
                continue
            try:
                for found in _decode(path, partial(_rounds_in, path, first)):
                    rounds[found.record.round] = found
            except WarehouseError:
                if path.exists():
                    raise
                return self.records(run, first, before)  # merged in the meantime
        last = rounds.pop(first - 1).digest if first - 1 in rounds else ""
        if first and before not in ("", last):
            problem = f"round {first - 1} has another hash than before"
            raise WarehouseError(f"{folder}", problem, RESTORE)
        numbers = range(first, first + len(rounds))
        if missing := set(numbers) - rounds.keys():
            raise WarehouseError(f"{folder}", f"round {min(missing)} is missing", RESTORE)
        before = last if first else header.digest
        return [*_check_links(run, (rounds[number] for number in numbers), before)]

    def walk(self, run: str, first: int = 0, before: str = "") -> Iterator[tuple[RoundRecord, str]]:
        """Yield the rounds of a run as `records` returns them, a few at a time.

        An ended run's rounds need not fit into memory, and later rounds are not read before they
        are asked for. `before` is the hash of the round before the first, which is not read.
        """
        folder = run_folder(self.warehouse, run)
        if [path.name for path in round_files(folder)] != [WHOLE]:
            yield from self.records(run, first, before)
            return
        before = before if first else self._header(folder).digest
        yield from _check_links(run, _walk_whole(folder, first), before)

    def parts(
        self,
        run: str,
        kind: type[Part],
        first: int = 0,
        stop: float = inf,
        *,
        filled: bool = False,
        of_job: int | None = None,
    ) -> list[Part]:
        """Return some fields of a run's rounds, in order, after verifying the files.

        Args:
            run: The run.
            kind: A dataclass with some fields of records, among them `round`.
            first: The first round.
            stop: The round after the last one.
            filled: Leave out rounds in which all lists among these fields are empty.
            of_job: Decode only this job's elements of lists; all must have a `job_id`.
        """
        folder, found = run_folder(self.warehouse, run), list[Part]()
        asked = [path for path in round_files(folder) if _has(path, first, stop)]
        self._verify(folder, asked)
        for path in asked:
            part = rounds_of(path.name)
            start = part.start if part else 0
            try:
                skipped = max(first - start, 0)
                rows = partial(_parts_in, path, kind, skipped, stop, filled=filled, of_job=of_job)
                found += _decode(path, rows)
            except WarehouseError:
                if path.exists():
                    raise
                # It was merged in the meantime.
                return self.parts(run, kind, first, stop, filled=filled, of_job=of_job)
        return found

    def _verify(self, folder: Path, files: Sequence[Path]) -> None:
        """Verify the files for which the folder has checksums."""
        known = read_sums(folder)
        expected = {} if known is None else {path: known.get(path.name, "") for path in files}
        verify(self.warehouse, expected, RESTORE)

    def _header(self, folder: Path) -> Stored[RunHeader]:
        path = folder / "header.parquet"

        def decode() -> Stored[RunHeader]:
            # Converting timestamps would import pandas, which takes longer than the rest.
            (row,) = read_parquet(path).drop_columns(["created_at"]).to_pylist()
            if row["run"] != name_of(folder):
                raise WarehouseError(str(path), f"belongs to run {row['run']!r}", MISPLACED)
            return decode_header(row)

        found = _decode(path, decode)
        if found.content != found.digest:
            raise _changed(name_of(folder), "header")
        return found


def _has(path: Path, first: int, stop: float) -> bool:
    """Return whether a file has rounds of a range; the file of all rounds always does."""
    part = rounds_of(path.name)
    return part is None or (part.start < stop and first < part.stop)


def _rounds_in(path: Path, first: int) -> list[Stored[RoundRecord]]:
    """Return a file's rounds from a round on, preceded by the round before."""
    part = rounds_of(path.name)
    skipped = max(first - 1 - (part.start if part else 0), 0)
    return _decode_rounds(read_from(path, skipped))


def _walk_whole(folder: Path, first: int) -> Iterator[Stored[RoundRecord]]:
    """Yield the rounds of an ended run from a round on; decode a few at a time."""
    path, number = folder / WHOLE, first
    for table in read_few(path, FEW_ROUNDS, first):
        for found in _decode(path, partial(_decode_rounds, table)):
            if found.record.round != number:
                raise WarehouseError(f"{folder}", f"round {number} is missing", RESTORE)
            number += 1
            yield found


def _check_links(
    run: str, rounds: Iterable[Stored[RoundRecord]], before: str
) -> Iterator[tuple[RoundRecord, str]]:
    """Yield rounds with their hashes, each after verifying its link of the chain.

    `before` is the hash of the header, or of the round before the first.
    """
    for found in rounds:
        if any(check_chain(found.record, found.content, found.digest, before)):
            raise _changed(run, f"round {found.record.round}")
        before = found.digest
        yield found.record, found.digest


def _decode_rounds(table: pa.Table) -> list[Stored[RoundRecord]]:
    return [decode_round(row) for row in table.to_pylist()]


def _parts_in(
    path: Path, kind: type[Part], skipped: int, stop: float, *, filled: bool, of_job: int | None
) -> list[Part]:
    """Return some fields of a file's rounds before `stop`, without the first `skipped` ones."""
    record: Any = kind
    table = read_from(path, skipped, [name for name, _ in get_typed_fields(record)])
    if of_job is not None:
        table = keep_job(table, of_job)
    rows = (drop_empty_rows(table) if filled else table).to_pylist()
    return [from_row(kind, row) for row in rows if row["round"] < stop]


def read_workload(folder: Path, header: RunHeader) -> Workload:
    """Return the workload of a run, from its folder and header.

    Raises:
        WarehouseError: The file is damaged, or was changed.
    """
    path = folder / WORKLOAD_FILE

    def decode() -> Workload:
        jobs = [from_row(PlayedJob, row) for row in read_parquet(path, WORKLOAD).to_pylist()]
        return Workload(
            source=header.source,
            specs=tuple(job.spec for job in jobs),
            truths=tuple(job.truth for job in jobs),
            profile=header.throughputs,
        )

    workload = _decode(path, decode)
    if _decode(path, lambda: workload.digest) != header.workload:
        raise _changed(name_of(folder), "workload")
    return workload


def add_taken_in(workload: Workload, records: Iterable[RoundRecord]) -> Workload:
    """Add the jobs and commands that a service's rounds took in, in order, to its workload."""
    rounds = list(records)
    return replace(
        workload,
        specs=tuple(spec for record in rounds for spec in record.arrivals),
        truths=tuple(truth for record in rounds for truth in record.truths),
        commands=tuple(command for record in rounds for command in record.commands),
        submitters=tuple(name for record in rounds for name in record.submitters),
        service=True,
    )


def _decode(path: Path, decode: Callable[[], Decoded]) -> Decoded:
    try:
        return decode()
    except GARBLED:
        problem = "does not hold what was recorded"
        raise WarehouseError(str(path), problem, RESTORE) from None


def _changed(run: str, part: str) -> WarehouseError:
    problem = "was changed after it was recorded"
    return WarehouseError(f"run {run!r}, {part}", problem, f"see shockwave run audit {run}")
