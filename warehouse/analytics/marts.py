"""Copies of marts of ended runs, and of staging views of closed parts of other runs.

Copies keep queries fast on large warehouses and long runs.
"""

import contextlib
import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import duckdb
import orjson

from predictor.errors import ShockwaveError, WarehouseError, first_line, remedy_of
from warehouse.analytics.catalog import build, create_views
from warehouse.analytics.copies import (
    CURRENT,
    Copies,
    Part,
    Stamp,
    marts_folder,
    read_copies,
    stamp,
    stamps,
)
from warehouse.analytics.definitions import (
    MARTS,
    OF_ROUNDS,
    OF_SERVICES,
    STAGING,
    definitions_digest,
    view_sql,
)
from warehouse.analytics.limits import SPILL, too_little_memory
from warehouse.analytics.sources import quote_all, services
from warehouse.analytics.verifying import verify_records
from warehouse.store.checks import check_files, check_runs
from warehouse.store.checksums import checksum, hash_contents
from warehouse.store.creation import make_folder
from warehouse.store.durable import hold_lock, temporary_name, write_file, writing
from warehouse.store.folder import name_of, place_of, run_folders
from warehouse.store.ledger import enter, folder_name, read_ledger
from warehouse.store.parts import closed_parts

Database = Callable[[Path], duckdb.DuckDBPyConnection]
"""Opens an in-memory database that spills into a folder."""

LOCK = ".lock"
"""Lock file of the process that writes copies."""

READ_ONCE = ("headers", "inventories", "records", "round_facts", "jobs", "events")
"""Views that nearly all marts read: computed once per batch of small runs."""

FLAT = tuple(view for view in STAGING if view not in ("records", "bids", "campaign_cells"))
"""Views that marts read: computed once for a large run, whose nested records are too large for a
table."""

BATCH_BYTES = 2**24
"""Largest records, in bytes, of runs that are copied together. An engineering bound; no sweep is
recorded."""

BATCH_RUNS = 256
"""Most runs copied together. An engineering bound; no sweep is recorded."""

NEW_RUNS = 8
"""Most ended runs that stay without copies. Queries of a thousand runs then take about a second
(`benchmarks/many_runs.py`). An engineering bound; no sweep is recorded."""

NEW_BYTES = 2**22
"""Largest records, in bytes, of ended runs that stay without copies. From here on, the figures of a
run take longer to compute than to read (`benchmarks/scale.py`). An engineering bound.
"""

SPILL_SECONDS = 86400.0
"""Age in seconds after which spilled data is deleted. An engineering bound; no sweep is recorded.
"""


def materialise(
    warehouse: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
    memory_mib: int | None = None,
) -> int:
    """Copy marts of ended runs and closed parts of others; return the number of runs with copies.

    Writes a new generation of copies, keeps the previous one for open sessions, and rebuilds
    `analytics.duckdb`. Waits while another process does the same. `progress` is called with the
    number of copied files (ended runs, closed parts), and of all. `memory_mib` is as in
    `QueryLimits`.

    Raises:
        InputError: The memory is too little.
        WarehouseError: A file is damaged, or the folder cannot be written.
    """
    check_runs(warehouse)
    folder = marts_folder(warehouse)
    with writing(warehouse):
        make_folder(warehouse)
        folder.mkdir(parents=True, exist_ok=True)
    with hold_lock(folder / LOCK):
        return _materialise(warehouse, folder, progress, memory_mib)


def keep_fast(
    warehouse: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
    memory_mib: int | None = None,
) -> None:
    """Copy the marts of ended runs and closed parts if many or large ones have no copies.

    Everything that ends or adds runs calls this, so that queries compute few marts themselves. Does
    nothing if the warehouse is not writable or the memory (`materialise`) too little.
    """
    copies = read_copies(warehouse)
    copied = {*copies.runs}
    new = [path for path in run_folders(warehouse) if name_of(path) not in copied]
    parts = ((name_of(path), part) for path in new for part in closed_parts(path))
    ended = [state for path in new if (state := stamp(warehouse, name_of(path)))]
    size = sum(size for size, *_ in ended)
    if len(ended) > NEW_RUNS or size > NEW_BYTES or {*parts} - {*copies.parts}:
        with contextlib.suppress(ShockwaveError):
            materialise(warehouse, progress, memory_mib)


