"""Compare the market of GPU types with Gavel's max-min fairness on Gavel's traces.

    python -m benchmarks.market_of_types [DATA] [--restarts 0,20] [--traces all] [--set NAME=VALUE]
        [--markdown] [--json]

Both run by the rules of Gavel's simulator, in rounds of 360 s: `gavel`, as published the
`max_min_fairness_perf`, with `--fidelity reference`. Restarts are free, as in that simulator, then
charged to all. `bound` is the least makespan of the linear program of all jobs at once, which no
schedule without arrivals beats. Prices of a GPU-hour are those of the published code. DATA is the
folder with the traces, by default `gavel` in the folder that SHOCKWAVE_DATA names.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from time import process_time

import numpy as np

from flows.runs.start import fit_to_cluster
from flows.runs.workload_source import Source
from harness.conformance import measure_figures
from harness.conformance_of_types import (
    GPU_TYPES,
    ROUND_SECONDS,
    THROUGHPUTS,
    read_published_runs,
)
from harness.markdown import markdown
from solver.backends.makespan import find_least_makespan
from solver.fidelity import Fidelity
from solver.inventory import Inventory, Pool
from tasks.record import Parameter, Settings
from tasks.sources import Workload

PRICES = dict(zip(GPU_TYPES, (0.74, 0.43, 0.135), strict=True))
"""Dollars of a GPU-hour."""

OURS, THEIRS = "shockwave", "gavel"


def main() -> None:
    options = parse()
    parameters = tuple(
        Parameter(name, float(value))
        for name, value in (pair.split("=") for pair in sorted(options.set))
    )
    restarts = [float(seconds) for seconds in options.restarts.split(",")]
    rows = []
    for restart in restarts:
        for trace, pools in clusters(options.data, options.traces):
            rows.append(compared(options.data, trace, pools, restart, parameters))
            if options.json:
                print(json.dumps(rows[-1]), flush=True)
            elif not options.markdown:
                print(table(rows[-1:]).splitlines()[-1], flush=True)
    if options.markdown:
        print(table(list(with_means(rows))))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    folder = os.environ.get("SHOCKWAVE_DATA")
    default = Path(folder) / "gavel" if folder else None
    parser.add_argument("data", type=Path, nargs="?" if default else None, default=default)
    parser.add_argument("--restarts", default="0,20", help="seconds of a restart, comma-separated")
    parser.add_argument("--traces", default="all", help="names of traces, comma-separated")
    parser.add_argument("--set", action="append", default=[], help="NAME=VALUE of our policy")
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    return parser.parse_args()


def clusters(data: Path, traces: str) -> list[tuple[str, tuple[Pool, ...]]]:
    """Traces with their clusters, in the order of the published table."""
    pairs = dict.fromkeys((run.trace, run.pools) for run in read_published_runs(data))
    asked = None if traces == "all" else traces.split(",")
    return [
        (trace, tuple(replace(pool, price=PRICES[pool.gpu_type]) for pool in pools))
        for trace, pools in pairs
        if asked is None or trace in asked
    ]


def compared(
    data: Path,
    trace: str,
    pools: tuple[Pool, ...],
    restart: float,
    parameters: tuple[Parameter, ...],
) -> dict[str, object]:
    """The market beside Gavel on a trace."""
    source = Source(trace=data / f"{trace}.trace", throughputs=data / THROUGHPUTS)
    asked = Settings(THEIRS, pools, round_seconds=ROUND_SECONDS, restart_seconds=restart)
    settings, workload = fit_to_cluster(source.open(gpu_types=GPU_TYPES), asked)
    as_published = replace(settings, fidelity=Fidelity.REFERENCE)
    ours = ran(workload, replace(settings, policy=OURS, parameters=parameters))
    theirs = ran(workload, as_published)
    static = all(spec.arrival_seconds == 0.0 for spec in workload.specs)
    gpus = Inventory(pools).gpus
    wanted = sum(spec.demand.least for spec in workload.specs)
    return {
        "trace": trace,
        "static": static,
        "restart": restart,
        "jobs": len(workload.specs),
        "wanted": wanted / gpus,
        "makespan_s": ours["makespan_s"],
        "makespan": ours["makespan_s"] / theirs["makespan_s"],
        "bound": ours["makespan_s"] / least(workload, pools) if static else None,
        "jct_s": ours["mean_jct_s"],
        "jct": ours["mean_jct_s"] / theirs["mean_jct_s"],
        "rho": ours["worst_rho"],
        "rho_gavel": theirs["worst_rho"],
        "starts": ours["launches"] / theirs["launches"],
        "cost": ours["cost"] / theirs["cost"],
        "round_ms": ours["round_ms"],
    }


def ran(workload: Workload, settings: Settings) -> dict[str, float]:
    """A run's summary, and as `round_ms` the processor time of the whole run over its rounds."""
    with tempfile.TemporaryDirectory() as folder:
        begun = process_time()
        summary = measure_figures(workload, settings, Path(folder))
        return summary | {"round_ms": 1e3 * (process_time() - begun) / summary["rounds"]}


def least(workload: Workload, pools: tuple[Pool, ...]) -> float:
    """The least makespan of all jobs at once, in seconds."""
    inventory, profile = Inventory(pools), workload.profile
    rows = [
        (job, inventory.types.index(there.gpu_type), spec.demand.least, spec.total_steps / rate)
        for job, spec in enumerate(workload.specs)
        for there in inventory.menu_of(spec, spec.batch_size, profile)
        if (rate := profile.rate(spec, spec.batch_size, there)) > 0.0
    ]
    job_of, type_of, gangs, seconds = map(np.array, zip(*rows, strict=True))
    capacities = np.array(list(inventory.capacities.values()))
    return find_least_makespan(seconds, gangs.astype(float), job_of, type_of, capacities)


def with_means(rows: Sequence[dict[str, object]]) -> Iterator[dict[str, object]]:
    """The rows; after those of each restart cost, the means of the static traces."""
    for restart in dict.fromkeys(row["restart"] for row in rows):
        some = [row for row in rows if row["restart"] == restart]
        yield from some
        static = [row for row in some if row["static"]]
        if len(static) > 1:
            mean = {
                name: fmean(float(str(row[name])) for row in static)
                for name in ("makespan", "jct", "starts", "cost")
            }
            yield {"trace": "mean of the static", "restart": restart} | mean


def table(rows: Sequence[dict[str, object]]) -> str:
    """As the docs have it."""
    heads = (
        *("Trace", "restart (s)", "makespan", "/ bound", "mean JCT", "worst ρ", "Gavel's worst ρ"),
        *("starts", "cost ($)"),
    )
    names = (
        *(("restart", 0), ("makespan", 3), ("bound", 3), ("jct", 3), ("rho", 2), ("rho_gavel", 2)),
        *(("starts", 2), ("cost", 3)),
    )
    cells = [
        [
            f"`{row['trace']}`" if "rho" in row else str(row["trace"]),
            *(
                "–" if row.get(name) is None else f"{float(str(row[name])):.{digits}f}"
                for name, digits in names
            ),
        ]
        for row in rows
    ]
    return markdown(heads, cells)


if __name__ == "__main__":
    main()
