"""The warehouse on disk: append-only Parquet, one file a round, and views over it.

    WAREHOUSE/
      analytics.duckdb                    views only; rebuilt whenever they change
      records/run=RUN/header.parquet      what the run started from
      records/run=RUN/round=000012.parquet
      records/run=RUN/round=all.parquet   the same rounds in one file, once the run ended

`Writer` appends; `Reader` cannot write.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb
import pyarrow as pa

from predictor.errors import InputError, WarehouseBusy, WarehouseError
from tasks.layouts import FIRST_WITH_CHECKSUMS, OLDEST, upgraded
from tasks.record import VERSION, Package, RoundRecord, RunHeader, Timings, record_hash
from tasks.rows import from_row
from warehouse.analytics.catalog import (
    Answer,
    build,
    check_files,
    check_runs,
    check_warehouse,
    create_views,
    interruptible,
    seal,
    unknown_run,
)
from warehouse.analytics.definitions import VIEWS, needed, read_twice
from warehouse.analytics.recipes import recipe
from warehouse.store.arrow import to_table
from warehouse.store.checksums import mend, note, noted
from warehouse.store.files import (
    EMPTY,
    GROUP_ROUNDS,
    HEADER,
    ROUND,
    WHOLE,
    HeaderLabel,
    RoundLabel,
    count_rows,
    first_line,
    read_table,
    round_of,
    write_groups,
    write_table,
    writing,
)

if TYPE_CHECKING:
    import pandas as pd  # costs a second to import

Record = TypeVar("Record", RunHeader, RoundRecord)

KEPT_BYTES = 2**28
"""Rounds are kept in memory up to this size, so that an ended run is not read again."""

_MISTAKES = (
    duckdb.ParserException,
    duckdb.CatalogException,
    duckdb.BinderException,
    duckdb.ConversionException,
    duckdb.PermissionException,
)
"""What DuckDB raises for a wrong query; a damaged file raises something else."""


class Writer:
    """Appends one run to a warehouse.

    Use as a context manager; leaving it releases the run.

    Args:
        warehouse: The folder.
        run: An existing run to go on with, or None for a new one.
        header: What the run starts from.
        packages: Installed packages.
        taken: Whether a new run may not have a name, as it is in use elsewhere.

    Raises:
        WarehouseError: The folder cannot be written, or another process writes the run.
    """

    def __init__(
        self,
        warehouse: Path,
        header: RunHeader,
        *,
        run: str | None = None,
        packages: Sequence[Package] = (),
        taken: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self._warehouse = warehouse
        self._records = warehouse / "records"
        self._kept: dict[int, pa.Table] = {}
        self._kept_bytes = 0
        with writing(warehouse):
            build(warehouse)
            self.run = run or self._claim(header, taken)
            self._folder = self._records / f"run={self.run}"
            self._lock = _lock(self._folder / ".lock", self.run)
            try:
                self._begin(header, packages, new=run is None)
            except BaseException:
                if run is None:  # nothing of it can be read without a header
                    shutil.rmtree(self._folder, ignore_errors=True)
                os.close(self._lock)
                raise

    def _begin(self, header: RunHeader, packages: Sequence[Package], *, new: bool) -> None:
        """Clear up what a crash left; write the header of a new run."""
        for left_over in self._folder.glob(".*.*"):
            left_over.unlink()
        if not new:
            self._mend_checksums(header)
            return
        label = HeaderLabel(self.run, datetime.now(UTC), tuple(packages), record_hash(header))
        path = self._folder / "header.parquet"
        write_table(path, to_table(HEADER, label, header))
        note(path)

    def _mend_checksums(self, header: RunHeader) -> None:
        """Note what a crash left without a checksum: at most the newest file.

        A run of a layout without checksums gets them for all its files.

        Raises:
            WarehouseError: A file that was noted is gone, and its rounds are in no other.
        """
        names = sorted(path.name for path in self._folder.glob("*.parquet"))
        known = noted(self._folder)
        if known is None:
            if header.version < FIRST_WITH_CHECKSUMS:
                mend(self._folder, trusted=names)
            return
        whole = self._folder / WHOLE
        kept = count_rows(whole) if whole.exists() else 0
        for name in sorted(known.keys() - set(names)):
            number = round_of(Path(name))
            if number is None or number >= kept:
                raise WarehouseError(
                    str(self._folder / name), "is gone", "restore it from a backup"
                )
        parts = [name for name in names if name.startswith("round=")]
        mend(self._folder, trusted=parts[-1:])

    def _claim(self, header: RunHeader, taken: Callable[[str], bool]) -> str:
        """Make the run's folder under the first free name; making it is the claim."""
        stem = f"{header.settings.policy}-{record_hash(header)[:6]}"
        for number in count(1):
            name = f"{stem}-{number}"
            with contextlib.suppress(FileExistsError):
                if not taken(name):
                    (self._records / f"run={name}").mkdir(parents=True)
                    return name
        raise AssertionError("names do not end")

    def append(self, record: RoundRecord, record_digest: str, timings: Timings) -> None:
        """Write one round; once this returns, a crash does not lose it.

        Raises:
            WarehouseError: It cannot be written.
        """
        label = RoundLabel(self.run, record_digest, timings)
        table, path = to_table(ROUND, label, record), self._part(record.round)
        with writing(self._warehouse):
            write_table(path, table)
            note(path)
        if self._kept_bytes < KEPT_BYTES:
            self._kept[record.round] = table
            self._kept_bytes += table.nbytes

    def _part(self, number: int) -> Path:
        return self._folder / f"round={number:06d}.parquet"

    def compact(self) -> None:
        """Put the rounds of an ended run into one file.

        Raises:
            WarehouseError: A file is damaged, or the folder cannot be written.
        """
        parts = sorted(self._folder.glob("round=[0-9]*.parquet"))
        if not parts:
            return
        with writing(self._warehouse):
            whole = self._folder / WHOLE
            write_groups(whole, ROUND, self._groups(parts))
            note(whole)
            for part in parts:
                part.unlink()
            mend(self._folder, trusted=())
        self._kept, self._kept_bytes = {}, 0

    def _groups(self, parts: Sequence[Path]) -> Iterator[pa.Table]:
        """The rounds of a run in order, as row groups."""
        whole = self._folder / WHOLE
        rounds = [number for part in parts if (number := round_of(part)) is not None]
        if whole.exists():  # after a crash before the clean-up, rounds are in both
            table = read_table(whole, ROUND)
            yield table
            rounds = sorted(set(rounds) - set(table["round"].to_pylist()))
        for first in range(0, len(rounds), GROUP_ROUNDS):
            yield pa.concat_tables(map(self._round, rounds[first : first + GROUP_ROUNDS]))

    def _round(self, number: int) -> pa.Table:
        kept = self._kept.get(number)
        return read_table(self._part(number), ROUND) if kept is None else kept

    def __enter__(self) -> "Writer":
        """The writer itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the run."""
        os.close(self._lock)


