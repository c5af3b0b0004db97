"""The views over a warehouse's Parquet files, and the database file that holds them."""

import contextlib
import glob
import hashlib
from collections.abc import Callable, Collection, Sequence
from functools import cache
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from threading import Lock

import duckdb

from predictor.errors import WarehouseError, first_line, remedy_of
from warehouse.analytics.copies import Copies, read_copies
from warehouse.analytics.definitions import (
    MARTS,
    OF_ROUNDS,
    STAGING,
    VIEWS,
    definitions_digest,
    find_needed,
    find_read_among,
    view_sql,
)
from warehouse.analytics.sources import (
    ROUNDS,
    Files,
    commands_of,
    files_now,
    quote_all,
    services,
    stored_rows,
)
from warehouse.store.checks import check_files
from warehouse.store.checksums import checksum, hash_contents
from warehouse.store.creation import make_folder
from warehouse.store.durable import check_regular, hold_lock, temporary_name, writing
from warehouse.store.folder import WORKLOAD_FILE, name_of, place_of, run_folders
from warehouse.store.parts import WHOLE

DATABASE = "analytics.duckdb"
STAMP = ".views"
"""Name of the file with a digest of the database's views."""

TABLE_BYTES = 2**24
"""Largest records, in bytes, for which computing a whole mart is cheaper than planning it twice. An
engineering bound; no sweep is recorded."""

SMALL_BYTES = 2**20
"""Largest records, in bytes, for which computing all views of a query is cheaper than planning it
over views. An engineering bound; no sweep is recorded."""


def build(warehouse: Path) -> None:
    """Create or update a warehouse: its folders, the empty partitions, `analytics.duckdb`.

    The database is replaced only when the views changed, and by a rename, so that open sessions of
    analysts go on.

    Raises:
        WarehouseError: The folder cannot be written.
    """
    with writing(warehouse):
        make_folder(warehouse)
        if not _built(warehouse):
            with hold_lock(warehouse / ".views.lock"):
                if not _built(warehouse):
                    _build(warehouse)


def _built(warehouse: Path) -> bool:
    """Return whether the database exists and has the present views."""
    stamp = warehouse / STAMP
    there = (warehouse / DATABASE).exists() and stamp.exists()
    return there and check_regular(stamp).read_bytes() == _views_digest(warehouse).encode()


def _build(warehouse: Path) -> None:
    from warehouse.store.ledger import enter

    database, stamp = warehouse / DATABASE, warehouse / STAMP
    digest = _views_digest(warehouse)
    for left_over in warehouse.glob(f".{DATABASE}.*"):
        left_over.unlink()
    fresh = temporary_name(database)
    try:
        # DuckDB ends the path of a database that it writes at a "?", so write elsewhere and copy.
        with TemporaryDirectory() as elsewhere:
            made = Path(elsewhere) / DATABASE
            _make(made, warehouse)
            try:
                copyfile(made, fresh)
            except OSError as error:
                fresh.unlink(missing_ok=True)
                raise OSError(error.errno, error.strerror, str(database)) from None
    except duckdb.Error as error:
        check_files(warehouse)
        problem = f"cannot be built ({first_line(error)})"
        remedy = remedy_of(error, "choose a writable warehouse with room on its disk")
        raise WarehouseError(str(database), problem, remedy) from None
    stamped = digest.encode()
    # Write the stamp last: if this process is killed, the next one starts over.
    enter(
        warehouse,
        warehouse,
        {database.name: checksum(fresh)} | hash_contents({stamp.name: stamped}),
    )
    log = warehouse / f"{DATABASE}.wal"
    log.unlink(missing_ok=True)  # an open session writes to the previous database
    fresh.replace(database)
    stamp.write_bytes(stamped)


_making = Lock()


@cache
def _maker() -> duckdb.DuckDBPyConnection:
    """Return the connection that makes databases of views; DuckDB takes long to start."""
    return duckdb.connect()


def _make(database: Path, warehouse: Path) -> None:
    """Create a database of views over a warehouse's files."""
    path = str(database).replace("'", "''")
    try:
        with _making, contextlib.closing(_maker().cursor()) as connection:
            connection.execute(f"ATTACH '{path}' AS views; USE views")
            create_views(connection, warehouse, later=True)
            connection.execute("USE memory; DETACH views")
    except BaseException:
        _maker.cache_clear()  # the connection may still hold the database
        raise


