"""Cost of a round of many jobs: processor milliseconds of each of its steps.

    python -m benchmarks.rounds [--jobs 900] [--gpus 256] [--rounds 30] [--policy NAME] [--json]

JOBS generated jobs arrive at once; shown are medians, 95 % and the most of the rounds after the
first three, and the least number of active jobs among these. Nothing is written to disk.
"""

import argparse
import json
from time import process_time
from typing import Any

import numpy as np

from flows.cli.output import print_table
from flows.prefect_server.garbage import collect_rarely
from flows.runs.simulation import prepare
from flows.runs.start import make_start
from tasks.record import RoundRecord, Settings, Timings, make_pool
from tasks.round import ROUND, Step, StepResult, call_step, run_round
from tasks.run import Run
from warehouse.workloads.generator import generate_workload

WARM = 3
"""First rounds, which pay for imports, arrivals and the first forecast of each job."""


class Nothing:
    """A sink that keeps nothing."""

    def append(self, record: RoundRecord, digest: str, timings: Timings) -> None:
        """See `Sink.append`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--jobs", type=int, default=900)
    parser.add_argument("--gpus", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--policy", default="shockwave")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    asked = parser.parse_args()
    rows = measure(asked.jobs, asked.gpus, asked.rounds, asked.policy, asked.seed)
    if asked.json:
        for row in rows:
            print(json.dumps(row))
    else:
        print_table(list(rows[0]), [list(row.values()) for row in rows])


def measure(jobs: int, gpus: int, rounds: int, policy: str, seed: int) -> list[dict[str, Any]]:
    """A row for each step of a round."""
    rng = np.random.default_rng(seed)
    workload = generate_workload(jobs, rng=rng, mean_interarrival_seconds=1e-6)
    start = make_start(workload, Settings(policy=policy, pools=make_pool(gpus, min(gpus, 8))))
    taken: dict[str, list[float]] = {step.__name__: [] for step in ROUND}
    active = jobs

    def call(step: Step, run: Run, *inputs: StepResult[Any]) -> StepResult[Any]:
        begun = process_time()
        result = call_step(step, run, *inputs)
        if number >= WARM:
            taken[step.__name__].append(1e3 * (process_time() - begun))
        return result

    with prepare(start).open_run(Nothing()) as run, collect_rarely():
        for number in range(WARM + rounds):
            if number >= WARM:
                active = min(active, len(run.state.beliefs))
            if run.finished:
                break
            run_round(run, call)
    return [
        {
            "step": name,
            "median_ms": float(np.median(ms)),
            "p95_ms": float(np.quantile(ms, 0.95)),
            "most_ms": max(ms),
            "rounds": len(ms),
            "active": active,
        }
        for name, ms in taken.items()
    ]


if __name__ == "__main__":
    main()
