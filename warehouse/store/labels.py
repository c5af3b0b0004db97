"""Names, tags and notes of runs: `WAREHOUSE/labels.json`, outside the records.

The ledger does not cover the file: it can be changed or removed at any time.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from predictor.errors import WarehouseError
from warehouse.store.durable import check_regular

LABELS = "labels.json"

WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Pattern of names and tags."""

NOTE_LENGTH = 10_000
"""Most characters of a note. An engineering bound."""


@dataclass(frozen=True, slots=True)
class Label:
    """A user's name, tags and note of a run.

    Attributes:
        name: Another name for the run, unique in the warehouse; can be empty.
        tags: Tags, ascending.
    """

    name: str = ""
    tags: tuple[str, ...] = ()
    note: str = ""


def parse_label(row: Any) -> Label:
    """Return the label in a stored object.

    Raises:
        ValueError: A name or tag is not a valid word, or the note is too long.
        KeyError: A field is missing.
        TypeError: The row or a field has another type.
    """
    name, tags, note = row["name"], tuple(row["tags"]), row["note"]
    if (name != "" and not WORD.fullmatch(name)) or not all(map(WORD.fullmatch, tags)):
        raise ValueError("no words")
    if not isinstance(note, str) or len(note) > NOTE_LENGTH:
        raise ValueError("no note")
    return Label(name, tags, note)


def read_labels(warehouse: Path) -> dict[str, Label]:
    """Return the labels by run.

    Raises:
        WarehouseError: The file is damaged.
    """
    path = warehouse / LABELS
    try:
        rows = orjson.loads(check_regular(path).read_bytes()).items()
        return {run: parse_label(row) for run, row in rows}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        remedy = "correct or remove it: nothing else depends on it"
        raise WarehouseError(str(path), "cannot be read", remedy) from None
