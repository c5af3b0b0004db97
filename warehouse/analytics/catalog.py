"""The views over a warehouse's Parquet files, and the database file that holds them."""

import contextlib
import glob
import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

import duckdb

from predictor.errors import WarehouseError, first_line, remedy_of
from warehouse.analytics.copies import Copies, read_copies
from warehouse.analytics.definitions import (
    MARTS,
    STAGING,
    VIEWS,
    definitions_digest,
    layout5_sql,
    named,
    view_sql,
)
from warehouse.store.checksums import CHECKSUMS, checksum, noted
from warehouse.store.durable import alone, regular, temporary_name, writing
from warehouse.store.folder import (
    EMPTY,
    WHOLE,
    WORKLOAD_FILE,
    check_files,
    earlier,
    make_folder,
    name_of,
    no_cells,
    place_of,
    present,
    roots,
    round_of,
    run_folders,
)
from warehouse.store.verified import verify

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
    return there and regular(stamp).read_text() == _views_digest(warehouse)


def _build(warehouse: Path) -> None:
    from warehouse.store.ledger import enter

    database, stamp = warehouse / DATABASE, warehouse / STAMP
    digest = _views_digest(warehouse)
    fresh = temporary_name(database)
    try:
        # DuckDB takes a "?" in the path of a database that it writes for the end of its name.
        with TemporaryDirectory() as elsewhere:
            made = Path(elsewhere) / DATABASE
            with contextlib.closing(duckdb.connect(str(made))) as connection:
                create_views(connection, warehouse, later=True)
            copyfile(made, fresh)
    except duckdb.Error as error:
        check_files(warehouse)
        raise WarehouseError(
            str(database),
            f"cannot be built ({first_line(error)})",
            remedy_of(error, "choose a writable warehouse with room on its disk"),
        ) from None
    log = warehouse / f"{DATABASE}.wal"
    log.unlink(missing_ok=True)  # writes of an open session belong to the previous database
    fresh.replace(database)
    stamp.write_text(digest)
    enter(warehouse, warehouse, {path.name: checksum(path) for path in (database, stamp)})


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
        tables: Marts to compute into tables of the database, if the records are small.
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
        _create(connection, "main", names, lambda name: _over(warehouse, name, runs, ()), tables)
        return
    live = later or bool(others)
    if live:
        connection.execute("CREATE SCHEMA IF NOT EXISTS live; USE live")
        _create(
            connection, "live", names, lambda name: _over(warehouse, name, runs, copied), tables
        )
        connection.execute("USE main")

    def joined(name: str) -> str:
        if name == "records":
            # A compacted run has no duplicate rounds; removing them takes most of the time.
            stored = f"FROM {_stored(warehouse, 'rounds', WHOLE, copied, ())}"
        elif name in STAGING:
            return _over(warehouse, name, runs, ())
        else:
            stored = f"FROM read_parquet({listed([str(copies.file(name))])})"
            if copied != copies.written:
                stored += f" WHERE run IN ({listed(copied)})"
        return f"{stored} UNION ALL BY NAME FROM live.{name}" if live else stored

    _create(connection, "main", names, joined)


def verify_read(warehouse: Path, runs: Sequence[str] | None, sql: str, copies: Copies) -> None:
    """Verify the files that a query over the views reads, as far as they have checksums.

    Args:
        warehouse: The folder.
        runs: The runs in the views; all by default.
        sql: The query.
        copies: The copies in use.

    Raises:
        WarehouseError: A file was changed; it is named.
    """
    names, folder = named(sql) - {"campaign_cells"}, warehouse.resolve()
    copied = _copied(copies, runs)
    if copied:
        marts = {copies.file(name): copies.checksums[name] for name in MARTS if name in names}
        verify(folder, marts, "make the copies anew with: shockwave views")
    read = _others(warehouse, runs, copied)
    if names.intersection(STAGING):
        read |= {*copied}
    if names:
        verify_records(folder, read)


def verify_records(warehouse: Path, runs: Iterable[str]) -> None:
    """Verify the files of runs, as far as they have checksums.

    Raises:
        WarehouseError: A file was changed or added; it is named.
    """
    folders = [place_of(warehouse, run) for run in sorted(runs)]
    folders += [root / EMPTY for root in roots(warehouse)]
    stored: dict[Path, str] = {}
    for folder in folders:
        there = sorted(path.name for path in folder.glob("*.parquet"))
        sums = noted(folder)
        if sums is None:
            continue
        stored |= {folder / name: digest for name, digest in sums.items()}
        for name in there:
            added = name not in sums and name not in _not_yet_noted(folder, there)
            if added and (folder / name).exists():  # else compacted in the meantime
                problem = f"is not in {CHECKSUMS}: it is none of the files that were written"
                remedy = "move it elsewhere; shockwave audit says more"
                raise WarehouseError(str(folder / name), problem, remedy)
    verify(warehouse, stored, "restore it from a backup; shockwave audit says more")


def _not_yet_noted(folder: Path, names: Sequence[str]) -> Sequence[str]:
    """Files of a run that may have been written just now, and their checksums not yet.

    Args:
        folder: The run's folder.
        names: The files in it, in the order of their names.
    """
    if folder.name == EMPTY:
        return ("header.parquet", "round=_.parquet", WORKLOAD_FILE)
    parts = [name for name in names if round_of(Path(name)) is not None]
    if WHOLE in names:
        return [WHOLE] if parts else []
    return parts[-1:] or ["header.parquet"]


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


