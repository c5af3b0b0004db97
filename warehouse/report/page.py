"""The page: figures, tables and the scripts that draw them, in a single HTML file."""

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from warehouse.analytics.intervals import in_three_digits
from warehouse.analytics.questions import Analytics
from warehouse.report.accounts import write_accounts
from warehouse.report.contents import PageContents, Report, read_report
from warehouse.report.figure import CONFIG, Row
from warehouse.report.forecasts import make_job_charts
from warehouse.report.output import write_bytes
from warehouse.report.paper import VEGA_LITE
from warehouse.report.selection import ReportedRun

FOLDER = Path(__file__).parent
SCRIPTS = ("tables.js", "charts.js", "jobs.js", "page.js")
"""Scripts of the page, in order of dependency."""

BUNDLE = """
import signal, sys
for number in (signal.SIGINT, signal.SIGPIPE):  # its end is the asker's, and needs no traceback
    signal.signal(number, signal.SIG_DFL)
import vl_convert
sys.stdout.buffer.write(vl_convert.javascript_bundle(vl_version=sys.argv[1]).encode())
"""

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


def write_report(
    analytics: Analytics,
    about: str | Sequence[str],
    out: Path,
    title: str,
    against: str | None = None,
) -> Path:
    """Write one self-contained HTML file about a run, some runs or a campaign; return its path.

    The same runs and title give the same bytes. For `about` and `against` see `read_report`; runs
    that differ only in their seeds are averaged.

    Raises:
        InputError: A run is unknown, or the file cannot be written.
        WarehouseError: A file of the warehouse is damaged.
    """
    return write_page(read_report(analytics, about, against), out, title)


def write_page(report: Report, out: Path, title: str) -> Path:
    """Write the page of a report; see `write_report`.

    Raises:
        InputError: The file cannot be written.
    """
    write_bytes(out, render(report, title).encode())
    return out


def render(report: Report, title: str) -> str:
    """Return the page as HTML."""
    return render_page(
        "page.html.j2",
        report,
        title,
        report.entries,
        report=report,
        labels=list(dict.fromkeys(entry.policy for entry in report.entries)),
    )


def render_page(
    template: str, contents: PageContents, title: str, entries: Sequence[ReportedRun], **more: Any
) -> str:
    """Return a page as HTML.

    Args:
        template: A template of this folder.
        contents: The chapters.
        title: Title of the page.
        entries: The runs, whose settings close the page.
        more: Further variables of the template.
    """
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,  # names of jobs, tenants and traces are untrusted
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["formatted"] = format_value
    runs = {entry.run: entry for entry in entries}.values()
    return environment.get_template(template).render(
        title=title,
        chapters=contents.chapters,
        settings=[_settings(entry.settings, entry.figures) for entry in runs],
        data=_as_script(_data(contents)),
        library=Markup(_library()),
        style=Markup((FOLDER / "page.css").read_text(encoding="utf-8")),
        scripts=[Markup((FOLDER / name).read_text(encoding="utf-8")) for name in SCRIPTS],
        **more,
    )


def _data(contents: PageContents) -> dict[str, Any]:
    """Return all that the page's scripts draw; charts with the same rows share one copy."""
    rows: dict[str, Any] = {}
    tables = {
        key: table.as_data()
        for section in contents.sections
        for key, table in ((section.key, section.table), (f"{section.key}-rows", section.rows))
        if table is not None
    }
    return {
        "config": CONFIG,
        "charts": {
            figure.key: {name: _bare(spec, rows) for name, spec in figure.specs.items()}
            for figure in contents.figures
            if figure.chart is not None
        },
        "jobCharts": {name: chart.to_dict() for name, chart in make_job_charts().items()},
        "rows": rows,
        "tables": tables,
        "jobs": {
            chapter.jobs.run: write_accounts(chapter.jobs)
            for chapter in contents.chapters
            if chapter.jobs is not None
        },
    }


def _bare(spec: dict[str, Any], rows: dict[str, Any]) -> dict[str, Any]:
    """Return a chart without the theme, and with the name of its rows in place of the rows."""
    rows |= {name: json.loads(text) for name, text in spec["datasets"].items() if name not in rows}
    kept = {name: part for name, part in spec.items() if name not in ("config", "datasets")}
    return {**kept, "datasets": list(spec["datasets"])}


def format_value(value: Any) -> str:
    """Format a value as text."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case float():
            return in_three_digits(value)
        case list() | tuple():
            return ", ".join(f"{part['name']}={part['value']:g}" for part in value) or "–"
        case _:
            return str(value)


def _settings(settings: Row, figures: Row) -> dict[str, Any]:
    packages = ", ".join(f"{part['name']} {part['version']}" for part in settings["packages"])
    asked = {name.replace("_", " "): settings[name] for name in SETTINGS}
    return {
        "run": settings["run"],
        **asked,
        "last hash": figures["last_hash"],
        "made with": packages,
    }


def _as_script(value: Any) -> Markup:
    """Return JSON that is safe inside a script element."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


@cache
def _library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed to inline, so that the page works offline.

    Another process bundles them, because bundling blocks all threads of its process for a second.
    """
    made = subprocess.run(
        [sys.executable, "-P", "-c", BUNDLE, VEGA_LITE], stdout=subprocess.PIPE, check=True
    )
    return made.stdout.decode().replace("</script", "<\\/script")
