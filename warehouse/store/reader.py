"""Reads what runs recorded: headers and rounds, of every layout that was ever written."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from predictor.errors import WarehouseError
from tasks.layouts import OLDEST, upgraded
from tasks.record import VERSION, RoundRecord, RunHeader
from tasks.rows import from_row
from warehouse.store.files import HEADER, ROUND, read_parquet
from warehouse.store.folder import run_folder

Record = TypeVar("Record", RunHeader, RoundRecord)


@dataclass(frozen=True)
class Reader:
    """Reads the records of a warehouse; cannot change them.

    Attributes:
        warehouse: The folder.
    """

    warehouse: Path

    def header(self, run: str) -> RunHeader:
        """What a run started from.

        Raises:
            InputError: No such run.
            WarehouseError: Its file is damaged.
        """
        path = run_folder(self.warehouse, run) / "header.parquet"
        # Times in Python need pandas, which takes longer to import than this takes.
        (row,) = read_parquet(path, HEADER).drop_columns(["created_at"]).to_pylist()
        return _decoded(RunHeader, row, path)

    def created_at(self, run: str) -> datetime:
        """When a run began.

        Raises:
            InputError: No such run.
            WarehouseError: Its file is damaged.
        """
        path = run_folder(self.warehouse, run) / "header.parquet"
        created_at: datetime = read_parquet(path, HEADER)["created_at"][0].as_py()
        return created_at.replace(tzinfo=created_at.tzinfo or UTC)

    def records(self, run: str) -> list[tuple[RoundRecord, str]]:
        """The rounds of a run in order, each with the hash recorded for it.

        Raises:
            InputError: No such run.
            WarehouseError: A file is damaged, or a round is missing.
        """
        folder, rows = run_folder(self.warehouse, run), {}
        for path in sorted(folder.glob("round=*.parquet")):
            try:
                for row in read_parquet(path, ROUND).to_pylist():
                    rows[row["round"]] = (_decoded(RoundRecord, row, path), row["hash"])
            except WarehouseError:
                if path.exists():
                    raise
                return self.records(run)  # the run ended just now and was compacted
        if sorted(rows) != list(range(len(rows))):
            missing = min(set(range(len(rows))) - set(rows))
            raise WarehouseError(
                f"{folder}", f"round {missing} is missing", "restore it from a backup"
            )
        return [rows[number] for number in range(len(rows))]


def _decoded(kind: type[Record], row: dict[str, Any], path: Path) -> Record:
    """A header or a record from a row of any layout that can be read."""
    if not OLDEST <= row["version"] <= VERSION:
        raise WarehouseError(
            str(path),
            f"has layout {row['version']}, not {OLDEST} to {VERSION}",
            "read it with the version that wrote it",
        )
    return from_row(kind, upgraded(row))
