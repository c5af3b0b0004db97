"""Names, tags and notes that users give runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import orjson

from predictor.errors import InputError
from warehouse.store.durable import hold_lock, write_text, writing
from warehouse.store.folder import RUN_NAME, place_of, run_folder
from warehouse.store.labels import LABELS, NOTE_LENGTH, WORD, Label, read_labels


def find_run(warehouse: Path, text: str) -> str:
    """Return the run with an id or else a name; without such a run, the text itself."""
    if _is_id(warehouse, text):
        return text
    return next((run for run, label in read_labels(warehouse).items() if label.name == text), text)


def read_label(warehouse: Path, run: str) -> Label:
    """Return the label of a run.

    Raises:
        InputError: There is no such run.
        WarehouseError: The file is damaged.
    """
    run_folder(warehouse, run)
    return read_labels(warehouse).get(run, Label())


def name_run(warehouse: Path, run: str, name: str) -> Label:
    """Replace a run's name; an empty text removes it.

    Raises:
        InputError: There is no such run, or the name is taken or no word.
        WarehouseError: The file cannot be written.
    """
    if name:
        _check_word("name", name)
        if owner := _find_owner(warehouse, name):
            raise InputError("name", f"{name!r} is a {owner}'s id", "choose another name")

    def change(label: Label, others: Mapping[str, Label]) -> Label:
        other = next((run for run in others if name and others[run].name == name), None)
        if other is not None:
            raise InputError("name", f"{name!r} is the name of {other}", "choose another name")
        return replace(label, name=name)

    return _change(warehouse, run, change)


def tag_run(warehouse: Path, run: str, add: Sequence[str], remove: Sequence[str] = ()) -> Label:
    """Add tags to a run, and remove others; raises as `name_run` does."""
    for tag in add:
        _check_word("tag", tag)

    def change(label: Label, others: Mapping[str, Label]) -> Label:
        return replace(label, tags=tuple(sorted({*label.tags, *add} - {*remove})))

    return _change(warehouse, run, change)


def note_run(warehouse: Path, run: str, note: str) -> Label:
    """Replace a run's note; an empty text removes it. Raises as `name_run` does."""
    if len(note) > NOTE_LENGTH:
        problem = f"has {len(note):,} characters"
        raise InputError("note", problem, f"give {NOTE_LENGTH:,} at most")
    return _change(warehouse, run, lambda label, others: replace(label, note=note))


def label_run(warehouse: Path, run: str, label: Label) -> None:
    """Give a run an imported label, without its name if another run has that name.

    Raises:
        InputError: There is no such run.
        WarehouseError: The file cannot be written.
    """

    def change(_: Label, others: Mapping[str, Label]) -> Label:
        taken = label.name in {other.name for other in others.values()}
        return replace(label, name="") if taken or _find_owner(warehouse, label.name) else label

    _change(warehouse, run, change)


def forget_run(warehouse: Path, run: str) -> None:
    """Remove the label of a removed run.

    Raises:
        WarehouseError: The file cannot be written.
    """
    if run in read_labels(warehouse):
        _store(warehouse, run, lambda label, others: Label())


def _is_id(warehouse: Path, text: str) -> bool:
    return bool(RUN_NAME.fullmatch(text)) and place_of(warehouse, text).is_dir()


def _find_owner(warehouse: Path, text: str) -> str:
    """Return what has an id, a run or a campaign; empty if nothing has it."""
    if _is_id(warehouse, text):
        return "run"
    return "campaign" if text and (warehouse / "campaigns" / text).is_dir() else ""


def _check_word(field: str, text: str) -> None:
    if not WORD.fullmatch(text):
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        allowed = "1 to 100 of a-z, A-Z, 0-9, '.', '_' and '-', a letter or digit first"
        raise InputError(field, f"{shown!r} is not a valid word", f"give {allowed}")


Change = Callable[[Label, Mapping[str, Label]], Label]
"""Returns a run's new label, given its label and those of other runs."""


def _change(warehouse: Path, run: str, change: Change) -> Label:
    run_folder(warehouse, run)  # refuse an unknown run
    return _store(warehouse, run, change)


def _store(warehouse: Path, run: str, change: Change) -> Label:
    """Change a label; wait while another process changes one."""
    path = warehouse / LABELS
    with writing(warehouse), hold_lock(warehouse / ".labels.lock"):
        labels = read_labels(warehouse)
        labels[run] = change(labels.pop(run, Label()), labels)
        kept = {name: asdict(labels[name]) for name in sorted(labels) if labels[name] != Label()}
        write_text(path, orjson.dumps(kept, option=orjson.OPT_INDENT_2).decode() + "\n")
    return labels[run]
