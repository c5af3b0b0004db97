"""Check that runs on several GPU types reproduce the figures of Gavel's published simulator."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from flows.runs.workload_source import Source
from harness.conformance import Tolerance, compare_figures, measure_figures, read_results
from solver.fidelity import Fidelity
from solver.inventory import Pool
from tasks.record import Parameter, Settings
from tasks.sources import Workload
from warehouse.analytics.questions import Analytics

THROUGHPUTS, RESULTS = "throughputs.csv.gz", "reference_results.csv"

GPU_TYPES = ("v100", "p100", "k80")
"""GPU types in the order in which the published simulator fills them."""

ROUND_SECONDS = 360.0
"""Length of a round in the published runs (docs/policies.md)."""

TOLERANCE = Tolerance(seconds=0.03, unfair=1.0, worst=0.10)
"""Chosen by hand: many published programs have many optima and take random orders."""

FIGURES = ("makespan_s", "mean_jct_s", "worst_rho")

YARDSTICK = "isolated"
"""The policy whose JCT of a job is the denominator of ρ."""

UNAWARE, PACKED = (Parameter("aware", 0.0),), (Parameter("packed", 1.0),)

POLICIES: dict[str, tuple[str, tuple[Parameter, ...]]] = {
    YARDSTICK: ("isolated", ()),
    "max_min_fairness": ("gavel", UNAWARE),
    "max_min_fairness_perf": ("gavel", ()),
    "finish_time_fairness": ("themis", UNAWARE),
    "finish_time_fairness_perf": ("themis", ()),
    "min_total_duration": ("ossp", UNAWARE),
    "min_total_duration_perf": ("ossp", ()),
    "max_min_fairness_packed": ("gavel", PACKED),
    "finish_time_fairness_packed": ("themis", PACKED),
    "min_total_duration_packed": ("ossp", PACKED),
    "max_sum_throughput_perf": ("mst", ()),
    "fifo": ("fifo", UNAWARE),
    "fifo_perf": ("fifo", ()),
    "fifo_packed": ("fifo", PACKED),
    "gandiva": ("gandiva", ()),
    "allox": ("allox", (Parameter("alpha", 1.0),)),
}
"""Our policies and their parameters, by the names in the published code."""


@dataclass(frozen=True, slots=True)
class Published:
    """A run of the published simulator.

    Attributes:
        trace: Name of the trace file without its suffix.
        policy: Name of the policy in the published code.
        figures: Its figures by name; ρ is a job's JCT over its JCT under `isolated`.
    """

    trace: str
    pools: tuple[Pool, ...]
    policy: str
    figures: dict[str, float]


def read_published_runs(folder: Path) -> list[Published]:
    """Read the published runs of policies that exist here, sorted by trace and cluster.

    Raises:
        InputError: The table of results is missing or invalid.
    """
    runs = []
    columns = ("trace", "gpus (V100:P100:K80)", "policy", *FIGURES)
    with read_results(folder / RESULTS, columns) as rows:
        for row in rows:
            gpus = zip(GPU_TYPES, map(int, row["gpus"].split(":")), strict=True)
            pools = tuple(Pool(kind, number) for kind, number in gpus if number)
            figures = {name: float(row[name]) for name in FIGURES}
            if row["policy"] in POLICIES:
                runs.append(Published(row["trace"], pools, row["policy"], figures))
    order = list(POLICIES)
    return sorted(runs, key=lambda r: (r.trace, str(r.pools), order.index(r.policy)))


def check_conformance_of_types(folder: Path) -> Iterator[dict[str, object]]:
    """Run the policies of Gavel's simulator that exist here on its traces.

    Args:
        folder: Folder with the traces, `throughputs.csv.gz`, and `reference_results.csv`, the
            published simulator's figures by trace, cluster and policy.

    Yields:
        A row per published run: each figure here and as published, and `ok`.

    Raises:
        InputError: A file is missing or invalid.
    """
    with tempfile.TemporaryDirectory() as warehouse:
        for (name, pools), runs in groupby(
            read_published_runs(folder), lambda r: (r.trace, r.pools)
        ):
            trace, table = folder / f"{name}.trace", folder / THROUGHPUTS
            workload = Source(trace=trace, throughputs=table).open(gpu_types=GPU_TYPES)
            yardstick, alone = _ran(workload, pools, YARDSTICK, Path(warehouse))
            for run in runs:
                here, times = yardstick, alone
                if run.policy != YARDSTICK:
                    here, times = _ran(workload, pools, run.policy, Path(warehouse))
                here["worst_rho"] = max(times[job] / alone[job] for job in times)
                about = {"trace": name, "policy": run.policy}
                yield about | compare_figures(here, run.figures, FIGURES, TOLERANCE)


def _ran(
    workload: Workload, pools: tuple[Pool, ...], policy: str, warehouse: Path
) -> tuple[dict[str, float], dict[int, float]]:
    """Return the figures of a run as published, and the JCT of each job in seconds."""
    name, parameters = POLICIES[policy]
    settings = Settings(
        name,
        pools,
        fidelity=Fidelity.REFERENCE,
        parameters=parameters,
        round_seconds=ROUND_SECONDS,
        restart_seconds=0.0,
    )
    here = measure_figures(workload, settings, warehouse)
    asked = "SELECT job_id, jct_seconds FROM job_outcomes"
    _, times = Analytics(warehouse).query(asked, [str(here["run"])])
    return here, dict(times)