@dataclass(frozen=True)
class Reader:
    """Reads a warehouse; cannot change it.

    Attributes:
        warehouse: The folder.
    """

    warehouse: Path

    def _folder(self, run: str) -> Path:
        folder = self.warehouse / "records" / f"run={run}"
        if not (folder / "header.parquet").is_file() or f"run={run}" == EMPTY:
            raise unknown_run(self.warehouse, run)
        return folder

    def header(self, run: str) -> RunHeader:
        """What a run started from.

        Raises:
            InputError: No such run.
            WarehouseError: Its file is damaged.
        """
        path = self._folder(run) / "header.parquet"
        (row,) = read_table(path, HEADER).to_pylist()
        return _decoded(RunHeader, row, path)

    def created_at(self, run: str) -> datetime:
        """When a run began.

        Raises:
            InputError: No such run.
            WarehouseError: Its file is damaged.
        """
        path = self._folder(run) / "header.parquet"
        created_at: datetime = read_table(path, HEADER)["created_at"][0].as_py()
        return created_at.replace(tzinfo=created_at.tzinfo or UTC)

    def records(self, run: str) -> list[tuple[RoundRecord, str]]:
        """The rounds of a run in order, each with the hash recorded for it.

        Raises:
            InputError: No such run.
            WarehouseError: A file is damaged, or a round is missing.
        """
        folder, rows = self._folder(run), {}
        for path in sorted(folder.glob("round=*.parquet")):
            try:
                for row in read_table(path, ROUND).to_pylist():
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

    def query(
        self, sql: str, runs: Sequence[str] | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run a SELECT over the views, in memory: it locks nothing and blocks nobody.

        Args:
            sql: The query.
            runs: The runs that it sees, of which each has a round; all by default. What is
                asked of a few runs is answered much faster if the others are not read.

        Returns:
            Column names and rows.

        Raises:
            InputError: The query is wrong or is no SELECT, or there is no warehouse.
            WarehouseError: A file is damaged.
        """
        return self._ask(sql, lambda relation: (relation.columns, relation.fetchall()), runs)

    def frame(self, sql: str) -> "pd.DataFrame":
        """As `query`, but as a pandas data frame.

        Raises:
            InputError: The query is wrong or is no SELECT, or there is no warehouse.
            WarehouseError: A file is damaged.
        """
        frame: pd.DataFrame = self._ask(sql, lambda relation: relation.df())
        return frame

    def recipe(
        self, name: str, run: str | None = None, job: int | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Ask a question of the cookbook.

        Args:
            name: The recipe.
            run: The run that it is asked of; by default all, or the newest where the recipe is
                of one run.
            job: The job that it is asked of, where the recipe is of one job; else it chooses.

        Returns:
            Column names and rows.

        Raises:
            InputError: There is no such recipe, no such run, or no warehouse.
            WarehouseError: A file is damaged.
        """
        found = recipe(name)
        check_warehouse(self.warehouse)
        if run is None and found.of_one_run:
            newest = "SELECT run FROM runs ORDER BY created_at DESC, run DESC LIMIT 1"
            rows = self.query(newest)[1]
            run = rows[0][0] if rows else None
        # Before its first round nothing is to be seen of a run, and nothing can be left out.
        seen = run is not None and next(self._folder(run).glob("round=*.parquet"), None)
        return self._ask(
            found.sql,
            lambda relation: (relation.columns, relation.fetchall()),
            [run] if run is not None and seen else None,
            {"run": run, "job": job},
        )

    def _ask(
        self,
        sql: str,
        read: Callable[[duckdb.DuckDBPyRelation], Answer],
        runs: Sequence[str] | None = None,
        variables: Mapping[str, str | int | None] | None = None,
        attempts: int = 6,
    ) -> Answer:
        check_warehouse(self.warehouse)
        check_runs(self.warehouse, runs)
        try:
            with contextlib.closing(duckdb.connect()) as connection:

                def work() -> Answer:
                    create_views(
                        connection, self.warehouse, runs, needed(sql), tables=read_twice(sql)
                    )
                    for name, value in (variables or {}).items():
                        connection.execute(f"SET VARIABLE {name} = $1", [value])
                    seal(connection, self.warehouse)
                    # This binds nothing but one pure SELECT.
                    connection.sql("FROM query($1)", params=[sql])
                    return read(connection.sql(sql))

                return interruptible(connection, work)
        except duckdb.Error as error:
            if isinstance(error, duckdb.IOException) and attempts > 1:
                time.sleep(0.05)  # a run is being compacted: its rounds' files go one by one
                return self._ask(sql, read, runs, variables, attempts - 1)
            if not isinstance(error, _MISTAKES):
                check_files(self.warehouse)
            raise InputError(
                "query", first_line(error), f"give one SELECT over {', '.join(VIEWS)}"
            ) from None


def _decoded(kind: type[Record], row: dict[str, Any], path: Path) -> Record:
    """A header or a record from a row of any layout that can be read."""
    if not OLDEST <= row["version"] <= VERSION:
        raise WarehouseError(
            str(path),
            f"has layout {row['version']}, not {OLDEST} to {VERSION}",
            "read it with the version that wrote it",
        )
    return from_row(kind, upgraded(row))


def _lock(path: Path, run: str) -> int:
    """Hold a run for this process; the lock goes with the process, however it ends."""
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
