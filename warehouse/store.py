"""The warehouse on disk: append-only Parquet, one file a round, and views over it.

    WAREHOUSE/
      analytics.duckdb                    views only; rebuilt whenever they change
      records/run=RUN/header.parquet      what the run started from
      records/run=RUN/round=000012.parquet
      records/run=RUN/round=all.parquet   the same rounds in one file, once the run ended

Every file is written under a temporary name, flushed and renamed, so that a reader
never sees half of one and a crash loses no round that was acknowledged. `Writer`
appends; `Reader` cannot write.
"""

import contextlib
import glob
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from predictor.errors import InputError, WarehouseError
from warehouse.codec import arrow_schema, from_row, to_row
from warehouse.record import Package, RoundRecord, RunHeader, Timings, record_hash

if TYPE_CHECKING:
    import pandas as pd  # costs a second to import

Answer = TypeVar("Answer")

VIEWS = (
    "headers",
    "records",
    "runs",
    "rounds",
    "jobs",
    "forecasts",
    "bids",
    "plans",
    "solves",
    "allocations",
    "telemetry",
    "events",
    "job_outcomes",
    "run_summary",
)
"""The views, each after those that it reads."""

_HEADER = pa.schema(
    [
        pa.field("run", pa.string()),
        pa.field("created_at", pa.timestamp("us", tz="UTC")),
        pa.field("packages", pa.list_(pa.struct(list(arrow_schema(Package))))),
        pa.field("hash", pa.string()),
        *arrow_schema(RunHeader),
    ]
)
_ROUND = pa.schema(
    [
        pa.field("run", pa.string()),
        pa.field("hash", pa.string()),
        pa.field("timings", pa.struct(list(arrow_schema(Timings)))),
        *arrow_schema(RoundRecord),
    ]
)
_EMPTY = "run=_"
"""A partition without rows, so that the views' patterns always match a file."""

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
    ) -> None:
        self._warehouse = warehouse
        self._records = warehouse / "records"
        with _writing(warehouse):
            build(warehouse)
            self.run = run or self._claim(header)
            self._folder = self._records / f"run={self.run}"
            self._lock = _lock(self._folder / ".lock", self.run)
            for left_over in self._folder.glob(".*.parquet.*"):
                left_over.unlink()
            if run is None:
                row = {
                    "run": self.run,
                    "created_at": datetime.now(UTC),
                    "packages": [to_row(package) for package in packages],
                    "hash": record_hash(header),
                    **to_row(header),
                }
                _write(self._folder / "header.parquet", pa.Table.from_pylist([row], _HEADER))

    def _claim(self, header: RunHeader) -> str:
        """Make the run's folder under the first free name; making it is the claim."""
        stem = f"{header.settings.policy}-{record_hash(header)[:6]}"
        number = 1
        while True:
            try:
                (self._records / f"run={stem}-{number}").mkdir(parents=True)
            except FileExistsError:
                number += 1
            else:
                return f"{stem}-{number}"

    def append(self, record: RoundRecord, record_digest: str, timings: Timings) -> None:
        """Write one round; once this returns, a crash does not lose it.

        Raises:
            WarehouseError: It cannot be written.
        """
        row = {
            "run": self.run,
            "hash": record_digest,
            "timings": to_row(timings),
            **to_row(record),
        }
        with _writing(self._warehouse):
            _write(
                self._folder / f"round={record.round:06d}.parquet",
                pa.Table.from_pylist([row], _ROUND),
            )

    def compact(self) -> None:
        """Put the rounds of an ended run into one file.

        Raises:
            WarehouseError: A file is damaged, or the folder cannot be written.
        """
        parts = sorted(self._folder.glob("round=[0-9]*.parquet"))
        whole = self._folder / "round=all.parquet"
        if not parts:
            return
        with _writing(self._warehouse):
            # After a crash before the clean-up, the rounds are in both.
            kept = [*([whole] if whole.exists() else []), *parts]
            table = pa.concat_tables([_table(path, _ROUND) for path in kept])
            rows = {number: row for row, number in enumerate(table["round"].to_pylist())}
            _write(whole, table.take([rows[number] for number in sorted(rows)]))
            for part in parts:
                part.unlink()

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
        if not (folder / "header.parquet").is_file() or f"run={run}" == _EMPTY:
            raise InputError(
                f"run {run!r}",
                f"not in the warehouse {self.warehouse}",
                'list them with: shockwave sql "SELECT run FROM runs"',
            )
        return folder

    def header(self, run: str) -> RunHeader:
        """What a run started from.

        Raises:
            InputError: No such run.
            WarehouseError: Its file is damaged.
        """
        (row,) = _read(self._folder(run) / "header.parquet", _HEADER)
        return from_row(RunHeader, row)

    def records(self, run: str) -> list[tuple[RoundRecord, str]]:
        """The rounds of a run in order, each with the hash recorded for it.

        Raises:
            InputError: No such run.
            WarehouseError: A file is damaged, or a round is missing.
        """
        folder, rows = self._folder(run), {}
        for path in sorted(folder.glob("round=*.parquet")):
            try:
                rows.update({row["round"]: row for row in _read(path, _ROUND)})
            except WarehouseError:
                if path.exists():
                    raise
                return self.records(run)  # the run ended just now and was compacted
        if sorted(rows) != list(range(len(rows))):
            missing = min(set(range(len(rows))) - set(rows))
            raise WarehouseError(
                f"{folder}", f"round {missing} is missing", "restore it from a backup"
            )
        return [(from_row(RoundRecord, rows[n]), rows[n]["hash"]) for n in range(len(rows))]

    def query(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run a SELECT over the views, in memory: it locks nothing and blocks nobody.

        Returns:
            Column names and rows.

        Raises:
            InputError: The query is wrong or is no SELECT, or there is no warehouse.
            WarehouseError: A file is damaged.
        """
        return self._ask(sql, lambda relation: (relation.columns, relation.fetchall()))

    def frame(self, sql: str) -> "pd.DataFrame":
        """As `query`, but as a pandas data frame.

        Raises:
            InputError: The query is wrong or is no SELECT, or there is no warehouse.
            WarehouseError: A file is damaged.
        """
        frame: pd.DataFrame = self._ask(sql, lambda relation: relation.df())
        return frame

    def _ask(
        self, sql: str, read: Callable[[duckdb.DuckDBPyRelation], Answer], attempts: int = 3
    ) -> Answer:
        if not (self.warehouse / "records" / _EMPTY).is_dir():
            raise InputError(
                str(self.warehouse), "is not a warehouse", "run shockwave simulate first"
            )
        try:
            with contextlib.closing(duckdb.connect()) as connection:
                create_views(connection, self.warehouse)
                _seal(connection, self.warehouse)
                connection.sql("FROM query($1)", params=[sql])  # binds nothing but one pure SELECT
                return read(connection.sql(sql))
        except duckdb.Error as error:
            if isinstance(error, duckdb.IOException) and attempts > 1:
                return self._ask(sql, read, attempts - 1)  # a run was compacted meanwhile
            if not isinstance(error, _MISTAKES):
                _check_files(self.warehouse)
            raise InputError(
                "query", _first_line(error), f"give one SELECT over {', '.join(VIEWS)}"
            ) from None


def build(warehouse: Path) -> None:
    """Make a warehouse ready: its folders, the empty partition, `analytics.duckdb`.

    The database is replaced by renaming a new one over it, and only when the views
    changed, so that an analyst's open session goes on undisturbed.

    Raises:
        WarehouseError: The folder cannot be written.
    """
    with _writing(warehouse):
        empty = warehouse / "records" / _EMPTY
        empty.mkdir(parents=True, exist_ok=True)
        for name, schema in (("header", _HEADER), ("round=_", _ROUND)):
            if not (empty / f"{name}.parquet").exists():
                _write(empty / f"{name}.parquet", schema.empty_table())
        stamp = warehouse / ".views"
        digest = _views_digest(warehouse)
        database = warehouse / "analytics.duckdb"
        log = warehouse / "analytics.duckdb.wal"
        if database.exists() and stamp.exists() and stamp.read_text() == digest:
            return
        fresh = _temporary(database)
        try:
            with contextlib.closing(duckdb.connect(str(fresh))) as connection:
                create_views(connection, warehouse)
        except duckdb.Error as error:
            fresh.unlink(missing_ok=True)
            _check_files(warehouse)
            raise WarehouseError(
                str(database),
                f"cannot be built ({_first_line(error)})",
                "choose a writable --warehouse with room on its disk",
            ) from None
        log.unlink(missing_ok=True)  # what an analyst's open session wrote belongs to the old one
        fresh.replace(database)
        stamp.write_text(digest)


def view_sql(name: str) -> str:
    """The query of a view, as stored beside this module."""
    return (Path(__file__).parent / "views" / f"{name}.sql").read_text(encoding="utf-8")


def create_views(connection: duckdb.DuckDBPyConnection, warehouse: Path) -> None:
    """Create all views over a warehouse's Parquet files."""
    records = _quoted(glob.escape(str((warehouse / "records").resolve())))
    connection.execute("SET enable_progress_bar = false")
    for name in VIEWS:
        sql = view_sql(name).replace("{records}", records)
        connection.execute(f"CREATE OR REPLACE VIEW {name} AS {sql}")


def _seal(connection: duckdb.DuckDBPyConnection, warehouse: Path) -> None:
    """Let a connection read the records and nothing else: no other file, no network."""
    records = str((warehouse / "records").resolve())
    # Patterns are held against the list as they are written.
    allowed = ", ".join(f"'{_quoted(form)}'" for form in (records, glob.escape(records)))
    connection.execute(f"SET allowed_directories = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _quoted(text: str) -> str:
    return text.replace("'", "''")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def _check_files(warehouse: Path) -> None:
    """Name the first damaged file, if there is one."""
    for name, schema in (("header", _HEADER), ("round=*", _ROUND)):
        for path in sorted((warehouse / "records").glob(f"run=*/{name}.parquet")):
            try:
                _table(path, schema)
            except WarehouseError:
                if path.exists():  # else it was compacted meanwhile
                    raise


def _views_digest(warehouse: Path) -> str:
    text = str(warehouse.resolve()) + duckdb.__version__ + "".join(map(view_sql, VIEWS))
    return hashlib.sha256(text.encode()).hexdigest()


def _temporary(path: Path) -> Path:
    """A name beside a file that no pattern of the views matches."""
    return path.with_name(f".{path.name}.{uuid4().hex}")


def _write(path: Path, table: pa.Table) -> None:
    temporary = _temporary(path)
    with temporary.open("wb") as file:
        pq.write_table(table, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)  # the new name must outlive a power cut too
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read(path: Path, schema: pa.Schema) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _table(path, schema).to_pylist()
    return rows


def _table(path: Path, schema: pa.Schema) -> pa.Table:
    try:
        return pq.read_table(path, schema=schema, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise WarehouseError(
            str(path), f"cannot be read ({_first_line(error)})", "restore it from a backup"
        ) from None


def _lock(path: Path, run: str) -> int:
    """Hold a run for this process; the lock goes with the process, however it ends."""
    import fcntl

    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise WarehouseError(
            f"run {run!r}", "is being written by another process", "wait for it or stop it"
        ) from None
    return handle


@contextlib.contextmanager
def _writing(warehouse: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WarehouseError(
            str(error.filename or warehouse),
            f"cannot be written ({error.strerror or error})",
            "choose a writable --warehouse with room on its disk",
        ) from None
