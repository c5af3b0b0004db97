"""Atomic writes of a report's files."""

import hashlib
import re
from pathlib import Path

from predictor.errors import InputError
from warehouse.store.durable import check_writable, write_file

NAME_LENGTH = 80
"""Longest report name without a hash; lists of many runs are longer. An engineering choice."""

GENERATOR, HEAD_BYTES = b'<meta name="generator" content="Shockwave">', 1024
"""Mark of report pages, and the number of leading bytes that contain it. The template places it
within the first 100 bytes, before a report's own contents, so any larger number works."""


def report_name(about: str) -> str:
    """Return the name of a report, for files and Prefect's artifacts.

    The name has lower-case letters, digits and dashes, and depends on `about` only. A changed or
    shortened name ends in a hash, so that no two reports share one. `about` is a run, runs
    separated by commas, or a campaign.
    """
    name = re.sub(r"[^a-z0-9]+", "-", about.lower()).strip("-")
    name = name[:NAME_LENGTH].rstrip("-")
    if name == about:
        return name
    digest = hashlib.sha256(about.encode()).hexdigest()[:8]
    return f"{name}-{digest}".lstrip("-")


def page_path(out: Path | None, warehouse: Path, about: str) -> Path:
    """Return the file of a report's page.

    Args:
        out: The file, or a folder for a file with the report's name; by default, the warehouse's
            folder `reports`.
        warehouse: The warehouse.
        about: See `report_name`.

    Raises:
        InputError: The file cannot be written, or is not a report.
    """
    if out is None or out.is_dir():
        path = (out or warehouse / "reports") / f"{report_name(about)}.html"
    else:
        path = out
    check_writable(path)
    if out:
        check_replaced(path)
    return path


def check_replaced(path: Path) -> None:
    """Refuse to replace a file that is neither a report's page nor empty.

    Raises:
        InputError: The file is not a page of a report, or cannot be read.
    """
    if not path.is_file():
        return
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise InputError(str(path), problem, "name another file") from None
    if head and GENERATOR not in head:
        problem, remedy = "exists and is not a report", "name another file, or remove this one"
        raise InputError(str(path), problem, remedy)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically; create its folder if needed.

    Raises:
        InputError: The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_file(path) as file:
            file.write(content)
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error})"
        remedy = "give another place for the page or its figures"
        raise InputError(str(path), problem, remedy) from None
