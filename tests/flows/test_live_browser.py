"""The live page in a real browser: refreshes, accessibility, no requests to other hosts."""

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from harness.waiting import HANG_SECONDS
from tests.flows.served import SECRET, served
from tests.flows.test_api import furnish
from tests.flows.test_scheduler import JOB, go
from tests.pages import violations
from warehouse.inbox.inbox import Inbox

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A service, served, and a browser."""
    from tests.ui.browser import browser

    warehouse = tmp_path_factory.mktemp("browser")
    tokens = furnish(warehouse)
    go(warehouse, 2)  # for lines of prices and forecasts
    with served(warehouse) as url, browser() as opened:
        yield SimpleNamespace(warehouse=warehouse, url=url, browser=opened, tokens=tokens)


@pytest.fixture(autouse=True)
def alone(shown: SimpleNamespace) -> Iterator[None]:
    """Close the pages of a test at its end, which would go on asking every three seconds."""
    yield
    for context in shown.browser.contexts:
        context.close()


class Opened:
    """A page after the login, with its requests and errors."""

    def __init__(self, shown: SimpleNamespace, path: str, token: str = SECRET, **kind: Any) -> None:
        self.messages: list[str] = []
        self.requests: set[str] = set()
        context = shown.browser.new_context(**kind)
        context.set_default_timeout(HANG_SECONDS * 1e3)
        self.page = context.new_page()
        self.page.goto(shown.url + path)
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.add(request.url))
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Log in").click()
        self.page.wait_for_selector("#tiles, #jobs")


@pytest.mark.parametrize(("path", "lines"), [("/live", 3), ("/live/jobs", 0), ("/live/jobs/1", 1)])
@pytest.mark.parametrize(("scheme", "width"), [("light", 1600), ("dark", 400)])
def test_nothing_bars_anybody_from_it(
    shown: SimpleNamespace, path: str, lines: int, scheme: str, width: int
) -> None:
    size = {"width": width, "height": 900}
    opened = Opened(shown, path, color_scheme=scheme, viewport=size)
    assert violations(opened.page) == []
    assert opened.page.evaluate("document.documentElement.scrollWidth") == width
    assert opened.page.locator("svg .line").count() == lines
    if width == 400:
        for part in opened.page.locator(".scroll").all():
            assert part.evaluate("part => part.scrollWidth <= part.clientWidth")
    dark = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(20, 23, 27)") == (scheme == "dark")
    assert opened.messages == []
    assert opened.requests == {shown.url + path, f"{shown.url}/live/login"}


def test_the_login_page_is_accessible(shown: SimpleNamespace) -> None:
    page = shown.browser.new_context(color_scheme="dark").new_page()
    page.goto(f"{shown.url}/live")
    assert violations(page) == []


def test_it_asks_again_only_once_it_is_answered(shown: SimpleNamespace) -> None:
    opened, asked = Opened(shown, "/live"), list[Any]()
    opened.page.clock.install()
    opened.page.reload()
    opened.page.route("**/live", lambda route: asked.append(route))  # is not answered yet
    opened.page.clock.run_for(60_000)
    while not asked:  # a busy machine reports it late
        opened.page.wait_for_timeout(100)
    assert len(asked) == 1
    with opened.page.expect_response("**/live"):
        asked[0].continue_()
    opened.page.wait_for_function("document.getElementById('connection').textContent === ''")
    with opened.page.expect_request("**/live"):
        opened.page.clock.run_for(3_000)
    while len(asked) < 2:
        opened.page.wait_for_timeout(100)
    asked[-1].abort()


def test_it_refreshes_itself_and_commands(shown: SimpleNamespace) -> None:
    opened = Opened(shown, "/live")
    with Inbox(shown.warehouse) as inbox:
        job = inbox.submit(replace(JOB, name="just-now")).number
    opened.page.locator("#queue").get_by_text("just-now").wait_for()
    opened.page.get_by_role("link", name="just-now").click()
    opened.page.get_by_role("button", name="Hold").click()
    opened.page.wait_for_url(f"**/live/jobs/{job}")
    with Inbox(shown.warehouse) as inbox:
        entry = inbox.entries_after(inbox.last() - 1)[0]
    assert (entry.kind, entry.target) == ("hold", job)
    opened.page.get_by_text("refresh automatically").click()
    go(shown.warehouse, 1)
    opened.page.reload()
    assert opened.page.locator("#tiles .value").first.text_content() == "held"
    opened.page.get_by_role("link", name="The cluster").click()
    opened.page.get_by_role("link", name="What if?").click()
    opened.page.get_by_label("Nodes drained").fill("1")
    opened.page.get_by_role("button", name="Forecast").click()
    opened.page.wait_for_url("**/live/whatif?*drain=1*")
    assert opened.page.locator("tbody tr").count() >= 1
    assert violations(opened.page) == []
    opened.page.get_by_role("button", name="Log out").click()
    opened.page.get_by_label("Token").wait_for()
    assert not [message for message in opened.messages if "401" not in message]


def test_a_node_is_removed_only_once_that_is_confirmed(shown: SimpleNamespace) -> None:
    page, answers = Opened(shown, "/live").page, list[str]()

    def answer(dialog: Any) -> None:
        answers.append(dialog.message)
        if len(answers) == 1:
            dialog.dismiss()
        else:
            dialog.accept()

    page.on("dialog", answer)
    with Inbox(shown.warehouse) as inbox:
        before = inbox.last()
        page.locator("#nodes summary").first.click()
        button = page.locator("#nodes").get_by_role("button", name="Remove").first
        button.click()
        button.click()
        page.wait_for_url("**/live")
        (entry,) = inbox.entries_after(before)
    assert (entry.kind, entry.target) == ("remove", 0)
    assert answers == ["Remove node 0? Its jobs are preempted."] * 2


def test_a_job_is_handed_in_by_a_form(shown: SimpleNamespace) -> None:
    size = {"width": 500, "height": 900}
    opened = Opened(shown, "/live", color_scheme="dark", viewport=size)
    page = opened.page
    page.get_by_role("link", name="Submit a job").click()
    for label, text in {"model": "conv-small", "batch size": "32", "epochs": "5.5"}.items():
        page.get_by_label(label, exact=True).fill(text)
    page.get_by_label("name", exact=True).fill("of-a-form")
    page.get_by_label("mode", exact=True).select_option("gns")
    page.get_by_role("button", name="Submit").click()
    assert "epochs" in (page.get_by_role("alert").text_content() or "")
    page.get_by_label("epochs", exact=True).fill("5")
    page.get_by_role("button", name="When would it end?").click()
    assert page.locator("tbody tr").last.get_by_text("this job of-a-form").count() == 1
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == 500
    page.get_by_role("button", name="Submit").click()
    page.locator("#tiles").get_by_text("accepted").wait_for()
    with Inbox(shown.warehouse) as inbox:
        (entry,) = inbox.entries_after(inbox.last() - 1)
    assert entry.job
    assert (entry.job.name, entry.job.mode.value) == ("of-a-form", "gns")
    assert not [message for message in opened.messages if "422" not in message]
