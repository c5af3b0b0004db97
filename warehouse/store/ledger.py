"""The ledger: the checksum of everything written to a warehouse, as a hash chain.

    WAREHOUSE/ledger.jsonl    an entry a line

An entry has the checksums of new files in a folder and, if the folder is a run's, the run's number
of rounds and last hash. It also has the hash of the line before, so that only the last lines can be
changed or removed unnoticed. With a key (`warehouse.store.signing`) entries are signed.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from io import BufferedRandom
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from predictor.errors import InputError, WarehouseError, remedy_of
from predictor.rows import get_typed_fields, hash_content
from warehouse.store.durable import check_regular, hold_lock, writing
from warehouse.store.parts import WHOLE, replaces, rounds_of
from warehouse.store.signing import KEY_VARIABLE, Key, is_signed, read_key

LEDGER = "ledger.jsonl"

HEADER_FILE = "header.parquet"
"""An entry with this file is the first of a run."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A line of the ledger.

    Attributes:
        number: Its number, from 0.
        at: When it was written, in UTC.
        folder: A folder within the warehouse; empty for the warehouse itself.
        files: Checksum of each new file in the folder; empty for removed files.
        rounds: Rounds of the run so far; 0 if the folder is no run's.
        last_hash: Hash of the last round, or of the header; empty if the folder is no run's.
        previous: SHA-256 of the line before; empty for the first.
        key: The public key that verifies the signature; empty without a signature.
        hash: Hash of all of the above.
        signature: Signature of the hash.
    """

    number: int
    at: str
    folder: str
    files: dict[str, str]
    rounds: int
    last_hash: str
    previous: str
    key: str
    hash: str
    signature: str


@dataclass
class FolderState:
    """A folder according to the ledger.

    Attributes:
        files: Checksum by file; empty for removed files.
        entries: The entries of its run, oldest first.
    """

    files: dict[str, str] = field(default_factory=dict)
    entries: list[LedgerEntry] = field(default_factory=list)

    @property
    def gone(self) -> bool:
        """Whether all of its files were removed."""
        return not any(self.files.values())


@dataclass(frozen=True)
class WarehouseLedger:
    """The ledger as it was read.

    Attributes:
        exists: Whether there is one.
        entries: Entries that could be read.
        problems: Defects, each with the number of its line, from 1.
    """

    exists: bool = False
    entries: tuple[LedgerEntry, ...] = ()
    problems: tuple[tuple[int, str], ...] = ()

    @property
    def signed(self) -> int:
        """Number of signed entries."""
        return sum(bool(entry.key) for entry in self.entries)

    @cached_property
    def folders(self) -> dict[str, FolderState]:
        """The folders' states after the last entry, by folder."""
        found: dict[str, FolderState] = {}
        for entry in self.entries:
            if HEADER_FILE in entry.files:
                found.pop(entry.folder, None)  # another run of this name
            state = found.setdefault(entry.folder, FolderState())
            for name in entry.files:
                if name == WHOLE or len(rounds_of(name) or ()) > 1:
                    state.files = {n: s for n, s in state.files.items() if not replaces(name, n)}
            state.files |= entry.files
            if entry.last_hash:
                state.entries.append(entry)
        return found


def folder_name(warehouse: Path, folder: Path) -> str:
    """A folder as entries name it."""
    name = folder.resolve().relative_to(warehouse.resolve()).as_posix()
    return "" if name == "." else name


def check_key(warehouse: Path) -> Key | None:
    """The key to sign with; None if entries are not signed.

    Raises:
        InputError: The key cannot be used, or there is none and the ledger is signed.
    """
    key = read_key(warehouse)
    if key is not None and not key.signs:
        raise InputError(KEY_VARIABLE, "is a public key", "give the private key, to sign with")
    if key is None:
        try:
            with check_regular(warehouse / LEDGER).open("rb") as file:
                last = _last_entry(warehouse / LEDGER, _last_line(file))
        except FileNotFoundError:
            return None
        if last is not None and last.key:
            remedy = f"let {KEY_VARIABLE} name the file of the private key"
            raise InputError(str(warehouse / LEDGER), "is signed, and no key is given", remedy)
    return key


def enter(
    warehouse: Path,
    folder: Path,
    files: Mapping[str, str],
    *,
    rounds: int = 0,
    last_hash: str = "",
) -> None:
    """Add an entry, durably; waits while another process does.

    Args:
        warehouse: The folder of the warehouse.
        folder: The folder of the files.
        files: Checksum of each new file; empty for removed files.
        rounds: Rounds of the run so far, if the folder is a run's.
        last_hash: Hash of the last round, or of the header.

    Raises:
        InputError: The entry cannot be signed.
        WarehouseError: The ledger cannot be written, or its last entry is damaged.
    """
    path = warehouse / LEDGER
    with writing(warehouse), hold_lock(path), path.open("r+b") as file:
        key = check_key(warehouse)
        line = _last_line(file)
        file.truncate()  # a process died while it wrote the rest, and never acknowledged it
        last = _last_entry(path, line)
        content: dict[str, Any] = {
            "number": 0 if last is None else last.number + 1,
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "folder": folder_name(warehouse, folder),
            "files": dict(files),
            "rounds": rounds,
            "last_hash": last_hash,
            "previous": "" if line is None else hashlib.sha256(line).hexdigest(),
            "key": "" if key is None else key.name,
        }
        digest = hash_content(content)
        content |= {"hash": digest, "signature": "" if key is None else key.sign(digest)}
        _append(file, _dump(content) + b"\n")


