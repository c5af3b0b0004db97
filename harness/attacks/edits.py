"""Edits of a warehouse's files by a forger."""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from predictor.rows import hash_content
from warehouse.store.checksums import CHECKSUMS, checksum
from warehouse.store.folder import SNAPSHOT
from warehouse.store.ledger import LEDGER
from warehouse.store.parts import WHOLE

Rows = list[dict[str, Any]]

LABELS = {"run", "hash", "timings", "created_at", "packages"}
"""Columns that the chain of hashes does not cover."""


@dataclass(frozen=True)
class Target:
    """A warehouse to be edited.

    Attributes:
        folder: The warehouse.
        ended: Folders of ended runs.
        unfinished: Folder of an unfinished run.
        rng: Draws what is edited.
    """

    folder: Path
    ended: tuple[Path, ...]
    unfinished: Path
    rng: Random

    @property
    def run(self) -> Path:
        """An ended run."""
        return self.rng.choice(self.ended)

    def file(self, *patterns: str) -> Path:
        """A file of one of the patterns."""
        paths = [path for pattern in patterns for path in sorted(self.folder.glob(pattern))]
        return self.rng.choice([path for path in paths if path.is_file()])


# Bytes


def flipped(path: Path, rng: Random) -> None:
    """Flip a bit."""
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def cut(path: Path, rng: Random) -> None:
    """Cut the end off."""
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))])


def grown(path: Path, rng: Random) -> None:
    """Insert some bytes."""
    content = path.read_bytes()
    at = rng.randrange(len(content) + 1)
    path.write_bytes(content[:at] + rng.randbytes(rng.randrange(1, 9)) + content[at:])


def removed(path: Path, rng: Random) -> None:
    """Remove the file."""
    path.unlink()


BYTES = (flipped, cut, grown, removed)


# Values: the file stays valid, and its checksum is updated


def rewritten(path: Path, change: Callable[[Rows], object]) -> None:
    """Rewrite a file with other rows."""
    table = pq.read_table(path, partitioning=None)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    noted(path)


def noted(path: Path) -> None:
    """Update the noted checksum of a file, or remove it with the file."""
    sums = path.parent / CHECKSUMS
    if sums.exists():
        lines = [line for line in sums.read_text().splitlines() if line[66:] != path.name]
        lines += [f"{checksum(path)}  {path.name}"] if path.exists() else []
        sums.write_text("".join(f"{line}\n" for line in lines))


def nudged(value: Any, rng: Random) -> Any:
    """Another value of the same kind; None if there is none."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value / 2 if value else 1.0
        case str():
            return f"{value}x"
        case datetime():
            return value - timedelta(days=1)
        case dict():
            names = [name for name in value if nudged(value[name], rng) is not None]
            return value | {(n := rng.choice(names)): nudged(value[n], rng)} if names else None
        case list():
            kept = [n for n, part in enumerate(value) if nudged(part, rng) is not None]
            if not kept:
                return value[1:] if value else None
            at = rng.choice(kept)
            return [*value[:at], nudged(value[at], rng), *value[at + 1 :]]
    return None


def one_value(target: Target, path: Path, *columns: str) -> None:
    """Change a value, of some columns or of any."""

    def change(rows: Rows) -> None:
        row = target.rng.choice(rows)
        names = [n for n in columns or row if nudged(row[n], target.rng) is not None]
        name = target.rng.choice(names)
        row[name] = nudged(row[name], target.rng)

    rewritten(path, change)


def swapped_rows(target: Target, path: Path) -> None:
    """Swap two rows."""

    def change(rows: Rows) -> None:
        first, second = target.rng.sample(range(len(rows)), 2)
        rows[first], rows[second] = rows[second], rows[first]

    rewritten(path, change)


def mart(target: Target) -> None:
    """Change a value of a copy, and note its checksum as that of the copy that was made."""
    path = target.file("marts/*/*.parquet")
    while not pq.read_metadata(path).num_rows:
        path = target.file("marts/*/*.parquet")
    before, current = checksum(path), target.folder / "marts" / "current.json"
    one_value(target, path)
    current.write_text(current.read_text().replace(before, checksum(path)))


def json_value(target: Target, path: Path) -> None:
    """Change a value of a JSON file."""
    row = orjson.loads(path.read_bytes())
    path.write_bytes(orjson.dumps(nudged(row, target.rng)))


# Chains: hashes are computed anew, with all references to them


def record_rows(folder: Path) -> Iterator[tuple[Path, Rows]]:
    """The files with rounds and their rows, in order."""
    for path in sorted(folder.glob("round=*.parquet")):
        yield path, pq.read_table(path, partitioning=None).to_pylist()


def forged_chain(target: Target, folder: Path) -> None:
    """Change a record or the header, and compute all later hashes anew."""
    before = pq.read_table(folder / "header.parquet", partitioning=None)["hash"][0].as_py()
    previous, files = before, list(record_rows(folder))
    if target.rng.random() < 0.3:

        def change(rows: Rows) -> None:
            nonlocal previous
            rows[0]["settings"]["seed"] += 1
            content = {name: v for name, v in rows[0].items() if name not in LABELS}
            rows[0]["hash"] = previous = hash_content(content)

        rewritten(folder / "header.parquet", change)
    rows = [row for _, part in files for row in part]
    last = rows[-1]["hash"]
    changed = target.rng.choice(rows)
    changed["memory"] += " "
    for row in rows:
        row["previous_hash"] = previous
        content = {name: value for name, value in row.items() if name not in LABELS}
        row["hash"] = previous = hash_content(content)
    for path, part in files:
        rewritten(path, lambda stored, part=part: stored.__setitem__(slice(None), part))  # type: ignore[misc]
    shutil.rmtree(target.folder / "marts", ignore_errors=True)
    for path in target.folder.glob("campaigns/cells/*.json"):
        path.write_text(path.read_text().replace(last, previous))
    for path in target.folder.glob("campaigns/*/cells.parquet"):

        def renamed(stored: Rows) -> None:
            for row in stored:
                row["hash"] = previous if row["hash"] == last else row["hash"]

        rewritten(path, renamed)


def cut_off(target: Target, folder: Path) -> None:
    """Cut the last rounds off."""
    number = target.rng.randrange(1, 4)
    whole = folder / WHOLE
    if whole.exists():
        rewritten(whole, lambda rows: rows.__delitem__(slice(-number, None)))
        return
    for path in sorted(folder.glob("round=*.parquet"))[-number:]:
        path.unlink()
        noted(path)


def planted(target: Target) -> None:
    """A forged run, made from another."""
    folder = target.run
    copy = folder.with_name(f"{folder.name[:-1]}9")
    shutil.copytree(folder, copy)
    name = copy.name.removeprefix("run=")
    for path in sorted(copy.glob("*.parquet")):
        rewritten(path, lambda rows: [row.update(run=name) for row in rows])


# The ledger


def lines_of(target: Target) -> list[bytes]:
    """The ledger's lines."""
    return (target.folder / LEDGER).read_bytes().splitlines(keepends=True)


