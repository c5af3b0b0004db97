"""The page of hindsight in a real browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.campaigns.hindsight import plan_hindsight
from flows.runs.simulation import simulate
from flows.runs.workload_source import Source
from tests.pages import Opened, open_page, violations
from tests.warehouse.logs.samples import SACCT, TRES, sacct
from warehouse.analytics.questions import Analytics
from warehouse.hindsight.contents import read_hindsight
from warehouse.hindsight.page import write_hindsight
from warehouse.hindsight.schedules import read_actual, read_schedule

pytestmark = pytest.mark.browser

HOSTILE = "</script><img src=x onerror=alert(1)>"
LONG = "an-account-whose-name-is-much-longer-than-any-column-of-a-small-screen"
DARK = "rgb(20, 23, 27)"


def row(job: int) -> list[str]:
    """Each hour a job of two hours that waits for an hour."""
    named = {"User": f"user-{job % 3}" if job else HOSTILE, "Account": LONG if job % 2 else "lab"}
    times = f"{job:02}:00:00", f"{job + 1:02}:00:00", f"{job + 3:02}:00:00"
    return sacct(str(job), *times, 7200, NNodes="1", ReqTRES=TRES.format(job % 4 + 1), **named)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hindsight")
    log, page = folder / "month.txt", folder / "page.html"
    log.write_text("\n".join("|".join(fields) for fields in [SACCT, *map(row, range(20))]))
    policies = ["shockwave", "fifo", "srtf"]
    plan = plan_hindsight(Source(trace=log, format="sacct"), None, 20.0, policies, folder)
    runs = [simulate(start, folder) for start in plan.starts]
    analytics = Analytics(folder)
    schedules = [
        read_actual(plan.jobs),
        *(
            read_schedule(analytics, run, name, plan.jobs)
            for run, name in zip(runs, policies, strict=True)
        ),
    ]
    write_hindsight(analytics, read_hindsight(schedules, plan.cluster), page, f"Of {HOSTILE}")
    return page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from tests.ui.browser import browser

    with browser() as opened:
        yield opened


@pytest.fixture(scope="module", params=[(1200, "light"), (400, "light"), (400, "dark")])
def opened(browser: Any, file: Path, request: pytest.FixtureRequest) -> Opened:
    """The page with all that can be opened open, by width and colour scheme."""
    width, scheme = request.param
    viewport = {"width": width, "height": 900}
    opened = open_page(browser, file, color_scheme=scheme, viewport=viewport)
    opened.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    opened.page.wait_for_function(
        "[...document.querySelectorAll('[data-chart]')].every(box => box.querySelector('svg'))"
    )
    return opened


def test_it_asks_no_other_host_and_has_no_errors(opened: Opened, file: Path) -> None:
    assert opened.messages == []
    assert opened.requests == [file.as_uri()]
    assert HOSTILE in opened.page.inner_text("h1")


def test_every_chart_is_drawn(opened: Opened) -> None:
    drawn = opened.page.evaluate(
        "[...document.querySelectorAll('[data-chart]')].map(box => [box.dataset.chart, "
        "box.querySelectorAll('svg .role-mark path, svg .role-mark line').length])"
    )
    expected = ["headlines", "accounts", "users", "sizes", "spread", "load"]
    assert [name for name, _ in drawn] == expected
    assert all(marks for _, marks in drawn), drawn


def test_no_column_is_cut(opened: Opened) -> None:
    """A table is as wide as its columns, or scrolls within the page, which says so."""
    page = opened.page
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") == width
    widest = page.evaluate(
        "Math.max(...[...document.querySelectorAll('.chart svg, caption span, p, h1, h2, h3, dd')]"
        ".map(part => part.getBoundingClientRect().right))"
    )
    assert widest <= width
    tables = page.evaluate(
        "[...document.querySelectorAll('table')].map(table => {"
        "const box = table.closest('.scroll');"
        "const cells = [...table.querySelectorAll('th, td')];"
        "return [cells.every(cell => cell.scrollWidth <= cell.clientWidth + 1),"
        "!box || box.scrollWidth <= box.clientWidth + 1 || !box.previousSibling.hidden]; })"
    )
    assert len(tables) >= 5
    assert all(whole and said for whole, said in tables), tables


def test_everybody_can_read_it(opened: Opened) -> None:
    assert violations(opened.page) == []


def test_the_dark_page_is_dark(browser: Any, file: Path) -> None:
    page = open_page(browser, file, color_scheme="dark").page
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == DARK
