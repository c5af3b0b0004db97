"""Compare policies in steady streams, from a half-empty to an overloaded cluster.

    python -m benchmarks.loads [--gpus 16,64] [--loads 0.3,0.5,0.7,0.9,1.1] [--seeds 10-14]
        [--jobs 200] [--policies all] [--cache FILE] [--again POLICIES] [--plot FILE]
        [--json | --markdown | --best]

Jobs of the workload generator arrive in a Poisson stream. The load is the GPU time that arrives
over what the GPUs can do. ρ is a job's JCT over its time in the even cluster. Figures are means
over seeds; `JCT to shockwave` is the mean difference in mean JCT to `shockwave` on the same jobs,
with its 95 % confidence interval. `--best` has each figure of `shockwave` over the least of all
policies, and whose that is. All policies take hours of processor
time: with `--cache` the same command goes on where it was stopped, and with `--again shockwave` it
runs one policy only.
"""

import argparse
import json
import math
from collections.abc import Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy.special import stdtrit  # as in scipy.stats, which takes half a second to import

from benchmarks.drawing import draw_lines, new_figure, save
from containers.runtime import EventKind
from flows.cli.output import print_table
from flows.prefect_server.garbage import collect_rarely
from flows.runs.simulation import prepare
from flows.runs.start import make_start
from flows.runs.workload_source import Source
from harness.markdown import markdown
from predictor.arrays import Floats
from solver.even_cluster import Arrival, find_fair_finishes
from solver.policies import POLICIES
from tasks.record import RoundRecord, Settings, Timings, make_pool
from tasks.round import run_round
from tasks.sources import Workload

FIGURES = ("makespan_s", "jct_s", "jct_p99_s", "worst_rho", "rho_p95", "restarts/job")
BASE = "shockwave"
GAP = "JCT to shockwave"


@dataclass(frozen=True)
class Case:
    """A stream under a policy."""

    policy: str
    gpus: int
    load: float
    seed: int
    jobs: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--gpus", default="16,64")
    parser.add_argument("--loads", default="0.3,0.5,0.7,0.9,1.1")
    parser.add_argument("--seeds", default="10-14", help="FIRST-LAST")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--policies", default="all")
    parser.add_argument("--cache", type=Path, help="JSON lines of runs: read, and added to")
    parser.add_argument("--again", default="", help="policies that the cache is not asked for")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--plot", type=Path, help="write a picture (.svg or .png)")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print one JSON object a line")
    shape.add_argument("--markdown", action="store_true", help="print the table of the docs")
    shape.add_argument("--best", action="store_true", help="print it over the best of all policies")
    asked = parser.parse_args()
    policies = list(POLICIES) if asked.policies == "all" else asked.policies.split(",")
    policies = list(dict.fromkeys([BASE, *policies]))
    first, last = map(int, asked.seeds.split("-"))
    cases = [
        Case(policy, int(gpus), float(load), seed, asked.jobs)
        for gpus in asked.gpus.split(",")
        for load in asked.loads.split(",")
        for policy in policies
        for seed in range(first, last + 1)
    ]
    rows = summary(results(cases, asked.cache, asked.again.split(","), asked.workers))
    if asked.json:
        for row in rows:
            print(json.dumps(row))
    elif asked.markdown:
        print(table(rows), end="")
    elif asked.best:
        print(to_the_best(rows), end="")
    else:
        print_table(list(rows[0]), [list(row.values()) for row in rows])
    if asked.plot:
        plot(asked.plot, rows)


def results(
    cases: Sequence[Case], cache: Path | None, again: Collection[str], workers: int
) -> dict[Case, dict[str, float]]:
    """The figures of each case, in their order; those in the cache are not simulated.

    Args:
        cases: The cases.
        cache: A line of JSON for each run: the case's fields and its figures. The last counts.
        again: Policies that are simulated in any case.
        workers: Processes.
    """
    figures_of: dict[Case, dict[str, float]] = {}
    if cache and cache.exists():
        for line in cache.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            case = Case(**{field.name: row[field.name] for field in fields(Case)})
            if case.policy not in again:
                figures_of[case] = {name: row[name] for name in FIGURES}
    missing = [case for case in cases if case not in figures_of]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for case, figures in zip(missing, pool.map(run, missing), strict=True):
            figures_of[case] = figures
            if cache:
                with cache.open("a", encoding="utf-8") as file:
                    print(json.dumps(asdict(case) | figures), file=file)
    return {case: figures_of[case] for case in cases}


class Ends:
    """A sink that keeps the ends of jobs, and nothing of records."""

    def __init__(self) -> None:
        self.at: dict[int, float] = {}
        self.preemptions = 0

    def append(self, record: RoundRecord, digest: str, timings: Timings) -> None:
        """See `Sink.append`."""
        self.at |= {event.job_id: event.at_seconds for event in record.finished if event.ends_job}
        self.preemptions += sum(event.kind is EventKind.PREEMPTED for event in record.events)


def run(case: Case) -> dict[str, float]:
    """Simulate a stream under a policy; its figures."""
    pools = make_pool(case.gpus, min(case.gpus, 8))
    return streamed(stream(case), Settings(policy=case.policy, pools=pools))


def stream(case: Case) -> Workload:
    """The jobs of a case."""
    source = Source(jobs=case.jobs, contention_factor=case.load, seed=case.seed)
    return source.open(case.gpus)


