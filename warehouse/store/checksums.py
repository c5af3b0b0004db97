"""SHA-256 of each file of a run, kept beside them as `sha256sum` writes and checks it.

The hash chain of the records covers the contents of a file; these cover its bytes.
"""

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from warehouse.store.durable import regular, written

CHECKSUMS = "SHA256SUMS"
"""Check by hand with `sha256sum --check SHA256SUMS` in the run's folder."""


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    with regular(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksum_found(path: Path) -> str | None:
    """A file's checksum; None if it is gone, empty if it is no file or cannot be read."""
    try:
        return checksum(path)
    except FileNotFoundError:
        return None
    except OSError:
        return ""


def noted(folder: Path) -> dict[str, str] | None:
    """Checksum by file name, from complete lines; None if the run has no checksums."""
    if not os.path.isfile(f"{folder}/{CHECKSUMS}"):
        return None
    return {name: digest for digest, name in _LINE.findall(_text(folder))}


def is_stored(folder: Path) -> bool:
    """Whether a run's folder has any of the run's files, or notes that it had."""
    with suppress(OSError):  # of a name that no file can have
        return next(folder.glob("*.parquet"), None) is not None or bool(noted(folder))
    return False


def spoilt(folder: Path, *, whole_lines: bool) -> bool:
    """Whether something other than checksums is noted.

    Args:
        folder: Of the run.
        whole_lines: Whether to overlook a last line without an end, which is being written.
    """
    rest = _LINE.sub("", _text(folder))
    return rest.endswith("\n") or (rest != "" and not whole_lines)


def _text(folder: Path) -> str:
    try:
        return (folder / CHECKSUMS).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def note(path: Path, temporary: Path | None = None) -> str:
    """Append the checksum of a new file, durably; returns it.

    Args:
        path: The file.
        temporary: Its path until it gets its name; noted ahead, so that no file lacks a checksum.
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


def mend(folder: Path, *, trusted: Iterable[str]) -> None:
    """Add checksums that a crash kept from being written, and drop those of removed files.

    Args:
        folder: Of the run.
        trusted: Names of files whose missing checksums may be added.
    """
    known = noted(folder) or {}
    known |= {name: checksum(folder / name) for name in trusted if name not in known}
    _write(folder, {name: known[name] for name in known if (folder / name).exists()})


def drop(folder: Path, names: Collection[str]) -> None:
    """Drop the checksums of files that were removed."""
    known = noted(folder) or {}
    _write(folder, {name: known[name] for name in known if name not in names})


def _write(folder: Path, known: Mapping[str, str]) -> None:
    with written(folder / CHECKSUMS) as file:
        file.write(_lines(known))


def with_sums(folder: Path, new: Mapping[str, str]) -> bytes:
    """The noted checksums, with changes for some files."""
    return _lines({**(noted(folder) or {}), **new})


def _lines(known: Mapping[str, str]) -> bytes:
    return "".join(f"{known[name]}  {name}\n" for name in sorted(known)).encode()


_LINE = re.compile(r"^([0-9a-f]{64})  (.+\.parquet)\n", re.MULTILINE)
