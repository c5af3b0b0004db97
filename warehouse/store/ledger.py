"""The ledger: the checksum of everything written to a warehouse, as a hash chain.

    WAREHOUSE/ledger.jsonl    one entry per line

An entry has the checksums of new files in a folder, and the hash of the line before. So only the
last lines can be changed or removed unnoticed. With a key, which is kept outside the warehouse,
entries are signed (Ed25519).
"""

import hashlib
import os
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from io import BufferedRandom
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from predictor.errors import InputError, WarehouseError, remedy_of
from predictor.rows import get_typed_fields, hash_content
from warehouse.store.durable import check_regular, hold_lock, writing
from warehouse.store.parts import WHOLE, replaces, rounds_of

if TYPE_CHECKING:  # takes a twentieth of a second to import
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

LEDGER = "ledger.jsonl"

HEADER_FILE = "header.parquet"
"""The entry with this file is a run's first."""


KEY_VARIABLE = "SHOCKWAVE_LEDGER_KEY"
"""Environment variable with the file of an Ed25519 key in OpenSSH's format: a private key signs,
either verifies."""

_PURPOSE = b"shockwave ledger\0"
"""Prefix of every signed text, so that a signature is valid nowhere else."""


class Key:
    """An Ed25519 key, with or without its private part.

    Attributes:
        name: The public key, 32 bytes in base64.
    """

    def __init__(self, public: "Ed25519PublicKey", private: "Ed25519PrivateKey | None") -> None:
        self.name = b64encode(public.public_bytes_raw()).decode()
        self._private = private

    @property
    def signs(self) -> bool:
        """Whether the key has its private part."""
        return self._private is not None

    def sign(self, text: str) -> str:
        """Return the signature of a text, in base64."""
        assert self._private is not None
        return b64encode(self._private.sign(_PURPOSE + text.encode())).decode()


def read_key(warehouse: Path) -> Key | None:
    """Return the key that the environment names; None if it names none.

    Raises:
        InputError: The file is in the warehouse, or holds no Ed25519 key.
    """
    name = os.environ.get(KEY_VARIABLE)
    if not name:
        return None
    path = Path(name)
    if path.resolve().is_relative_to(warehouse.resolve()):
        problem = f"{path} is in the warehouse, where a forger would find it"
        raise InputError(KEY_VARIABLE, problem, "keep the key elsewhere")
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        if not path.is_file():  # reading a pipe or device might never end
            raise ValueError("no file")
        return _key(path.read_bytes())
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        problem = f"{path} holds no Ed25519 key without a passphrase ({error})"
        remedy = "make one with: ssh-keygen -t ed25519 -N '' -f FILE"
        raise InputError(KEY_VARIABLE, problem, remedy) from None


def _key(text: bytes) -> Key:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
    from cryptography.hazmat.primitives.serialization import (
        load_ssh_private_key,
        load_ssh_public_key,
    )

    if b"PRIVATE KEY" in text:
        private = load_ssh_private_key(text, password=None)
        if isinstance(private, Ed25519PrivateKey):
            return Key(private.public_key(), private)
    else:
        public = load_ssh_public_key(text)
        if isinstance(public, Ed25519PublicKey):
            return Key(public, None)
    raise ValueError("another kind of key")


def is_signed(text: str, key: str, signature: str) -> bool:
    """Return whether a signature of a text is valid; `key` is as `Key.name`, both are base64."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        public = Ed25519PublicKey.from_public_bytes(b64decode(key, validate=True))
        public.verify(b64decode(signature, validate=True), _PURPOSE + text.encode())
    except (InvalidSignature, ValueError, NotBase64):
        return False
    return True


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A line of the ledger.

    Attributes:
        at: Time of writing, in UTC.
        folder: A folder within the warehouse; empty for the warehouse itself.
        files: Checksum of each new file in the folder; empty for removed files.
        previous: SHA-256 of the line before; empty for the first.
        key: Public key that verifies the signature; empty without a signature.
        hash: Hash of all of the above.
    """

    at: str
    folder: str
    files: dict[str, str]
    previous: str
    key: str
    hash: str
    signature: str


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

    @property
    def signed(self) -> int:
        """Number of signed entries."""
        return sum(bool(entry.key) for entry in self.entries)

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


def check_key(warehouse: Path) -> Key | None:
    """Return the key to sign with; None if entries are not signed.

    Raises:
        InputError: The key cannot be used, or the ledger is signed and there is no key.
    """
    key = read_key(warehouse)
    if key is not None and not key.signs:
        raise InputError(KEY_VARIABLE, "is a public key", "give the private key, to sign with")
    if key is None:
        path = warehouse / LEDGER
        try:
            last = _read_last(path, check_regular(path).read_bytes())
        except FileNotFoundError:
            return None
        if last is not None and last[1].key:
            remedy = f"let {KEY_VARIABLE} name the file of the private key"
            raise InputError(str(path), "is signed, and no key is given", remedy)
    return key


def enter(warehouse: Path, folder: Path, files: Mapping[str, str]) -> None:
    """Add an entry durably; wait while another process adds one.

    `files` has the checksum of each new file in the folder; empty for removed files.

    Raises:
        InputError: The entry cannot be signed.
        WarehouseError: The ledger cannot be written, or its last entry is damaged.
    """
    path = warehouse / LEDGER
    with writing(warehouse), hold_lock(path), path.open("r+b") as file:
        key = check_key(warehouse)
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
            "key": "" if key is None else key.name,
        }
        digest = hash_content(row)
        row |= {"hash": digest, "signature": "" if key is None else key.sign(digest)}
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
    """Return whether an entry, signed if there is a key, has a file with this checksum.

    For speed, neither the chain nor other entries are verified.

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

    With a key, its first signature and all later ones must be valid; the chain protects the earlier
    entries.

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
    """Yield the defects of lines; collect readable entries in `entries`."""
    previous, signed = "", False
    for number, line in enumerate(lines):
        entry = _entry(line)
        if entry is None:
            yield number + 1, "is no entry, or was changed"
        else:
            entries.append(entry)
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
    """Return whether an entry has a valid signature, or neither key nor signature."""
    if not entry.key:
        return not entry.signature
    return is_signed(entry.hash, entry.key, entry.signature)


def _entry(line: bytes) -> LedgerEntry | None:
    """Return the entry in a line; None if the line was not written as an entry."""
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


def _read_last(path: Path, content: bytes) -> tuple[bytes, LedgerEntry] | None:
    """Return the last complete line with its entry; None if there is no such line."""
    complete = content[: content.rfind(b"\n") + 1]
    line = complete[:-1].rpartition(b"\n")[2]
    entry = _entry(line)
    if complete and entry is None:
        problem, remedy = "is no entry, or was changed", "restore it from a backup"
        raise WarehouseError(f"{path}, last line", problem, remedy)
    return None if entry is None else (line, entry)
