"""The ledger: the checksums of what was written to a warehouse, chained, and never rewritten.

    WAREHOUSE/ledger.jsonl    an entry a line

An entry lists files with their checksums, and for a run its number of rounds and its last hash. It
has the hash of the line before, so that only the last lines can be changed or removed unnoticed;
where `warehouse.store.signing` finds a key, it is signed.
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
from tasks.rows import content_hash, typed_fields
from warehouse.store.durable import alone, regular, writing
from warehouse.store.folder import WHOLE, replaces, rounds_of
from warehouse.store.signing import KEY_VARIABLE, Key, given_key, is_signed

LEDGER = "ledger.jsonl"

HEADER_FILE = "header.parquet"
"""The file that a run begins with: an entry with it is the first of a run."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the ledger.

    Attributes:
        number: Its number, from 0.
        at: When it was written, in UTC.
        folder: A folder within the warehouse; empty for the warehouse itself.
        files: Checksum of each file in it that is new; empty for those that were removed.
        rounds: Rounds of the run so far; 0 if the folder is no run's.
        last_hash: Hash of the last of them, or of the header; empty if the folder is no run's.
        previous: SHA-256 of the line before; empty for the first.
        key: The public key that it is signed with; empty if it is not.
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
class Held:
    """The entries of a folder in the ledger.

    Attributes:
        files: Checksum by file; empty for those that were removed.
        states: Entries that have the rounds and the last hash of its run, oldest first.
    """

    files: dict[str, str] = field(default_factory=dict)
    states: list[Entry] = field(default_factory=list)

    @property
    def gone(self) -> bool:
        """Whether all of its files were removed."""
        return not any(self.files.values())


