"""The ledger: the checksum of everything written to a warehouse, as a hash chain.

    WAREHOUSE/ledger.jsonl    one entry per line

An entry has the checksums of new files in a folder, and the hash of the line before. So only the
last lines can be changed or removed unnoticed; a hash that is kept elsewhere protects these, too.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from io import BufferedRandom
from pathlib import Path
from typing import Any

import orjson

from predictor.errors import WarehouseError, remedy_of
from predictor.rows import get_typed_fields, hash_content
from warehouse.store.checksums import checksum
from warehouse.store.durable import check_regular, hold_lock, writing
from warehouse.store.parts import WHOLE, replaces, rounds_of

LEDGER = "ledger.jsonl"

HEADER_FILE = "header.parquet"
"""The entry with this file is a run's first."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A line of the ledger.

    Attributes:
        at: Time of writing, in UTC.
        folder: A folder within the warehouse; empty for the warehouse itself.
        files: Checksum of each new file in the folder; empty for removed files.
        previous: SHA-256 of the line before; empty for the first.
        hash: Hash of all of the above.
    """

    at: str
    folder: str
    files: dict[str, str]
    previous: str
    hash: str


@dataclass(frozen=True)
class WarehouseLedger:
    """The ledger as read.

    Attributes:
        entries: The readable entries.
        problems: Defects, each with its line number, from 1.
    """

    exists: bool = False
    entries: tuple[LedgerEntry, ...] = ()
    problems: tuple[tuple[int, str], ...] = ()

    @cached_property
    def folders(self) -> dict[str, dict[str, str]]:
        """Checksum by file of each folder after the last entry; empty for removed files."""
        found: dict[str, dict[str, str]] = {}
        for entry in self.entries:
            if HEADER_FILE in entry.files:
                found.pop(entry.folder, None)  # another run had this name
            files = found.setdefault(entry.folder, {})
            for name in entry.files:
                if name == WHOLE or len(rounds_of(name) or ()) > 1:
                    for replaced in [other for other in files if replaces(name, other)]:
                        del files[replaced]
            files |= entry.files
        return found


def folder_name(warehouse: Path, folder: Path) -> str:
    """Return the name of a folder in entries."""
    name = folder.resolve().relative_to(warehouse.resolve()).as_posix()
    return "" if name == "." else name


def enter(warehouse: Path, folder: Path, files: Mapping[str, str]) -> None:
    """Add an entry durably; wait while another process adds one.

    `files` has the checksum of each new file in the folder; empty for removed files.

    Raises:
        WarehouseError: The ledger cannot be written, or its last entry is damaged.
    """
    path = warehouse / LEDGER
    with writing(warehouse), hold_lock(path), path.open("r+b") as file:
        content = file.read()
        # A process that died while writing the rest never acknowledged it.
        file.truncate(content.rfind(b"\n") + 1)
        file.seek(0, os.SEEK_END)
        last = _read_last(path, content)
        row: dict[str, Any] = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "folder": folder_name(warehouse, folder),
            "files": dict(files),
            "previous": "" if last is None else hashlib.sha256(last[0]).hexdigest(),
        }
        row["hash"] = hash_content(row)
        _append(file, _dump(row) + b"\n")


def _append(file: BufferedRandom, line: bytes) -> None:
    """Add a line durably; write all of it or, for example on a full disk, nothing."""
    raw, end, written = file.raw, file.tell(), 0  # a buffer would retry failed writes later
    raw.seek(end)
    try:
        while written < len(line):
            written += raw.write(line[written:]) or 0
        os.fsync(raw.fileno())
    except OSError:
        os.ftruncate(raw.fileno(), end)
        raise


def is_entered(warehouse: Path, path: Path, digest: str) -> bool:
    """Return whether an entry has a file with this checksum.

    For speed, neither the chain nor other entries are verified.

    Raises:
        OSError: The ledger cannot be read.
    """
    folder = folder_name(warehouse, path.parent)
    lines = check_regular(warehouse / LEDGER).read_bytes().split(b"\n")
    for entry in filter(None, (_entry(line) for line in lines if digest.encode() in line)):
        if (entry.folder, entry.files.get(path.name)) == (folder, digest):
            return True
    return False


def enter_file(warehouse: Path, path: Path, temporary: Path) -> None:
    """Enter a file before it gets its name, as `durable.Ahead`."""
    enter(warehouse, path.parent, {path.name: checksum(temporary)})


def read_entered(warehouse: Path, path: Path) -> bytes:
    """Return the content of a file; empty unless it is as the ledger has it."""
    with suppress(OSError, ValueError):
        content = path.read_bytes()
        if is_entered(warehouse, path, hashlib.sha256(content).hexdigest()):
            return content
    return b""


def read_ledger(warehouse: Path) -> WarehouseLedger:
    """Read the ledger and verify its lines and their chain.

    Raises:
        WarehouseError: The ledger cannot be read, or is not a regular file.
    """
    try:
        *lines, rest = check_regular(warehouse / LEDGER).read_bytes().split(b"\n")
    except FileNotFoundError:
        return WarehouseLedger()
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
        remedy = remedy_of(error, "restore it from a backup")
        raise WarehouseError(str(warehouse / LEDGER), problem, remedy) from None
    entries: list[LedgerEntry] = []
    problems = list(_problems(lines, entries))
    if rest:
        problems.append((len(lines) + 1, "is half a line: it was cut off, or never finished"))
    return WarehouseLedger(True, tuple(entries), tuple(problems))


def _problems(lines: list[bytes], entries: list[LedgerEntry]) -> Iterator[tuple[int, str]]:
    """Yield the defects of lines; collect readable entries in `entries`."""
    previous = ""
    for number, line in enumerate(lines):
        entry = _entry(line)
        if entry is None:
            yield number + 1, "is not an entry, or was changed"
        else:
            entries.append(entry)
            if entry.previous != previous:
                yield number + 1, "does not follow the line before, which has another hash"
        previous = hashlib.sha256(line).hexdigest()


def _entry(line: bytes) -> LedgerEntry | None:
    """Return the entry in a line; None if the line was not written as an entry."""
    try:
        row = orjson.loads(line)
        entry = LedgerEntry(**row)
    except (ValueError, TypeError):
        return None
    content = {name: value for name, value in row.items() if name != "hash"}
    typed = all(
        isinstance(row[name], dict if name == "files" else kind)
        for name, kind in get_typed_fields(LedgerEntry)
    )
    texts = typed and all(isinstance(checksum, str) for checksum in entry.files.values())
    return entry if texts and _dump(row) == line and hash_content(content) == entry.hash else None


def _dump(row: Mapping[str, Any]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_SORT_KEYS)


def _read_last(path: Path, content: bytes) -> tuple[bytes, LedgerEntry] | None:
    """Return the last complete line with its entry; None if there is no such line."""
    complete = content[: content.rfind(b"\n") + 1]
    line = complete[:-1].rpartition(b"\n")[2]
    entry = _entry(line)
    if complete and entry is None:
        problem, remedy = "is not an entry, or was changed", "restore it from a backup"
        raise WarehouseError(f"{path}, last line", problem, remedy)
    return None if entry is None else (line, entry)
