"""Compare two runs: settings, figures, and the first round that differs."""

from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from flows.explain.whatif import compare_figures
from predictor.rows import hash_content, to_row
from tasks.record import RoundRecord, RunHeader
from warehouse.analytics.questions import Analytics
from warehouse.store.reader import Reader

LINKS = ("previous_hash", "version")
"""Fields of records that are not compared: they differ between any two runs."""


@dataclass(frozen=True)
class RunDifference:
    """The difference between two runs.

    Attributes:
        settings: Fields of the headers that differ, with both values; long values are hashed.
        figures: Figures of `run_summary` with both values.
        rounds: Number of rounds of each run.
        first_round: The first round that differs; None if all are equal.
        fields: Fields of its records that differ; empty if only one run has the round.
    """

    settings: tuple[tuple[str, Any, Any], ...]
    figures: tuple[tuple[str, float | None, float | None], ...]
    rounds: tuple[int, int]
    first_round: int | None
    fields: tuple[str, ...]


def compare_runs(warehouse: Path, one: str, other: str) -> RunDifference:
    """Compare two runs.

    Raises:
        ShockwaveError: There is no such run, or its records are damaged.
    """
    reader = Reader(warehouse)
    ours, theirs = _settings(reader.header(one)), _settings(reader.header(other))
    records = [[record for record, _ in reader.records(run)] for run in (one, other)]
    columns, rows = Analytics(warehouse).query("FROM run_summary", sorted({one, other}))
    summaries = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
    first, fields = _first_difference(*records)
    return RunDifference(
        settings=tuple(
            (name, ours.get(name), theirs.get(name))
            for name in ours | theirs
            if ours.get(name) != theirs.get(name)
        ),
        figures=compare_figures(summaries[one], summaries[other]),
        rounds=(len(records[0]), len(records[1])),
        first_round=first,
        fields=fields,
    )


def _settings(header: RunHeader) -> dict[str, Any]:
    """Return the header's fields; long values are hashed."""
    row = to_row(header)
    return {
        name: value if _is_short(value) else f"hash {hash_content(value)[:12]}"
        for name, value in (row.pop("settings") | row).items()
    }


def _is_short(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float) or len(str(value)) < 200


def _first_difference(
    ours: list[RoundRecord], theirs: list[RoundRecord]
) -> tuple[int | None, tuple[str, ...]]:
    for number, (one, other) in enumerate(zip_longest(ours, theirs)):
        if one is None or other is None:
            return number, ()
        a, b = to_row(one), to_row(other)
        fields = [
            name
            for name in a
            if name not in LINKS and hash_content(a[name]) != hash_content(b[name])
        ]
        if fields:
            return number, tuple(fields)
    return None, ()
