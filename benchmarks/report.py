"""Report a large run and say how long it takes and how large the page is.

    python benchmarks/report.py [--gpus 256] [--jobs 900] [--policy shockwave] [--json]

Asked of a run of 280 rounds on 256 GPUs: at most 10 s and 8 MB. The report is made by the
command line in a process of its own: its time includes the imports.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

from flows.runs.simulation import simulate
from flows.runs.start import make_start
from tasks.record import Settings, one_pool
from warehouse.analytics.questions import Analytics
from warehouse.workloads.generator import generate_workload

MOST_SECONDS = 10.0
MOST_BYTES = 8_000_000
COMMAND = "from flows.cli.main import main; main()"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=256)
    parser.add_argument("--jobs", type=int, default=900)
    parser.add_argument("--policy", default="shockwave")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), options.gpus, options.jobs, options.policy)
    if options.json:
        print(json.dumps(figures))
    else:
        print(*(f"{name} {value:,}" for name, value in figures.items()), sep="\n")
    if figures["report_s"] > MOST_SECONDS or figures["bytes"] > MOST_BYTES:
        sys.exit(1)


def measure(warehouse: Path, gpus: int, jobs: int, policy: str) -> dict[str, float]:
    """Run once, report once."""
    workload = generate_workload(
        jobs, rng=np.random.default_rng(3), mean_interarrival_seconds=7_700 / gpus
    )
    run = simulate(make_start(workload, Settings(policy, one_pool(gpus), seed=3)), warehouse)
    _, ((rounds,),) = Analytics(warehouse).query("SELECT rounds FROM run_summary")
    command = [sys.executable, "-c", COMMAND, "report", run, "--warehouse", str(warehouse)]
    started = perf_counter()
    done = subprocess.run([*command, "--json"], check=True, capture_output=True, text=True)
    seconds = perf_counter() - started
    size = json.loads(done.stdout)["bytes"]
    return {"rounds": rounds, "gpus": gpus, "report_s": round(seconds, 2), "bytes": size}


if __name__ == "__main__":
    main()
