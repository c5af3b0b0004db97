"""Code of jobs, kept in a cluster's storage: archives of strangers, unpacked within bounds.

The code of a tenant with the SHA-256 of its archive is the folder `code/TENANT/SHA256`. Containers
of a job that names it see it read-only.
"""

import hashlib
import os
import shutil
import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast
from uuid import uuid4

from predictor.errors import InputError
from predictor.options import FILE_NAME

MOST_PACKED, MOST_UNPACKED, MOST_FILES = 2**26, 2**28, 10_000
"""Most bytes of an archive, of its contents, and files and folders in it. Engineering bounds."""

MOST_KEPT = 64
"""Most codes of a tenant; older ones that no active job names are removed. An engineering bound."""

PART = 2**16
"""Bytes read at a time."""

LONGEST_PART, MOST_DEEP = 255, 32
"""Longest name of a file, in bytes, as Linux has it; most parts of a path, an engineering bound."""

FIELD = "code"
"""The field of a job, for error messages."""

MOST_HEADERS = 2**24
"""Most bytes of headers, which are read into memory, and of padding. An engineering bound."""


def code_folder(storage: Path, tenant: str, digest: str) -> Path:
    """Return the folder of a tenant's code.

    Raises:
        InputError: The tenant's name cannot be part of a path.
    """
    if not FILE_NAME.fullmatch(tenant):
        problem = f"{tenant[:80]!r} has no folder of code"
        remedy = "use letters, digits, '.', '_' and '-', at most 100"
        raise InputError("tenant", problem, remedy)
    return storage / FIELD / tenant / digest


def check_stored(storage: Path, tenant: str, digest: str) -> None:
    """Refuse code that the tenant has not stored.

    Raises:
        InputError: It is refused.
    """
    if not code_folder(storage, tenant, digest).is_dir():
        problem = f"tenant {tenant} has stored no code {digest[:12]}…"
        raise InputError(FIELD, problem, "submit its folder or archive, which stores it")


def store_code(storage: Path, tenant: str, archive: BinaryIO, named: Collection[str] = ()) -> str:
    """Unpack an archive (.tar.gz) durably into the storage, and return its SHA-256.

    Args:
        storage: Folder of the cluster.
        tenant: Its owner.
        archive: It may come from a stranger.
        named: Codes of the tenant's active jobs, which are kept.

    Raises:
        InputError: The archive is refused, or too many codes of active jobs are kept.
        OSError: The storage cannot be written.
    """
    digest = hashlib.sha256()
    size = 0
    while part := archive.read(PART):
        size += len(part)
        if size > MOST_PACKED:
            raise InputError(FIELD, f"is larger than {MOST_PACKED // 2**20} MiB", "leave out data")
        digest.update(part)
    name = digest.hexdigest()
    folder = code_folder(storage, tenant, name)
    if folder.is_dir():
        os.utime(folder)
        return name
    archive.seek(0)
    folder.parent.mkdir(parents=True, exist_ok=True)
    make_room(folder.parent, named)
    temporary = folder.with_name(f".{name}.{uuid4().hex}")
    try:
        temporary.mkdir()
        _unpack(archive, temporary)
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.is_dir():  # of two at the same time the first remains
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _flush(folder.parent)
    return name


def make_room(folder: Path, named: Collection[str]) -> None:
    """Remove a tenant's oldest codes that no active job names, so that another one has room.

    Raises:
        InputError: Active jobs name all of them.
    """
    kept = [(entry.stat().st_mtime, entry) for entry in folder.iterdir()]
    excess = len(kept) - MOST_KEPT + 1
    if excess <= 0:
        return
    unnamed = [entry for _, entry in sorted(kept) if entry.name not in named]
    if len(unnamed) < excess:
        problem = f"{len(kept)} codes of active jobs are stored already"
        raise InputError(FIELD, problem, "wait until one of these jobs has ended")
    for entry in unnamed[:excess]:
        shutil.rmtree(entry, ignore_errors=True)


def _unpack(archive: BinaryIO, folder: Path) -> None:
    """Write files and folders of an archive; links, devices and paths out of it are refused.

    Only bytes and whether a file is executable are taken; owners, times and other bits are not.
    """
    unpacked, files, size = _Bounded(archive), 0, 0
    try:
        with tarfile.open(fileobj=cast(BinaryIO, unpacked), mode="r|") as tar:
            for member in tar:
                files += 1
                if files > MOST_FILES:
                    raise _refused(f"holds more than {MOST_FILES:,} files and folders")
                path = folder.joinpath(*_parts(member.name))
                if member.isdir():
                    path.mkdir(parents=True, exist_ok=True)
                elif member.isreg() and not member.issparse():
                    size += member.size
                    if size > MOST_UNPACKED:
                        raise _refused(f"unpacks to more than {MOST_UNPACKED // 2**20} MiB")
                    unpacked.left += member.size
                    path.parent.mkdir(parents=True, exist_ok=True)
                    _write(tar, member, path)
                else:
                    raise _refused(f"holds {member.name[:80]!r}, which is no file and no folder")
    except (tarfile.TarError, zlib.error, EOFError, ValueError) as error:
        problem = f"is not an archive of the kind .tar.gz ({str(error)[:80]})"
        raise InputError(FIELD, problem, "pack it with tar czf") from None
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise _refused("holds a path twice") from None
    if not files:
        raise _refused("is empty")
    for inner, _, _ in os.walk(folder):
        os.chmod(inner, 0o755)
        _flush(Path(inner))


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    source = tar.extractfile(member)
    assert source is not None
    with path.open("xb") as file:  # "x" follows no link
        shutil.copyfileobj(source, file, PART)
        if file.tell() != member.size:
            raise EOFError("it ends early")
        os.fchmod(file.fileno(), 0o755 if member.mode & 0o100 else 0o644)
        file.flush()
        os.fsync(file.fileno())


def _parts(name: str) -> tuple[str, ...]:
    parts = PurePosixPath(name).parts
    plain = name.isprintable() and not name.startswith("/") and ".." not in parts
    if not plain or any(len(part.encode(errors="replace")) > LONGEST_PART for part in parts):
        raise _refused(f"holds {name[:80]!r}, which is not a plain path within it")
    if len(parts) > MOST_DEEP:
        raise _refused(f"holds folders more than {MOST_DEEP} deep")
    return parts


def _refused(problem: str) -> InputError:
    return InputError(FIELD, problem, "leave that out, and pack it again")


class _Bounded:
    """The contents of a gzip file as a stream, which ends with an error after `left` bytes."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed, self._gzip = packed, zlib.decompressobj(31)
        self.left = MOST_HEADERS

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; none at the end.

        Raises:
            InputError: Too many bytes are headers.
        """
        while not self._gzip.eof:
            packed = self._gzip.unconsumed_tail or self._packed.read(PART)
            found = self._gzip.decompress(packed, min(size, PART))
            self.left -= len(found)
            if self.left < 0:
                raise _refused(f"has more than {MOST_HEADERS // 2**20} MiB beside its files")
            if found:
                return found
            if not packed:
                raise EOFError("it ends early")
        return b""


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
