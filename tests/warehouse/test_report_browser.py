"""A report in a real browser: it draws everything, asks for nothing, complains of nothing."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.reports import HOSTILE, fill
from tests.waiting import HANG_SECONDS
from warehouse.analytics.questions import Analytics
from warehouse.report import report_of
from warehouse.report.page import render

pytestmark = pytest.mark.browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
DARK = "rgb(20, 23, 27)"


@dataclass
class Opened:
    """A page in a browser and what it did."""

    page: Any
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium on this machine")
        pytest.skip("no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("warehouse")
    path = folder / "report.html"
    report = report_of(Analytics(folder), fill(folder)[:2])
    path.write_text(render(report, f"About {HOSTILE}"), encoding="utf-8")
    return path


def open_page(browser: Any, file: Path, **kind: Any) -> Opened:
    context = browser.new_context(offline=True, **kind)
    context.set_default_timeout(HANG_SECONDS * 1e3)
    opened = Opened(context.new_page())
    opened.page.on("console", lambda message: opened.messages.append(message.text))
    opened.page.on("pageerror", lambda error: opened.messages.append(str(error)))
    opened.page.on("dialog", lambda dialog: opened.messages.append(dialog.message))
    opened.page.on("request", lambda request: opened.requests.append(request.url))
    opened.page.goto(file.as_uri())
    opened.page.wait_for_selector("html[data-drawn]", timeout=HANG_SECONDS * 1e3)
    return opened


@pytest.fixture(scope="module")
def wide(browser: Any, file: Path) -> Opened:
    return open_page(browser, file, viewport={"width": 1200, "height": 900})


def test_it_asks_for_nothing_and_complains_of_nothing(wide: Opened, file: Path) -> None:
    assert wide.messages == []
    assert wide.requests == [file.as_uri()]


def test_every_chart_is_drawn(wide: Opened) -> None:
    drawn = wide.page.evaluate(
        "[...document.querySelectorAll('[data-chart]')].map(box => [box.dataset.chart, "
        "box.querySelectorAll('svg .role-mark path, svg .role-mark line').length, "
        "box.querySelectorAll('svg text').length, box.getBoundingClientRect().height])"
    )
    assert len(drawn) == 14  # three comparisons, six of Shockwave, five of a rule
    for name, marks, texts, height in drawn:
        assert marks > 0, name
        assert texts > 4, name
        assert 100 < height < 1500, name


def test_boxes_of_the_gantt_chart_are_all_there(wide: Opened, file: Path) -> None:
    name = "[data-chart^='gantt-shockwave']"
    boxes = wide.page.evaluate(f'document.querySelectorAll("{name} .mark-rect path").length')
    rows = wide.page.evaluate(
        "Object.entries(JSON.parse(document.getElementById('charts').textContent))"
        ".filter(([key]) => key.startsWith('gantt-shockwave'))"
        ".map(([, spec]) => Object.values(spec.datasets).map(text => JSON.parse(text).length))[0]"
    )
    assert boxes >= 2 * max(rows) > 20


def test_hostile_names_are_shown_as_they_are(wide: Opened) -> None:
    assert HOSTILE.replace("\u2028", "") in wide.page.inner_text("h1").replace("\u2028", "")
    assert wide.page.evaluate("document.images.length") == 0


def test_a_point_tells_its_figures(wide: Opened) -> None:
    wide.page.hover("[data-chart='comparison'] .mark-rect path >> nth=0")
    wide.page.wait_for_selector("#vg-tooltip-element.visible")
    assert "shockwave" in wide.page.inner_text("#vg-tooltip-element")


def test_contents_lead_to_figures_by_keyboard(browser: Any, file: Path) -> None:
    page = open_page(browser, file, viewport={"width": 1200, "height": 900}).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#runs"


def test_dark_mode_is_dark_and_readable(browser: Any, file: Path) -> None:
    opened = open_page(browser, file, color_scheme="dark")
    shown = opened.page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, "
        "getComputedStyle(document.querySelector('.chart svg text')).fill]"
    )
    assert shown == [DARK, "rgb(232, 234, 237)"]
    assert opened.messages == []


@pytest.mark.parametrize("width", [360, 768])
def test_a_small_screen_needs_no_scrolling_sideways(browser: Any, file: Path, width: int) -> None:
    page = open_page(browser, file, viewport={"width": width, "height": 800}).page
    assert page.evaluate("document.documentElement.scrollWidth") == width
    widest = page.evaluate(
        "Math.max(...[...document.querySelectorAll('.chart svg')]"
        ".map(svg => svg.getBoundingClientRect().right))"
    )
    assert widest <= width


def test_charts_follow_the_width_of_the_window(browser: Any, file: Path) -> None:
    page = open_page(browser, file, viewport={"width": 1200, "height": 800}).page
    size = "document.querySelector('[data-chart=load] svg').viewBox.baseVal.width"
    before = page.evaluate(size)
    page.set_viewport_size({"width": 500, "height": 800})
    page.wait_for_function(f"{size} < {before} - 300")


def test_it_prints_light_and_with_all_its_charts(browser: Any, file: Path) -> None:
    page = open_page(browser, file, color_scheme="dark").page
    page.emulate_media(media="print", color_scheme="light")
    ink = page.evaluate("getComputedStyle(document.querySelector('.chart svg text')).fill")
    assert ink == "rgb(0, 0, 0)"
    printed = page.pdf()
    assert printed.startswith(b"%PDF")
    assert 4 <= printed.count(b"/Type /Page\n") <= 14
