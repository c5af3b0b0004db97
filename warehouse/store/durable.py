"""Atomic, durable writes: under a temporary name, flushed and renamed.

A reader never sees a partial file, and a crash loses no acknowledged write.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from predictor.errors import InputError, WarehouseBusy, remedy_of


def temporary_name(path: Path) -> Path:
    """Return a new name beside a file; no pattern of the views matches it."""
    return path.with_name(f".{path.name}.{uuid4().hex}")


def check_regular(path: Path) -> Path:
    """Return the path of a regular file; refuse any other.

    Raises:
        FileNotFoundError: There is no file.
        OSError: The path is a link, a folder or a pipe.
    """
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return path


def find_left_overs(folder: Path, name: str = "*") -> Iterator[Path]:
    """Yield temporary files of unfinished or interrupted writes."""
    return folder.glob(f".{name}.{'[0-9a-f]' * 32}")


Ahead = Callable[[Path, Path], object]
"""Called with a file's final and temporary path, once it is on disk and before it is renamed."""


def write_text(path: Path, text: str, ahead: Ahead | None = None) -> None:
    """Write a small text atomically and durably."""
    with write_file(path, ahead) as file:
        file.write(text.encode())


@contextlib.contextmanager
def write_file(path: Path, ahead: Ahead | None = None) -> Iterator[BinaryIO]:
    """Open a file to write; it gets its name once it is complete and flushed to disk."""
    temporary = temporary_name(path)
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException:  # for example, the disk is full
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if ahead is not None:
        ahead(path, temporary)
    give_name(temporary, path)


def give_name(temporary: Path, path: Path) -> None:
    """Rename a file or folder durably.

    Raises:
        FileExistsError: Another folder with files has that name.
        OSError: The rename failed.
    """
    try:
        temporary.replace(path)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise FileExistsError(errno.EEXIST, "exists", str(path)) from None
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def hold_lock(lock: Path) -> Iterator[None]:
    """Hold a lock; wait while another process or thread holds it.

    The file `lock` must be in an existing folder, and stays.

    Raises:
        WarehouseError: The file cannot be written.
    """
    with writing(lock):
        handle = _lock(lock, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(handle)


def lock_run(path: Path, run: str) -> int:
    """Lock a run for this process and return the lock's descriptor.

    Closing the descriptor releases the lock; so does the operating system when the process ends.

    Raises:
        WarehouseBusy: Another process holds the lock.
    """
    try:
        return _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        problem, remedy = "is being written by another process", "wait for it or stop it"
        raise WarehouseBusy(f"run {run!r}", problem, remedy) from None


def _lock(path: Path, how: int) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(handle, how)
    except BaseException:
        os.close(handle)
        raise
    return handle


def make_held_folder(root: Path, prefix: str, lock: Path) -> tuple[Path, int]:
    """Make a folder that this process holds, and return it with a descriptor that releases it.

    Every process holds `lock` while it makes a folder with the prefix. Folders that killed
    processes left are removed.
    """
    with hold_lock(lock):
        for left_over in root.glob(f"{prefix}*"):
            with contextlib.suppress(WarehouseBusy, FileNotFoundError, NotADirectoryError):
                os.close(lock_run(left_over / ".lock", left_over.name))
                shutil.rmtree(left_over, ignore_errors=True)
        folder = root / f"{prefix}{uuid4().hex}"
        folder.mkdir()
        return folder, lock_run(folder / ".lock", folder.name)


@contextlib.contextmanager
def writing(warehouse: Path) -> Iterator[None]:
    """Convert errors of the operating system to `WarehouseBusy`."""
    try:
        yield
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error})"
        remedy = remedy_of(error, "choose a writable warehouse with room on its disk")
        raise WarehouseBusy(str(error.filename or warehouse), problem, remedy) from None


def check_writable(path: Path) -> None:
    """Refuse an output that cannot be written, before the work for it; leave nothing behind.

    Neither the path nor its parents need to exist.

    Raises:
        InputError: The output cannot be written.
    """
    try:
        folder = path if path.is_dir() else path.parent
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        probe = temporary_name(folder / (path.name or "probe"))  # "." has no name
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error})"
        remedy = remedy_of(error, "choose a place that is writable")
        raise InputError(str(path), problem, remedy) from None
