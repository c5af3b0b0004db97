"""The page as a file."""

from pathlib import Path

from warehouse.analytics.questions import Analytics
from warehouse.hindsight.contents import Hindsight
from warehouse.report.output import write_bytes
from warehouse.report.page import render_page
from warehouse.report.selection import read_entries


def write_hindsight(analytics: Analytics, content: Hindsight, out: Path, title: str) -> None:
    """Write one self-contained HTML file.

    Raises:
        InputError: The file cannot be written.
    """
    runs = [schedule.run for schedule in content.schedules if schedule.run]
    entries = read_entries(analytics, runs)
    said = {"about": content.about, "verdict": content.verdict}
    page = render_page("hindsight.html.j2", content, title, entries, **said)
    write_bytes(out, page.encode())
