"""Cost of verifying the files that queries read, on 10 million rows.

    python -m benchmarks.verification [--runs 100] [--rounds 500] [--slots 200] [--asked 5]
                                      [--warehouse FOLDER] [--json]

On a warehouse of `benchmarks/generated.py`, each query is asked ASKED times in turns, each time in
a new process: without verification (`without`), with noted checksums of the files, as after their
writing or an earlier query (`noted`), and without any, as in a warehouse copied from elsewhere
(`unknown`). Figures are the least wall and
processor seconds from the query to its rows. Exit code 1 if `noted` takes more than 1.1 times as
much processor time as `without`, and 10 ms more.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.cookbook import parser_of
from benchmarks.generated import WHOLE, generate

WAYS = ("without", "noted", "unknown")
MOST_RATIO = 1.1
LEAST_SECONDS = 0.01
QUERIES = (
    "SELECT run, count(*) FROM placements GROUP BY run",
    "SELECT run, max(batch_size) FROM telemetry GROUP BY run",
    "SELECT run, avg(remaining_seconds) FROM forecasts GROUP BY run",
    "FROM run_summary",
    "SELECT run, max(rho) FROM job_outcomes GROUP BY run",
    "SELECT run, sum(run_seconds) FROM leases GROUP BY run",
)
"""Queries of records, and of copies of marts."""
ASK = """
import sys
from pathlib import Path
from time import perf_counter, process_time
from warehouse.analytics import questions
from warehouse.store.verified import VERIFIED

warehouse, way, query = Path(sys.argv[1]), *sys.argv[2:]
if way == "without":
    questions.start_verification = lambda *given: lambda: None
if way == "unknown":
    (warehouse / VERIFIED).unlink(missing_ok=True)
started, busy = perf_counter(), process_time()
questions.Analytics(warehouse).query(query)
print(perf_counter() - started, process_time() - busy)
"""


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--asked", type=int, default=5, help="times that each query is asked")
    options = parser.parse_args()
    slow = False
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.warehouse or Path(temporary)
        if not (folder / WHOLE).exists():
            generate(folder, options.runs, options.rounds, options.slots)
        for row in measure(folder, options.asked):
            text = "  ".join(f"{name} {value}" for name, value in row.items())
            print(json.dumps(row) if options.json else text, flush=True)
            more = row["noted_cpu_s"] - row["without_cpu_s"]
            slow |= more > max(LEAST_SECONDS, (MOST_RATIO - 1) * row["without_cpu_s"])
    return int(slow)


def measure(folder: Path, asked: int) -> Iterator[dict[str, Any]]:
    for query in QUERIES:
        times: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        ask(folder, "unknown", query)  # warms the page cache
        for _ in range(asked):
            for way in WAYS:
                times[way].append(ask(folder, way, query))
                if way == "unknown":
                    ask(folder, "noted", query)
        row: dict[str, Any] = {"query": query}
        for way in WAYS:
            wall, busy = zip(*times[way], strict=True)
            row |= {f"{way}_s": round(min(wall), 3), f"{way}_cpu_s": round(min(busy), 3)}
        yield row


def ask(folder: Path, way: str, query: str) -> tuple[float, float]:
    """Wall and processor seconds of a query in a process of its own."""
    command = [sys.executable, "-c", ASK, str(folder), way, query]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    wall, busy = map(float, output.split())
    return wall, busy


if __name__ == "__main__":
    sys.exit(main())
