"""Opening of text files as users have them: compressed or not, in any Unicode encoding."""

import codecs
import gzip
import io
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from predictor.errors import InputError

GZIP, ZSTD, BZIP2 = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh"
XZ, ZIP = b"\xfd7zX", b"PK\x03\x04"
"""First bytes of compressed files; a file's name may say anything."""

MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
"""Encodings by byte order mark."""

TAR_MARK = 257, b"ustar"
"""Offset of the mark of a tar archive, and the mark."""

UNREADABLE = OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile
"""Errors of files that cannot be unpacked."""


def check_is_file(path: Path, needed: str = "a readable file") -> None:
    """Refuse whatever is not a file on disk: reading a device or a pipe may never end.

    Raises:
        InputError: The path is missing, a folder, a device or a pipe.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(str(path), str(reason), f"give {needed}") from None
    if stat.S_ISDIR(mode):
        raise InputError(str(path), "Is a directory", f"give {needed}")
    if not stat.S_ISREG(mode):
        raise InputError(str(path), "is a device or a pipe", "write it to a file first")


@contextmanager
def open_text(path: Path, members: Collection[str] = ()) -> Iterator[IO[str]]:
    """Open a file of text: plain, gzip, zstd, bzip2 or xz, or the only file of an archive.

    Bytes that are not text become replacement characters: free text of users is never refused.

    Args:
        path: The file.
        members: Stems of file names, to choose among the files of an archive.

    Raises:
        InputError: The file cannot be read, also while its text is.
    """
    check_is_file(path)
    try:
        with path.open("rb") as file, _unpack(file) as unpacked:
            raw = io.BufferedReader(unpacked, 1 << 16)
            offset, mark = TAR_MARK
            if raw.peek(512)[offset : offset + len(mark)] == mark:
                with tarfile.open(fileobj=raw, mode="r:") as archive:
                    yield _decode(_open_member(path, archive, members))
            elif raw.peek(4).startswith(ZIP):
                with zipfile.ZipFile(file) as packed:
                    yield _decode(_open_zipped(path, packed, members))
            else:
                yield _decode(raw)
    except UNREADABLE as error:
        reason = getattr(error, "strerror", None) or f"cannot be unpacked ({error})"
        raise InputError(str(path), reason, "give a readable file") from None


@contextmanager
def _unpack(file: IO[bytes]) -> Iterator[io.RawIOBase]:
    start = file.read(4)
    file.seek(0)
    if start.startswith(GZIP):
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield unpacked  # type: ignore[misc]
    elif start.startswith(XZ):
        with lzma.LZMAFile(file) as unxzed:
            yield unxzed  # type: ignore[misc]
    elif start.startswith((ZSTD, BZIP2)):
        import pyarrow as pa

        codec = "zstd" if start.startswith(ZSTD) else "bz2"
        with pa.CompressedInputStream(file, codec) as stream:
            yield _Stream(stream)
    else:
        yield file  # type: ignore[misc]


class _Stream(io.RawIOBase):
    """Arrow's stream as one of Python's."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _open_member(path: Path, archive: tarfile.TarFile, stems: Collection[str]) -> IO[bytes]:
    files = {member.name: member for member in archive if member.isfile()}
    found = archive.extractfile(files[_choose_member(path, files, stems)])
    assert found is not None, "a regular file"
    return found


def _open_zipped(path: Path, archive: zipfile.ZipFile, stems: Collection[str]) -> IO[bytes]:
    files = [each.filename for each in archive.infolist() if not each.is_dir()]
    try:
        return archive.open(_choose_member(path, files, stems))
    except RuntimeError as error:  # it is encrypted, or its compression is not known
        raise InputError(str(path), str(error), "unpack it, and give the file") from None


def _choose_member(path: Path, files: Iterable[str], stems: Collection[str]) -> str:
    """Return the file of an archive whose name begins with a stem, else its only file."""
    names = {file: Path(file).name for file in files}
    names = {file: name for file, name in names.items() if not name.startswith((".", "LICENSE"))}
    chosen = [file for file, name in names.items() if name.startswith(tuple(stems))] or [*names]
    if len(chosen) != 1:
        problem = f"is an archive of {len(names)} files: {', '.join([*names.values()][:12])}"
        raise InputError(str(path), problem, "unpack it, and give one of them")
    return chosen[0]


def _decode(raw: IO[bytes]) -> IO[str]:
    buffered = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw)  # type: ignore[type-var]
    start = buffered.peek(4)[:4]
    encoding = next((name for mark, name in MARKS.items() if start.startswith(mark)), "utf-8")
    return io.TextIOWrapper(buffered, encoding, errors="replace", newline="")
