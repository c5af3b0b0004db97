"""The views over a warehouse's Parquet files, and the database file that holds them."""

import contextlib
import glob
import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from threading import Event

import duckdb

from predictor.errors import WarehouseError, first_line, remedy_of
from warehouse.analytics.copies import Copies, read_copies
from warehouse.analytics.definitions import (
    MARTS,
    STAGING,
    VIEWS,
    definitions_digest,
    named,
    view_sql,
)
from warehouse.analytics.sources import (
    ROUNDS,
    commands_of,
    listed,
    runs_before,
    services,
    stored_rows,
)
from warehouse.store.checksums import CHECKSUMS, checksum, noted
from warehouse.store.durable import alone, regular, temporary_name, writing
from warehouse.store.folder import (
    EMPTY,
    MISPLACED,
    RESTORE,
    WHOLE,
    WORKLOAD_FILE,
    check_files,
    earlier,
    make_folder,
    name_of,
    no_cells,
    place_of,
    roots,
    run_folders,
    sums,
)
from warehouse.store.verified import Verification

DATABASE = "analytics.duckdb"
STAMP = ".views"
"""A digest of the views in the database."""

TABLE_BYTES = 2**24
"""Size of records up to which computing a whole mart is cheaper than planning it twice. An
engineering bound; no sweep is recorded."""


def build(warehouse: Path) -> None:
    """Create or update a warehouse: its folders, the empty partitions, `analytics.duckdb`.

    The database is replaced by renaming a new one over it, and only when the views
    changed, so that an analyst's open session goes on undisturbed.

    Raises:
        WarehouseError: The folder cannot be written.
    """
    with writing(warehouse):
        make_folder(warehouse)
        if not _built(warehouse):
            with alone(warehouse / ".views.lock"):
                if not _built(warehouse):
                    _build(warehouse)


def _built(warehouse: Path) -> bool:
    """Whether the database is there and has the present views."""
    stamp = warehouse / STAMP
    there = (warehouse / DATABASE).exists() and stamp.exists()
    return there and regular(stamp).read_bytes() == _views_digest(warehouse).encode()


def _build(warehouse: Path) -> None:
    from warehouse.store.ledger import enter

    database, stamp = warehouse / DATABASE, warehouse / STAMP
    digest = _views_digest(warehouse)
    for left_over in warehouse.glob(f".{DATABASE}.*"):
        left_over.unlink()
    fresh = temporary_name(database)
    try:
        # DuckDB takes a "?" in the path of a database that it writes for the end of its name.
        with TemporaryDirectory() as elsewhere:
            made = Path(elsewhere) / DATABASE
            with contextlib.closing(duckdb.connect(str(made))) as connection:
                create_views(connection, warehouse, later=True)
            try:
                copyfile(made, fresh)
            except OSError as error:
                fresh.unlink(missing_ok=True)
                raise OSError(error.errno, error.strerror, str(database)) from None
    except duckdb.Error as error:
        check_files(warehouse)
        raise WarehouseError(
            str(database),
            f"cannot be built ({first_line(error)})",
            remedy_of(error, "choose a writable warehouse with room on its disk"),
        ) from None
    stamped = digest.encode()
    # The stamp is written last, so that a killed process leaves all of this to the next.
    enter(warehouse, warehouse, {database.name: checksum(fresh)} | sums({stamp.name: stamped}))
    log = warehouse / f"{DATABASE}.wal"
    log.unlink(missing_ok=True)  # writes of an open session belong to the previous database
    fresh.replace(database)
    stamp.write_bytes(stamped)


