"""Reads the records of runs, of every released layout: headers, workloads and rounds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from predictor.errors import WarehouseError
from tasks.chain import broken
from tasks.record import Package, RoundRecord, RunHeader, Start
from tasks.rows import from_row
from tasks.sources import Workload
from warehouse.store.decoding import (
    GARBLED,
    LayoutError,
    StoredHeader,
    StoredRound,
    stored_header,
    stored_round,
)
from warehouse.store.files import WORKLOAD, PlayedJob, read_parquet
from warehouse.store.folder import (
    MISPLACED,
    RESTORE,
    WORKLOAD_FILE,
    first_missing,
    name_of,
    round_files,
    run_folder,
)

Decoded = TypeVar("Decoded")


@dataclass(frozen=True)
class Reader:
    """Read-only access to the records of a warehouse.

    Attributes:
        warehouse: The folder.
    """

    warehouse: Path

    def header(self, run: str) -> RunHeader:
        """The header of a run.

        Raises:
            InputError: No such run.
            WarehouseError: Its file is damaged, or was changed.
        """
        return self._header(run_folder(self.warehouse, run)).header

    def start(self, run: str) -> Start:
        """The start of a run: header and workload, of a service what it has taken in so far.

        Raises:
            InputError: No such run.
            WarehouseError: A file is damaged, or was changed.
        """
        folder = run_folder(self.warehouse, run)
        stored = self._header(folder)
        workload = read_workload(folder, stored)
        if stored.header.service:
            workload = taken_in(workload, [record for record, _ in self.records(run)])
        return Start(stored.header, workload, stored.digest)

    def created_at(self, run: str) -> datetime:
        """The creation time of a run.

        Raises:
            InputError: No such run.
            WarehouseError: Its file is damaged.
        """
        path = run_folder(self.warehouse, run) / "header.parquet"

        def decode() -> datetime:
            created_at: datetime = read_parquet(path)["created_at"][0].as_py()
            return created_at.replace(tzinfo=created_at.tzinfo or UTC)

        return _decoded(path, decode)

    def packages(self, run: str) -> tuple[Package, ...]:
        """What a run was made with: packages, and images of its containers.

        Raises:
            InputError: No such run.
            WarehouseError: Its file is damaged.
        """
        path = run_folder(self.warehouse, run) / "header.parquet"

        def decode() -> tuple[Package, ...]:
            return tuple(Package(**row) for row in read_parquet(path)["packages"][0].as_py())

        return _decoded(path, decode)

    def records(self, run: str) -> list[tuple[RoundRecord, str]]:
        """The rounds of a run in order, each with its hash: a whole chain from the header on.

        Raises:
            InputError: No such run.
            WarehouseError: A file is damaged, a round is missing, was changed, or does not
                follow the one before.
        """
        folder = run_folder(self.warehouse, run)
        header, rounds = self._header(folder), dict[int, StoredRound]()
        files = round_files(folder)
        gone = None if files else first_missing(folder, [])
        if gone and (folder / gone).exists():
            return self.records(run)  # compacted in the meantime
        if gone:
            raise WarehouseError(str(folder / gone), "is missing", RESTORE)
        for path in files:
            try:
                for found in _decoded(path, partial(_rounds_in, path, header)):
                    rounds[found.record.round] = found
            except WarehouseError:
                if path.exists():
                    raise
                return self.records(run)  # compacted in the meantime
        if sorted(rounds) != list(range(len(rounds))):
            missing = min(set(range(len(rounds))) - set(rounds))
            raise WarehouseError(f"{folder}", f"round {missing} is missing", RESTORE)
        before = header.digest
        for number in range(len(rounds)):
            found = rounds[number]
            if any(broken(found.record, found.content, found.digest, before)):
                raise _changed(run, f"round {number}")
            before = found.digest
        return [(rounds[number].record, rounds[number].digest) for number in range(len(rounds))]

    def _header(self, folder: Path) -> StoredHeader:
        path = folder / "header.parquet"

        def decode() -> StoredHeader:
            # Conversion of timestamps would import pandas, which takes longer than the rest.
            (row,) = read_parquet(path).drop_columns(["created_at"]).to_pylist()
            if row["run"] != name_of(folder):
                raise WarehouseError(str(path), f"is of run {row['run']!r}", MISPLACED)
            return stored_header(row)

        found = _decoded(path, decode)
        if found.content != found.digest:
            raise _changed(name_of(folder), "header")
        return found


def _rounds_in(path: Path, header: StoredHeader) -> list[StoredRound]:
    return [stored_round(row, header) for row in read_parquet(path).to_pylist()]


def read_workload(folder: Path, stored: StoredHeader) -> Workload:
    """The workload of a run.

    Args:
        folder: The run's folder.
        stored: The run's header.

    Raises:
        WarehouseError: The file is damaged, or was changed.
    """
    header, jobs, path = stored.header, stored.jobs, folder / WORKLOAD_FILE

    def decode() -> Workload:
        played = jobs
        if header.workload:
            found = [from_row(PlayedJob, row) for row in read_parquet(path, WORKLOAD).to_pylist()]
            played = tuple((job.spec, job.truth) for job in found)
        return Workload(
            source=header.source,
            specs=tuple(spec for spec, _ in played),
            truths=tuple(truth for _, truth in played),
            profile=header.throughputs,
        )

    workload = _decoded(path, decode)
    if header.workload and _decoded(path, lambda: workload.digest) != header.workload:
        raise _changed(name_of(folder), "workload")
    return workload


def taken_in(workload: Workload, records: Iterable[RoundRecord]) -> Workload:
    """The workload of a service: the jobs and commands that its rounds took in.

    Args:
        workload: The workload without them.
        records: Its rounds, in order.
    """
    rounds = list(records)
    return replace(
        workload,
        specs=tuple(spec for record in rounds for spec in record.arrivals),
        truths=tuple(truth for record in rounds for truth in record.truths),
        commands=tuple(command for record in rounds for command in record.commands),
        service=True,
    )


def _decoded(path: Path, decode: Callable[[], Decoded]) -> Decoded:
    try:
        return decode()
    except LayoutError as error:
        raise WarehouseError(
            str(path), str(error), "read it with the version that wrote it"
        ) from None
    except GARBLED:
        problem = "does not hold what was recorded"
        raise WarehouseError(str(path), problem, RESTORE) from None


def _changed(run: str, part: str) -> WarehouseError:
    return WarehouseError(
        f"run {run!r}, {part}",
        "was changed after it was recorded",
        f"see shockwave audit {run}",
    )