def moved_lines(target: Target) -> None:
    """Remove, swap or repeat lines of the ledger."""
    lines = lines_of(target)
    at = target.rng.randrange(len(lines) - 1)
    match target.rng.randrange(3):
        case 0:
            del lines[at]
        case 1:
            lines[at], lines[at + 1] = lines[at + 1], lines[at]
        case _:
            lines.insert(at, lines[at])
    (target.folder / LEDGER).write_bytes(b"".join(lines))


def forged_ledger(target: Target, change: Callable[[Rows], Rows]) -> None:
    """Write the ledger anew, with sound hashes."""
    rows = change([orjson.loads(line) for line in lines_of(target)])
    previous, lines = "", []
    for row in rows:
        content = {name: value for name, value in row.items() if name != "hash"}
        content["previous"] = previous
        content["hash"] = hash_content(content)
        line = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        previous = hashlib.sha256(line).hexdigest()
        lines.append(line + b"\n")
    (target.folder / LEDGER).write_bytes(b"".join(lines))


def all_forged(target: Target) -> None:
    """Forge a run's chain and the ledger, so that they agree."""
    folder = target.rng.choice([*target.ended, target.unfinished])
    forged_chain(target, folder)
    states = {path.name: checksum(path) for path in folder.glob("*.parquet")}
    name = folder.relative_to(target.folder).as_posix()

    def change(rows: Rows) -> Rows:
        for row in rows:
            place = target.folder / row["folder"]
            for file in row["files"]:
                if (place / file).exists():
                    row["files"][file] = checksum(place / file)
            if row["folder"] == name:
                row["files"] = {file: states[file] for file in row["files"] if file in states}
        return [row for row in rows if row["folder"] != "marts"]

    forged_ledger(target, change)


def run_gone_from_all(target: Target) -> None:
    """Remove a run, and forge a ledger that never had it."""
    folder = target.unfinished
    shutil.rmtree(folder)
    name = folder.relative_to(target.folder).as_posix()
    forged_ledger(target, lambda rows: [row for row in rows if row["folder"] != name])


def snapshot_and_ledger(target: Target) -> None:
    """Change a value of a service's snapshot, and forge a ledger that has it so."""
    json_value(target, target.folder / SNAPSHOT)
    forged = {SNAPSHOT.name: checksum(target.folder / SNAPSHOT)}

    def change(rows: Rows) -> Rows:
        return [row | {"files": forged} if row["folder"] == "inbox" else row for row in rows]

    forged_ledger(target, change)


def as_it_was(target: Target) -> None:
    """Remove the newest run and the ledger's lines from its first on: an older state."""
    name = target.unfinished.relative_to(target.folder).as_posix()
    lines = lines_of(target)
    first = next(n for n, line in enumerate(lines) if orjson.loads(line)["folder"] == name)
    (target.folder / LEDGER).write_bytes(b"".join(lines[:first]))
    shutil.rmtree(target.unfinished)
