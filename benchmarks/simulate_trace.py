"""Run the public 120-job trace; prints the time of each step.

    python benchmarks/simulate_trace.py [DATA] [--json]

DATA is the folder with the public traces, by default `shockwave` in the folder that the
environment variable SHOCKWAVE_DATA names. The published simulator's wall time on the
same trace was recorded on another machine; FIFO in the same process, which solves
nothing, shows the cost of the market by comparison.
"""

import argparse
import csv
import json
import os
import tempfile
from pathlib import Path
from time import perf_counter

from flows.runs.simulation import simulate
from flows.runs.start import make_start
from flows.runs.workload_source import Source
from tasks.record import Settings, make_pool
from warehouse.analytics.questions import Analytics

TRACE, GPUS = "jobs120_gpus32", 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    folder = os.environ.get("SHOCKWAVE_DATA")
    default = folder and Path(folder) / "shockwave"
    parser.add_argument("data", type=Path, nargs="?" if default else None, default=default)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    data: Path = options.data
    source = Source(
        trace=data / f"{TRACE}.trace",
        throughputs=data / "tacc_throughputs.json",
        regimes=data / "gns_regimes.csv",
    )
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as warehouse:
        for policy in ("fifo", "shockwave"):
            started = perf_counter()
            start = make_start(source.open(), Settings(policy, make_pool(GPUS)))
            run = simulate(start, Path(warehouse))
            figures[f"{policy}_s"] = perf_counter() - started
        columns, rows = Analytics(Path(warehouse)).query(
            "SELECT count(*) AS rounds, sum(collect_ms) / 1e3 AS collect_s, "
            "sum(predict_ms) / 1e3 AS predict_s, sum(solve_ms) / 1e3 AS solve_s, "
            f"sum(dispatch_ms) / 1e3 AS dispatch_s FROM rounds WHERE run = '{run}'"
        )
        figures |= dict(zip(columns, rows[0], strict=True))
    with (data / "reference_results.csv").open() as file:
        (published,) = (
            float(row["wall_s"])
            for row in csv.DictReader(file)
            if (row["trace"], row["policy"], row["source"]) == (TRACE, "shockwave", "run")
        )
    figures["shockwave_over_fifo"] = figures["shockwave_s"] / figures["fifo_s"]
    figures["published_over_shockwave"] = published / figures["shockwave_s"]
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:<26} {value:.4g}")


if __name__ == "__main__":
    main()
