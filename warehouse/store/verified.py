"""Verification of files that queries read: their SHA-256, once per version of a file.

    WAREHOUSE/.verified.json    version and checksum by file

A version is a file's size, inode, and times of the last change of content and of state.
`.verified.json` can be removed at any time; audits ignore it.
"""

import fcntl
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event

import orjson

from predictor.errors import InputError, WarehouseError
from warehouse.store.checksums import find_checksum
from warehouse.store.durable import check_regular

VERIFIED = ".verified.json"

Version = list[int]
"""Size and inode, then the times of the last change of content and of state, in nanoseconds."""


class Verification:
    """A comparison of files with their checksums in threads of its own; `finish` waits for them.

    Missing files are left to their readers. `expected` has the checksum of each file, `remedy` is
    for a file with another one, and `ended` is set when the result is no longer needed.

    Attributes:
        fresh: The files that were not verified before, or have changed since.
    """

    def __init__(
        self, warehouse: Path, expected: Mapping[Path, str], remedy: str, ended: Event | None = None
    ) -> None:
        self._warehouse, self._expected, self._remedy = warehouse, expected, remedy
        self._ended = ended or Event()
        known = dict[str, object]()
        with suppress(OSError):
            known = _parse(check_regular(warehouse / VERIFIED).read_bytes())
        self.fresh: dict[Path, Version] = {}
        for path, digest in expected.items():
            # The version is taken before reading, so a change in between is verified again.
            with suppress(FileNotFoundError):
                state = os.stat(path)
                times = state.st_mtime_ns, state.st_ctime_ns
                version = [state.st_size, state.st_ino, *times]
                if known.get(str(path.relative_to(warehouse))) != [version, digest]:
                    self.fresh[path] = version
        if self.fresh:
            pool = ThreadPoolExecutor(min(len(self.fresh), os.cpu_count() or 1))
            self._found = {path: pool.submit(self._checksum, path) for path in self.fresh}
            pool.shutdown(wait=False)

    def _checksum(self, path: Path) -> str | None:
        if self._ended.is_set():
            raise InputError("query", "was ended", "ask again")
        return find_checksum(path)

    def finish(self) -> None:
        """Wait until all files are verified.

        Raises:
            WarehouseError: A file has another checksum; the error names it.
            InputError: The query ended first.
        """
        for path in self.fresh:
            if self._found[path].result() not in (None, self._expected[path]):
                self._ended.set()
                problem = "was changed: its bytes are not those that were written"
                raise WarehouseError(str(path), problem, self._remedy)

    def save(self) -> None:
        """Save the verified versions, so that the next query does not read these files."""
        _save(self._warehouse, {p: (self.fresh[p], self._expected[p]) for p in self.fresh})


def verify(warehouse: Path, expected: Mapping[Path, str], remedy: str) -> None:
    """Compare files with their checksums, once per version of a file.

    Raises:
        WarehouseError: A file has another checksum; the error names it.
    """
    verification = Verification(warehouse, expected, remedy)
    verification.finish()
    verification.save()


def _parse(content: bytes) -> dict[str, object]:
    try:
        found = orjson.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _save(warehouse: Path, files: Mapping[Path, tuple[Version, str]]) -> None:
    """Add verified files; if they cannot be saved, each query verifies them."""
    if not files:
        return
    with suppress(OSError):
        with suppress(FileNotFoundError):
            check_regular(warehouse / VERIFIED)
        with (warehouse / VERIFIED).open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while another process saves
            file.seek(0)
            found = _parse(file.read())
            found |= {str(path.relative_to(warehouse)): list(files[path]) for path in files}
            kept = {name: found[name] for name in found if os.path.exists(f"{warehouse}/{name}")}
            file.truncate(0)
            file.write(orjson.dumps(kept))
