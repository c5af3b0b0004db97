"""Atomic writes to a job's folder, under the lease that allows them.

A scheduler that loses contact with a container may start the job elsewhere. The job's folder names
the current lease; containers of other leases exit before they write.
"""

import os
from pathlib import Path

from trainer.errors import LeaseLost, StorageError

LEASE = "lease"
LEASE_VARIABLE = "SHOCKWAVE_LEASE"
"""Environment variable with this container's lease; if unset, no lease is checked."""


def check_lease(folder: Path) -> None:
    """Refuse to write under a lease other than this container's.

    Raises:
        LeaseLost: Another lease holds.
    """
    own = os.environ.get(LEASE_VARIABLE)
    if not own:
        return
    try:
        holds = (folder / LEASE).read_text(encoding="utf-8").strip()
    except OSError:
        return  # no lease is named
    if holds != own:
        raise LeaseLost(f"{folder / LEASE}: lease {holds} holds, not {own}; leaving")


def replace(path: Path, payload: bytes, durable: bool, keep: Path | None = None) -> None:
    """Replace a file atomically; a durable file survives a power failure.

    `keep` is a path for the previous contents, if any.

    Raises:
        StorageError: It cannot be written; the file is unchanged.
        LeaseLost: The job runs under another lease.
    """
    check_lease(path.parent)
    temporary = path.with_name(f".{path.name}.part")
    try:
        try:
            with temporary.open("wb") as file:
                file.write(payload)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            if keep is not None and path.exists():
                path.replace(keep)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        if durable:
            sync_folder(path.parent)
    except OSError as error:
        raise StorageError(path, error) from error


def append_line(path: Path, line: bytes) -> None:
    """Append a line with a single write, and flush it to disk.

    A torn line, left by a machine that failed, is ended first. The file is created if needed;
    `line` has no line feed.

    Raises:
        StorageError: It cannot be written; the file is unchanged.
        LeaseLost: The job runs under another lease.
    """
    check_lease(path.parent)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            payload = b"\n" * torn + line + b"\n"
            try:
                if os.write(descriptor, payload) < len(payload):
                    raise OSError(None, "it took only part of a line")
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageError(path, error) from error


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
