"""The page: figures, tables and the scripts that draw them, in a single HTML file."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from warehouse.analytics.questions import Analytics
from warehouse.report.contents import Report, report_of
from warehouse.report.figure import Row, thinned
from warehouse.report.output import write_bytes
from warehouse.report.paper import VEGA_LITE

FOLDER = Path(__file__).parent
TABLE_ROWS = 24
"""Most rows of a figure's table; the rest is in the warehouse. An engineering choice."""

HEADLINES = {
    "makespan_s": ("makespan (h)", 3600.0),
    "mean_jct_s": ("mean JCT (h)", 3600.0),
    "worst_ftf": ("worst ρ", 1.0),
    "unfair_fraction": ("unfair jobs (%)", 0.01),
    "utilization": ("utilisation (%)", 0.01),
    "nash_welfare": ("Nash welfare", 1.0),
    "envy_violations": ("envious jobs", 1),
    "rounds": ("rounds", 1),
    "preemptions": ("preemptions", 1),
    "max_gap": ("largest gap (%)", 0.01),
}
"""Columns of `run_summary` at the head of the page, with their titles and divisors."""

SETTINGS = (
    "policy",
    "parameters",
    "fidelity",
    "backend",
    "forecasts",
    "gpus",
    "gpus_per_node",
    "round_seconds",
    "restart_seconds",
    "window_rounds",
    "seed",
    "trace",
    "first_hash",
)


def write_report(analytics: Analytics, runs: Sequence[str], out: Path, title: str) -> Path:
    """Write one self-contained HTML file about some runs.

    The same runs and title give the same bytes.

    Args:
        analytics: The warehouse.
        runs: The runs; runs that differ in their seed only are aggregated.
        out: The file; an earlier one is replaced.
        title: The page's heading.

    Returns:
        The file.

    Raises:
        InputError: A run is unknown, or the file cannot be written.
        WarehouseError: A file of the warehouse is damaged.
    """
    return write_page(report_of(analytics, runs), out, title)


def write_page(report: Report, out: Path, title: str) -> Path:
    """Write the contents of a report; see `write_report`.

    Raises:
        InputError: The file cannot be written.
    """
    write_bytes(out, render(report, title).encode())
    return out


def render(report: Report, title: str) -> str:
    """The page as text."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,  # names of jobs, tenants and traces are anybody's
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["formatted"] = formatted
    specs = {figure.key: figure.spec for figure in report.figures if figure.chart is not None}
    return environment.get_template("page.html.j2").render(
        title=title,
        report=report,
        headlines=[_headline(entry.figures, entry.label) for entry in report.entries],
        settings=[_settings(entry.settings, entry.figures) for entry in report.entries],
        thinned=lambda rows: thinned(rows, TABLE_ROWS),
        columns=_columns,
        specs=_as_script(specs),
        library=Markup(_library()),
        style=Markup((FOLDER / "page.css").read_text(encoding="utf-8")),
        script=Markup((FOLDER / "page.js").read_text(encoding="utf-8")),
    )


def formatted(value: Any) -> str:
    """A value as text in a table."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:,.5g}" if abs(value) < 10_000 else f"{value:,.0f}"
        case list() | tuple():
            return ", ".join(f"{part['name']}={part['value']:g}" for part in value) or "–"
        case _:
            return str(value)


def _headline(figures: Row, label: str) -> dict[str, Any]:
    row = {"run": figures["run"], "policy": label, "complete": figures["complete"]}
    for column, (name, unit) in HEADLINES.items():
        value = figures[column]
        row[name] = None if value is None else value / unit if unit != 1 else value
    return row


def _settings(settings: Row, figures: Row) -> dict[str, Any]:
    packages = ", ".join(f"{part['name']} {part['version']}" for part in settings["packages"])
    asked = {name.replace("_", " "): settings[name] for name in SETTINGS}
    return {
        "run": settings["run"],
        **asked,
        "last hash": figures["last_hash"],
        "made with": packages,
    }


def _columns(rows: Sequence[Row]) -> list[str]:
    """Names of the columns of all rows, in order."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _as_script(value: Any) -> Markup:
    """JSON escaped for a script element."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed, inlined, so that the page works offline."""
    bundle: str = vl_convert.javascript_bundle(vl_version=VEGA_LITE)  # type: ignore[call-arg]
    return bundle.replace("</script", "<\\/script")