def _materialise(
    warehouse: Path,
    folder: Path,
    progress: Callable[[int, int], None],
    memory_mib: int | None,
) -> int:
    with writing(warehouse):
        before = _whole(warehouse, read_copies(warehouse))
        ended, closed = _ended(warehouse), _closed(warehouse)
        of_parts = {run for run, name in closed if (run, name) not in before.parts}
        verify_records(warehouse.resolve(), (ended.keys() - {*before.runs}) | of_parts)
        for left_over in folder.glob(".*"):
            if left_over.is_dir():
                shutil.rmtree(left_over)
            elif left_over.name != LOCK:
                left_over.unlink()
        for spilled in warehouse.glob(f"{SPILL}*"):  # of queries that were killed
            with contextlib.suppress(FileNotFoundError):  # its query just ended
                if time.time() - spilled.stat().st_mtime > SPILL_SECONDS:
                    shutil.rmtree(spilled, ignore_errors=True)
        fresh = temporary_name(folder / "marts")
        files = len(ended) + len(closed)
        database = partial(_database, memory_mib=memory_mib)
        try:
            found = _copy(
                warehouse, fresh, before, ended, lambda n, _: progress(n, files), database
            )
            parts = _copy_parts(
                warehouse, before, closed, lambda n: progress(len(ended) + n, files), database
            )
        except duckdb.OutOfMemoryException as error:
            shutil.rmtree(fresh, ignore_errors=True)
            raise too_little_memory(error) from None
        except duckdb.Error as error:
            shutil.rmtree(fresh, ignore_errors=True)
            check_files(warehouse)
            problem = f"cannot be written ({first_line(error)})"
            remedy = remedy_of(error, "choose a writable warehouse with room on its disk")
            raise WarehouseError(str(folder), problem, remedy) from None
        place = folder / _generation(found)
        if place == before.folder:
            shutil.rmtree(fresh, ignore_errors=True)
            checksums = before.checksums
        else:
            checksums = _place(fresh, place)
        note = {
            "generation": place.name,
            "views": definitions_digest(),
            "stamps": found,
            "marts": checksums,
            "parts": _noted(parts),
        }
        content = orjson.dumps(note)
        copied = {f"{place.name}/{mart}.parquet": digest for mart, digest in checksums.items()}
        for key in parts.keys() - before.parts.keys():
            new = parts[key]
            copied |= {f"{new.folder.name}/{v}.parquet": d for v, d in new.checksums.items()}
        # Write the note last: if this process is killed, the next one starts over.
        enter(warehouse, folder, copied | hash_contents({CURRENT: content}))
        with write_file(folder / CURRENT) as file:
            file.write(content)
        used = {part.folder for part in (*parts.values(), *before.parts.values())}
        for old in folder.iterdir():
            if old.is_dir() and old not in (place, before.folder, *used):
                shutil.rmtree(old)
    build(warehouse)
    return len(found)


def _place(fresh: Path, place: Path) -> dict[str, str]:
    """Rename a new folder of copies to its final name; return each file's checksum by its stem."""
    if place.exists():  # with copies missing, or left by a killed process
        shutil.rmtree(place)
    fresh.replace(place)
    return {path.stem: checksum(path) for path in sorted(place.glob("*.parquet"))}