def create_views(
    connection: duckdb.DuckDBPyConnection,
    warehouse: Path,
    runs: Sequence[str] | None = None,
    names: Sequence[str] = VIEWS,
    *,
    later: bool = False,
    tables: Collection[str] = (),
    copies: Copies | None = None,
) -> None:
    """Create views over a warehouse's Parquet files.

    Marts of ended runs are read from their copies (`analytics.marts`), where they exist. For the
    other runs the same views are in the schema `live`.

    Args:
        connection: The database.
        warehouse: The folder.
        runs: The runs in the views, each with at least a round; all by default.
        names: The views, each with those that it reads; all by default.
        later: Whether the views include runs that begin later.
        tables: Views to compute into tables of the database, if the records are small.
        copies: The copies in use, if they are known.
    """
    connection.execute("SET enable_progress_bar = false")
    if not no_cells(warehouse).exists():  # of a warehouse that this version has not written to
        names = [name for name in names if name != "campaign_cells"]
    copies = copies or read_copies(warehouse)
    copied = _copied(copies, runs)
    others = _others(warehouse, runs, copied)
    if tables and _stored_bytes(warehouse, others) > TABLE_BYTES:
        tables = ()
    if not copied:
        _create(
            connection, "main", names, lambda name: _over(warehouse, name, runs, (), later), tables
        )
        return
    live = later or bool(others)
    if live:
        connection.execute("CREATE SCHEMA IF NOT EXISTS live; USE live")
        _create(
            connection,
            "live",
            names,
            lambda name: _over(warehouse, name, runs, copied, later),
            tables,
        )
        connection.execute("USE main")

    def joined(name: str) -> str:
        if name == "records":
            # A compacted run has no duplicate rounds; removing them takes most of the time.
            stored = f"FROM {stored_rows(warehouse, 'rounds', WHOLE, copied, (), later)}"
        elif name in STAGING:
            return _over(warehouse, name, runs, (), later)
        else:
            stored = f"FROM read_parquet({listed([str(copies.file(name))])})"
            if copied != copies.written:
                stored += f" WHERE run IN ({listed(copied)})"
        return f"{stored} UNION ALL BY NAME FROM live.{name}" if live else stored

    _create(connection, "main", names, joined)


def verifying_read(
    warehouse: Path, runs: Sequence[str] | None, sql: str, copies: Copies, ended: Event
) -> Callable[[], None]:
    """Verify the files that a query over the views reads, as far as they have checksums.

    Args:
        warehouse: The folder.
        runs: The runs in the views; all by default.
        sql: The query.
        copies: The copies in use.
        ended: Set when nobody waits for it any more.

    Returns:
        What waits for the end of it, which goes on meanwhile.

    Raises:
        WarehouseError: A file was changed or added; it is named. What is returned raises it, too.
    """
    names, folder = named(sql) - {"campaign_cells"}, warehouse.resolve()
    copied = _copied(copies, runs)
    read, marts = _others(warehouse, runs, copied), dict[Path, str]()
    if copied:
        marts = {copies.file(name): copies.checksums[name] for name in MARTS if name in names}
    if names.intersection(STAGING):
        read |= {*copied}
    stored = _checksums(folder, read) if names else {}
    both = [
        Verification(folder, marts, "make the copies anew with: shockwave views", ended),
        Verification(folder, stored, f"{RESTORE}; shockwave audit says more", ended),
    ]
    return lambda: _finish(both)


def verify_records(warehouse: Path, runs: Iterable[str]) -> None:
    """Verify the files of runs, as far as they have checksums.

    Raises:
        WarehouseError: A file was changed or added; it is named.
    """
    stored = _checksums(warehouse, runs)
    _finish([Verification(warehouse, stored, f"{RESTORE}; shockwave audit says more")])


def _finish(begun: Iterable[Verification]) -> None:
    for verification in begun:
        verification.finish()
        _check_names(verification.fresh)
        verification.note()


def _check_names(verified: Iterable[Path]) -> None:
    """Refuse the folder of a run that was copied or renamed: its header has another name.

    Raises:
        WarehouseError: There is one.
    """
    headers = [path for path in verified if path.name == "header.parquet"]
    headers = [path for path in headers if path.parent.name != EMPTY]
    if not headers:
        return
    files = listed([glob.escape(str(path)) for path in headers])
    stored: list[tuple[str, str]] = []
    with contextlib.suppress(duckdb.Error), contextlib.closing(duckdb.connect()) as connection:
        connection.execute("SET enable_progress_bar = false")  # which would be on stdout
        rows = f"read_parquet([{files}], filename = true, hive_partitioning = false)"
        stored = connection.execute(f"SELECT filename, run FROM {rows}").fetchall()
    for name, run in stored:
        if name_of(Path(name).parent) != run:
            raise WarehouseError(name, f"is of run {run!r}", MISPLACED)


