"""The market on Gavel's published curves: mean JCT of a continuous stream, by arrival rate.

    python -m benchmarks.gavel_curves [DATA] [--rates 4.8,5.6] [--packed] [--jobs 4000-5000]
        [--seeds 0] [--policy shockwave] [--set NAME=VALUE] [--markdown]

As `continuous-single` of `published_curves.csv`: jobs of one GPU arrive without an end on 36 V100,
36 P100 and 36 K80, in rounds of 360 s with free restarts, and the mean JCT is of jobs 4,000 to
5,000. They are drawn as Gavel's generator draws them. DATA is the folder
of the table of throughputs and the curves, by default `gavel` in the folder that the environment
variable SHOCKWAVE_DATA names. Processor time is of the whole run.
"""

import argparse
import csv
import os
from pathlib import Path
from statistics import fmean
from time import process_time

import numpy as np

from benchmarks.loads import Ends
from flows.prefect_server.garbage import collect_rarely
from flows.runs.simulation import prepare
from flows.runs.start import make_start
from harness.conformance_of_types import GPU_TYPES, ROUND_SECONDS, THROUGHPUTS
from harness.markdown import markdown
from solver.fidelity import Fidelity
from solver.inventory import Pool
from tasks.record import Parameter, Settings
from tasks.round import run_round
from warehouse.workloads.gavel import read_table
from warehouse.workloads.gavel_generator import generate_from_table

POOLS = tuple(Pool(kind, 36) for kind in GPU_TYPES)
CURVE = "continuous-single"
AFTER = 500
"""Jobs that arrive after the last measured job, so that it does not end alone."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    folder = os.environ.get("SHOCKWAVE_DATA")
    default = Path(folder) / "gavel" if folder else None
    parser.add_argument("data", type=Path, nargs="?" if default else None, default=default)
    parser.add_argument("--rates", default="4.8,5.6", help="jobs an hour, comma-separated")
    parser.add_argument("--packed", action="store_true", help="jobs may share GPUs")
    parser.add_argument("--jobs", default="4000-5000", help="FIRST-LAST, the jobs that count")
    parser.add_argument("--seeds", default="0", help="comma-separated")
    parser.add_argument("--policy", default="shockwave")
    parser.add_argument("--set", action="append", default=[], help="NAME=VALUE of the policy")
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs")
    options = parser.parse_args()
    curves = published(options.data / "published_curves.csv")
    first, last = map(int, options.jobs.split("-"))
    parameters = [Parameter(n, float(v)) for n, v in (pair.split("=") for pair in options.set)]
    if options.packed:
        parameters.append(Parameter("packed", 1.0))
    settings = Settings(
        options.policy,
        POOLS,
        fidelity=Fidelity.FAIR if options.policy == "shockwave" else Fidelity.REFERENCE,
        parameters=tuple(sorted(parameters, key=lambda parameter: parameter.name)),
        round_seconds=ROUND_SECONDS,
        restart_seconds=0.0,
    )
    rows = []
    for rate in options.rates.split(","):
        results = [
            measured(options.data, settings, float(rate), first, last, int(seed))
            for seed in options.seeds.split(",")
        ]
        hours, seconds = (fmean(column) for column in zip(*results, strict=True))
        plain, packed = (
            curves[f"max_min_fairness_{kind}", float(rate)] for kind in ("perf", "packed")
        )
        cells = [
            f"{number:.2f}" for number in (hours, plain, packed, hours / plain, hours / packed)
        ]
        rows.append([rate, "yes" if options.packed else "no", *cells, f"{seconds:,.0f}"])
        if not options.markdown:
            print(*rows[-1], sep="\t", flush=True)
    if options.markdown:
        heads = ("Jobs an hour", "packed", "mean JCT (h)", "Gavel's", "Gavel's packed")
        print(markdown((*heads, "/ Gavel's", "/ packed", "processor time (s)"), rows))


def published(path: Path) -> dict[tuple[str, float], float]:
    """Mean JCT in hours, by policy and jobs an hour."""
    with path.open(encoding="utf-8") as file:
        return {
            (row["policy"], float(row["load"])): float(row["value"])
            for row in csv.DictReader(file)
            if row["trace"] == CURVE and row["metric"].startswith("mean JCT")
        }


def measured(
    data: Path, settings: Settings, rate: float, first: int, last: int, seed: int
) -> tuple[float, float]:
    """Mean JCT of the jobs that count, in hours, and processor time in seconds."""
    profile = read_table(data / THROUGHPUTS, GPU_TYPES)
    workload = generate_from_table(
        profile,
        last + AFTER,
        rng=np.random.default_rng(seed),
        gpu_types=GPU_TYPES,
        mean_interarrival_seconds=3600.0 / rate,
        scale_factors={1: 1.0},
    )
    begun, ends = process_time(), Ends()
    counted = {spec.job_id: spec for spec in workload.specs[first:last]}
    with prepare(make_start(workload, settings)).open_run(ends) as run, collect_rarely():
        while not (run.finished or counted.keys() <= ends.at.keys()):
            run_round(run)
    jcts = [ends.at[job_id] - spec.arrival_seconds for job_id, spec in counted.items()]
    return fmean(jcts) / 3600.0, process_time() - begun


if __name__ == "__main__":
    main()
