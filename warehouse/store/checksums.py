"""SHA-256 of each file of a run, beside them in the form of `sha256sum`.

The hash chain covers the records in a file; the checksum covers the file's bytes.
"""

import hashlib
import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from warehouse.store.durable import check_regular, write_file

CHECKSUMS = "SHA256SUMS"
"""Check by hand with `sha256sum --check SHA256SUMS` in the run's folder."""


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    with check_regular(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_checksum(path: Path) -> str | None:
    """A file's checksum; None if it is gone, empty if it is no file or cannot be read."""
    try:
        return checksum(path)
    except FileNotFoundError:
        return None
    except OSError:
        return ""


def hash_contents(contents: Mapping[str, bytes]) -> dict[str, str]:
    """SHA-256 of contents, in hexadecimal digits."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}


def read_sums(folder: Path) -> dict[str, str] | None:
    """Checksum by file name, from complete lines; None if the folder has no checksums."""
    if not os.path.isfile(f"{folder}/{CHECKSUMS}"):
        return None
    return {name: digest for digest, name in _LINE.findall(_text(folder))}


def is_stored(folder: Path) -> bool:
    """Whether a run's folder has any of the run's files, or checksums of any."""
    with suppress(OSError):  # the name is too long for a file
        return next(folder.glob("*.parquet"), None) is not None or bool(read_sums(folder))
    return False


def has_other_lines(folder: Path, *, half_a_line: bool) -> bool:
    """Whether the checksums have lines that are none.

    Args:
        folder: The run's folder.
        half_a_line: Whether a last line without an end counts; a writer may be adding it.
    """
    rest = _LINE.sub("", _text(folder))
    return rest.endswith("\n") or (rest != "" and half_a_line)


def _text(folder: Path) -> str:
    try:
        return (folder / CHECKSUMS).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def add_sum(path: Path, temporary: Path | None = None) -> str:
    """Append the checksum of a new file, durably; returns it.

    Args:
        path: The file.
        temporary: Its path until it gets its name; its checksum is appended first, so that no file
            is ever without one.
    """
    digest = checksum(temporary or path)
    with (path.parent / CHECKSUMS).open("ab+") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(end - 1, 0))
        torn = file.read(1) not in (b"", b"\n")  # an earlier write failed halfway
        file.write((b"\n" if torn else b"") + _lines({path.name: digest}))
        file.flush()
        os.fsync(file.fileno())
    return digest


def drop_sums(folder: Path, names: Collection[str]) -> None:
    """Rewrite the checksums without those of removed files, and without damaged lines."""
    known = read_sums(folder) or {}
    with write_file(folder / CHECKSUMS) as file:
        file.write(_lines({name: known[name] for name in known if name not in names}))


def with_sums(folder: Path, new: Mapping[str, str]) -> bytes:
    """The content of `SHA256SUMS` with changes for some files."""
    return _lines({**(read_sums(folder) or {}), **new})


def _lines(known: Mapping[str, str]) -> bytes:
    return "".join(f"{known[name]}  {name}\n" for name in sorted(known)).encode()


_LINE = re.compile(r"^([0-9a-f]{64})  (.+\.parquet)\n", re.MULTILINE)
