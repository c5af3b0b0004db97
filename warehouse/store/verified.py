"""Verification of files that are read: their SHA-256, once for each version of a file.

    WAREHOUSE/.verified.json    checksum by file, and the version of the file that has it

A version is what the operating system says of a file: size, times of the last change of content
and of state, inode. The note may be removed at any time; an audit takes no notice of it.
"""

import fcntl
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import orjson

from predictor.errors import WarehouseError
from warehouse.store.checksums import checksum
from warehouse.store.durable import regular

NOTE = ".verified.json"

Version = list[int]


def verify(warehouse: Path, expected: Mapping[Path, str], remedy: str) -> None:
    """Hold files against their checksums; those that are gone are left to their readers.

    Args:
        warehouse: The folder that the files are in.
        expected: Checksum by file.
        remedy: What to do about a file with another checksum.

    Raises:
        WarehouseError: A file has another checksum; it is named.
    """
    known = _known(warehouse)
    fresh: dict[Path, Version] = {}
    for path, digest in expected.items():
        with suppress(FileNotFoundError):
            version = _version(path)
            if known.get(_name(warehouse, path)) != [version, digest]:
                fresh[path] = version
    if not fresh:
        return
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, found in zip(fresh, pool.map(_checksum, fresh), strict=True):
            if found not in (None, expected[path]):
                problem = "was changed: its bytes are not those that were written"
                raise WarehouseError(str(path), problem, remedy)
            known[_name(warehouse, path)] = [fresh[path], found]
    with suppress(OSError):  # without the right to write, they are verified each time
        _write(warehouse, known)


def _name(warehouse: Path, path: Path) -> str:
    return str(path.relative_to(warehouse))


def _checksum(path: Path) -> str | None:
    try:
        return checksum(path)
    except FileNotFoundError:
        return None


def _version(path: Path) -> Version:
    state = os.stat(path)
    return [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]


def _known(warehouse: Path) -> dict[str, object]:
    try:
        note = orjson.loads(regular(warehouse / NOTE).read_bytes())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def _write(warehouse: Path, note: Mapping[str, object]) -> None:
    kept = {name: entry for name, entry in note.items() if (warehouse / name).exists()}
    with suppress(FileNotFoundError):
        regular(warehouse / NOTE)
    with (warehouse / NOTE).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # where another query writes, that will do
        file.truncate(0)
        file.write(orjson.dumps(kept))
