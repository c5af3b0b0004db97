"""Atomic writes of a report's files."""

import hashlib
import re
from pathlib import Path

from predictor.errors import InputError
from warehouse.store.durable import temporary_name

NAME_LENGTH = 80
"""Of a report's name, before its hash; the names of many runs are longer."""


def report_name(about: str) -> str:
    """What a report is about, as a name of files and of Prefect's artifacts.

    It is of lower-case letters, digits and dashes, the same wherever it is made. What had to
    be changed or cut ends in a hash, so that no two reports share a name.

    Args:
        about: A run, several with commas between them, or a campaign.
    """
    name = re.sub(r"[^a-z0-9]+", "-", about.lower()).strip("-")
    name = name[:NAME_LENGTH].rstrip("-")
    if name == about:
        return name
    digest = hashlib.sha256(about.encode()).hexdigest()[:8]
    return f"{name}-{digest}".lstrip("-")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file under a temporary name and rename it; makes its folder.

    Raises:
        InputError: It cannot be written.
    """
    temporary = temporary_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            str(path),
            f"cannot be written ({error.strerror or error})",
            "give another place for the page or its figures",
        ) from None
