"""Names, tags and notes of runs: `WAREHOUSE/labels.json`, outside the records.

The file is not in the ledger: it may be changed or removed at any time.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from predictor.errors import InputError, WarehouseError
from warehouse.store.durable import check_regular, hold_lock, write_text, writing
from warehouse.store.folder import RUN_NAME, place_of, run_folder

LABELS = "labels.json"

WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Names and tags."""

NOTE_LENGTH = 10_000
"""Characters that a note may have. An engineering bound."""


@dataclass(frozen=True, slots=True)
class Label:
    """A user's name, tags and note of a run.

    Attributes:
        name: A second name of the run, which no other run has; empty if there is none.
        tags: Its tags, ascending.
        note: A text; empty if there is none.
    """

    name: str = ""
    tags: tuple[str, ...] = ()
    note: str = ""


def parse_label(row: Any) -> Label:
    """The label from a stored object.

    Raises:
        ValueError: It has a name or a tag that is no word, or a note that is too long.
        KeyError: It lacks one of them.
        TypeError: It is no object, or one of them is of another type.
    """
    name, tags, note = row["name"], tuple(row["tags"]), row["note"]
    if (name != "" and not WORD.fullmatch(name)) or not all(map(WORD.fullmatch, tags)):
        raise ValueError("no words")
    if not isinstance(note, str) or len(note) > NOTE_LENGTH:
        raise ValueError("no note")
    return Label(name, tags, note)


def read_labels(warehouse: Path) -> dict[str, Label]:
    """The labels by run.

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
        raise WarehouseError(
            str(path), "cannot be read", "correct or remove it: nothing else depends on it"
        ) from None


def find_run(warehouse: Path, text: str) -> str:
    """The run with an id or name; the text itself if no run has the name. Ids come first."""
    if _is_id(warehouse, text):
        return text
    return next((run for run, label in read_labels(warehouse).items() if label.name == text), text)


def read_label(warehouse: Path, run: str) -> Label:
    """The label of a run, as it is.

    Raises:
        InputError: There is no such run.
        WarehouseError: The file is damaged.
    """
    run_folder(warehouse, run)
    return read_labels(warehouse).get(run, Label())


def name_run(warehouse: Path, run: str, name: str) -> Label:
    """Give a run a name, in place of the one that it has; an empty text takes it away.

    Raises:
        InputError: There is no such run, or the name is taken or invalid.
        WarehouseError: The file cannot be written.
    """
    if name:
        _check_word("name", name)
        if whose := _whose_id(warehouse, name):
            raise InputError("name", f"{name!r} is a {whose}'s id", "choose another name")

    def named(labels: dict[str, Label]) -> Label:
        other = next((r for r, label in labels.items() if label.name == name and r != run), None)
        if name and other is not None:
            raise InputError("name", f"{name!r} is the name of {other}", "choose another name")
        return replace(labels.get(run, Label()), name=name)

    return _change(warehouse, run, named)


def tag_run(warehouse: Path, run: str, add: Sequence[str], remove: Sequence[str] = ()) -> Label:
    """Add tags to a run, and remove others.

    Raises:
        InputError: There is no such run, or a tag is no word.
        WarehouseError: The file cannot be written.
    """
    for tag in add:
        _check_word("tag", tag)

    def tagged(labels: dict[str, Label]) -> Label:
        label = labels.get(run, Label())
        return replace(label, tags=tuple(sorted({*label.tags, *add} - {*remove})))

    return _change(warehouse, run, tagged)


def note_run(warehouse: Path, run: str, note: str) -> Label:
    """Note a text on a run, in place of the one that it has; an empty text takes it away.

    Raises:
        InputError: There is no such run, or the text is too long.
        WarehouseError: The file cannot be written.
    """
    if len(note) > NOTE_LENGTH:
        problem = f"has {len(note):,} characters"
        raise InputError("note", problem, f"give {NOTE_LENGTH:,} at most")
    return _change(warehouse, run, lambda labels: replace(labels.get(run, Label()), note=note))


def label_run(warehouse: Path, run: str, label: Label) -> None:
    """Give a run the label that it had elsewhere, without its name if that is taken here.

    Raises:
        InputError: There is no such run.
        WarehouseError: The file cannot be written.
    """

    def labelled(labels: dict[str, Label]) -> Label:
        taken = label.name in {other.name for name, other in labels.items() if name != run}
        return replace(label, name="") if taken or _whose_id(warehouse, label.name) else label

    _change(warehouse, run, labelled)


def forget_run(warehouse: Path, run: str) -> None:
    """Remove the label of a run that is gone.

    Raises:
        WarehouseError: The file cannot be written.
    """
    if run in read_labels(warehouse):
        _store(warehouse, run, lambda labels: Label())


def _is_id(warehouse: Path, text: str) -> bool:
    return bool(RUN_NAME.fullmatch(text)) and place_of(warehouse, text).is_dir()


def _whose_id(warehouse: Path, text: str) -> str:
    """The owner of an id, a run or a campaign, in words; empty if it is neither."""
    if _is_id(warehouse, text):
        return "run"
    return "campaign" if text and (warehouse / "campaigns" / text).is_dir() else ""


def _check_word(field: str, text: str) -> None:
    if not WORD.fullmatch(text):
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        raise InputError(
            field,
            f"{shown!r} is no word",
            "give 1 to 100 of a-z, A-Z, 0-9, '.', '_' and '-', a letter or digit first",
        )


def _change(warehouse: Path, run: str, change: Callable[[dict[str, Label]], Label]) -> Label:
    """Change the label of an existing run."""
    run_folder(warehouse, run)
    return _store(warehouse, run, change)


def _store(warehouse: Path, run: str, change: Callable[[dict[str, Label]], Label]) -> Label:
    """Change the label of a run; waits while another process changes one."""
    path = warehouse / LABELS
    with writing(warehouse), hold_lock(warehouse / ".labels.lock"):
        labels = read_labels(warehouse)
        labels[run] = changed = change(labels)
        kept = {name: asdict(labels[name]) for name in sorted(labels) if labels[name] != Label()}
        write_text(path, orjson.dumps(kept, option=orjson.OPT_INDENT_2).decode() + "\n")
    return changed
