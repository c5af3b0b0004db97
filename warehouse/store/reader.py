"""Reads the records of runs, of every released layout: headers, workloads and rounds."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from predictor.errors import WarehouseError
from tasks.chain import broken
from tasks.record import RoundRecord, RunHeader, Start
from tasks.rows import from_row
from tasks.sources import Workload
from warehouse.store.decoding import (
    LayoutError,
    StoredHeader,
    StoredRound,
    stored_header,
    stored_round,
)
from warehouse.store.files import WORKLOAD, PlayedJob, read_parquet
from warehouse.store.folder import WORKLOAD_FILE, name_of, round_files, run_folder

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
        """The start of a run: header and workload.

        Raises:
            InputError: No such run.
            WarehouseError: A file is damaged, or was changed.
        """
        folder = run_folder(self.warehouse, run)
        stored = self._header(folder)
        return Start(stored.header, read_workload(folder, stored), stored.digest)

    def created_at(self, run: str) -> datetime:
        """The creation time of a run.

        Raises:
            InputError: No such run.
            WarehouseError: Its file is damaged.
        """
        path = run_folder(self.warehouse, run) / "header.parquet"
        created_at: datetime = read_parquet(path)["created_at"][0].as_py()
        return created_at.replace(tzinfo=created_at.tzinfo or UTC)

    def records(self, run: str) -> list[tuple[RoundRecord, str]]:
        """The rounds of a run in order, each with its hash: a whole chain from the header on.

        Raises:
            InputError: No such run.
            WarehouseError: A file is damaged, a round is missing, was changed, or does not
                follow the one before.
        """
        folder = run_folder(self.warehouse, run)
        header, rounds = self._header(folder), dict[int, StoredRound]()
        for path in round_files(folder):
            try:
                for row in read_parquet(path).to_pylist():
                    found = _decoded(path, partial(stored_round, row, header))
                    rounds[found.record.round] = found
            except WarehouseError:
                if path.exists():
                    raise
                return self.records(run)  # compacted in the meantime
        if sorted(rounds) != list(range(len(rounds))):
            missing = min(set(range(len(rounds))) - set(rounds))
            raise WarehouseError(
                f"{folder}", f"round {missing} is missing", "restore it from a backup"
            )
        before = header.digest
        for number in range(len(rounds)):
            found = rounds[number]
            if any(broken(found.record, found.content, found.digest, before)):
                raise _changed(run, f"round {number}")
            before = found.digest
        return [(rounds[number].record, rounds[number].digest) for number in range(len(rounds))]

    def _header(self, folder: Path) -> StoredHeader:
        path = folder / "header.parquet"
        # Conversion of timestamps would import pandas, which takes longer than the rest.
        (row,) = read_parquet(path).drop_columns(["created_at"]).to_pylist()
        found = _decoded(path, partial(stored_header, row))
        if found.content != found.digest:
            raise _changed(name_of(folder), "header")
        return found


def read_workload(folder: Path, stored: StoredHeader) -> Workload:
    """The workload of a run.

    Args:
        folder: The run's folder.
        stored: The run's header.

    Raises:
        WarehouseError: The file is damaged, or was changed.
    """
    header, jobs = stored.header, stored.jobs
    path = folder / WORKLOAD_FILE
    if header.workload:
        rows = read_parquet(path, WORKLOAD).to_pylist()
        jobs = tuple((job.spec, job.truth) for job in (from_row(PlayedJob, row) for row in rows))
    workload = Workload(
        source=header.source,
        specs=tuple(spec for spec, _ in jobs),
        truths=tuple(truth for _, truth in jobs),
        profile=header.throughputs,
    )
    if header.workload and workload.digest != header.workload:
        raise _changed(name_of(folder), "workload")
    return workload


def _decoded(path: Path, decode: Callable[[], Decoded]) -> Decoded:
    try:
        return decode()
    except LayoutError as error:
        raise WarehouseError(
            str(path), str(error), "read it with the version that wrote it"
        ) from None


def _changed(run: str, part: str) -> WarehouseError:
    return WarehouseError(
        f"run {run!r}, {part}",
        "was changed after it was recorded",
        f"see shockwave audit {run}",
    )
