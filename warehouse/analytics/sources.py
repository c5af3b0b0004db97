"""SQL over the Parquet files of runs."""

import glob
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from warehouse.analytics.definitions import services_sql
from warehouse.store.folder import EMPTY, RUN_NAME, SERVICE, name_of, place_of, records_folder
from warehouse.store.parts import WHOLE, round_files

ROUNDS = "round=*.parquet"
"""Pattern of files with rounds, for views that include later files."""

Files = Mapping[str, Sequence[str]]
"""Names of each run's files with rounds; each round is in exactly one of them."""

NO_ROUNDS = f"{EMPTY}/round=_.parquet"
"""A file without rows."""


def stored_rows(
    warehouse: Path,
    place: str,
    pattern: str,
    runs: Sequence[str] | None,
    without: Sequence[tuple[str, str]],
    files: Files | None,
) -> str:
    """Return a query of the stored rows of runs.

    Args:
        warehouse: The folder.
        place: `headers`, `workloads` or `rounds`.
        pattern: Pattern of the files in a run's folder.
        runs: The runs in the views; by default all.
        without: Excluded files, each with its run.
        files: The files with rounds; None to include later files.
    """
    stored = _files(records_folder(warehouse), pattern, runs, without, files)
    # Declarations of jobs are in the workload, so views have arrivals as job ids.
    columns = {
        "rounds": "* REPLACE (list_transform(arrivals, lambda s: s.job_id) AS arrivals)",
        "workloads": "*, NULL::VARCHAR AS submitter",
    }
    parts = [f"SELECT {columns.get(place, '*')} FROM {stored}"]
    if place == "workloads":
        left_out = {run for run, _ in without}
        found = [run for run in services(warehouse) if runs is None or run in runs]
        if paths := _rounds_of(warehouse, [run for run in found if run not in left_out], files):
            parts.append(services_sql("workloads").replace("{stored}", _read(paths)))
    return f"({' UNION ALL BY NAME '.join(parts)})"


def commands_of(
    warehouse: Path, runs: Sequence[str] | None, without: Sequence[str], files: Files | None
) -> str:
    """Return a query of the commands that services took in; see `stored_rows`."""
    found = [run for run in services(warehouse) if runs is None or run in runs]
    found = [run for run in found if run not in without]
    empty = f"{glob.escape(str(records_folder(warehouse).resolve()))}/{NO_ROUNDS}"
    paths = _rounds_of(warehouse, found, files) or [empty]
    return f"({services_sql('commands').replace('{stored}', _read(paths))})"


def _rounds_of(warehouse: Path, runs: Iterable[str], files: Files | None) -> list[str]:
    """Return the files with the rounds of services, ended ones included."""
    root = records_folder(warehouse).resolve()
    return [
        f"{glob.escape(str(root / f'run={run}'))}/{name}"
        for run in runs
        for name in ([ROUNDS] if files is None else files.get(run, [WHOLE]))
    ]


def _read(paths: Sequence[str], options: str = "") -> str:
    """Return a query of the rows of files.

    Hive partitioning is off: with it DuckDB 2.0 loses rows, because it takes the path's column
    `run` for the file's.
    """
    return f"read_parquet([{quote_all(paths)}], hive_partitioning = false{options})"


def files_now(warehouse: Path, runs: Iterable[str]) -> dict[str, list[str]]:
    """Return the present files with rounds of each run."""
    return {
        run: [path.name for path in round_files(place_of(warehouse, run))] for run in sorted(runs)
    }


def services(warehouse: Path) -> list[str]:
    """Return the services' runs that have a round."""
    there = records_folder(warehouse).glob(f"run={SERVICE}-*")
    return sorted(name_of(folder) for folder in there if next(folder.glob(ROUNDS), None))


def _files(
    folder: Path,
    pattern: str,
    runs: Sequence[str] | None,
    without: Sequence[tuple[str, str]],
    files: Files | None,
) -> str:
    """Return the Parquet files of runs, and the empty file, as an SQL list."""
    root = folder.resolve()
    form = glob.escape(str(root))
    if without and files is not None and pattern != ROUNDS:
        # For a pattern, DuckDB compares each name found with all excluded names.
        runs = _others(root, runs, {run for run, _ in without})
        runs = [run for run in runs if (root / f"run={run}" / pattern).is_file()]
        without = ()
    names = ["run=*"] if runs is None else [EMPTY, *(f"run={glob.escape(run)}" for run in runs)]
    if pattern == ROUNDS and files is not None:
        paths = [f"{form}/{NO_ROUNDS}"]
        for run in _others(root, runs, {run for run, _ in without}):
            paths += [f"{form}/run={run}/{name}" for name in files.get(run, ())]
        without = ()
    elif runs is not None and pattern == WHOLE:
        paths = [f"{form}/{NO_ROUNDS}", *(f"{form}/{name}/{WHOLE}" for name in names[1:])]
    else:
        paths = [f"{form}/{name}/{pattern}" for name in names]
    if not without:
        return _read(paths)
    # DuckDB does not open files that are excluded by name.
    others = quote_all([f"{root}/run={run}/{name}" for run, name in without])
    return (
        f"(SELECT * EXCLUDE (filename) FROM {_read(paths, ', filename = true')} "
        f"WHERE filename NOT IN ({others}))"
    )


def _others(root: Path, runs: Sequence[str] | None, without: Collection[str]) -> list[str]:
    """Return the runs in a folder, or a selection of them, without some."""
    if runs is None:
        runs = [name_of(path) for path in root.glob("run=*") if RUN_NAME.fullmatch(name_of(path))]
    return sorted({*runs} - {*without})


def quote_all(texts: Sequence[str]) -> str:
    """Return texts as SQL literals, separated by commas."""
    return ", ".join(f"'{_quoted(text)}'" for text in texts)


def _quoted(text: str) -> str:
    return text.replace("'", "''")
