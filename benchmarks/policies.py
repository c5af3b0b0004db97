"""Time every policy as its user does: the whole command, from start to table.

    python benchmarks/policies.py [DATA] [--json]

Two workloads: the public 120-job trace on 32 GPUs, and 900 generated jobs on 256 GPUs that
arrive 1.3 times as fast as they could be served. DATA is the folder with the public traces,
by default `shockwave` in the folder that the environment variable SHOCKWAVE_DATA names.
FIFO, which computes nothing, is the reference of each workload; beside it stand the wall
times that the published simulator was recorded with on another machine of two cores.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from flows.judging.conformance import NAMES
from solver.policies import POLICIES

RUN = (sys.executable, "-c", "from flows.cli.main import main; main()", "simulate", "--json")
GENERATED = ("--jobs", "900", "--gpus", "256", "--contention-factor", "1.3")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    folder = os.environ.get("SHOCKWAVE_DATA")
    default = folder and Path(folder) / "shockwave"
    parser.add_argument("data", type=Path, nargs="?" if default else None, default=default)
    parser.add_argument("--policies", default=",".join(POLICIES), help="comma-separated")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    data: Path = options.data
    public = (
        *("--trace", data / "jobs120_gpus32.trace", "--gpus", "32"),
        *("--profile", data / "tacc_throughputs.json", "--regimes", data / "gns_regimes.csv"),
    )
    recorded = published_seconds(data / "reference_results.csv")
    # The first start reads everything from the disk, so the reference is the better of two.
    reference = [
        min(seconds("fifo", workload) for _ in range(2)) for workload in (public, GENERATED)
    ]
    if not options.json:
        heads = ("120 jobs (s)", "x fifo", "published (s)", "900 jobs (s)", "x fifo")
        print(f"{'policy':>20}", *(f"{head:>14}" for head in heads))
    for policy in options.policies.split(","):
        small, large = seconds(policy, public), seconds(policy, GENERATED)
        there = recorded.get(NAMES.get(policy, policy))
        if options.json:
            figures = {"policy": policy, "jobs120_s": small, "jobs900_s": large}
            ratios = {"jobs120_ratio": small / reference[0], "jobs900_ratio": large / reference[1]}
            print(json.dumps(figures | ratios | {"jobs120_published_s": there}), flush=True)
        else:
            values = (small, small / reference[0], there, large, large / reference[1])
            shown = (f"{value:14.2f}" if value is not None else f"{'':>14}" for value in values)
            print(f"{policy:>20}", *shown, flush=True)


def seconds(policy: str, workload: tuple[object, ...]) -> float:
    """Wall time of one run, the start of Python and the reading of the figures included."""
    with tempfile.TemporaryDirectory() as warehouse:
        started = perf_counter()
        subprocess.run(
            [*RUN, "--policy", policy, "--warehouse", warehouse, *map(str, workload)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return perf_counter() - started


def published_seconds(path: Path) -> dict[str, float]:
    """Wall times of the published simulator on the 120-job trace, by policy."""
    with path.open(newline="") as file:
        return {
            row["policy"]: float(row["wall_s"])
            for row in csv.DictReader(file)
            if (row["trace"], row["source"]) == ("jobs120_gpus32", "run")
        }


if __name__ == "__main__":
    main()