@dataclass(frozen=True)
class Ledger:
    """The ledger as it was read.

    Attributes:
        exists: Whether there is one.
        entries: Entries that could be read.
        problems: Defects, each with the number of its line, from 1.
    """

    exists: bool = False
    entries: tuple[Entry, ...] = ()
    problems: tuple[tuple[int, str], ...] = ()

    @property
    def signed(self) -> int:
        """Number of signed entries."""
        return sum(bool(entry.key) for entry in self.entries)

    @cached_property
    def held(self) -> dict[str, Held]:
        """What its entries hold, by folder."""
        found: dict[str, Held] = {}
        for entry in self.entries:
            if HEADER_FILE in entry.files:
                found.pop(entry.folder, None)  # another run of this name
            state = found.setdefault(entry.folder, Held())
            for name in entry.files:  # a file takes the place of those with some of its rounds
                if name == WHOLE or len(rounds_of(name) or ()) > 1:
                    state.files = {n: s for n, s in state.files.items() if not replaces(name, n)}
            state.files |= entry.files
            if entry.last_hash:
                state.states.append(entry)
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
    key = given_key(warehouse)
    if key is not None and not key.signs:
        raise InputError(KEY_VARIABLE, "is a public key", "give the private key, to sign with")
    if key is None:
        last = _last(warehouse / LEDGER)
        if last is not None and last.key:
            raise InputError(
                str(warehouse / LEDGER),
                "is signed, and no key is given",
                f"let {KEY_VARIABLE} name the file of the private key",
            )
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
        files: Checksum of each file that is new; empty for those that were removed.
        rounds: Rounds of the run so far, if it is a run's.
        last_hash: Hash of the last of them, or of the header.

    Raises:
        InputError: It cannot be signed.
        WarehouseError: It cannot be written, or the last entry is damaged.
    """
    path = warehouse / LEDGER
    with writing(warehouse), alone(path), path.open("r+b") as file:
        key = check_key(warehouse)
        line = _last_line(file)
        last = None if line is None else _sound(path, line)
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
        digest = content_hash(content)
        content |= {"hash": digest, "signature": "" if key is None else key.sign(digest)}
        _append(file, _dumped(content) + b"\n")


def _append(file: BufferedRandom, line: bytes) -> None:
    """Add a line where a file stands, durably; all of it or, as on a full disk, nothing."""
    raw, end, written = file.raw, file.tell(), 0  # what a buffer cannot write, it tries again
    raw.seek(end)
    try:
        while written < len(line):
            written += raw.write(line[written:]) or 0
        os.fsync(raw.fileno())
    except OSError:
        os.ftruncate(raw.fileno(), end)
        raise


def is_entered(warehouse: Path, path: Path, digest: str) -> bool:
    """Whether an entry has a file with this checksum; where a key is given, one signed with it.

    Neither the chain nor other entries are verified, so that it is fast.

    Raises:
        InputError: The key cannot be used.
        OSError: The ledger cannot be read.
    """
    key, folder = given_key(warehouse), folder_name(warehouse, path.parent)
    lines = regular(warehouse / LEDGER).read_bytes().split(b"\n")
    for entry in filter(None, (_entry(line) for line in lines if digest.encode() in line)):
        ours = _soundly_signed(entry) and (key is None or entry.key == key.name)
        if ours and (entry.folder, entry.files.get(path.name)) == (folder, digest):
            return True
    return False


def read_ledger(warehouse: Path) -> Ledger:
    """Read the ledger and verify it: its lines, their chain, and their signatures.

    With a key, every entry from the first that it signed on must be signed with it; those
    before are held by the chain.

    Raises:
        InputError: The key cannot be used.
        WarehouseError: The ledger cannot be read, or is no regular file.
    """
    key = given_key(warehouse)
    try:
        *lines, rest = regular(warehouse / LEDGER).read_bytes().split(b"\n")
    except FileNotFoundError:
        return Ledger(problems=((1, "is missing, and a key is given"),) if key else ())
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
        remedy = remedy_of(error, "restore it from a backup")
        raise WarehouseError(str(warehouse / LEDGER), problem, remedy) from None
    entries: list[Entry] = []
    problems = list(_problems(lines, key, entries))
    if rest:
        problems.append((len(lines) + 1, "is half a line: it was cut off, or never finished"))
    return Ledger(True, tuple(entries), tuple(problems))


def _problems(
    lines: list[bytes], key: Key | None, entries: list[Entry]
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
                yield number + 1, "does not follow the line before: another hash is noted"
            if not _soundly_signed(entry):
                yield number + 1, "has a wrong signature"
            ours = key is not None and entry.key == key.name
            if signed and not ours:
                yield number + 1, "is not signed with the key"
            signed |= ours
        previous = hashlib.sha256(line).hexdigest()
    if key is not None and not signed:
        yield len(lines), "nothing is signed with the key"


def _soundly_signed(entry: Entry) -> bool:
    """Whether an entry has the signature of its key, or neither."""
    if not entry.key:
        return not entry.signature
    return is_signed(entry.hash, entry.key, entry.signature)


def _entry(line: bytes) -> Entry | None:
    """The entry in a line; None if it is not one that was written."""
    try:
        row = orjson.loads(line)
        entry = Entry(**row)
    except (ValueError, TypeError):
        return None
    content = {name: value for name, value in row.items() if name not in ("hash", "signature")}
    typed = all(
        isinstance(row[name], dict if name == "files" else kind)
        for name, kind in typed_fields(Entry)
    )
    texts = typed and all(isinstance(checksum, str) for checksum in entry.files.values())
    return entry if texts and _dumped(row) == line and content_hash(content) == entry.hash else None


def _dumped(row: Mapping[str, Any]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_SORT_KEYS)


def _last(path: Path) -> Entry | None:
    try:
        with regular(path).open("rb") as file:
            line = _last_line(file)
    except FileNotFoundError:
        return None
    return None if line is None else _sound(path, line)


def _sound(path: Path, line: bytes) -> Entry:
    entry = _entry(line)
    if entry is None:
        raise WarehouseError(
            f"{path}, last line", "is no entry, or was changed", "restore it from a backup"
        )
    return entry


def _last_line(file: BinaryIO) -> bytes | None:
    """The last complete line, or None; a file that can be written is cut after it.

    What follows it was being written when a process died, and was never acknowledged.
    """
    end, start, found = file.seek(0, os.SEEK_END), 0, b""
    size = 1 << 16
    while True:
        start = max(end - size, 0)
        file.seek(start)
        found = file.read(end - start)
        whole = found.rfind(b"\n") + 1
        if start == 0 or found.rfind(b"\n", 0, max(whole - 1, 0)) >= 0:
            break
        size *= 2
    if file.writable():
        file.truncate(start + whole)
        file.seek(start + whole)
    if not whole:
        return None
    return found[: whole - 1].rpartition(b"\n")[2]
