"""The files with a run's rounds: parts of 1, 8, 64, … rounds, or one file of an ended run."""

import re
from collections.abc import Sequence
from pathlib import Path

from warehouse.store.checksums import read_sums
from warehouse.store.folder import names_in

WHOLE = "round=all.parquet"
"""The file with all rounds of an ended run."""

FAN = 8
"""Number of parts that are merged into one. A query of an unfinished run opens at most FAN - 1
files of each size, and each round is rewritten once per size. An engineering choice."""

MOST_ROUNDS = FAN**4
"""Most rounds in a part of an unfinished run; bounds what a writer rewrites at once. An engineering
bound; no sweep is recorded."""


def part_name(rounds: range) -> str:
    """Return the name of the file with some rounds."""
    last = "" if len(rounds) == 1 else f"-{rounds[-1]:06d}"
    return f"round={rounds.start:06d}{last}.parquet"


def rounds_of(name: str) -> range | None:
    """Return a part's rounds, from its name; None for other files and the file of all rounds."""
    found = _PART.fullmatch(name)
    return range(int(found[1]), int(found[2] or found[1]) + 1) if found else None


_PART = re.compile(r"round=(\d{6,18})(?:-(\d{6,18}))?\.parquet")


def replaces(name: str, other: str) -> bool:
    """Return whether a file has all rounds of another, judging by their names."""
    ours, theirs = rounds_of(name), rounds_of(other)
    if theirs is None or name == other:
        return False
    within = ours is not None and ours.start <= theirs.start and theirs.stop <= ours.stop
    return within or name == WHOLE


def tidy_parts(count: int) -> list[range]:
    """Return the parts of a run with `count` rounds: powers of FAN, large ones first."""
    parts, start, size = list[range](), 0, 1
    while size * FAN <= min(count, MOST_ROUNDS):
        size *= FAN
    while start < count:
        while start + size > count:
            size //= FAN
        parts.append(range(start, start + size))
        start += size
    return parts


def largest_part(start: int, stop: int) -> range:
    """Return the largest part that begins with a round and ends before another."""
    size = 1
    while start % (size * FAN) == 0 and start + size * FAN <= stop and size < MOST_ROUNDS:
        size *= FAN
    return range(start, start + size)


def part_names(folder: Path) -> list[str]:
    """Return the names of a run's files with rounds, in order, larger ones first at equal starts.

    The folder is listed twice, because a listing during a merge can miss both old and new files.
    """
    before, names = None, _round_files(folder)
    while before is None or not before <= names:
        before, names = names, _round_files(folder)
    whole = [WHOLE] if WHOLE in names else []
    parts = {name: found for name in names if (found := rounds_of(name)) is not None}
    return whole + sorted(parts, key=lambda name: (parts[name].start, -parts[name].stop))


def _round_files(folder: Path) -> set[str]:
    return {
        name for name in names_in(folder) if name.startswith("round=") and name.endswith(".parquet")
    }


def closed_parts(folder: Path) -> list[str]:
    """Return the names of the parts that are not merged again until the run ends."""
    names = part_names(folder)
    if WHOLE in names:
        return []
    return [name for name in names if len(rounds_of(name) or ()) >= MOST_ROUNDS]


def round_files(folder: Path) -> list[Path]:
    """Return the files with a run's rounds, in order, without those that others replace.

    Raises:
        WarehouseError: The file of all rounds is damaged.
    """
    found, end = list[Path](), 0
    names = part_names(folder)
    for name in names:
        path, rounds = folder / name, rounds_of(name)
        if rounds is None:
            found.append(path)
            if len(names) > 1:
                from warehouse.store.arrow import open_parquet  # not needed by queries

                with open_parquet(path) as file:
                    end = file.metadata.num_rows
        elif rounds.stop > end:
            end = rounds.stop
            found.append(path)
    return found


def first_missing(folder: Path, parts: Sequence[str]) -> str | None:
    """Return the name of the file with the first missing round."""
    end = 0
    for rounds in filter(None, map(rounds_of, parts)):
        if rounds.start > end and WHOLE not in parts:
            gone = [name for name in read_sums(folder) or {} if end in (rounds_of(name) or ())]
            return max(gone, key=len, default=part_name(range(end, end + 1)))
        end = max(end, rounds.stop)
    # Its checksum is added before the parts are removed.
    if not parts and WHOLE in (read_sums(folder) or {}):
        return WHOLE
    return None
