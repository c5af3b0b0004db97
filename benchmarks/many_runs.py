"""Processor time of `why`, `runs` and `sql` on a warehouse of many runs.

    python -m benchmarks.many_runs [--runs 1000] [--jobs 20] [--repeat 5] [--warehouse FOLDER]
        [--json]

The runs are simulated, under three policies by turns, and kept where FOLDER is given: the next call
goes on with them. Shown is the processor time of each command, the median of `--repeat` processes,
imports included, in each state of the copies of figures that queries read:

- `all`: all runs are copied
- `under way`: a further run has not ended, so that it cannot be copied
- `usual`: eight more are not: the most that `simulate`, `compare` and `campaign` leave so
- `one more`: once, with a ninth: what copies these
- `none`: once, without any, as after another version has changed the views: what copies them all

Bound: one second each, in the first three.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median

import numpy as np

from flows.runs.simulation import simulate
from flows.runs.start import make_start
from tasks.record import Settings, make_pool
from warehouse.analytics.copies import marts_folder
from warehouse.analytics.marts import NEW_RUNS, materialise
from warehouse.store.folder import run_folders
from warehouse.workloads.generator import generate_workload

PROGRAM = (sys.executable, "-c", "from flows.cli.main import main; main()")
POLICIES = ("shockwave", "srtf", "fifo")
GPUS = 16
BATCH = 20
MOST_SECONDS = 1.0
"""Bound on the processor time of each command."""

ONCE = ("one more", "none")
"""States that the first command ends."""

LINES = (
    ["why", "3"],
    ["runs"],
    ["run", "list", "--of-jobs", "scale_factor = 4", "--sort", "jct_p99_s", "--limit", "1"],
    ["sql", "SELECT policy, avg(mean_jct_s) FROM run_summary GROUP BY policy"],
    ["sql", "SELECT run, max(rho) FROM job_outcomes GROUP BY run ORDER BY 2 DESC LIMIT 3"],
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--jobs", type=int, default=20, help="of each run")
    parser.add_argument("--repeat", type=int, default=5, help="processes of each command")
    parser.add_argument("--warehouse", type=Path, help="where the runs are kept")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    slow = False
    with tempfile.TemporaryDirectory() as temporary:
        warehouse = options.warehouse or Path(temporary) / "warehouse"
        for state in states(warehouse, options.runs, options.jobs):
            for line in LINES[-2:-1] if state in ONCE else LINES:
                times = 1 if state in ONCE else options.repeat
                took = median(processor_seconds(warehouse, line) for _ in range(times))
                slow |= state not in ONCE and took > MOST_SECONDS
                row = {"copies": state, "cpu_s": round(took, 2), "command": " ".join(line)}
                show(row, options.json)
    sys.exit(slow)


def states(warehouse: Path, runs: int, jobs: int) -> Iterator[str]:
    """Bring the warehouse into each state of its copies in turn; yields their names."""
    make(warehouse, runs - len(run_folders(warehouse)), jobs)
    materialise(warehouse)
    yield "all"
    simulate_all(warehouse, jobs, [len(run_folders(warehouse))], rounds=3)
    yield "under way"
    make(warehouse, NEW_RUNS, jobs)
    yield "usual"
    make(warehouse, 1, jobs)
    yield "one more"
    shutil.rmtree(marts_folder(warehouse))
    yield "none"


def make(warehouse: Path, runs: int, jobs: int) -> None:
    """Simulate so many runs more, a seed each."""
    there = len(run_folders(warehouse))
    seeds = range(there, there + runs)
    parts = [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        list(pool.map(partial(simulate_all, warehouse, jobs), parts))


def simulate_all(
    warehouse: Path, jobs: int, numbers: Sequence[int], rounds: int | None = None
) -> None:
    """Simulate runs, a seed each, by default to their ends."""
    for number in numbers:
        settings = Settings(
            POLICIES[number % len(POLICIES)], make_pool(GPUS), seed=number, round_seconds=360.0
        )
        workload = generate_workload(jobs, rng=np.random.default_rng(number))
        simulate(make_start(workload, settings), warehouse, rounds=rounds)


def show(row: Mapping[str, object], as_json: bool) -> None:
    """Print a row as a JSON object, or as names and values."""
    text = "  ".join(f"{name} {value}" for name, value in row.items())
    print(json.dumps(row) if as_json else text, flush=True)


def processor_seconds(warehouse: Path, line: Sequence[str]) -> float:
    """User and system time of a command and its children, in seconds."""
    before = getrusage(RUSAGE_CHILDREN)
    command = [*PROGRAM, *line, "--warehouse", str(warehouse)]
    subprocess.run(command, check=True, capture_output=True)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    main()
