"""Copies of marts of ended runs and of staging views of other runs, so that queries scan less.

    WAREHOUSE/marts/current.json              the generation in use, its checksums, its runs' stamps
    WAREHOUSE/marts/GENERATION/MART.parquet   a mart of all these runs
    WAREHOUSE/marts/PART/VIEW.parquet         a staging view of a closed part of a run under way

A part with `MOST_ROUNDS` is closed: it does not change until its run ends. Its jobs go on, so its
marts are not final; copied instead are the row-wise views from which marts are computed.
`analytics.marts.materialise` derives copies from the records. Copies can be deleted at any time,
and are valid only while the files are unchanged. `analytics.duckdb` names the files of ended runs
and is rebuilt with them. It names no parts, because it is still read after a run has ended.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from predictor.errors import InputError
from warehouse.analytics.definitions import MARTS, definitions_digest
from warehouse.store.checksums import read_sums
from warehouse.store.durable import check_regular
from warehouse.store.folder import place_of
from warehouse.store.parts import WHOLE

CURRENT = "current.json"

ANEW = "make the copies anew with: shockwave views"
"""Remedy for a damaged copy."""

Stamp = tuple[int, int, str]
"""Size in bytes, modification time in nanoseconds and noted checksum of a file with rounds. The
checksum covers all of its records, including its last hash."""


@dataclass(frozen=True)
class Part:
    """The copies of a closed part.

    Attributes:
        stamp: Stamp of the part's file.
        checksums: Checksum of each view's file, by view.
    """

    folder: Path
    stamp: Stamp
    checksums: dict[str, str]

    def file(self, view: str) -> Path:
        """Return the file of a view."""
        return self.folder / f"{view}.parquet"


@dataclass(frozen=True)
class Copies:
    """The copies of marts and of parts.

    Attributes:
        folder: Folder of the generation in use.
        written: The copied runs, ascending.
        runs: The copied runs whose copies are valid.
        checksums: Checksum of each mart's file, by mart.
        parts: Valid copies of parts, by run and name of the part's file.
    """

    folder: Path
    written: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    checksums: dict[str, str] = field(default_factory=dict)
    parts: dict[tuple[str, str], Part] = field(default_factory=dict)

    def file(self, mart: str) -> Path:
        """Return the file of a mart."""
        return self.folder / f"{mart}.parquet"

    def of_parts(self, files: Mapping[str, Sequence[str]]) -> list[Part]:
        """Return the copies of closed parts among these files, by run."""
        there = ((run, name) for run, names in files.items() for name in names)
        return [self.parts[file] for file in there if file in self.parts]

    def without_parts(self, files: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Return the files without copies, by run."""
        return {
            run: [name for name in names if (run, name) not in self.parts]
            for run, names in files.items()
        }


def marts_folder(warehouse: Path) -> Path:
    """Return the folder of a warehouse's copies."""
    return warehouse.resolve() / "marts"


def read_copies(warehouse: Path) -> Copies:
    """Return the copies in use; none if the views have changed or `current.json` is unreadable."""
    folder = marts_folder(warehouse)
    try:
        note = orjson.loads(check_regular(folder / CURRENT).read_bytes())
        stamps: dict[str, list[int | str]] = note["stamps"]
        valid = [run for run, old in stamps.items() if stamp(warehouse, run) == tuple(old)]
        copies = Copies(
            folder / note["generation"],
            tuple(sorted(stamps)),
            tuple(sorted(valid)),
            dict(note["marts"]),
            _parts(warehouse, folder, note["parts"]),
        )
        if note["views"] != definitions_digest():
            return Copies(folder)
        if stamps and not all(
            mart in copies.checksums and check_regular(copies.file(mart)) for mart in MARTS
        ):
            return Copies(folder)  # some copies were deleted
    except (OSError, ValueError, KeyError, TypeError, AttributeError, InputError):
        return Copies(folder)
    return copies


def _parts(
    warehouse: Path, folder: Path, noted_of: dict[str, dict[str, Any]]
) -> dict[tuple[str, str], Part]:
    found = dict[tuple[str, str], Part]()
    for run, parts in noted_of.items():
        now = stamps(warehouse, run, parts)
        for name, note in parts.items():
            part = Part(folder / note["folder"], tuple(note["stamp"]), dict(note["views"]))
            if now.get(name) == part.stamp and all(part.file(v).is_file() for v in part.checksums):
                found[run, name] = part
    return found


def stamp(warehouse: Path, run: str) -> Stamp | None:
    """Return the stamp of a run's file; None for a run that is not compacted."""
    return stamps(warehouse, run, [WHOLE]).get(WHOLE)


def stamps(warehouse: Path, run: str, names: Iterable[str]) -> dict[str, Stamp]:
    """Return the stamps of those of a run's files that exist."""
    folder, found = place_of(warehouse, run), dict[str, Stamp]()
    sums: dict[str, str] | None = None
    for name in names:
        with suppress(OSError):
            state = (folder / name).stat()
            sums = (read_sums(folder) or {}) if sums is None else sums
            found[name] = state.st_size, state.st_mtime_ns, sums.get(name, "")
    return found