def _append(file: BufferedRandom, line: bytes) -> None:
    """Add a line, durably; all of it or, for example on a full disk, nothing."""
    raw, end, written = file.raw, file.tell(), 0  # a buffer would retry what it could not write
    raw.seek(end)
    try:
        while written < len(line):
            written += raw.write(line[written:]) or 0
        os.fsync(raw.fileno())
    except OSError:
        os.ftruncate(raw.fileno(), end)
        raise


def is_entered(warehouse: Path, path: Path, digest: str) -> bool:
    """Whether an entry has a file with this checksum; with a key, an entry signed with it.

    For speed neither the chain nor other entries are verified.

    Raises:
        InputError: The key cannot be used.
        OSError: The ledger cannot be read.
    """
    key, folder = read_key(warehouse), folder_name(warehouse, path.parent)
    lines = check_regular(warehouse / LEDGER).read_bytes().split(b"\n")
    for entry in filter(None, (_entry(line) for line in lines if digest.encode() in line)):
        ours = _soundly_signed(entry) and (key is None or entry.key == key.name)
        if ours and (entry.folder, entry.files.get(path.name)) == (folder, digest):
            return True
    return False


def read_ledger(warehouse: Path) -> WarehouseLedger:
    """Read the ledger and verify its lines, their chain and their signatures.

    With a key, its first signature and all later ones must be valid; the chain protects the entries
    before.

    Raises:
        InputError: The key cannot be used.
        WarehouseError: The ledger cannot be read, or is no regular file.
    """
    key = read_key(warehouse)
    try:
        *lines, rest = check_regular(warehouse / LEDGER).read_bytes().split(b"\n")
    except FileNotFoundError:
        return WarehouseLedger(problems=((1, "is missing, and a key is given"),) if key else ())
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
        remedy = remedy_of(error, "restore it from a backup")
        raise WarehouseError(str(warehouse / LEDGER), problem, remedy) from None
    entries: list[LedgerEntry] = []
    problems = list(_problems(lines, key, entries))
    if rest:
        problems.append((len(lines) + 1, "is half a line: it was cut off, or never finished"))
    return WarehouseLedger(True, tuple(entries), tuple(problems))


def _problems(
    lines: list[bytes], key: Key | None, entries: list[LedgerEntry]
) -> Iterator[tuple[int, str]]:
    """The defects of lines; collects the entries that can be read."""
    previous, signed = "", False
    for number, line in enumerate(lines):
        entry = _entry(line)
        if entry is None:
            yield number + 1, "is no entry, or was changed"
        else:
            entries.append(entry)
            if entry.number != number:
                yield number + 1, f"is entry {entry.number}, not {number}"
            if entry.previous != previous:
                yield number + 1, "does not follow the line before, which has another hash"
            if not _soundly_signed(entry):
                yield number + 1, "has a wrong signature"
            ours = key is not None and entry.key == key.name
            if signed and not ours:
                yield number + 1, "is not signed with the key"
            signed |= ours
        previous = hashlib.sha256(line).hexdigest()
    if key is not None and not signed:
        yield len(lines), "nothing is signed with the key"


def _soundly_signed(entry: LedgerEntry) -> bool:
    """Whether an entry has the signature of its key, or neither."""
    if not entry.key:
        return not entry.signature
    return is_signed(entry.hash, entry.key, entry.signature)


def _entry(line: bytes) -> LedgerEntry | None:
    """The entry in a line; None if the line was not written as an entry."""
    try:
        row = orjson.loads(line)
        entry = LedgerEntry(**row)
    except (ValueError, TypeError):
        return None
    content = {name: value for name, value in row.items() if name not in ("hash", "signature")}
    typed = all(
        isinstance(row[name], dict if name == "files" else kind)
        for name, kind in get_typed_fields(LedgerEntry)
    )
    texts = typed and all(isinstance(checksum, str) for checksum in entry.files.values())
    return entry if texts and _dump(row) == line and hash_content(content) == entry.hash else None


def _dump(row: Mapping[str, Any]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_SORT_KEYS)


def _last_entry(path: Path, line: bytes | None) -> LedgerEntry | None:
    entry = None if line is None else _entry(line)
    if entry is None and line is not None:
        problem, remedy = "is no entry, or was changed", "restore it from a backup"
        raise WarehouseError(f"{path}, last line", problem, remedy)
    return entry


def _last_line(file: BinaryIO) -> bytes | None:
    """The last complete line, at whose end the file then stands; None if there is none."""
    size, span = file.seek(0, os.SEEK_END), 1 << 16
    while True:
        start = max(size - span, 0)
        file.seek(start)
        *lines, rest = file.read(size - start).split(b"\n")
        if start == 0 or len(lines) > 1:
            file.seek(size - len(rest))
            return lines[-1] if lines else None
        span *= 2
