"""How well are elastic jobs scheduled, beside Pollux as published and beside what is possible?

    python -m benchmarks.elastic [--workloads 1.0-1,1.0-4,1.0-6,1.0-7] [--policies sia,shockwave]
        [--json]

Runs Pollux's workloads (`SHOCKWAVE_DATA/pollux`) on 16 nodes of 4 T4 in rounds of 60 s with
restarts of 30 s, and prints means over the workloads. The last row bounds every schedule from
below, with the jobs' true speeds known, no rounds and no restarts:

Let a be the least GPU-time of a job's epochs over all configurations and batch sizes, t the least
time. As a cluster of G GPUs does at most G GPU-seconds of that work in a second, the sum of the
jobs' mean busy times, the times at which their work is done on average, is least on one machine of
that speed that always serves the present job with the least a (Goemans, IPCO '96). A job ends
later than its mean busy time by at least as much as if it ran at its fastest throughout, and no
sooner than alone at its fastest. No schedule's makespan is below that of the last job at its
fastest, nor, from any time on, below the work that arrives from then on.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush
from pathlib import Path
from statistics import fmean

import numpy as np

from flows.runs.workload_source import Source
from harness.conformance import measure_figures, read_results
from harness.conformance_of_applications import CLUSTER
from harness.markdown import markdown
from predictor.allocation import Allocation
from predictor.application import Application
from predictor.arrays import Floats
from predictor.job import JobSpec
from solver.inventory import Pool
from tasks.record import Settings

BATCH_SIZES = 48
"""Batch sizes of an application that are tried for the bound, in geometric steps."""


@dataclass(frozen=True)
class Least:
    """What an application's epochs need at least.

    Attributes:
        seconds: Run time of each epoch at its fastest, shape (epochs,).
        work: GPU-time of each epoch where it is least, shape (epochs,).
    """

    seconds: Floats
    work: Floats

    @property
    def lag(self) -> float:
        """Seconds from a job's mean busy time to its end, at its fastest."""
        after = self.seconds.sum() - self.seconds.cumsum()
        return float(self.work @ (after + self.seconds / 2.0) / self.work.sum())


@cache
def find_least(app: Application, pool: Pool) -> Least:
    """Return what an application's epochs need at least on any configuration of a pool."""
    seconds, work = np.full(app.epochs, np.inf), np.full(app.epochs, np.inf)
    sizes = np.geomspace(app.batch_size, app.max_batch_size, BATCH_SIZES).round().astype(int)
    most = app.most_gpus or pool.gpus
    for gpus in range(1, min(most, pool.gpus) + 1):
        nodes = -(-gpus // pool.gpus_per_node)
        placement = app.pack(Allocation(pool.gpu_type, gpus, nodes))
        for batch_size in {*map(int, sizes)}:
            if gpus > app.limit_gpus(batch_size):
                continue
            step = app.step_seconds(placement, batch_size)
            if not np.isfinite(step):
                continue
            epochs = range(app.epochs)
            taken = step * np.array([app.steps_in(epoch, batch_size, gpus) for epoch in epochs])
            seconds, work = np.minimum(seconds, taken), np.minimum(work, taken * gpus)
    return Least(seconds, work)


def bound_schedules(
    jobs: Sequence[JobSpec], apps: Sequence[Application], pool: Pool
) -> dict[str, float]:
    """Return lower bounds on mean JCT and makespan, in seconds; `apps` are those of the jobs."""
    needs = [find_least(app, pool) for app in apps]
    arrivals = np.array([job.arrival_seconds for job in jobs])
    service = np.array([need.work.sum() for need in needs]) / pool.gpus
    busy = find_mean_busy_times(arrivals, service)
    lags = np.array([need.lag for need in needs])
    fastest = np.array([need.seconds.sum() for need in needs])
    begun = np.sort(arrivals)
    order = np.argsort(arrivals)
    later = np.cumsum(service[order][::-1])[::-1]
    return {
        "mean_jct_s": float(max(np.mean(busy + lags - arrivals), fastest.mean())),
        "makespan_s": float(max((arrivals + fastest).max(), (begun + later).max()) - begun[0]),
    }


def find_mean_busy_times(arrivals: Floats, service: Floats) -> Floats:
    """Return mean busy times on one machine that serves the present job with the least service.

    Arguments and result have the shape (jobs,), in seconds.
    """
    left, moment = service.copy(), np.zeros(len(service))
    order, present = [*np.argsort(arrivals, kind="stable")], list[tuple[float, int]]()
    now = 0.0
    while order or present:
        if not present:
            now = max(now, float(arrivals[order[0]]))
        while order and arrivals[order[0]] <= now:
            job = int(order.pop(0))
            heappush(present, (float(service[job]), job))
        job = present[0][1]
        until = float(arrivals[order[0]]) if order else np.inf
        served = min(float(left[job]), until - now)
        moment[job] += served * (now + served / 2.0)
        now, left[job] = now + served, left[job] - served
        if left[job] <= 1e-9 * service[job]:
            heappop(present)
    return moment / service


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--workloads", default="1.0-1,1.0-4,1.0-6,1.0-7")
    parser.add_argument("--policies", default="sia,shockwave")
    parser.add_argument("--json", action="store_true", help="print rows by workload, too")
    options = parser.parse_args()
    folder = Path(os.environ.get("SHOCKWAVE_DATA", "../shared/data")) / "pollux"
    with read_results(folder / "reference_results.csv", ("workload", "policy")) as read:
        published = {
            row["workload"]: row
            for row in read
            if (row["policy"], row["source"]) == ("pollux", "published")
        }
    names = options.workloads.split(",")
    found: dict[str, list[dict[str, float]]] = {"pollux, published": []}
    for name in names:
        there = published[name]
        found["pollux, published"].append(
            {
                "mean_jct_s": float(there["mean_jct_s"]),
                "jct_p99_s": float(there["p99_jct_s"]),
                "makespan_s": float(there["makespan_s"]),
            }
        )
        trace = folder / "workloads" / f"{name}.csv"
        workload = Source(trace=trace, applications=folder).open(gpu_types=(CLUSTER.gpu_type,))
        for policy in options.policies.split(","):
            settings = Settings(policy, (CLUSTER,), round_seconds=60.0, restart_seconds=30.0)
            with tempfile.TemporaryDirectory() as warehouse:
                row = measure_figures(workload, settings, Path(warehouse))
            found.setdefault(policy, []).append(row)
        apps = [workload.profile.applications[spec.model] for spec in workload.specs]
        found.setdefault("no schedule below", []).append(
            bound_schedules(workload.specs, apps, CLUSTER)
        )
        if options.json:
            for policy, rows in found.items():
                print(json.dumps({"workload": name, "policy": policy} | rows[-1]))
    columns = {"mean_jct_s": "Mean JCT", "jct_p99_s": "99th percentile", "makespan_s": "Makespan"}
    columns["gpu_hours"] = "GPU-hours"
    table = [
        [policy]
        + [f"{fmean(r[name] for r in rows):,.0f}" if name in rows[0] else "–" for name in columns]
        for policy, rows in found.items()
    ]
    print(markdown(["Policy", *columns.values()], table), end="")


if __name__ == "__main__":
    sys.exit(main())
