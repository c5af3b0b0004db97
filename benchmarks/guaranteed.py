"""Guaranteed jobs beside opportunistic ones: do they run as if alone?

    python -m benchmarks.guaranteed [DATA] [--traces all] [--share 0.5] [--seed 0] [--restart 20]
        [--markdown] [--json]

Of each of Gavel's traces a part of the jobs is made opportunistic, drawn by SEED. `antman` runs the
guaranteed ones alone, then all of them, with opportunistic ones on idle GPUs only (`packed=0`) and
beside guaranteed ones. Printed are the ratio of the mean JCT of the guaranteed jobs to that alone,
the largest such ratio of a job, the ratio of the mean JCT of the opportunistic jobs to that under
`fifo`, which has no classes, and the additional use of the cluster until the last guaranteed job
ends: in GPU time held, and in work, as its time on exclusive GPUs of the same type. Exit
code 1 if a mean or a median is off by more than 1 %, or an opportunistic job does not end.

DATA is the folder with the traces, by default `gavel` in the folder that SHOCKWAVE_DATA names.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

import numpy as np

from benchmarks.market_of_types import clusters
from flows.runs.workload_source import Source
from harness.conformance import measure_figures
from harness.conformance_of_types import GPU_TYPES, ROUND_SECONDS, THROUGHPUTS
from harness.markdown import markdown
from solver.inventory import Inventory, Pool
from tasks.record import Parameter, Settings
from tasks.sources import Workload
from warehouse.analytics.questions import Analytics
from warehouse.store.reader import Reader

MOST_OFF = 0.01
"""Of guaranteed jobs' JCTs."""


def main() -> int:
    options = parse()
    rows = []
    for trace, pools in clusters(options.data, options.traces):
        source = Source(
            trace=options.data / f"{trace}.trace", throughputs=options.data / THROUGHPUTS
        )
        workload = source.open(gpu_types=GPU_TYPES)
        for packed in (0.0, 1.0):
            rows.append(compared(trace, workload, pools, options, packed))
            if options.json:
                print(json.dumps(rows[-1]), flush=True)
    if not options.json:
        print(table(rows) if options.markdown else table(rows).replace("`", ""), end="")
    off = any(abs(row["mean"] - 1.0) > MOST_OFF or row["median"] > 1.0 + MOST_OFF for row in rows)
    return int(off or any(row["left"] for row in rows))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    folder = os.environ.get("SHOCKWAVE_DATA")
    default = Path(folder) / "gavel" if folder else None
    parser.add_argument("data", type=Path, nargs="?" if default else None, default=default)
    parser.add_argument("--traces", default="all", help="names of traces, comma-separated")
    parser.add_argument("--share", type=float, default=0.5, help="part of opportunistic jobs")
    parser.add_argument("--seed", type=int, default=0, help="by which they are drawn")
    parser.add_argument("--restart", type=float, default=20.0, help="seconds of a restart")
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    return parser.parse_args()


def compared(
    trace: str,
    workload: Workload,
    pools: tuple[Pool, ...],
    options: argparse.Namespace,
    packed: float,
) -> dict[str, float]:
    """Guaranteed jobs alone, and beside opportunistic ones."""
    drawn = np.random.default_rng(options.seed).random(len(workload.specs)) < options.share
    rest = {spec.job_id for spec, is_drawn in zip(workload.specs, drawn, strict=True) if is_drawn}
    specs = tuple(replace(spec, opportunistic=spec.job_id in rest) for spec in workload.specs)
    some = replace(
        workload,
        specs=tuple(spec for spec in specs if not spec.opportunistic),
        truths=tuple(truth for truth in workload.truths if truth.job_id not in rest),
    )
    settings = Settings(
        "antman", pools, round_seconds=ROUND_SECONDS, restart_seconds=options.restart
    )
    unpacked = replace(settings, parameters=(Parameter("packed", packed),))
    alone, alone_used = ran(some, settings, rest)
    beside, used = ran(replace(workload, specs=specs), unpacked, rest)
    fifo, _ = ran(workload, replace(settings, policy="fifo"), rest)
    ratios = [beside[job] / jct for job, jct in alone.items()]
    ended = [job for job in rest if beside.get(job)]
    return {
        "trace": trace,
        "packed": packed,
        "guaranteed": len(alone),
        "opportunistic": len(rest),
        "left": len(rest) - len(ended),
        "mean": fmean(beside[job] for job in alone) / fmean(alone.values()),
        "median": median(ratios),
        "worst": max(ratios),
        "others": fmean(beside[job] for job in ended) / fmean(fifo[job] for job in ended),
        "held_alone": alone_used[0],
        "held": used[0],
        "work_alone": alone_used[1],
        "work": used[1],
    }


def ran(
    workload: Workload, settings: Settings, rest: set[int]
) -> tuple[dict[int, float], tuple[float, float]]:
    """JCTs by job, and the shares of the cluster's GPU time that were held and worked.

    The shares are of the time until the last guaranteed job ended.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = str(measure_figures(workload, settings, Path(folder))["run"])
        _, rows = Analytics(Path(folder)).query(
            "SELECT job_id, jct_seconds, finish_seconds FROM job_outcomes", [run]
        )
        records = [record for record, _ in Reader(Path(folder)).records(run)]
    until = max(finish for job, _, finish in rows if job not in rest)
    specs = {spec.job_id: spec for spec in workload.specs}
    inventory, profile = Inventory(settings.pools), workload.profile
    held = worked = 0.0
    for record, following in pairwise(records):
        if record.clock_seconds >= until:
            break
        leases = {lease.job_id: lease.gpus for lease in record.leases}
        others = {job: pair[1 - n] for pair in record.pairs for n, job in enumerate(pair)}
        gpus = {gpu for own in leases.values() for gpu in own}
        held += len(gpus) * (following.clock_seconds - record.clock_seconds)
        for progress in following.progress:
            spec, own = specs[progress.job_id], leases[progress.job_id]
            there, part, other = inventory.allocation(own), 1.0, others.get(progress.job_id)
            if other is not None:
                two = specs[other]
                shared = profile.shared_rate(spec, spec.batch_size, two, two.batch_size, there)
                part = shared / profile.rate(spec, spec.batch_size, there)
            worked += part * len(own) * progress.seconds
    whole = inventory.gpus * until
    return {job: jct for job, jct, _ in rows}, (held / whole, worked / whole)


def table(rows: Sequence[dict[str, float]]) -> str:
    """As the docs have it."""
    heads = (
        *("Trace", "opportunistic jobs", "JCT / alone", "worst of a job", "their JCT / `fifo`"),
        *("held alone", "held", "work alone", "work"),
    )
    names = "mean", "worst", "others", "held_alone", "held", "work_alone", "work"
    cells = [
        [
            f"`{row['trace']}`",
            "beside guaranteed ones" if row["packed"] else "on idle GPUs",
            *(f"{row[name]:.3f}" for name in names),
        ]
        for row in rows
    ]
    return markdown(heads, cells)


if __name__ == "__main__":
    sys.exit(main())
