"""Layouts of records from the oldest that can be read to the present one.

A record says by its version which layout it has. Read, it is brought up to the present
one; hashed, it is what it was when it was written, so chains stay whole.

Layout 4: events carry a `reason`, and settings tell what a run was forked from (`forked`). Its
files have checksums (`warehouse.store.checksums`).
Layout 5: solves tell of `drained` nodes, settings of the `runtime`, and progress of what
containers take of their machines.
"""

from typing import Any

OLDEST = 3
"""The first layout that was released."""

FIRST_WITH_CHECKSUMS = 4
"""The first layout whose files have checksums from the beginning."""

_TAKEN = ("cpu_seconds", "memory_bytes", "gpu_share")

Row = dict[str, Any]


def upgraded(row: Row) -> Row:
    """A row of any layout, in the present one.

    Args:
        row: Of a header or a round; columns that its layout lacks hold None.
    """
    if row["version"] < 4:
        for event in _events(row):
            event["reason"] = ""
        if "settings" in row:
            row["settings"]["forked"] = []
    if row["version"] < 5:
        if "settings" in row:
            row["settings"]["runtime"] = "virtual"
        else:
            row["solve"]["drained"] = []
            for entry in row["progress"]:
                entry |= dict.fromkeys(_TAKEN, 0)
    return row


def as_written(row: Row) -> Row:
    """A row in the present layout, in that of its version."""
    if row["version"] < 4:
        for event in _events(row):
            del event["reason"]
        if "settings" in row:
            del row["settings"]["forked"]
    if row["version"] < 5:
        if "settings" in row:
            del row["settings"]["runtime"]
        else:
            del row["solve"]["drained"]
            for entry in row["progress"]:
                for name in _TAKEN:
                    del entry[name]
    return row


def _events(row: Row) -> list[Row]:
    return [*row.get("finished", ()), *row.get("events", ())]
