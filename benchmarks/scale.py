"""Run generated workloads of growing size; prints the growth of time and memory.

    python benchmarks/scale.py [--jobs 1000,2000,5000,10000,20000] [--load 1.25]
                               [--policies srtf,tiresias-las] [--json]

The cluster grows with the jobs, 1,024 GPUs for 10,000 of them, and the jobs arrive LOAD
times as fast as it could serve them. Each size is a process of its own, started like the
command line: its time includes the imports, drawing the workload, the records on disk and
reading the figures back, and its memory is the peak.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

from flows.runs.simulation import simulate
from flows.runs.start import make_start
from tasks.record import Settings, make_pool
from tasks.run import Run
from warehouse.analytics.marts import keep_fast
from warehouse.analytics.questions import Analytics
from warehouse.workloads.generator import generate_workload

GPUS_PER_JOB = 0.1024
MEAN_GPU_SECONDS = 8_800.0
"""Of a generated job, from many."""

FIELDS = (
    "policy",
    "jobs",
    "gpus",
    "rounds",
    "job_rounds",
    "most_active",
    "wall_s",
    "us_per_job_round",
)


@dataclass
class Tally:
    """Counts the events of a run."""

    job_rounds: int = 0
    most_active: int = 0

    def __call__(self, run: Run) -> None:
        self.job_rounds += len(run.state.leases)
        self.most_active = max(self.most_active, len(run.state.beliefs))


def main() -> None:
    options = parse()
    if options.one:
        print(json.dumps(measure(options.one, options.policies, options.load)))
        return
    if not options.json:
        print(*(f"{name:>16}" for name in (*FIELDS, "peak_mib")))
    measured = []
    for policy in options.policies.split(","):
        for jobs in map(int, options.jobs.split(",")):
            figures = {"policy": policy, **in_a_process(jobs, policy, options.load)}
            measured.append(figures)
            if options.json:
                print(json.dumps(figures), flush=True)
            else:
                values = [f"{value:,.5g}" for value in list(figures.values())[1:]]
                print(*(f"{value:>16}" for value in (policy, *values)), flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--jobs", default="1000,2000,5000,10000,20000", help="comma-separated")
    parser.add_argument("--policies", default="srtf,tiresias-las", help="comma-separated")
    parser.add_argument("--load", type=float, default=1.25, help="arriving over served work")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def in_a_process(jobs: int, policy: str, load: float) -> dict[str, float]:
    """Measure one size in a process of its own, from its start to its end."""
    started = perf_counter()
    command = [sys.executable, __file__, f"--one={jobs}", f"--policies={policy}", f"--load={load}"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    figures: dict[str, float] = json.loads(output)
    wall = perf_counter() - started
    peak = figures.pop("peak_mib")
    return figures | {
        "wall_s": wall,
        "us_per_job_round": 1e6 * wall / figures["job_rounds"],
        "peak_mib": peak,
    }


def measure(jobs: int, policy: str, load: float) -> dict[str, float]:
    """Draw and run one workload in this process."""
    gpus = round(jobs * GPUS_PER_JOB)
    gap = MEAN_GPU_SECONDS / (load * gpus)
    workload = generate_workload(jobs, rng=np.random.default_rng(0), mean_interarrival_seconds=gap)
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Path(folder)
        simulate(make_start(workload, Settings(policy, make_pool(gpus))), warehouse, progress=tally)
        keep_fast(warehouse)
        (row,) = Analytics(warehouse).query("SELECT rounds FROM run_summary")[1]
    return {
        "jobs": jobs,
        "gpus": gpus,
        "rounds": row[0],
        "job_rounds": tally.job_rounds,
        "most_active": tally.most_active,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


if __name__ == "__main__":
    main()
