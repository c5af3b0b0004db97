"""Copies of the marts of ended runs, so that queries need not scan all records.

    WAREHOUSE/marts/current.json              the generation in use, and the stamps of its runs
    WAREHOUSE/marts/GENERATION/MART.parquet   a mart of all these runs

Copies are derived from the records by `analytics.marts.materialise`, may be deleted at any time,
and are valid only for runs whose file is unchanged. `analytics.duckdb` names their files, and is
rebuilt with them.
"""

from dataclasses import dataclass
from pathlib import Path

import orjson

from warehouse.analytics.definitions import MARTS, definitions_digest
from warehouse.store.folder import WHOLE, place_of

Stamp = tuple[int, int]
"""Size in bytes and time of the last change in nanoseconds of a run's file."""


@dataclass(frozen=True)
class Copies:
    """The copies of marts.

    Attributes:
        folder: Folder of the generation in use.
        written: The runs in the copies, ascending.
        runs: The runs of these whose copies are valid.
    """

    folder: Path
    written: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()


def marts_folder(warehouse: Path) -> Path:
    """The folder of a warehouse's copies."""
    return warehouse.resolve() / "marts"


def read_copies(warehouse: Path) -> Copies:
    """The copies in use; none if the views have changed or `current.json` cannot be read."""
    folder = marts_folder(warehouse)
    try:
        note = orjson.loads((folder / "current.json").read_bytes())
        generation, stamps = folder / note["generation"], note["stamps"]
        if note["views"] != definitions_digest():
            return Copies(folder)
        if stamps and not all((generation / f"{mart}.parquet").is_file() for mart in MARTS):
            return Copies(folder)  # some were deleted
    except (OSError, ValueError, KeyError, TypeError):
        return Copies(folder)
    valid = [run for run, old in stamps.items() if stamp(warehouse, run) == tuple(old)]
    return Copies(generation, tuple(sorted(stamps)), tuple(sorted(valid)))


def stamp(warehouse: Path, run: str) -> Stamp | None:
    """Stamp that identifies the version of a run's file; None for a run that is not compacted."""
    try:
        state = (place_of(warehouse, run) / WHOLE).stat()
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns
