"""SHA-256 of each file of a run, stored beside the files as `sha256sum` does.

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
"""To check by hand, run `sha256sum --check SHA256SUMS` in the run's folder."""


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal.

    Raises:
        OSError: The file cannot be read, or is not regular.
    """
    with check_regular(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_checksum(path: Path) -> str | None:
    """Return a file's checksum; None if it is gone, empty if it is unreadable or no file."""
    try:
        return checksum(path)
    except FileNotFoundError:
        return None
    except OSError:
        return ""


def hash_contents(contents: Mapping[str, bytes]) -> dict[str, str]:
    """Return the SHA-256 of contents in hexadecimal."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}


def read_sums(folder: Path) -> dict[str, str] | None:
    """Return checksums by file name, from complete lines; None if the folder has none."""
    if not os.path.isfile(f"{folder}/{CHECKSUMS}"):
        return None
    return {name: digest for digest, name in _LINE.findall(_text(folder))}


def is_stored(folder: Path) -> bool:
    """Return whether a run's folder has any of the run's files, or checksums of any."""
    with suppress(OSError):  # the name can be too long for a file
        return next(folder.glob("*.parquet"), None) is not None or bool(read_sums(folder))
    return False


def has_other_lines(folder: Path, *, half_a_line: bool) -> bool:
    """Return whether a folder's checksums have malformed lines.

    With `half_a_line`, an unterminated last line counts; a writer may be adding it.
    """
    rest = _LINE.sub("", _text(folder))
    return rest.endswith("\n") or (rest != "" and half_a_line)


def _text(folder: Path) -> str:
    try:
        return (folder / CHECKSUMS).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def add_sum(path: Path, temporary: Path | None = None) -> str:
    """Append the checksum of a new file durably, and return it.

    A file that is still under its temporary name gets its checksum first, so that no file is ever
    without one.
    """
    digest = checksum(temporary or path)
    with (path.parent / CHECKSUMS).open("ab+") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(end - 1, 0))
        torn = file.read(1) not in (b"", b"\n")  # an earlier write failed halfway
        file.write((b"\n" if torn else b"") + format_sums({path.name: digest}))
        file.flush()
        os.fsync(file.fileno())
    return digest


def drop_sums(folder: Path, names: Collection[str]) -> None:
    """Rewrite the checksums without those of removed files, and without damaged lines."""
    known = read_sums(folder) or {}
    with write_file(folder / CHECKSUMS) as file:
        file.write(format_sums({name: known[name] for name in known if name not in names}))


def format_sums(known: Mapping[str, str]) -> bytes:
    """Return the content of `SHA256SUMS`."""
    return "".join(f"{known[name]}  {name}\n" for name in sorted(known)).encode()


_LINE = re.compile(r"^([0-9a-f]{64})  (.+\.parquet)\n", re.MULTILINE)