def _checksums(warehouse: Path, runs: Iterable[str]) -> dict[Path, str]:
    """The noted checksums of the files of runs, as far as they have any.

    Raises:
        WarehouseError: A file was added, or there are no checksums; it is named.
    """
    folders = [place_of(warehouse, run) for run in sorted(runs)]
    folders += [root / EMPTY for root in roots(warehouse)]
    stored: dict[Path, str] = {}
    for folder in folders:
        there = sorted(path.name for path in folder.glob("*.parquet"))
        sums = noted(folder)
        if sums is None:
            if there and folder.parent != earlier(warehouse):  # layout 3 had none
                raise WarehouseError(str(folder / CHECKSUMS), "is missing", RESTORE)
            continue
        stored |= {folder / name: digest for name, digest in sums.items()}
        for name in there:
            if name not in sums and (folder / name).exists():  # else compacted in the meantime
                problem = f"is not in {CHECKSUMS}: it is none of the files that were written"
                remedy = "move it elsewhere; shockwave audit says more"
                raise WarehouseError(str(folder / name), problem, remedy)
    return stored


def all_copied(warehouse: Path, runs: Sequence[str] | None, copies: Copies) -> bool:
    """Whether the marts of all runs in the views are read from copies."""
    copied = _copied(copies, runs)
    return bool(copied) and not _others(warehouse, runs, copied)


def _copied(copies: Copies, runs: Sequence[str] | None) -> tuple[str, ...]:
    """The runs in the views with copies."""
    return tuple(run for run in copies.runs if runs is None or run in runs)


def _others(warehouse: Path, runs: Sequence[str] | None, copied: Sequence[str]) -> set[str]:
    """The runs in the views without copies."""
    if runs is None:
        runs = [name_of(path) for path in run_folders(warehouse)]
    return {*runs} - {*copied}


def _stored_bytes(warehouse: Path, runs: Iterable[str]) -> int:
    """Size of the stored rounds of runs."""
    folders = (place_of(warehouse, run) for run in runs)
    total = 0
    for path in chain.from_iterable(folder.glob("round=*.parquet") for folder in folders):
        with contextlib.suppress(OSError):  # compacted in the meantime
            total += path.stat().st_size
    return total


def _create(
    connection: duckdb.DuckDBPyConnection,
    schema: str,
    names: Sequence[str],
    sql: Callable[[str], str],
    tables: Collection[str] = (),
) -> None:
    """Create views, each after those that it reads.

    DuckDB binds a new view with all that it reads, down to the files. Where there are all marts,
    each view has an empty temporary table of its name and columns until the others are there:
    binding ends at these, which takes a third of the time.
    """
    bound = () if tables or not {*MARTS} <= {*names} else names
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
    later: bool,
) -> str:
    """A view's query over the files of runs; for `later` see `create_views`."""
    cells = listed([f"{glob.escape(str(warehouse.resolve()))}/campaigns/*/cells.parquet"])
    sql = view_sql(name).replace(
        "{cells}",
        f"read_parquet({cells}, union_by_name = true, hive_partitioning = false)",
    )
    for place, pattern, copied in (
        ("rounds", ROUNDS, WHOLE),
        ("headers", "header.parquet", "header.parquet"),
        ("workloads", WORKLOAD_FILE, WORKLOAD_FILE),
    ):
        if f"{{{place}}}" in sql:
            left_out = [(run, copied) for run in without]
            stored = stored_rows(warehouse, place, pattern, runs, left_out, later)
            sql = sql.replace(f"{{{place}}}", stored)
    if "{commands}" in sql:
        sql = sql.replace("{commands}", commands_of(warehouse, runs, without))
    return sql


def seal(connection: duckdb.DuckDBPyConnection, warehouse: Path) -> None:
    """Restrict a connection to the files that the views read: no other file, no network."""
    folders = [str(warehouse.resolve() / name) for name in ("records", "campaigns", "marts")]
    # DuckDB compares patterns with the list literally.
    allowed = listed([form for folder in folders for form in (folder, glob.escape(folder))])
    connection.execute(f"SET allowed_directories = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _views_digest(warehouse: Path) -> str:
    copies = read_copies(warehouse)
    seen = (
        *(definitions_digest(), copies.folder.name, copies.runs),
        *(runs_before(warehouse), services(warehouse)),
    )
    return hashlib.sha256(repr((warehouse.resolve(), *seen)).encode()).hexdigest()
