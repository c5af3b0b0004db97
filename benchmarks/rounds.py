"""Cost of a round of many jobs: processor milliseconds of each of its steps.

    python -m benchmarks.rounds [--jobs 900] [--gpus 256] [--rounds 30] [--policy NAME] [--json]
    python -m benchmarks.rounds --elastic 1.0-6 [--mixed] [--jobs 1000 --gpus 2048] [--rounds 30]

JOBS generated jobs arrive at once; shown are medians, 95 % and the most of the rounds after the
first three, the least number of active jobs among these, and the largest gap of a plan. A `round`
is all steps but `collect`, in which simulated jobs train. Nothing is written to disk.

With `--elastic`, jobs are those of Pollux's workloads (`SHOCKWAVE_DATA/pollux`), in rounds of 60 s
on nodes of 4 T4, or with `--mixed` on three GPU types. Without `--jobs`, they arrive as in the
workload, on 64 GPUs, and rounds are all of its run.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from benchmarks.elastic import MIXED, find_data, read_workload
from flows.cli.output import print_table
from flows.prefect_server.garbage import collect_rarely
from flows.runs.simulation import prepare
from flows.runs.start import make_start
from harness.conformance_of_applications import CLUSTER
from predictor.rows import hash_content
from solver.inventory import Pool
from tasks.record import RoundRecord, Settings, Timings, make_pool
from tasks.round import ROUND, Step, StepResult, call_step, run_round
from tasks.run import Run
from tasks.sources import Workload
from warehouse.workloads.generator import generate_workload

WARM = 3
"""First rounds, which pay for imports, arrivals and the first forecast of each job."""


class Gaps:
    """A sink that keeps nothing but the gaps of plans, and a hash of all leases."""

    def __init__(self) -> None:
        self.gaps: list[float] = []
        self.digest = ""

    def append(self, record: RoundRecord, digest: str, timings: Timings) -> None:
        """See `Sink.append`."""
        self.gaps.append(record.solve.gap)
        leases = [[lease.job_id, *lease.gpus] for lease in record.leases]
        self.digest = hash_content([self.digest, leases])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--jobs", type=int, help="jobs that arrive at once; default 900")
    parser.add_argument("--gpus", type=int, help="default 256, of elastic jobs 64")
    parser.add_argument("--rounds", type=int, help="default 30; all of a workload without --jobs")
    parser.add_argument("--policy", default="shockwave")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--elastic", metavar="WORKLOADS", help="Pollux's, by commas: 1.0-6")
    parser.add_argument("--mixed", action="store_true", help="elastic jobs on three GPU types")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    asked = parser.parse_args()
    rounds: int | None = 30 if asked.rounds is None else asked.rounds
    if asked.mixed and not asked.elastic:
        parser.error("--mixed needs --elastic")
    if asked.elastic:
        names = asked.elastic.split(",")
        if len(names) > 1 and not asked.jobs:
            parser.error("--elastic with several workloads needs --jobs")
        if asked.rounds is not None and not asked.jobs:
            parser.error("--rounds with --elastic needs --jobs: without, all rounds are measured")
        gpus = asked.gpus or CLUSTER.gpus
        pools = tuple(
            replace(pool, gpus=pool.gpus * gpus // CLUSTER.gpus)
            for pool in (MIXED if asked.mixed else (CLUSTER,))
        )
        workload = read_elastic(find_data(parser), names, pools, asked.jobs)
        rounds = rounds if asked.jobs else None
        settings = Settings(asked.policy, pools, round_seconds=60.0, restart_seconds=30.0)
    else:
        rng, gpus = np.random.default_rng(asked.seed), asked.gpus or 256
        workload = generate_workload(asked.jobs or 900, rng=rng, mean_interarrival_seconds=1e-6)
        settings = Settings(asked.policy, make_pool(gpus, min(gpus, 8)))
    rows, digest = measure(workload, settings, rounds)
    if not rows:
        parser.error(f"nothing is measured in the first {WARM} rounds: give more rounds or jobs")
    if asked.json:
        for row in rows:
            print(json.dumps(row))
    else:
        print_table(list(rows[0]), [list(row.values()) for row in rows])
        print(f"hash of all leases: {digest}")


def read_elastic(
    folder: Path, names: Sequence[str], pools: Sequence[Pool], jobs: int | None
) -> Workload:
    """Read Pollux's workloads; with a number of jobs, repeat theirs, and let all arrive at once."""
    read = [read_workload(folder, name, pools) for name in names]
    if jobs is None:
        (workload,) = read
        return workload
    known = [pair for one in read for pair in zip(one.specs, one.truths, strict=True)]
    pairs = [known[number % len(known)] for number in range(jobs)]
    return replace(
        read[0],
        specs=tuple(
            replace(spec, job_id=number, arrival_seconds=0.0)
            for number, (spec, _) in enumerate(pairs)
        ),
        truths=tuple(replace(truth, job_id=number) for number, (_, truth) in enumerate(pairs)),
    )


def measure(
    workload: Workload, settings: Settings, rounds: int | None
) -> tuple[list[dict[str, Any]], str]:
    """Return a row for each step of a round, and the hash of all leases.

    Without a number of rounds, all of the run are measured. No rows if it has only `WARM` ones.
    """
    start = make_start(workload, settings)
    taken: dict[str, list[float]] = {step.__name__: [] for step in ROUND}
    active, sink, number = len(workload.specs), Gaps(), 0

    def call(step: Step, run: Run, *inputs: StepResult[Any]) -> StepResult[Any]:
        begun = process_time()
        result = call_step(step, run, *inputs)
        if number >= WARM:
            taken[step.__name__].append(1e3 * (process_time() - begun))
        return result

    with prepare(start).open_run(sink) as run, collect_rarely():
        while not run.finished and (rounds is None or number < WARM + rounds):
            if number >= WARM:
                active = min(active, len(run.state.beliefs))
            run_round(run, call)
            number += 1
    if number <= WARM:
        return [], sink.digest
    rounds_ms = np.sum([ms for name, ms in taken.items() if name != "collect"], axis=0)
    taken["round"] = rounds_ms.tolist()
    rows = [
        {
            "step": name,
            "median_ms": float(np.median(ms)),
            "p95_ms": float(np.quantile(ms, 0.95)),
            "most_ms": max(ms),
            "rounds": len(ms),
            "active": active,
            "gap": max(sink.gaps[WARM:]),
        }
        for name, ms in taken.items()
    ]
    return rows, sink.digest


if __name__ == "__main__":
    main()
