"""The Chromium of the system, and the way into Prefect's UI."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Browser, Page, Response, sync_playwright

if TYPE_CHECKING:
    from flows.prefect_server.access import Access


NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
"""Usable programs. The first has no windows, and takes half to two thirds of the time."""


def chromium() -> str:
    """The browser; without one the test is skipped, but not where CI is set."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("no Chromium on this machine")
    return found


@contextmanager
def browser(*arguments: str) -> Iterator[Browser]:
    """A browser until the context ends."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu", *arguments]
        )
        yield opened
        opened.close()


def log_in(page: Page, access: "Access") -> None:
    """Log in to the UI with the secret."""
    page.goto(f"{access.url}/deployments")
    page.get_by_placeholder("admin:pass").fill(access.secret)
    page.get_by_role("button", name="Login").click()
    page.wait_for_url(f"{access.url}/deployments")


def start_flow_run(page: Page, click: Callable[[], None]) -> None:
    """Click until the server has created the flow run: while rounds write, it may be busy (503)."""

    def answers(response: Response) -> bool:
        return response.status == 503 or response.url.endswith("/create_flow_run")

    while True:
        with page.expect_response(answers) as found:
            click()
        if found.value.status != 503:
            assert found.value.ok, found.value.text()
            return
        page.wait_for_timeout(1000)