def create_views(
    connection: duckdb.DuckDBPyConnection,
    warehouse: Path,
    runs: Sequence[str] | None = None,
    names: Sequence[str] = VIEWS,
    *,
    asked: Sequence[str] = (),
    later: bool = False,
    tables: Collection[str] = (),
    if_small: Collection[str] = (),
    always: Collection[str] = (),
    copies: Copies | None = None,
    files: Files | None = None,
) -> None:
    """Create views over a warehouse's Parquet files.

    Marts of ended runs read their copies (`analytics.marts`), in the schema `copied`, if there are
    any. The schema `live` has the marts of all other runs. Unless the views include later rounds,
    schemas ending in `recent` have staging views of the rounds that no copied part has.

    Args:
        connection: The database.
        warehouse: The folder.
        runs: The runs in the views, each with at least one round; by default all.
        names: The views, each with all that it reads; by default all.
        asked: The views needed where marts are copies; by default all.
        later: Whether the views include runs that begin later.
        tables: Views to compute into tables, unless the records are large.
        if_small: More views to compute if the records are small.
        always: More views to compute however large the records are.
        copies: The copies in use, if known.
        files: The files with rounds; by default those present.
    """
    connection.execute("SET enable_progress_bar = false")
    if not later:
        connection.execute("SET parquet_metadata_cache = true")  # views read files several times
    copies = copies or read_copies(warehouse)
    copied = find_copied(copies, runs)
    others = find_uncopied(warehouse, runs, copied)
    files = None if later else files or files_now(warehouse, others)
    if tables and files is not None:
        stored_bytes = _stored_bytes(warehouse, files)
        tables = tables if stored_bytes <= TABLE_BYTES else ()
        if stored_bytes <= SMALL_BYTES:
            tables = {*tables, *if_small}
            connection.execute("SET threads = 1")  # more cost time on so little data
    tables = {*tables, *always}

    def over(name: str, files: Files | None) -> str:
        return _over(warehouse, name, runs, copied, files)

    if not copied:
        _create_staged(connection, "main", names, over, files, copies, tables)
        return
    connection.execute("CREATE SCHEMA IF NOT EXISTS copied")
    for name in MARTS if later else [name for name in asked or names if name in MARTS]:
        stored = f"FROM read_parquet({quote_all([str(copies.file(name))])})"
        if copied != copies.written:
            stored += f" WHERE run IN ({quote_all(copied)})"
        connection.execute(f"CREATE OR REPLACE VIEW copied.{name} AS {stored}")
    live = later or bool(others)
    if live:
        connection.execute("CREATE SCHEMA IF NOT EXISTS live; USE live")
        marts = tuple(name for name in asked if name in MARTS)
        read = find_needed(marts) if marts else () if asked else names
        _create_staged(connection, "live", read, over, files, copies, tables)
        connection.execute("USE main")

    def joined(name: str, files: Files | None) -> str:
        if name == "records":
            # A compacted run has no duplicate rounds, and removing them takes most of the time.
            stored = f"FROM {stored_rows(warehouse, 'rounds', WHOLE, copied, (), files)}"
            return f"{stored} UNION ALL BY NAME FROM ({over(name, files)})" if live else stored
        if name in STAGING:
            return _over(warehouse, name, runs, (), files)
        return f"FROM copied.{name}{f' UNION ALL BY NAME FROM live.{name}' if live else ''}"

    _create_staged(connection, "main", asked or names, joined, files, copies)


def are_all_copied(warehouse: Path, runs: Sequence[str] | None, copies: Copies) -> bool:
    """Return whether all runs in the views have copies of their marts."""
    copied = find_copied(copies, runs)
    return bool(copied) and not find_uncopied(warehouse, runs, copied)


def find_copied(copies: Copies, runs: Sequence[str] | None) -> tuple[str, ...]:
    """Return the runs in the views that have copies."""
    return copies.runs if runs is None else tuple(sorted({*copies.runs} & {*runs}))


def find_uncopied(warehouse: Path, runs: Sequence[str] | None, copied: Sequence[str]) -> set[str]:
    """Return the runs in the views that have no copies."""
    if runs is None:
        runs = [name_of(path) for path in run_folders(warehouse)]
    return {*runs} - {*copied}


