"""The stored rows of runs, of all layouts, as SQL over their Parquet files."""

import glob
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from warehouse.analytics.definitions import layout5_sql, services_sql
from warehouse.store.folder import (
    EMPTY,
    RUN_NAME,
    SERVICE,
    WHOLE,
    WORKLOAD_FILE,
    earlier,
    name_of,
    place_of,
    present,
    roots,
    round_files,
    run_folders,
)

ROUNDS = "round=*.parquet"
"""Pattern of files with rounds, unless the files are listed."""

Files = Mapping[str, Sequence[str]]
"""Names of the files with the rounds of runs, each round in one of them alone."""

NO_COMMANDS = (
    "(SELECT '' AS run, 0::BIGINT AS round, '' AS hash, "
    "[{'number': 0::BIGINT}] AS commands WHERE false)"
)
"""Rounds of a warehouse without services."""


def stored_rows(
    warehouse: Path,
    place: str,
    pattern: str,
    runs: Sequence[str] | None,
    without: Sequence[tuple[str, str]],
    files: Files | None,
) -> str:
    """A query of the stored rows of runs, of all layouts, in the columns of the current layout.

    Args:
        warehouse: The folder.
        place: `headers`, `workloads` or `rounds`.
        pattern: Pattern of the files in a run's folder.
        runs: The runs in the views; all by default.
        without: Files left out, each with its run.
        files: The files with rounds; None if there may be others later.
    """
    seen = runs_before(warehouse)
    new = None if runs is None else [run for run in runs if run not in chain(*seen.values())]
    # Views have arrivals as job ids: the declarations are in the workload.
    columns = "* REPLACE (list_transform(arrivals, lambda s: s.job_id) AS arrivals)"
    since_6 = f"SELECT {columns if place == 'rounds' else '*'} FROM {{stored}}"
    parts = []
    # Nothing of its own is there as long as this version has not written to an old warehouse.
    if (present(warehouse) / EMPTY).is_dir() or not any(seen.values()):
        parts.append((since_6, _files(present(warehouse), pattern, new, without, files)))
    for root, stored in seen.items():
        before = [run for run in stored if runs is None or run in runs]
        if not before:
            continue
        if root != earlier(warehouse):
            parts.append((since_6, _files(root, pattern, before, without, files)))
            continue
        old_pattern = "header.parquet" if place == "workloads" else pattern
        left_out = [(run, old_pattern if name == WORKLOAD_FILE else name) for run, name in without]
        parts.append((layout5_sql(place), _files(root, old_pattern, before, left_out, files)))
    if place == "workloads":
        found = [run for run in services(warehouse) if new is None or run in new]
        found = [run for run in found if run not in {run for run, _ in without}]
        if paths := _rounds_of(warehouse, found, files):
            parts.append((services_sql("workloads"), _read(paths)))
    return f"({' UNION ALL BY NAME '.join(sql.replace('{stored}', part) for sql, part in parts)})"


def commands_of(
    warehouse: Path, runs: Sequence[str] | None, without: Sequence[str], files: Files | None
) -> str:
    """A query of the commands that services took in.

    Args:
        warehouse: The folder.
        runs: The runs in the views; all by default.
        without: Runs left out.
        files: The files with rounds; None if there may be others later.
    """
    found = [run for run in services(warehouse) if runs is None or run in runs]
    found = [run for run in found if run not in without]
    paths = _rounds_of(warehouse, found, files)
    rounds = _read(paths, ", union_by_name = true") if paths else NO_COMMANDS
    return f"({services_sql('commands').replace('{stored}', rounds)})"


def _rounds_of(warehouse: Path, runs: Iterable[str], files: Files | None) -> list[str]:
    """The files with the rounds of services, ended ones included."""
    root = present(warehouse).resolve()
    return [
        f"{glob.escape(str(root / f'run={run}'))}/{name}"
        for run in runs
        for name in ([ROUNDS] if files is None else files.get(run, [WHOLE]))
    ]


def _read(paths: Sequence[str], options: str = "") -> str:
    """The rows of files.

    With Hive partitioning, DuckDB 2.0 loses some: it takes the path's column `run` for the file's.
    """
    return f"read_parquet([{listed(paths)}], hive_partitioning = false{options})"


def files_now(warehouse: Path, runs: Iterable[str]) -> dict[str, list[str]]:
    """The files with the rounds of runs that there are now."""
    return {
        run: [path.name for path in round_files(place_of(warehouse, run))] for run in sorted(runs)
    }


def runs_before(warehouse: Path) -> dict[Path, list[str]]:
    """The runs with records of layouts before the present one, by the folder that holds them."""
    found: dict[Path, list[str]] = {root: [] for root in roots(warehouse)[:-1]}
    for path in run_folders(warehouse):
        if path.parent in found:
            found[path.parent].append(name_of(path))
    return found


def services(warehouse: Path) -> list[str]:
    """The runs of services that have a round."""
    there = present(warehouse).glob(f"run={SERVICE}-*")
    return sorted(name_of(folder) for folder in there if next(folder.glob(ROUNDS), None))


def _files(
    folder: Path,
    pattern: str,
    runs: Sequence[str] | None,
    without: Sequence[tuple[str, str]],
    files: Files | None,
) -> str:
    """The Parquet files of runs; the empty file first, as later layouts have more columns."""
    root = folder.resolve()
    form = glob.escape(str(root))
    if without and files is not None and pattern != ROUNDS:
        # Of the files that a pattern finds, DuckDB compares each name with all those left out.
        runs = _others(root, runs, {run for run, _ in without})
        runs = [run for run in runs if (root / f"run={run}" / pattern).is_file()]
        without = ()
    names = ["run=*"] if runs is None else [EMPTY, *(f"run={glob.escape(run)}" for run in runs)]
    if pattern == ROUNDS and files is not None:
        paths = [f"{form}/{EMPTY}/round=_.parquet"]
        for run in _others(root, runs, {run for run, _ in without}):
            paths += [f"{form}/run={run}/{name}" for name in files.get(run, ())]
        without = ()
    elif runs is not None and pattern == WHOLE:
        paths = [f"{form}/{EMPTY}/round=_.parquet", *(f"{form}/{n}/{WHOLE}" for n in names[1:])]
    else:
        paths = [f"{form}/{name}/{pattern}" for name in names]
    if not without:
        return _read(paths)
    # DuckDB does not open files that are left out by name.
    others = listed([f"{root}/run={run}/{name}" for run, name in without])
    return (
        f"(SELECT * EXCLUDE (filename) FROM {_read(paths, ', filename = true')} "
        f"WHERE filename NOT IN ({others}))"
    )


def _others(root: Path, runs: Sequence[str] | None, without: Collection[str]) -> list[str]:
    """The runs in a folder, or a selection of them, without some."""
    if runs is None:
        runs = [name_of(path) for path in root.glob("run=*") if RUN_NAME.fullmatch(name_of(path))]
    return sorted({*runs} - {*without})


def listed(texts: Sequence[str]) -> str:
    """Texts as SQL literals, separated by commas."""
    return ", ".join(f"'{_quoted(text)}'" for text in texts)


def _quoted(text: str) -> str:
    return text.replace("'", "''")
