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
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from predictor.errors import InputError, WarehouseError
from warehouse.codec import arrow_schema, from_row, to_row
from warehouse.record import Package, RoundRecord, RunHeader, Timings, record_hash

if TYPE_CHECKING:
    import pandas as pd  # costs a second to import

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
        """Put the rounds of an ended run into one file."""
        parts = sorted(self._folder.glob("round=[0-9]*.parquet"))
        whole = self._folder / "round=all.parquet"
        with _writing(self._warehouse):
            if not whole.exists():  # else a crash came between writing it and the clean-up
                _write(whole, pa.concat_tables([_table(part, _ROUND) for part in parts]))
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
        folder = self._folder(run)
        rows = {
            row["round"]: row
            for path in sorted(folder.glob("round=*.parquet"))
            for row in _read(path, _ROUND)
        }
        if sorted(rows) != list(range(len(rows))):
            missing = min(set(range(len(rows))) - set(rows))
            raise WarehouseError(
                f"{folder}", f"round {missing} is missing", "restore it from a backup"
            )
        return [(from_row(RoundRecord, rows[n]), rows[n]["hash"]) for n in range(len(rows))]

    def query(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run SQL over the views, in memory: it locks nothing and blocks nobody.

        Returns:
            Column names and rows.

        Raises:
            InputError: The query is wrong, or there is no warehouse.
        """
        with self._relation(sql) as relation:
            return relation.columns, relation.fetchall()

    def frame(self, sql: str) -> "pd.DataFrame":
        """As `query`, but as a pandas data frame.

        Raises:
            InputError: The query is wrong, or there is no warehouse.
        """
        with self._relation(sql) as relation:
            frame: pd.DataFrame = relation.df()
            return frame

    @contextlib.contextmanager
    def _relation(self, sql: str) -> Iterator[duckdb.DuckDBPyRelation]:
        if not (self.warehouse / "records" / _EMPTY).is_dir():
            raise InputError(
                str(self.warehouse), "is not a warehouse", "run shockwave simulate first"
            )
        with contextlib.closing(duckdb.connect()) as connection:
            try:
                create_views(connection, self.warehouse)
                relation = connection.sql(sql)
                if relation is None:
                    raise InputError("query", "returns nothing", "give a SELECT")
                yield relation
            except duckdb.Error as error:
                message = str(error).splitlines()[0]
                raise InputError("query", message, f"the views are {', '.join(VIEWS)}") from None


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
        if database.exists() and stamp.exists() and stamp.read_text() == digest:
            return
        fresh = warehouse / f".analytics.{os.getpid()}.duckdb"
        with contextlib.closing(duckdb.connect(str(fresh))) as connection:
            create_views(connection, warehouse)
        fresh.replace(database)
        stamp.write_text(digest)


def view_sql(name: str) -> str:
    """The query of a view, as stored beside this module."""
    return (Path(__file__).parent / "views" / f"{name}.sql").read_text(encoding="utf-8")


def create_views(connection: duckdb.DuckDBPyConnection, warehouse: Path) -> None:
    """Create all views over a warehouse's Parquet files."""
    records = str((warehouse / "records").resolve()).replace("'", "''")
    connection.execute("SET enable_progress_bar = false")
    for name in VIEWS:
        sql = view_sql(name).replace("{records}", records)
        connection.execute(f"CREATE OR REPLACE VIEW {name} AS {sql}")


def _views_digest(warehouse: Path) -> str:
    text = str(warehouse.resolve()) + duckdb.__version__ + "".join(map(view_sql, VIEWS))
    return hashlib.sha256(text.encode()).hexdigest()


def _write(path: Path, table: pa.Table) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        pq.write_table(table, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _read(path: Path, schema: pa.Schema) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _table(path, schema).to_pylist()
    return rows


def _table(path: Path, schema: pa.Schema) -> pa.Table:
    try:
        return pq.read_table(path, schema=schema, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise WarehouseError(
            str(path), f"cannot be read ({str(error).splitlines()[0]})", "restore it from a backup"
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