def find_ends(workload: Workload, settings: Settings) -> Ends:
    """Simulate a workload in memory; the ends of its jobs."""
    ends = Ends()
    with prepare(make_start(workload, settings)).open_run(ends) as active, collect_rarely():
        while not active.finished:
            run_round(active)
    return ends


def streamed(workload: Workload, settings: Settings) -> dict[str, float]:
    """The figures of a stream that is simulated with these settings."""
    ends = find_ends(workload, settings)
    arrived = np.array([spec.arrival_seconds for spec in workload.specs])
    ended = np.array([ends.at[spec.job_id] for spec in workload.specs])
    jct = ended - arrived
    rho = jct / find_fair_times(workload, settings)
    figures = (ended.max(), jct.mean(), np.quantile(jct, 0.99))
    figures += (rho.max(), np.quantile(rho, 0.95), ends.preemptions / len(workload.specs))
    return dict(zip(FIGURES, map(float, figures), strict=True))


def find_fair_times(workload: Workload, settings: Settings) -> Floats:
    """JCT of each job with a ρ of 1: its time in the even cluster, a round and a restart."""
    specs = workload.specs
    arrivals = [Arrival(s.job_id, s.arrival_seconds, s.demand.least, s.budget) for s in specs]
    seconds = {truth.job_id: truth.isolated_seconds for truth in workload.truths}
    ends = find_fair_finishes(arrivals, seconds, settings.gpus)
    fair = np.array([ends[job.job_id] - job.at_seconds for job in arrivals])
    found: Floats = fair + settings.round_seconds + settings.restart_seconds
    return found


def summary(results: dict[Case, dict[str, float]]) -> list[dict[str, Any]]:
    """A row for each cluster, load and policy: means over seeds."""
    groups: dict[tuple[int, float, str], dict[int, dict[str, float]]] = {}
    for case, figures in results.items():
        groups.setdefault((case.gpus, case.load, case.policy), {})[case.seed] = figures
    rows = []
    for (gpus, load, policy), by_seed in groups.items():
        base = groups[gpus, load, BASE]
        gaps = np.array([by_seed[seed]["jct_s"] - base[seed]["jct_s"] for seed in by_seed])
        error = gaps.std(ddof=1) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
        row: dict[str, Any] = {"gpus": gpus, "load": load, "policy": policy}
        row |= {name: fmean(each[name] for each in by_seed.values()) for name in FIGURES}
        row[GAP] = float(gaps.mean())
        row["±"] = float(stdtrit(max(len(gaps) - 1, 1), 0.975) * error)
        rows.append(row)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The table of the docs; the first column is left out if there is only one cluster."""
    first = int(len({row["gpus"] for row in rows}) == 1)
    heads = ("GPUs", "Load", "Policy", "makespan (s)", "mean JCT (s)", "99 % JCT (s)")
    shown = [
        [
            *(f"{row['gpus']}", f"{row['load']:g}", f"`{row['policy']}`"),
            *(f"{row[name]:,.0f}" for name in ("makespan_s", "jct_s", "jct_p99_s")),
            *(f"{row[name]:.2f}" for name in ("worst_rho", "rho_p95", "restarts/job")),
            "–" if row["policy"] == BASE else f"{row[GAP]:+,.0f}{spread(row)}",
        ]
        for row in rows
    ]
    heads = (*heads, "worst ρ", "95 % ρ", "restarts / job", f"JCT to `{BASE}` (s)")
    return markdown(heads[first:], [row[first:] for row in shown])


def spread(row: dict[str, Any]) -> str:
    """The confidence interval of the gap to `shockwave`; empty for a single seed."""
    return "" if math.isnan(row["±"]) else f" ± {row['±']:,.0f}"


def to_the_best(rows: list[dict[str, Any]]) -> str:
    """A table of the figures of `shockwave` over the least of all policies, with that policy."""
    groups: dict[tuple[int, float], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["gpus"], row["load"]), []).append(row)
    shown = []
    for (gpus, load), alike in groups.items():
        (ours,) = (row for row in alike if row["policy"] == BASE)
        cells = [f"{gpus}", f"{load:g}"]
        for name in FIGURES[:-1]:
            best = min(alike, key=lambda row: row[name])
            cells.append(f"{ours[name] / best[name]:.3f} (`{best['policy']}`)")
        shown.append(cells)
    return markdown(
        ("GPUs", "Load", "makespan", "mean JCT", "99 % JCT", "worst ρ", "95 % ρ"), shown
    )


def plot(path: Path, rows: list[dict[str, Any]]) -> None:
    """Mean JCT and 95 % ρ against load, a line for each policy, a row for each cluster."""
    sizes = sorted({row["gpus"] for row in rows})
    figure, axes = new_figure(len(sizes), 2, height=2.9)
    for pair, gpus in zip(axes, sizes, strict=True):
        shown = (("jct_s", "mean JCT (h)", 3600.0), ("rho_p95", "95th percentile of ρ", 1.0))
        for axis, (name, label, unit) in zip(pair, shown, strict=True):
            axis.set(xlabel="load", yscale="log")
            axis.set_title(f"{label}, {gpus} GPUs", loc="left", fontsize=10)
            lines = {
                policy: sorted(
                    (row["load"], row[name] / unit)
                    for row in rows
                    if (row["gpus"], row["policy"]) == (gpus, policy)
                )
                for policy in dict.fromkeys(row["policy"] for row in rows)
            }
            draw_lines(axis, lines, BASE)
    save(figure, path, "loads")


if __name__ == "__main__":
    main()
