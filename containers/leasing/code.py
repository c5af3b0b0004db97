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
from typing import BinaryIO, Self, cast
from uuid import uuid4

from predictor.errors import InputError
from predictor.options import FILE_NAME

MOST_PACKED, MOST_UNPACKED, MOST_FILES = 2**26, 2**28, 10_000
"""Most bytes of an archive, of its contents, and files and folders in it. Engineering bounds."""

MOST_KEPT = 64
"""Most codes of a tenant; older ones that no active job names are removed. An engineering bound."""

PART = 2**16
"""Bytes read at a time."""

LONGEST_PART, LONGEST_PATH, MOST_DEEP = 255, 1024, 32
"""Longest name of a file, in bytes, as Linux has it; longest path, in bytes, so that Linux's bound
of 4,096 leaves room for the storage's own; most parts of a path. The last two are engineering
bounds."""

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
    unpacked, paths, size = _Bounded(archive), set[tuple[str, ...]](), 0
    try:
        with tarfile.open(
            fileobj=cast(BinaryIO, unpacked), mode="r|", tarinfo=_StrictHeader
        ) as tar:
            for member in tar:
                parts = _parts(member.name)
                paths.update(parts[:deep] for deep in range(1, len(parts) + 1))  # folders above too
                if len(paths) > MOST_FILES:
                    raise _refused(f"holds more than {MOST_FILES:,} files and folders")
                path = folder.joinpath(*parts)
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
            assert tar.fileobj
            while rest := tar.fileobj.read(PART):
                if rest.strip(b"\0"):
                    raise tarfile.ReadError("more follows its end")
    except (tarfile.TarError, zlib.error, EOFError, ValueError, RecursionError) as error:
        problem = f"is not an archive of the kind .tar.gz ({str(error)[:80]})"
        raise InputError(FIELD, problem, "pack it with tar czf") from None
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise _refused("holds a path twice") from None
    if not paths:
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
    if sum(len(part.encode(errors="replace")) + 1 for part in parts) > LONGEST_PATH:
        raise _refused(f"holds {name[:80]!r}…, a path of more than {LONGEST_PATH:,} bytes")
    plain = name.isprintable() and not name.startswith("/") and ".." not in parts
    if not plain or any(len(part.encode(errors="replace")) > LONGEST_PART for part in parts):
        raise _refused(f"holds {name[:80]!r}, which is not a plain path within it")
    if len(parts) > MOST_DEEP:
        raise _refused(f"holds folders more than {MOST_DEEP} deep")
    return parts


def _refused(problem: str) -> InputError:
    return InputError(FIELD, problem, "leave that out, and pack it again")


class _StrictHeader(tarfile.TarInfo):
    """A header that must be whole: to tarfile, a broken one after the first ends the archive."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> Self:
        """Read the next header; see `TarInfo.fromtarfile`.

        Raises:
            TarError: There is none: the archive ends without its mark, or is damaged.
        """
        try:
            return super().fromtarfile(tarfile_)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the mark
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from None


class _Bounded:
    """The contents of a gzip file as a stream, which ends with an error after `left` bytes."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed, self._gzip = packed, zlib.decompressobj(31)
        self.left = MOST_HEADERS

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; none at the end.

        Raises:
            InputError: Too many bytes are headers.
            EOFError: The file ends early.
            TarError: More follows the contents, which programs would read, too.
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
        if self._gzip.unused_data or self._packed.read(1):
            raise tarfile.ReadError("more follows its end")
        return b""


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