def _stored_bytes(warehouse: Path, files: Files) -> int:
    total = 0
    for run, names in files.items():
        for name in names:
            with contextlib.suppress(OSError):  # compacted in the meantime
                total += (place_of(warehouse, run) / name).stat().st_size
    return total


def _create_staged(
    connection: duckdb.DuckDBPyConnection,
    schema: str,
    names: Sequence[str],
    sql: Callable[[str, Files | None], str],
    files: Files | None,
    copies: Copies,
    tables: Collection[str] = (),
) -> None:
    """Create views; those of `OF_ROUNDS` read the copies of parts, if there are any.

    For rounds in other files, a schema named after this one has the same views.
    """
    parts = [] if files is None else copies.of_parts(files)
    if not parts:
        _create(connection, schema, names, lambda name: sql(name, files), tables)
        return
    assert files is not None
    recent, left = f"{schema}_recent", copies.without_parts(files)
    of_rounds = [name for name in names if name in OF_ROUNDS]
    connection.execute(f"CREATE SCHEMA {recent}; USE {recent}")
    _create(connection, recent, ["records", *of_rounds], lambda name: sql(name, left))
    connection.execute(f"USE {schema}")

    def joined(name: str) -> str:
        copied = [str(part.file(name)) for part in parts if name in part.checksums]
        if name not in of_rounds or not copied:
            return sql(name, files)
        return f"FROM {recent}.{name} UNION ALL BY NAME FROM read_parquet([{quote_all(copied)}])"

    _create(connection, schema, names, joined, tables)


def _create(
    connection: duckdb.DuckDBPyConnection,
    schema: str,
    names: Sequence[str],
    sql: Callable[[str], str],
    tables: Collection[str] = (),
) -> None:
    """Create views in a schema, in order of dependency; compute `tables` at once.

    DuckDB binds a new view with all that it reads, down to the files. If no view becomes a table,
    each view that others read first gets an empty temporary table of its name and columns. Binding
    stops there, which cuts the time to a third.
    """
    bound = () if tables else find_read_among(tuple(names))
    for name in names:
        kind = "TABLE" if name in tables else "VIEW"
        connection.execute(f"CREATE OR REPLACE {kind} {schema}.{name} AS {sql(name)}")
        if name in bound:
            connection.execute(f"CREATE TEMP TABLE {name} AS FROM {schema}.{name} LIMIT 0")
    for name in bound:
        connection.execute(f"DROP TABLE temp.{name}")


def _over(
    warehouse: Path,
    name: str,
    runs: Sequence[str] | None,
    without: Sequence[str],
    files: Files | None,
) -> str:
    """Return a view's query over the files of runs, without some; for `files` see `stored_rows`."""
    cells = quote_all([f"{glob.escape(str(warehouse.resolve()))}/campaigns/*/cells.parquet"])
    sql = view_sql(name).replace(
        "{cells}", f"read_parquet({cells}, union_by_name = true, hive_partitioning = false)"
    )
    for place, pattern, copied in (
        ("rounds", ROUNDS, WHOLE),
        ("headers", "header.parquet", "header.parquet"),
        ("workloads", WORKLOAD_FILE, WORKLOAD_FILE),
    ):
        if f"{{{place}}}" in sql:
            left_out = [(run, copied) for run in without]
            stored = stored_rows(warehouse, place, pattern, runs, left_out, files)
            if place == "rounds" and files is not None:
                return f"FROM {stored}"  # these files share no round
            sql = sql.replace(f"{{{place}}}", stored)
    if "{commands}" in sql:
        sql = sql.replace("{commands}", commands_of(warehouse, runs, without, files))
    return sql


def seal(connection: duckdb.DuckDBPyConnection, *warehouses: Path) -> None:
    """Restrict a connection to the files that the views read: no other file, no network."""
    names = ("records", "campaigns", "marts")
    folders = [str(folder.resolve() / name) for folder in warehouses for name in names]
    # DuckDB compares patterns with the list literally.
    allowed = quote_all([form for folder in folders for form in (folder, glob.escape(folder))])
    connection.execute(f"SET allowed_directories = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _views_digest(warehouse: Path) -> str:
    copies = read_copies(warehouse)
    seen = definitions_digest(), copies.folder.name, copies.runs, services(warehouse)
    return hashlib.sha256(repr((warehouse.resolve(), *seen)).encode()).hexdigest()
