"""How files are written: under a temporary name, flushed and renamed.

So a reader never sees half of one, and a crash loses nothing that was acknowledged.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from predictor.errors import WarehouseBusy


def temporary_name(path: Path) -> Path:
    """A name beside a file that no pattern of the views matches."""
    return path.with_name(f".{path.name}.{uuid4().hex}")


def write_text(path: Path, text: str) -> None:
    """Write a small text whole or not at all, and durably."""
    with written(path) as file:
        file.write(text.encode())


@contextlib.contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """A file to write, that gets its name at the end, when it is flushed to disk."""
    temporary = temporary_name(path)
    with temporary.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)  # the new name must outlive a power cut too
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Wait until no other process or thread holds a lock, and hold it.

    Args:
        lock: Its file, which stays; in a folder that is there.

    Raises:
        WarehouseError: The file cannot be written.
    """
    import fcntl

    with writing(lock):
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def writing(warehouse: Path) -> Iterator[None]:
    """Turn what the operating system refuses into a `WarehouseBusy`."""
    try:
        yield
    except OSError as error:
        raise WarehouseBusy(
            str(error.filename or warehouse),
            f"cannot be written ({error.strerror or error})",
            "choose a writable warehouse with room on its disk",
        ) from None


def first_line(error: Exception) -> str:
    """An error in one line."""
    return str(error).strip().splitlines()[0]
