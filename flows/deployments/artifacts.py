"""Artifacts of flow runs in Prefect's UI: headline figures of runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from warehouse.analytics.questions import Analytics
from warehouse.analytics.values import to_plain

HEADLINES = (
    "run",
    "policy",
    "jobs",
    "complete",
    "rounds",
    "makespan_s",
    "mean_jct_s",
    "worst_rho",
    "unfair_fraction",
    "utilization",
)
"""Columns of `run_summary` shown as headline figures."""


def read_headlines(warehouse: Path, runs: Sequence[str]) -> list[dict[str, Any]]:
    """Return the headline figures of runs, as plain data.

    Raises:
        ShockwaveError: There is no such run, or its records are damaged.
    """
    columns, rows = Analytics(warehouse).query(
        f"SELECT {', '.join(HEADLINES)} FROM run_summary", runs
    )
    summaries = {row[0]: dict(zip(columns, map(to_plain, row), strict=True)) for row in rows}
    return [summaries[run] for run in runs]


def show_headlines(warehouse: Path, runs: Sequence[str], *, key: str, title: str) -> None:
    """Show the headline figures of runs, side by side and as a table.

    Raises:
        ShockwaveError: There is no such run, or its records are damaged.
    """
    rows = read_headlines(warehouse, runs)
    create_table_artifact(table=rows, key=key, description=title)
    create_markdown_artifact(_side_by_side(title, rows), key=f"{key}-in-words", description=title)


def _side_by_side(title: str, rows: Sequence[dict[str, Any]]) -> str:
    lines = [f"# {title}", "", "| |" + " |" * len(rows), "| --- |" + " ---: |" * len(rows)]
    lines += [
        f"| {name} | " + " | ".join(_shown(row[name]) for row in rows) + " |" for name in HEADLINES
    ]
    return "\n".join(lines) + "\n"


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4g}"
    return "" if value is None else str(value)
