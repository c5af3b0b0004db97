"""Copies of the marts of ended runs, so that queries need not scan all records.

    WAREHOUSE/marts/current.json              the generation in use, its checksums, its runs' stamps
    WAREHOUSE/marts/GENERATION/MART.parquet   a mart of all these runs

Copies are derived from the records by `analytics.marts.materialise`, may be deleted at any time,
and are valid only for runs whose file is unchanged. `analytics.duckdb` names their files, and is
rebuilt with them.
"""

from dataclasses import dataclass, field
from pathlib import Path

import orjson

from predictor.errors import InputError
from warehouse.analytics.definitions import MARTS, definitions_digest
from warehouse.store.checksums import noted
from warehouse.store.durable import regular
from warehouse.store.folder import WHOLE, place_of

CURRENT = "current.json"

Stamp = tuple[int, int, str]
"""Size in bytes, time of the last change in nanoseconds and noted checksum of a run's file; the
checksum, empty before layout 4, stands for all of its records, its last hash included."""


@dataclass(frozen=True)
class Copies:
    """The copies of marts.

    Attributes:
        folder: Folder of the generation in use.
        written: The runs in the copies, ascending.
        runs: The runs of these whose copies are valid.
        checksums: Checksum of each mart's file, by mart.
    """

    folder: Path
    written: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    checksums: dict[str, str] = field(default_factory=dict)

    def file(self, mart: str) -> Path:
        """The file of a mart."""
        return self.folder / f"{mart}.parquet"


def marts_folder(warehouse: Path) -> Path:
    """The folder of a warehouse's copies."""
    return warehouse.resolve() / "marts"


def read_copies(warehouse: Path) -> Copies:
    """The copies in use; none if the views have changed or `current.json` cannot be read."""
    folder = marts_folder(warehouse)
    try:
        note = orjson.loads(regular(folder / CURRENT).read_bytes())
        stamps: dict[str, list[int | str]] = note["stamps"]
        valid = [run for run, old in stamps.items() if stamp(warehouse, run) == tuple(old)]
        copies = Copies(
            folder / note["generation"],
            tuple(sorted(stamps)),
            tuple(sorted(valid)),
            dict(note["marts"]),
        )
        if note["views"] != definitions_digest():
            return Copies(folder)
        if stamps and not all(
            mart in copies.checksums and regular(copies.file(mart)) for mart in MARTS
        ):
            return Copies(folder)  # some were deleted
    except (OSError, ValueError, KeyError, TypeError, AttributeError, InputError):
        return Copies(folder)
    return copies


def stamp(warehouse: Path, run: str) -> Stamp | None:
    """Stamp that identifies the version of a run's file; None for a run that is not compacted."""
    folder = place_of(warehouse, run)
    try:
        state = (folder / WHOLE).stat()
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns, (noted(folder) or {}).get(WHOLE, "")
