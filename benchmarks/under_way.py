"""Queries of a long run under way, and of the same run once it has ended: processor seconds.

    python -m benchmarks.under_way [--rounds 3000] [--asked 5] [--json]

A run is simulated for ROUNDS rounds, and a copy of it put into one file, as when it ends. Both are
asked in turns, ASKED times, each time in a new process; `under_way_s` and `ended_s` are the least
processor times of all its threads, without Python's start and imports, `ratio` is the first over
the second. `files` is the number of files of the rounds, `append_ms` the processor time of writing
a round, compaction on the way included. Exit code 1 if a ratio is above 1.3.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from flows.runs.simulation import simulate
from flows.runs.start import make_start
from tasks.record import Settings, Timings, make_pool
from warehouse.analytics.catalog import build
from warehouse.store.folder import place_of
from warehouse.store.parts import round_files
from warehouse.store.reader import Reader
from warehouse.store.writer import Writer
from warehouse.workloads.generator import generate_workload

QUERIES = (
    "FROM run_summary",
    "FROM job_outcomes",
    "FROM rounds",
    "SELECT count(*) FROM placements",
)
MOST_RATIO = 1.3
ASK = """
import sys
from pathlib import Path
from time import process_time
from warehouse.analytics.questions import Analytics

warehouse, *queries = sys.argv[1:]
for query in queries:
    busy = process_time()
    Analytics(Path(warehouse)).query(query)
    print(process_time() - busy)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--policy", default="srtf")
    parser.add_argument("--asked", type=int, default=5, help="times that each query is asked")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    slow = False
    with tempfile.TemporaryDirectory() as folder:
        for row in measure(Path(folder), options.policy, options.rounds, options.asked):
            text = "  ".join(f"{name} {value}" for name, value in row.items())
            print(json.dumps(row) if options.json else text, flush=True)
            slow |= row.get("ratio", 0.0) > MOST_RATIO
    return int(slow)


def measure(folder: Path, policy: str, rounds: int, asked: int) -> Iterator[dict[str, Any]]:
    """Write a run, end a copy of it, and ask both."""
    simulated, warehouse, copy = folder / "simulated", folder / "written", folder / "ended"
    workload = generate_workload(
        rounds // 20, rng=np.random.default_rng(2), mean_interarrival_seconds=200.0
    )
    settings = Settings(policy, make_pool(32), round_seconds=16.0, restart_seconds=2.0)
    start = make_start(workload, settings)
    records = Reader(simulated).records(simulate(start, simulated, rounds=rounds))
    build(warehouse)
    with Writer(warehouse, start) as writer:
        busy = process_time()
        for record, digest in records:
            writer.append(record, digest, Timings(0.0, 0.0, 0.0, 0.0))
        busy = process_time() - busy
    files = len(round_files(place_of(warehouse, writer.run)))
    append_ms = round(busy / len(records) * 1000, 2)
    yield {"rounds": len(records), "files": files, "append_ms": append_ms}
    shutil.copytree(warehouse, copy)
    with Writer(copy, start, run=writer.run) as writer:
        writer.compact()
    by_place: tuple[list[list[float]], list[list[float]]] = [], []
    for _ in range(asked):
        for seconds, place in zip(by_place, (warehouse, copy), strict=True):
            seconds.append(ask(place))
    least = [list(map(min, zip(*seconds, strict=True))) for seconds in by_place]
    for query, ours, ended in zip(QUERIES, *least, strict=True):
        figures = {"under_way_s": round(ours, 3), "ended_s": round(ended, 3)}
        yield {"query": query, **figures, "ratio": round(ours / ended, 2)}


def ask(warehouse: Path) -> list[float]:
    """The processor time of each query, in seconds."""
    command = [sys.executable, "-c", ASK, str(warehouse), "FROM runs", *QUERIES]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    _, *seconds = map(float, output.split())  # the first includes common imports
    return seconds


if __name__ == "__main__":
    sys.exit(main())
