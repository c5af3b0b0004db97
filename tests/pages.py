"""A stored page in a browser, without a network."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.waiting import HANG_SECONDS


@dataclass
class Opened:
    """A page in a browser and what it did."""

    page: Any
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


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


def violations(page: Any) -> list[tuple[str, list[str]]]:
    """What axe-core finds wrong: rule and elements."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [(rule["id"], [node["html"][:200] for node in rule["nodes"]]) for rule in found]
