"""Opening of text files as users have them: compressed or not, in any Unicode encoding."""

import codecs
import gzip
import io
import os
import stat
import tarfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from predictor.errors import InputError

GZIP, ZSTD, BZIP2 = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh"
"""First bytes of compressed files; a file's name may say anything."""

MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
"""Encodings by byte order mark."""

TAR_MARK = 257, b"ustar"
"""Offset of the mark of a tar archive, and the mark."""


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
    """Open a file of text: plain, gzip, zstd or bzip2, or the only file of a tar archive.

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
                    yield _decode(_find_member(path, archive, members))
            else:
                yield _decode(raw)
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        reason = getattr(error, "strerror", None) or f"cannot be unpacked ({error})"
        raise InputError(str(path), reason, "give a readable file") from None


@contextmanager
def _unpack(file: IO[bytes]) -> Iterator[io.RawIOBase]:
    start = file.read(4)
    file.seek(0)
    if start.startswith(GZIP):
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield unpacked  # type: ignore[misc]
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


def _find_member(path: Path, archive: tarfile.TarFile, stems: Collection[str]) -> IO[bytes]:
    """Return the file of an archive whose name begins with a stem, else its only file."""
    files = {Path(member.name).name: member for member in archive if member.isfile()}
    files = {
        name: member for name, member in files.items() if not name.startswith((".", "LICENSE"))
    }
    chosen = [name for name in files if name.startswith(tuple(stems))] or [*files]
    if len(chosen) != 1:
        problem = f"is an archive of {len(files)} files: {', '.join([*files][:12])}"
        raise InputError(str(path), problem, "unpack it, and give one of them")
    found = archive.extractfile(files[chosen[0]])
    assert found is not None, "a regular file"
    return found


def _decode(raw: IO[bytes]) -> IO[str]:
    buffered = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw)  # type: ignore[type-var]
    start = buffered.peek(4)[:4]
    encoding = next((name for mark, name in MARKS.items() if start.startswith(mark)), "utf-8")
    return io.TextIOWrapper(buffered, encoding, errors="replace", newline="")
