"""A report in a real browser: it draws everything, without requests or errors."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from harness.waiting import HANG_SECONDS
from tests.pages import Opened, open_page, violations
from tests.reports import HOSTILE, fill
from warehouse.analytics.questions import Analytics
from warehouse.report import read_report
from warehouse.report.page import render

pytestmark = pytest.mark.browser

DARK = "rgb(20, 23, 27)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from tests.ui.browser import browser

    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("warehouse")
    path = folder / "report.html"
    report = read_report(Analytics(folder), fill(folder)[:2])
    path.write_text(render(report, f"About {HOSTILE}"), encoding="utf-8")
    return path


Shown = Callable[..., Opened]


@pytest.fixture(scope="module")
def shown(browser: Any, file: Path) -> Shown:
    """The page at a width, opened once; tests that change it change it back."""

    @cache
    def page_of(width: int, scheme: str = "light") -> Opened:
        viewport = {"width": width, "height": 900}
        return open_page(browser, file, color_scheme=scheme, viewport=viewport)

    return page_of


@pytest.fixture
def wide(shown: Shown) -> Opened:
    return shown(1200)


def test_it_asks_for_nothing_and_complains_of_nothing(wide: Opened, file: Path) -> None:
    assert wide.messages == []
    assert wide.requests == [file.as_uri()]


SHOWN = "box.checkVisibility()"


def test_every_chart_that_is_seen_is_drawn(wide: Opened) -> None:
    drawn = wide.page.evaluate(
        f"[...document.querySelectorAll('[data-chart]')].filter(box => {SHOWN}).map(box => "
        "[box.dataset.chart, "
        "box.querySelectorAll('svg .role-mark path, svg .role-mark line').length, "
        "box.querySelectorAll('svg text').length, box.getBoundingClientRect().height])"
    )
    assert [name for name, *_ in drawn] == ["comparison", "distributions", "load"]
    for name, marks, texts, height in drawn:
        assert marks > 0, name
        assert texts > 4, name
        assert 100 < height < 900, name


def test_what_is_opened_is_drawn(browser: Any, file: Path) -> None:
    opened = open_page(browser, file, viewport={"width": 1200, "height": 900})
    page = opened.page
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    page.wait_for_function(
        "[...document.querySelectorAll('[data-chart]')].every(box => box.querySelector('svg'))"
        " && [...document.querySelectorAll('[data-table]')].every(place => place.dataset.filled)"
    )
    gantt = "[data-chart^='gantt-shockwave']"
    boxes = page.evaluate(f'document.querySelectorAll("{gantt} .mark-rect path").length')
    assert boxes == page.evaluate(
        "Math.max(...Object.entries(JSON.parse(document.getElementById('data').textContent).charts)"
        ".filter(([key]) => key.startsWith('gantt-shockwave')).flatMap(([, of]) => of.job.datasets)"
        ".map(name => JSON.parse(document.getElementById('data').textContent).rows[name].length))"
    )
    assert boxes > 8
    size = page.locator("[data-choose^='gantt-shockwave']")
    assert size.locator("option").all_inner_texts()[:2] == ["job", "batch size"]
    size.select_option("batch size")
    page.wait_for_selector(f"{gantt} svg text:text('batch size, declared = 1×')")
    assert page.evaluate(f'document.querySelectorAll("{gantt} .mark-rect path").length') == boxes
    assert opened.messages == []
    assert violations(page) == []


def test_nothing_bars_anybody_from_reading_it(shown: Shown) -> None:
    for width, scheme in ((1200, "light"), (500, "dark")):
        assert violations(shown(width, scheme).page) == [], scheme


JOBS = "[data-table^='jobs-shockwave']"


def column(page: Any, name: str) -> list[str]:
    """The cells of a column of the table of jobs."""
    cells: list[str] = page.evaluate(
        "([place, name]) => { const heads = [...document.querySelectorAll(`${place} thead th`)];"
        "const number = heads.findIndex(head => head.textContent === name);"
        "return [...document.querySelectorAll(`${place} tbody tr`)]"
        ".map(row => row.cells[number].textContent); }",
        [JOBS, name],
    )
    return cells


@pytest.fixture(scope="module")
def jobs(browser: Any, file: Path) -> Any:
    """A page with the chapter of its first run open, by its link in the contents."""
    page = open_page(browser, file, viewport={"width": 1200, "height": 900}).page
    page.click("nav a[href^='#run-shockwave']")
    page.wait_for_selector(f"{JOBS} tbody tr")
    return page


def test_a_link_opens_what_it_leads_to(jobs: Any) -> None:
    folded = jobs.locator("[id^='solver-shockwave']")
    assert folded.locator(".chart svg").count() == 0
    jobs.evaluate("location.hash = document.querySelector(`[id^='solver-shockwave']`).id")
    folded.locator(".chart svg").wait_for()


def test_jobs_are_sorted_filtered_and_searched(jobs: Any) -> None:
    rhos = [float(cell) for cell in column(jobs, "ρ")]
    assert rhos == sorted(rhos, reverse=True)
    jobs.click(f"{JOBS} th button:text-is('job')")
    numbers = [int(cell) for cell in column(jobs, "job")]
    assert numbers == sorted(numbers)
    assert jobs.get_attribute(f"{JOBS} th:has(button:text-is('job'))", "aria-sort") == "ascending"
    jobs.click(f"{JOBS} th button:text-is('job')")
    assert [int(cell) for cell in column(jobs, "job")] == numbers[::-1]
    gpus = column(jobs, "GPUs")
    jobs.locator(f"{JOBS} label:has-text('GPUs') select").select_option(gpus[0])
    assert column(jobs, "GPUs") == [gpus[0]] * gpus.count(gpus[0])
    status = jobs.inner_text(f"{JOBS} [role=status]")
    assert status == f"{gpus.count(gpus[0])} of {len(gpus)} rows."
    jobs.fill(f"{JOBS} input[type=search]", "no such job")
    assert column(jobs, "job") == []
    jobs.fill(f"{JOBS} input[type=search]", "")
    jobs.locator(f"{JOBS} label:has-text('GPUs') select").select_option("")
    assert [int(cell) for cell in column(jobs, "job")] == numbers[::-1]


def test_a_job_has_a_section_and_an_address(jobs: Any, browser: Any, file: Path) -> None:
    link = jobs.locator(f"{JOBS} tbody th a").first
    address = link.get_attribute("href")
    link.click()
    jobs.wait_for_selector(f"{JOBS} .job .chart svg")
    heading = jobs.inner_text(f"{JOBS} .job h4")
    assert heading.startswith(f"Job {address.rpartition('-')[2]}: ")
    assert jobs.evaluate("document.activeElement.textContent") == heading
    assert "It arrived at" in jobs.inner_text(f"{JOBS} .job")
    other = browser.new_context(offline=True).new_page()
    other.goto(file.as_uri() + address)
    other.wait_for_selector(f"{JOBS} .job .chart svg", timeout=HANG_SECONDS * 1e3)
    assert other.inner_text(f"{JOBS} .job h4") == heading


def test_a_table_that_does_not_fit_says_so(wide: Opened) -> None:
    hints = wide.page.evaluate(
        "[...document.querySelectorAll('.scroll')].filter(box => box.checkVisibility())"
        ".map(box => [box.scrollWidth > box.clientWidth + 1, box.previousSibling.hidden])"
    )
    assert any(cut for cut, _ in hints)
    assert all(cut != hidden for cut, hidden in hints)


def test_no_labels_are_printed_over_others(shown: Shown) -> None:
    for width, scheme in ((500, "dark"), (1600, "light")):
        overprinted = shown(width, scheme).page.evaluate(
            "[...document.querySelectorAll('.chart svg .role-axis-label')].flatMap(axis => {"
            "const boxes = [...axis.querySelectorAll('text')]"
            ".filter(text => text.getAttribute('opacity') !== '0' && text.style.opacity !== '0')"
            ".map(text => text.getBoundingClientRect());"
            "return boxes.flatMap((a, i) => boxes.slice(i + 1).filter(b => a.width && b.width &&"
            "a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 "
            "&& b.top < a.bottom - 3).map(() => axis.textContent)); })"
        )
        assert overprinted == [], width


def test_hostile_names_are_shown_as_they_are(wide: Opened) -> None:
    assert HOSTILE.replace("\u2028", "") in wide.page.inner_text("h1").replace("\u2028", "")
    assert wide.page.evaluate("document.images.length") == 0


def test_a_point_tells_its_figures(wide: Opened) -> None:
    wide.page.hover("[data-chart='comparison'] .mark-rect path >> nth=1")
    wide.page.wait_for_selector("#vg-tooltip-element.visible")
    assert "srtf" in wide.page.inner_text("#vg-tooltip-element")


def test_contents_lead_to_figures_by_keyboard(browser: Any, file: Path) -> None:
    page = open_page(browser, file).page  # in which nothing has the focus yet
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#all"


def test_dark_mode_is_dark_and_readable(shown: Shown) -> None:
    opened = shown(1280, "dark")
    seen = opened.page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, "
        "getComputedStyle(document.querySelector('.chart svg text')).fill]"
    )
    assert seen == [DARK, "rgb(232, 234, 237)"]
    assert opened.messages == []


@pytest.mark.parametrize(
    ("width", "scheme"), [(360, "light"), (500, "dark"), (768, "light"), (1600, "light")]
)
def test_a_small_screen_needs_no_scrolling_sideways(shown: Shown, width: int, scheme: str) -> None:
    page = shown(width, scheme).page
    assert page.evaluate("document.documentElement.scrollWidth") == width
    widest = page.evaluate(
        "Math.max(...[...document.querySelectorAll('.chart svg, caption span')]"
        ".map(svg => svg.getBoundingClientRect().right))"
    )
    assert widest <= width


def test_charts_follow_the_width_of_the_window(shown: Shown) -> None:
    page = shown(768).page
    size = "document.querySelector('[data-chart=load] svg').viewBox.baseVal.width"
    before = page.evaluate(size)
    try:
        page.set_viewport_size({"width": 360, "height": 900})
        page.wait_for_function(f"{size} < {before} - 300")
    finally:
        page.set_viewport_size({"width": 768, "height": 900})
    page.wait_for_function(f"{size} === {before}")


def test_it_prints_light_and_with_all_its_charts(shown: Shown) -> None:
    page = shown(1280, "dark").page
    hints = "[...document.querySelectorAll('.hint')].map(one => getComputedStyle(one).display)"
    page.emulate_media(media="print", color_scheme="light")
    try:
        ink = page.evaluate("getComputedStyle(document.querySelector('.chart svg text')).fill")
        shown_hints, printed = {*page.evaluate(hints)}, page.pdf()
    finally:
        page.emulate_media(media="screen", color_scheme="dark")
    assert ink == "rgb(0, 0, 0)"
    assert shown_hints == {"none"}  # paper scrolls nowhere
    assert printed.startswith(b"%PDF")
    assert 2 <= printed.count(b"/Type /Page\n") <= 8