def _generation(of: Mapping[str, Stamp]) -> str:
    state = orjson.dumps([definitions_digest(), of], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(state).hexdigest()[:12]


def _whole(warehouse: Path, copies: Copies) -> Copies:
    """Return the copies, or none if a file's checksum differs from the ledger."""
    if not copies.checksums and not copies.parts:
        return copies
    folder = marts_folder(warehouse)
    entered = read_ledger(warehouse).folders.get(folder_name(warehouse, folder), {})
    names = [CURRENT, *(f"{copies.folder.name}/{mart}.parquet" for mart in copies.checksums)]
    for part in copies.parts.values():
        names += [f"{part.folder.name}/{view}.parquet" for view in part.checksums]
    whole = all(checksum(folder / name) == entered.get(name) for name in names)
    return copies if whole else Copies(folder)


def _ended(warehouse: Path) -> dict[str, Stamp]:
    """Return the runs stored as a single file, with their stamps."""
    found = {}
    for path in run_folders(warehouse):
        state = stamp(warehouse, name_of(path))
        if state is not None and not next(path.glob("round=[0-9]*.parquet"), None):
            found[name_of(path)] = state
    return found


def _closed(warehouse: Path) -> dict[tuple[str, str], Stamp]:
    """Return the closed parts of runs that have not ended, with their stamps."""
    return {
        (name_of(path), name): state
        for path in run_folders(warehouse)
        for name, state in stamps(warehouse, name_of(path), closed_parts(path)).items()
    }


def _copy_parts(
    warehouse: Path,
    before: Copies,
    closed: Mapping[tuple[str, str], Stamp],
    progress: Callable[[int], None],
    database: Database,
) -> dict[tuple[str, str], Part]:
    """Copy the parts without copies; return all parts with copies."""
    found = {key: before.parts[key] for key in closed if key in before.parts}
    for (run, name), state in closed.items():
        if (run, name) in found:
            continue
        progress(len(found))
        fresh = temporary_name(marts_folder(warehouse) / "part")
        (fresh / "parts").mkdir(parents=True)
        _copy_part(warehouse, run, name, fresh, database)
        shutil.rmtree(fresh / "parts")
        if stamps(warehouse, run, [name]) == {name: state}:
            place = fresh.parent / _generation({f"{run}/{name}": state})
            found[run, name] = Part(place, state, _place(fresh, place))
    return found


def _copy_part(warehouse: Path, run: str, name: str, folder: Path, database: Database) -> None:
    """Write the staging views of a part, unless its run has ended in the meantime."""
    views = [v for v in OF_ROUNDS if v not in OF_SERVICES or run in services(warehouse)]
    with contextlib.closing(database(folder)) as connection:
        names, none = ("records", *views), Copies(folder)
        try:
            of_part = partial(create_views, copies=none, files={run: [name]})
            of_part(connection, warehouse, [run], names, tables=("records",))
            for view in views:
                _write(connection, f"FROM {view} ORDER BY ALL", folder / f"{view}.parquet")
        except duckdb.IOException:
            if (place_of(warehouse, run) / name).exists():
                raise


def _noted(parts: Mapping[tuple[str, str], Part]) -> dict[str, dict[str, object]]:
    """Return the note on parts that `read_copies` reads."""
    found: dict[str, dict[str, object]] = {}
    for (run, name), part in parts.items():
        note = {"folder": part.folder.name, "stamp": part.stamp, "views": part.checksums}
        found.setdefault(run, {})[name] = note
    return found


def _copy(
    warehouse: Path,
    folder: Path,
    before: Copies,
    ended: dict[str, Stamp],
    progress: Callable[[int, int], None],
    database: Database,
) -> dict[str, Stamp]:
    """Write all copies into a new folder, if they changed; return the copied runs' stamps."""
    if _generation(ended) == before.folder.name:
        return ended
    parts = folder / "parts"
    parts.mkdir(parents=True)
    new = {run: state for run, state in ended.items() if run not in before.runs}
    copied = {*before.runs}
    for number, runs in enumerate(_batches(new)):
        progress(len(copied), len(ended))
        large = sum(new[run][0] for run in runs) > BATCH_BYTES
        copied |= _copy_runs(warehouse, runs, parts, number, database, large=large)
    written_of = {run: state for run, state in ended.items() if run in copied}
    written = {mart: sorted(parts.glob(f"{mart}.*")) for mart in MARTS}
    if not before.runs and len(written[MARTS[0]]) == 1:
        for mart, (whole,) in written.items():
            whole.replace(folder / f"{mart}.parquet")
    else:
        with contextlib.closing(database(folder)) as connection:
            for mart in MARTS:
                _join(connection, mart, before, written[mart], folder)
    shutil.rmtree(parts)
    return written_of


def _database(folder: Path, memory_mib: int | None) -> duckdb.DuckDBPyConnection:
    """Open an in-memory database that spills into a new folder of copies."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "temp_directory": str(folder / "parts" / "spill")
    }
    if memory_mib is not None:
        config["memory_limit"] = f"{memory_mib}MiB"
    return duckdb.connect(config=config)


def _batches(runs: Mapping[str, Stamp]) -> Iterator[list[str]]:
    """Group small runs: planning a mart takes longer than computing it for a few runs."""
    batch, size = list[str](), 0
    for run, state in runs.items():
        if batch and (size + state[0] > BATCH_BYTES or len(batch) == BATCH_RUNS):
            yield batch
            batch, size = [], 0
        batch.append(run)
        size += state[0]
    if batch:
        yield batch


def _copy_runs(
    warehouse: Path,
    runs: Sequence[str],
    parts: Path,
    number: int,
    database: Database,
    *,
    large: bool,
) -> set[str]:
    """Write the marts of the complete ones among these runs; return those runs."""
    with contextlib.closing(database(parts.parent)) as connection:

        def see(seen: Sequence[str]) -> None:
            views, none = (*STAGING, "runs"), Copies(parts)
            tables = FLAT if large else READ_ONCE
            create_views(connection, warehouse, seen, views, always=tables, copies=none)

        see(runs)
        complete = connection.sql("SELECT run FROM runs WHERE complete ORDER BY run").fetchall()
        found = [run for (run,) in complete]
        if not found:
            return set()
        if len(found) < len(runs):
            see(found)
        for mart in MARTS:
            part = parts / f"{mart}.{number:06d}.parquet"
            _write(connection, f"FROM ({view_sql(mart)}) ORDER BY ALL", part)
            # Later marts read this copy.
            connection.execute(f"CREATE OR REPLACE VIEW {mart} AS FROM {quote_all([str(part)])}")
    return {*found}


def _join(
    connection: duckdb.DuckDBPyConnection,
    mart: str,
    old: Copies,
    parts: Sequence[Path],
    folder: Path,
) -> None:
    """Merge old copies of a mart with new copies of other runs into one file."""
    sources = []
    if old.runs:
        copied = quote_all([str(old.file(mart))])
        sources.append(f"FROM read_parquet({copied}) WHERE run IN ({quote_all(old.runs)})")
    if parts:
        sources.append(f"FROM read_parquet([{quote_all(list(map(str, parts)))}])")
    if sources:
        _write(connection, " UNION ALL BY NAME ".join(sources), folder / f"{mart}.parquet")


def _write(connection: duckdb.DuckDBPyConnection, sql: str, path: Path) -> None:
    connection.execute(
        f"COPY ({sql}) TO {quote_all([str(path)])} (FORMAT parquet, COMPRESSION zstd)"
    )
