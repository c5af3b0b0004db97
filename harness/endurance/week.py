"""Size of Prefect's database while a service runs for a week, and how fast its UI answers then.

    python -m harness.endurance.week [--days 7] [--rounds-per-day 96] [--jobs 8]

`shockwave up` runs a round every two seconds, with its defaults: SQLite, and retention of a day.
Whenever an hour's rounds are recorded, all history in the database becomes an hour older. The
server's own vacuum runs about hourly, too. Sizes are of the file; `free` is the part that later
rows use first. `net` is the size over that of a database without rounds. At the end, Chromium opens
the list of flow runs and a round with its graph.
"""

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from flows.cli.output import print_table
from harness.recorded import count_rounds
from harness.up import Up, outside, started
from harness.waiting import wait_for
from predictor.allocation import Demand
from predictor.job import JobSpec, Mode
from tests.ui.browser import browser, log_in
from warehouse.inbox.inbox import Inbox

JOB = JobSpec(0, "conv-small", 32, 32, Demand.gang(1), Mode.STATIC, 5_000_000, 40_000, 0.0)

HISTORY = (
    *("flow_run", "flow_run_state", "task_run", "task_run_state"),
    *("log", "artifact", "artifact_collection", "events", "event_resources"),
)
"""Tables that grow with rounds."""

VACUUM_SECONDS = 4.0
"""Seconds between two runs of the vacuum, which is hourly without acceleration."""

MEBIBYTE = 2**20


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as name, serving(Path(name)) as up:
        database = Path(up.env["PREFECT_HOME"]) / "prefect.db"
        empty = measure(database)[0]
        with Inbox(up.warehouse) as inbox:
            inbox.submit_all([JOB] * options.jobs)
        rows, hourly = list[list[str]](), options.rounds_per_day / 24
        sizes = list[float]()
        for day in range(options.days):
            for hour in range(24):
                reach(up.warehouse, round((24 * day + hour + 1) * hourly))
                make_older(database, hours=1)
            time.sleep(2 * VACUUM_SECONDS)
            size, free, flow_runs = measure(database)
            sizes.append(size)
            cells = (size, free, size / sizes[0], (size - empty) / (sizes[0] - empty))
            rows.append([str(day + 1), f"{flow_runs:,}", *(f"{cell:.2f}" for cell in cells)])
            print_table(["day", "flow runs", "MiB", "free", "ratio", "net ratio"], rows)
        for page, seconds in time_pages(up):
            print(f"{page}: {seconds:.2f} s")


@contextmanager
def serving(folder: Path) -> Iterator[Up]:
    """A service whose rounds do not wait for their time."""
    env = outside(folder / "home") | {
        "PREFECT_SERVER_SERVICES_DB_VACUUM_LOOP_SECONDS": str(VACUUM_SECONDS),
        "PREFECT_SERVER_SERVICES_DB_VACUUM_ORPHAN_CLEANUP_LOOP_SECONDS": str(24 * VACUUM_SECONDS),
    }
    with started(folder, "--gpus", "16", "--speed", "60", env=env) as up:
        up.until_ready()
        yield up


def reach(warehouse: Path, rounds: int) -> None:
    """Wait until so many rounds are recorded."""
    wait_for(lambda: count_rounds(warehouse), lambda recorded: recorded >= rounds, every=0.1)


def make_older(database: Path, hours: int) -> None:
    """Move all times of the history back."""
    with closing(sqlite3.connect(database, timeout=120.0, isolation_level=None)) as opened:
        opened.execute("BEGIN IMMEDIATE")
        for table in HISTORY:
            columns = [
                name
                for _, name, kind, *_ in opened.execute(f"PRAGMA table_info({table})")
                if kind == "DATETIME" and name != "total_run_time"  # a duration
            ]
            moved = (  # strftime has no microseconds, by which states of a flow run differ
                f"{each} = strftime('%Y-%m-%d %H:%M:%S', {each}, '-{hours} hours')"
                f" || substr({each}, 20)"
                for each in columns
            )
            opened.execute(f"UPDATE {table} SET {', '.join(moved)}")
        opened.execute("COMMIT")


def measure(database: Path) -> tuple[float, float, int]:
    """MiB of a database and of its free pages, and its number of flow runs."""
    with closing(sqlite3.connect(database, timeout=120.0)) as opened:
        (page,) = opened.execute("PRAGMA page_size").fetchone()
        (pages,) = opened.execute("PRAGMA page_count").fetchone()
        (free,) = opened.execute("PRAGMA freelist_count").fetchone()
        (flow_runs,) = opened.execute("SELECT count(*) FROM flow_run").fetchone()
    return pages * page / MEBIBYTE, free * page / MEBIBYTE, flow_runs


def time_pages(up: Up) -> Iterator[tuple[str, float]]:
    """Seconds until the UI's pages show their content, after one page that loads its program."""
    with closing(sqlite3.connect(Path(up.env["PREFECT_HOME"]) / "prefect.db")) as opened:
        query = (
            "SELECT id, name FROM flow_run WHERE state_name = 'Completed' ORDER BY end_time DESC"
        )
        flow_run, name = opened.execute(query).fetchone()
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 1400, "height": 1000})
        log_in(page, up.access)
        for title, path, shown in (
            ("flow runs", "/runs", page.get_by_text(name)),
            ("a round", f"/runs/flow-run/{flow_run}", page.locator("canvas")),
        ):
            began = time.perf_counter()
            page.goto(f"{up.url}{path}")
            shown.first.wait_for()
            yield title, time.perf_counter() - began


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--rounds-per-day", type=int, default=96)
    parser.add_argument("--jobs", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
