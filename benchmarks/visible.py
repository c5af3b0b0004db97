"""Delay from `submit` to the queue and the live page, on a laptop without Docker.

    python -m benchmarks.visible [--jobs 5] [--json]

It does what the README's tour does: `up --speed 60`, then jobs, one after the other, with a
pause. Shown are the seconds that `submit` took, and those from its return to the first
`shockwave queue` and to the first page that has the job, the longest of all jobs. A command takes
its own start, of a second or so, each time.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import httpx

from harness.up import PROGRAM, Up, ready


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--jobs", type=int, default=5, help="how many are handed in")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ready(Path(folder), "--speed", "60") as up:
        shown = [seen(up, f"job-{number}") for number in range(options.jobs)]
    figures = {name: round(max(row[name] for row in shown), 2) for name in shown[0]}
    print(json.dumps(figures) if options.json else figures)


def seen(up: Up, name: str) -> dict[str, float]:
    """Hand a job in and wait for it."""
    model = ("--model", "conv-small", "--batch-size", "32", "--epochs", "60", "--gpus", "2")
    began = time.perf_counter()
    command(up, "submit", "--name", name, *model)
    accepted = time.perf_counter()
    with httpx.Client(base_url=up.url) as browser:
        browser.post("/live/login", data={"token": up.access.secret}, headers={"Origin": up.url})
        while name not in browser.get("/live").text:
            time.sleep(0.1)
        on_page = time.perf_counter()
    while name not in command(up, "queue", "--json"):
        pass
    in_queue = time.perf_counter()
    time.sleep(3.0)
    return {
        "submit_s": accepted - began,
        "page_s": on_page - accepted,
        "queue_s": in_queue - accepted,
    }


def command(up: Up, *words: str) -> str:
    """What a command prints."""
    line = [PROGRAM, *words, "--warehouse", up.warehouse]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
