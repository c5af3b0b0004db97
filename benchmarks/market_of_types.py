"""Compare the market of GPU types with Gavel's max-min fairness on Gavel's traces.

    python -m benchmarks.market_of_types [DATA] [--restarts 0,20] [--traces all] [--set NAME=VALUE]
        [--markdown] [--json]

Both run by the rules of Gavel's simulator, in rounds of 360 s: `gavel`, as published the
`max_min_fairness_perf`, with `--fidelity reference`. Restarts are free, as in that simulator, then
charged to all. ρ is a job's JCT over its JCT under `isolated`, with restarts charged alike. `bound`
is the least makespan of the linear program of all jobs at once, which no schedule without arrivals
beats. Prices of a GPU-hour are those of the published code. DATA is the folder with the traces, by
default `gavel` in the folder that the environment variable SHOCKWAVE_DATA names.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
from warehouse.analytics.questions import Analytics

PRICES = dict(zip(GPU_TYPES, (0.74, 0.43, 0.135), strict=True))
"""Dollars of a GPU-hour."""

OURS, THEIRS, YARDSTICK = "shockwave", "gavel", "isolated"


@dataclass(frozen=True, slots=True)
class Figures:
    """The outcome of a policy.

    Attributes:
        makespan: Seconds.
        jcts: JCT of each job in seconds.
        starts: Leases that began on other GPUs than before.
        cost: Dollars.
        round_ms: Processor time of the whole run over its rounds.
    """

    makespan: float
    jcts: dict[int, float]
    starts: int
    cost: float
    round_ms: float

    @property
    def mean_jct(self) -> float:
        return fmean(self.jcts.values())

    def rho(self, alone: "Figures") -> float:
        """Worst ρ."""
        return max(self.jcts[job] / alone.jcts[job] for job in self.jcts)


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
    alone = ran(workload, replace(as_published, policy=YARDSTICK))
    static = all(spec.arrival_seconds == 0.0 for spec in workload.specs)
    gpus = Inventory(pools).gpus
    wanted = sum(spec.demand.least for spec in workload.specs)
    return {
        "trace": trace,
        "static": static,
        "restart": restart,
        "jobs": len(workload.specs),
        "wanted": wanted / gpus,
        "makespan_s": ours.makespan,
        "makespan": ours.makespan / theirs.makespan,
        "bound": ours.makespan / least(workload, pools) if static else None,
        "jct_s": ours.mean_jct,
        "jct": ours.mean_jct / theirs.mean_jct,
        "rho": ours.rho(alone),
        "rho_gavel": theirs.rho(alone),
        "starts": ours.starts / theirs.starts,
        "cost": ours.cost / theirs.cost,
        "round_ms": ours.round_ms,
    }


def ran(workload: Workload, settings: Settings) -> Figures:
    """A run's figures."""
    with tempfile.TemporaryDirectory() as folder:
        begun = process_time()
        summary = measure_figures(workload, settings, Path(folder))
        taken = process_time() - begun
        asked = "SELECT job_id, jct_seconds FROM job_outcomes"
        run = [str(summary["run"])]
        _, times = Analytics(Path(folder)).query(asked, run)
        _, ((starts, cost),) = Analytics(Path(folder)).query(
            "SELECT count(*), sum(cost) FROM leases", run
        )
    rounds = summary["rounds"]
    return Figures(summary["makespan_s"], dict(times), starts, cost, 1e3 * taken / rounds)


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
