"""Verification of files that are read: their SHA-256, once for each version of a file.

    WAREHOUSE/.verified.json    checksum by file, and the version of the file that has it

A version is a file's size, its times of the last change of content and of state, and its inode.
Writers note their files as well, so that these are not read again for their checksums. The note may
be removed at any time; an audit takes no notice of it.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import BinaryIO

import orjson

from predictor.errors import InputError, WarehouseError
from warehouse.store.durable import regular

NOTE = ".verified.json"

CHUNK_BYTES = 2**20
"""What a thread reads at once. An engineering choice; no sweep is recorded."""

Version = list[int]
"""Size, inode, and in nanoseconds the times of the last change of content and of state."""


class Verification:
    """Compares files with their checksums in threads of its own; `finish` waits for them.

    Files that are gone are left to their readers.

    Args:
        warehouse: The folder that the files are in.
        expected: Checksum by file.
        remedy: Remedy for a file with another checksum.
        ended: Set when the result is no longer needed.

    Attributes:
        fresh: The files that were not verified before, or were changed since.
    """

    def __init__(
        self,
        warehouse: Path,
        expected: Mapping[Path, str],
        remedy: str,
        ended: Event | None = None,
    ) -> None:
        self._warehouse, self._expected, self._remedy = warehouse, expected, remedy
        self._ended = ended or Event()
        known = _known(warehouse)
        self.fresh: dict[Path, Version] = {}
        for path, digest in expected.items():
            with suppress(FileNotFoundError):
                version = version_of(path)
                if known.get(_name(warehouse, path)) != [version, digest]:
                    self.fresh[path] = version
        if self.fresh:
            pool = ThreadPoolExecutor(min(len(self.fresh), os.cpu_count() or 1))
            self._found = {path: pool.submit(self._checksum, path) for path in self.fresh}
            pool.shutdown(wait=False)

    def finish(self) -> None:
        """Wait until all files are verified.

        Raises:
            WarehouseError: A file has another checksum; the error names it.
            InputError: It was ended before that.
        """
        for path in self.fresh:
            if self._found[path].result() not in (None, self._expected[path]):
                self._ended.set()
                problem = "was changed: its bytes are not those that were written"
                raise WarehouseError(str(path), problem, self._remedy)

    def note(self) -> None:
        """Note that these versions of the files have these checksums."""
        if self.fresh:
            found = {path: (self.fresh[path], self._expected[path]) for path in self.fresh}
            _note(self._warehouse, found)

    def _checksum(self, path: Path) -> str | None:
        digest, chunk = hashlib.sha256(), memoryview(bytearray(CHUNK_BYTES))
        try:
            with regular(path).open("rb", buffering=0) as file:
                while size := file.readinto(chunk):
                    if self._ended.is_set():
                        raise InputError("query", "was ended", "ask again")
                    digest.update(chunk[:size])
        except FileNotFoundError:
            return None
        return digest.hexdigest()


def note_written(warehouse: Path, folder: Path, written: Mapping[str, tuple[Version, str]]) -> None:
    """Note the checksums of files that this process has written, without reading them again.

    Args:
        warehouse: The folder of the warehouse.
        folder: The folder of the files.
        written: Version of each complete file, and its checksum, by name. Files that were changed
            since are left out; the time of the state may differ, since renaming changes it.
    """
    found: dict[Path, tuple[Version, str]] = {}
    for name, ([*before, _], digest) in written.items():
        with suppress(OSError):
            *now, state = version_of(folder / name)
            if now == before:
                found[folder / name] = [*now, state], digest
    if found:
        _note(warehouse, found)


def version_of(path: Path) -> Version:
    """The present version of a file."""
    state = os.stat(path)
    return [state.st_size, state.st_ino, state.st_mtime_ns, state.st_ctime_ns]


def _name(warehouse: Path, path: Path) -> str:
    return str(path.relative_to(warehouse))


def _known(warehouse: Path) -> dict[str, object]:
    try:
        return _noted(regular(warehouse / NOTE).read_bytes())
    except OSError:
        return {}


def _noted(content: bytes) -> dict[str, object]:
    try:
        note = orjson.loads(content)
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}


def _note(warehouse: Path, files: Mapping[Path, tuple[Version, str]]) -> None:
    """Add to the note; without the right to write, files are verified each time."""
    with suppress(OSError), _alone(warehouse / NOTE) as file:
        note = _noted(file.read())
        note |= {_name(warehouse, path): list(found) for path, found in files.items()}
        kept = {name: note[name] for name in note if os.path.exists(f"{warehouse}/{name}")}
        file.seek(0)
        file.truncate()
        file.write(orjson.dumps(kept))


@contextmanager
def _alone(path: Path) -> Iterator[BinaryIO]:
    with suppress(FileNotFoundError):
        regular(path)
    with path.open("ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # where another notes, that will do
        file.seek(0)
        yield file
