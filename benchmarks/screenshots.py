"""Take the pictures of README and docs from the product as it is: report, live page, Prefect's UI.

    python -m benchmarks.screenshots [OUT] [--only report,live,prefect]

Writes `report`, `live` and `prefect`, in light and in dark, as PNG to OUT, by default
`docs/images`. It starts a service with a server of its own and needs the Chromium of the system.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from harness.up import PROGRAM, Up, ready
from harness.waiting import wait_for
from tests.ui.browser import chromium, log_in

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SIZE = {"width": 1280, "height": 860}
SCHEMES = ("light", "dark")

JOBS = (
    "resnet-sweep conv-large 64 60 4 gns vision",
    "detector conv-small 32 90 2 static vision",
    "lm-base recurrent-lm 32 50 4 accordion language",
    "lm-ablation-1 recurrent-lm 16 25 1 static language",
    "lm-ablation-2 recurrent-lm 16 25 1 static language",
    "lm-ablation-3 recurrent-lm 32 30 1 gns language",
    "translate translator 32 40 2 static language",
    "ranker autoencoder 512 80 2 gns ads",
    "ranker-small autoencoder 512 30 1 static ads",
    "ranker-wide autoencoder 512 60 4 static ads",
    "smoke-test conv-small 32 4 1 static vision",
    "segment conv-large 32 45 8 static vision",
)
FIELDS = ("name", "model", "batch-size", "epochs", "gpus", "mode", "tenant")
"""Options of `submit`, in the order of the words of `JOBS`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("out", type=Path, nargs="?", default=IMAGES)
    parser.add_argument("--only", default="report,live,prefect", help="which pictures")
    options = parser.parse_args()
    out, only = options.out, options.only.split(",")
    with tempfile.TemporaryDirectory() as folder, opened_browser() as browser:
        if "report" in only:
            take_report(browser, Path(folder), out)
        options = ("--gpus", "16", "--gpus-per-node", "4", "--speed", "30")
        service = Path(folder) / "service"
        service.mkdir()
        with ready(service, *options) as up:
            for line in JOBS:
                words = zip(FIELDS, line.split(), strict=True)
                command(up, "submit", *(f"--{field}={word}" for field, word in words))
            wait_for(lambda: command(up, "status"), lambda text: rounds_of(text) > 4)
            if "live" in only:
                take_live(browser, up, out)
            if "prefect" in only:
                take_prefect(browser, up, out)


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """The Chromium of the system."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


def command(up: Up, *words: str) -> str:
    """Run a command on the service's warehouse; returns what it printed."""
    line = [str(PROGRAM), *words, "--warehouse", str(up.warehouse)]
    return subprocess.run(line, env=up.env, check=True, capture_output=True, text=True).stdout


def rounds_of(status: str) -> int:
    """Rounds of a service so far, from what `status` printed."""
    found = [line.split()[-1] for line in status.splitlines() if line.startswith("rounds ")]
    return int(found[0].replace(",", "")) if found else 0


def take(page: Page, out: Path, name: str) -> None:
    """A screenshot of what the window shows."""
    page.wait_for_timeout(1_500)  # pages draw charts and fetch fonts after they have loaded
    page.screenshot(path=out / f"{name}.png")


def take_report(browser: Browser, folder: Path, out: Path) -> None:
    """A report that compares four policies on one workload."""
    records, page_file = folder / "warehouse", folder / "report.html"
    policies = "shockwave,srtf,tiresias-las,fifo"
    where = ("--warehouse", str(records))
    for line in (
        ("compare", "--jobs", "60", "--gpus", "16", "--policies", policies, *where),
        ("report", "RUNS", "--out", str(page_file), *where),
    ):
        words = [",".join(run_names(records)) if word == "RUNS" else word for word in line]
        subprocess.run([str(PROGRAM), *words], check=True, stdout=sys.stderr)
    for scheme in SCHEMES:
        page = browser.new_context(color_scheme=scheme, viewport=SIZE).new_page()
        page.goto(page_file.as_uri())
        page.locator("#all").evaluate("chapter => chapter.scrollIntoView()")
        take(page, out, f"report-{scheme}")


def run_names(records: Path) -> list[str]:
    """The runs of a warehouse, by the order in which they were made."""
    from shockwave import Warehouse

    return list(Warehouse(records).sql("SELECT run FROM runs ORDER BY created_at")["run"])


def take_live(browser: Browser, up: Up, out: Path) -> None:
    """The live page of the service."""
    for scheme in SCHEMES:
        page = browser.new_context(color_scheme=scheme, viewport=SIZE).new_page()
        page.goto(f"{up.url}/live")
        page.get_by_label("Token").fill(up.access.secret)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_selector("#tiles")
        take(page, out, f"live-{scheme}")


def take_prefect(browser: Browser, up: Up, out: Path) -> None:
    """A round of the service as a flow run, in Prefect's UI, with the edges between its tasks."""
    from prefect import get_client
    from prefect.settings import temporary_settings

    with (
        temporary_settings(up.access.client_settings()),
        get_client(sync_client=True) as client,
    ):
        runs = client.read_flow_runs(limit=50)
    rounds = [run for run in runs if "round" in run.name and run.state and run.state.is_completed()]
    rounds.sort(key=lambda run: run.start_time or run.created)
    flow_run = rounds[-2].id  # artifacts of the last one may be missing
    for scheme, name in zip(SCHEMES, ("prefect", "prefect-dark"), strict=True):
        page = browser.new_context(viewport=SIZE).new_page()
        # The UI is dark at first, whatever the browser prefers.
        page.add_init_script(f"localStorage.setItem('color-scheme', '\"{scheme}\"')")
        log_in(page, up.access)
        page.goto(f"{up.url}/runs/flow-run/{flow_run}")
        page.get_by_label("Run Graph Options").click()
        page.get_by_text("Dependency grid", exact=True).click()
        page.keyboard.press("Escape")
        page.get_by_title("Recenter graph").click()
        take(page, out, name)


if __name__ == "__main__":
    main()
