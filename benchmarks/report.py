"""Report a large run and a campaign, and measure both pages in a browser.

    python benchmarks/report.py [--reports run,campaign] [--pages FOLDER] [--json]

The run has the 900 jobs of a generated workload on 256 GPUs under Shockwave; the campaign is
`examples/campaign.toml` with its 54 cells. Both are made in a new warehouse, each report by the
command line in a process of its own, whose processor time includes the imports. Chromium then opens
the page, 1,200 pixels wide, in the light and in the dark. FOLDER keeps the pages, and pictures of
each: light, dark, 500 pixels wide, and as it is printed. Bounds on each page:

- at most 10 s of processor time and 5 MB
- at most 6,000 pixels high before anything is opened, the first paint within 1.5 s
- jobs sorted by a column in at most 100 ms, from the click to the next frame
- no findings of axe-core, with all details open
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, sync_playwright

from flows.runs.simulation import simulate
from flows.runs.start import make_start
from tasks.record import Settings, make_pool
from warehouse.workloads.generator import generate_workload

ROOT = Path(__file__).parents[1]
PROGRAM = (sys.executable, "-c", "from flows.cli.main import main; main()")
JOBS, GPUS = 900, 256
LIMITS = {
    "cpu_s": 10.0,
    "bytes": 5_000_000,
    "height_px": 6_000,
    "first_paint_ms": 1_500,
    "sort_ms": 100,
    "violations": 0,
}
"""The largest accepted value of each figure."""

SORT = """async () => {
  const buttons = document.querySelectorAll("[data-table^='jobs-'] thead th button");
  const times = [];
  for (const button of buttons) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    const start = performance.now();
    button.click();
    document.body.getBoundingClientRect();
    await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    times.push(performance.now() - start);
  }
  return times;
}"""
"""Sort by each column in turn; milliseconds of each."""

OPEN = "document.querySelectorAll('details').forEach((part) => { part.open = true; })"
ALL_DRAWN = """
[...document.querySelectorAll("[data-chart]")].every((box) => box.querySelector("svg"))
  && [...document.querySelectorAll("[data-table]")].every((place) => place.dataset.filled)
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--reports", default="run,campaign")
    parser.add_argument("--pages", type=Path, help="where pages and their pictures are kept")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            {"report": name, **measure(Path(folder) / name, name, options.pages)}
            for name in options.reports.split(",")
        ]
    for row in rows:
        print(json.dumps(row) if options.json else "  ".join(f"{k} {v}" for k, v in row.items()))
    if any(row[name] > most for row in rows for name, most in LIMITS.items()):
        sys.exit(1)


def measure(warehouse: Path, name: str, pages: Path | None) -> dict[str, Any]:
    """Make the runs, report them, and open the page."""
    about = a_run(warehouse) if name == "run" else a_campaign(warehouse)
    page = (pages or warehouse) / f"{name}.html"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [*PROGRAM, "report", about, "--warehouse", str(warehouse), "--out", str(page)]
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with sync_playwright() as playwright:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        seen = [look(browser, page, scheme) for scheme in ("light", "dark")]
        if pages is not None:
            picture(browser, page)
        browser.close()
    worst = {name: max(figures[name] for figures in seen) for name in seen[0]}
    return {"cpu_s": round(seconds, 2), "bytes": page.stat().st_size, **worst}


def look(browser: Browser, page: Path, scheme: Any) -> dict[str, float]:
    """Figures of a page in a browser window of 1,200 pixels."""
    context = browser.new_context(
        offline=True, color_scheme=scheme, viewport={"width": 1200, "height": 900}
    )
    opened = context.new_page()
    opened.set_default_timeout(120_000)
    opened.goto(page.as_uri())
    opened.wait_for_selector("html[data-drawn]")
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    figures = {
        "height_px": opened.evaluate("document.documentElement.scrollHeight"),
        "first_paint_ms": round(opened.evaluate(paint)),
    }
    opened.evaluate(OPEN)
    opened.wait_for_function(ALL_DRAWN)
    times = opened.evaluate(SORT)
    violations = Axe().run(opened).response["violations"]
    context.close()
    return {**figures, "sort_ms": round(median(times)), "violations": len(violations)}


def picture(browser: Browser, page: Path) -> None:
    """Keep pictures of a page beside it."""
    for name, width, scheme in (
        ("light", 1200, "light"),
        ("dark", 1200, "dark"),
        ("narrow", 500, "light"),
    ):
        context = browser.new_context(
            offline=True, color_scheme=scheme, viewport={"width": width, "height": 900}
        )
        opened = context.new_page()
        opened.goto(page.as_uri())
        opened.wait_for_selector("html[data-drawn]")
        opened.screenshot(path=page.with_name(f"{page.stem}-{name}.png"), full_page=True)
        if name == "light":
            opened.pdf(path=page.with_name(f"{page.stem}-print.pdf"), format="A4")
        context.close()


def a_run(warehouse: Path) -> str:
    """Simulate the run."""
    workload = generate_workload(
        JOBS, rng=np.random.default_rng(3), mean_interarrival_seconds=7_700 / GPUS
    )
    return simulate(make_start(workload, Settings("shockwave", make_pool(GPUS), seed=3)), warehouse)


def a_campaign(warehouse: Path) -> str:
    """Run the campaign."""
    plan = ROOT / "examples" / "campaign.toml"
    command = [*PROGRAM, "campaign", "run", str(plan), "--warehouse", str(warehouse)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    (folder,) = (
        path for path in (warehouse / "campaigns").iterdir() if (path / "plan.json").is_file()
    )
    return folder.name


if __name__ == "__main__":
    main()