def _over(warehouse: Path, name: str, runs: Sequence[str] | None, without: Sequence[str]) -> str:
    """A view's query over the files of runs."""
    cells = listed([f"{glob.escape(str(warehouse.resolve()))}/campaigns/*/cells.parquet"])
    sql = view_sql(name).replace(
        "{cells}",
        f"read_parquet({cells}, union_by_name = true, hive_partitioning = false)",
    )
    for place, pattern, copied in (
        ("rounds", "round=*.parquet", WHOLE),
        ("headers", "header.parquet", "header.parquet"),
        ("workloads", WORKLOAD_FILE, WORKLOAD_FILE),
    ):
        if f"{{{place}}}" in sql:
            left_out = [(run, copied) for run in without]
            sql = sql.replace(f"{{{place}}}", _stored(warehouse, place, pattern, runs, left_out))
    return sql


def _stored(
    warehouse: Path,
    place: str,
    pattern: str,
    runs: Sequence[str] | None,
    without: Sequence[tuple[str, str]],
) -> str:
    """A query of the stored rows of runs, of all layouts, in the columns of the current layout.

    Args:
        warehouse: The folder.
        place: `headers`, `workloads` or `rounds`.
        pattern: Pattern of the files in a run's folder.
        runs: The runs in the views; all by default.
        without: Files left out, each with its run.
    """
    seen = _runs_before(warehouse)
    new = None if runs is None else [run for run in runs if run not in chain(*seen.values())]
    # Views have arrivals as job ids: the declarations are in the workload.
    columns = "* REPLACE (list_transform(arrivals, lambda s: s.job_id) AS arrivals)"
    since_6 = f"SELECT {columns if place == 'rounds' else '*'} FROM {{stored}}"
    parts = []
    # Nothing of its own is there as long as this version has not written to an old warehouse.
    if (present(warehouse) / EMPTY).is_dir() or not any(seen.values()):
        parts.append((since_6, _files(present(warehouse), pattern, new, without)))
    for root, stored in seen.items():
        before = [run for run in stored if runs is None or run in runs]
        if not before:
            continue
        if root != earlier(warehouse):
            parts.append((since_6, _files(root, pattern, before, without)))
            continue
        old_pattern = "header.parquet" if place == "workloads" else pattern
        left_out = [(run, old_pattern if name == WORKLOAD_FILE else name) for run, name in without]
        parts.append((layout5_sql(place), _files(root, old_pattern, before, left_out)))
    return f"({' UNION ALL BY NAME '.join(sql.replace('{stored}', part) for sql, part in parts)})"


def _runs_before(warehouse: Path) -> dict[Path, list[str]]:
    """The runs with records of layouts before the present one, by the folder that holds them."""
    found: dict[Path, list[str]] = {root: [] for root in roots(warehouse)[:-1]}
    for path in run_folders(warehouse):
        if path.parent in found:
            found[path.parent].append(name_of(path))
    return found


def _files(
    folder: Path, pattern: str, runs: Sequence[str] | None, without: Sequence[tuple[str, str]]
) -> str:
    """The Parquet files of runs; the empty file first, as later layouts have more columns."""
    root = folder.resolve()
    form = glob.escape(str(root))
    names = ["run=*"] if runs is None else [EMPTY, *(f"run={glob.escape(run)}" for run in runs)]
    if runs is not None and pattern == WHOLE:
        paths = [f"{form}/{EMPTY}/round=_.parquet", *(f"{form}/{n}/{WHOLE}" for n in names[1:])]
    else:
        paths = [f"{form}/{name}/{pattern}" for name in names]
    if not without:
        return f"read_parquet([{listed(paths)}], hive_partitioning = false)"
    # DuckDB does not open files that are left out by name. (With Hive partitioning, DuckDB 2.0
    # loses rows: it confuses the path's column `run` with the file's.)
    others = listed([f"{root}/run={run}/{name}" for run, name in without])
    return (
        f"(SELECT * EXCLUDE (filename) FROM read_parquet([{listed(paths)}], "
        f"hive_partitioning = false, filename = true) WHERE filename NOT IN ({others}))"
    )


def listed(texts: Sequence[str]) -> str:
    """Texts as SQL literals, separated by commas."""
    return ", ".join(f"'{_quoted(text)}'" for text in texts)


def seal(connection: duckdb.DuckDBPyConnection, warehouse: Path) -> None:
    """Restrict a connection to the files that the views read: no other file, no network."""
    folders = [str(warehouse.resolve() / name) for name in ("records", "campaigns", "marts")]
    # DuckDB compares patterns with the list literally.
    allowed = listed([form for folder in folders for form in (folder, glob.escape(folder))])
    connection.execute(f"SET allowed_directories = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _quoted(text: str) -> str:
    return text.replace("'", "''")


def _views_digest(warehouse: Path) -> str:
    copies = read_copies(warehouse)
    seen = (definitions_digest(), copies.folder.name, copies.runs, _runs_before(warehouse))
    return hashlib.sha256(repr((warehouse.resolve(), *seen)).encode()).hexdigest()
