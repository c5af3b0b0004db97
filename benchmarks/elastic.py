"""How well are elastic jobs scheduled, beside Pollux as published and beside what is possible?

    python -m benchmarks.elastic [--workloads 1.0-1,1.0-4,1.0-6,1.0-7] [--policies sia,shockwave]
        [--ablations] [--mixed] [--json]

Runs Pollux's workloads (`SHOCKWAVE_DATA/pollux`) on 16 nodes of 4 T4 in rounds of 60 s with
restarts of 30 s, and prints means over the workloads. Ablations change one part of `shockwave`
after another. With `--mixed`, the cluster has three GPU types, on which applications have `SPEEDS`.
The last row bounds every schedule from below, with the jobs' true speeds known, no rounds and no
restarts; on several types only the makespan (`bound_makespan`). On one type:

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
from dataclasses import dataclass, replace
from functools import cache
from heapq import heappop, heappush
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.optimize import linprog

from flows.runs.workload_source import Source
from harness.conformance import measure_figures, read_results
from harness.conformance_of_applications import CLUSTER
from harness.markdown import markdown
from predictor.allocation import Allocation
from predictor.application import Application
from predictor.arrays import Floats, Ints
from predictor.goodput import find_goodputs, fit_step_model
from predictor.job import JobSpec
from predictor.rows import from_json
from solver import elastic
from solver.configurations import describe
from solver.elastic import Experience, Offers
from solver.inventory import Pool
from solver.plan import Situation
from solver.policies.pollux import GROWTH
from tasks.record import Settings
from tasks.sources import Workload
from warehouse.workloads.applications import FILES
from warehouse.workloads.applications import SPEEDS as DECLARED

MIXED = Pool("t4", 24, 4), Pool("rtx", 24, 8), Pool("a100", 16, 8)
"""The cluster of Sia's heterogeneous experiments (SOSP '23, section 5)."""

SPEEDS = {
    "bert": (1.0, 2.0, 5.0),
    "cifar10": (1.0, 1.8, 2.8),
    "deepspeech2": (1.0, 1.6, 3.0),
    "imagenet": (1.0, 2.0, 4.2),
    "ncf": (1.0, 1.5, 2.5),
    "yolov3": (1.0, 1.8, 3.6),
}
"""Speeds of applications on `MIXED`, relative to a T4. Declared, not measured."""

BATCH_SIZES = 48
"""Batch sizes of an application that are tried for the bound, in geometric steps."""


CONCAVITY = 0.7
"""q: speeds of heSRPT are k^q; of 0.6 to 0.8 on Pollux's workloads."""

AHEAD = 8
"""Moments of the work left at which the noise to come is read."""

make_offers, value_offers = elastic.make_offers, elastic.value_offers


def learn_alone(situation: Situation, experience: Experience) -> Offers:
    """Make offers by each job's own model; a job without one offers its first configuration."""
    offers = make_offers(situation, experience)
    left, counts = offers.left.copy(), offers.gpus
    nodes = np.array([entry.nodes for entry in offers.allocations])
    for number, job in enumerate(situation.jobs):
        rows, agent = np.flatnonzero(offers.job_of == number), job.belief.agent
        assert agent is not None, "the jobs choose their batch sizes"
        if not agent.steps:
            left[rows[1:]] = np.inf
            continue
        speeds = agent.find_goodputs(nodes[rows], counts[rows])
        work = agent.app.progress_after(agent.app.epochs) * (1.0 - job.belief.share_done)
        left[rows] = np.where(speeds > 0.0, max(work, 1.0) / np.maximum(speeds, 1e-300), np.inf)
    return replace(offers, left=left)


def grow_slowly(situation: Situation, experience: Experience) -> Offers:
    """Make offers of at most twice the GPUs on which a job ran, as Pollux and Sia do."""
    offers = make_offers(situation, experience)
    ran = [
        max((step.gpus for step in job.belief.agent.steps), default=0) if job.belief.agent else 0
        for job in situation.jobs
    ]
    most = np.maximum(GROWTH * np.array(ran), offers.gpus[offers.firsts])[offers.job_of]
    return replace(offers, left=np.where(offers.gpus <= most, offers.left, np.inf))


def move_freely(situation: Situation, experience: Experience) -> Offers:
    """Make offers in which restarts cost nothing."""
    offers = make_offers(situation, experience)
    return replace(offers, moves=np.zeros_like(offers.moves))


def weigh_alike(offers: Offers) -> dict[str, float]:
    """Weigh GPUs of all types alike."""
    return dict.fromkeys((entry.gpu_type for entry in offers.allocations), 1.0)


def keep_apart(prices: Floats, work: Floats, budgets: Floats) -> Floats:
    """Leave the delay prices of jobs with alike work apart."""
    return prices


def price_equally(
    job_of: Ints, gpus: Ints, speeds: Floats, work: Floats, budgets: Floats, capacity: int
) -> Floats:
    """Price all delays alike, by budgets: the sum of speedups."""
    return budgets


def price_by_rank(
    job_of: Ints, gpus: Ints, speeds: Floats, work: Floats, budgets: Floats, capacity: int
) -> Floats:
    """Return the delay prices of heSRPT: (i^a - (i - 1)^a)^(1/a), with a = 1 / (1 - q)."""
    ranks = np.empty(len(work))
    ranks[np.argsort(-work, kind="stable")] = np.arange(1, len(work) + 1)
    power = 1.0 / (1.0 - CONCAVITY)
    return np.asarray(budgets * (ranks**power - (ranks - 1.0) ** power) ** (1.0 / power))


def foresee_noise(situation: Situation, experience: Experience) -> Offers:
    """Make offers of jobs whose gradient noise in every epoch to come is known.

    Bids on the coming round keep the present speeds; `value_ahead` reads the times left.
    """
    offers = make_offers(situation, experience)
    left = offers.left.copy()
    ends = np.append(offers.firsts[1:], len(left))
    for job, first, end in zip(situation.jobs, offers.firsts, ends, strict=True):
        agent = job.belief.agent
        if agent is None or agent.noise is None or not experience.steps.get(agent.app.name):
            continue
        app, menu = agent.app, offers.allocations[first:end]
        model = fit_step_model(experience.steps[app.name])
        nodes, gpus, relative = describe(job, app, menu)
        progress = np.array([app.progress_after(epoch) for epoch in range(app.epochs + 1)])
        begun = min(progress[-1] * job.belief.share_done, progress[-1] - 1.0)
        later = begun + (progress[-1] - begun) * (np.arange(AHEAD) + 0.5) / AHEAD
        speeds = [
            find_goodputs(
                app, model, app.noise(job.belief.batch_size, epoch), nodes, gpus, agent.sizes
            )[0]
            for epoch in (np.searchsorted(progress, later, side="right") - 1).tolist()
        ]
        slowness = np.mean(1.0 / np.maximum(np.array(speeds) * relative, 1e-300), axis=0)
        known = np.isfinite(left[first:end])
        left[first:end][known] = ((progress[-1] - begun) * slowness)[known]
    return replace(offers, left=left)


def value_ahead(situation: Situation, offers: Offers) -> Floats:
    """Return what offers of `foresee_noise` are worth.

    Delay prices follow from the times left, bids from the speeds of the coming round.
    """
    now = make_offers(situation, from_json(Experience, situation.memory).after(situation.jobs))
    worth = value_offers(situation, offers)
    job_of, firsts = offers.job_of, offers.firsts
    ahead, present = (
        (found.left * found.gpus)[firsts][job_of] / found.left for found in (offers, now)
    )
    return np.asarray(np.where(ahead > 0.0, worth * present / np.maximum(ahead, 1e-300), 0.0))


ABLATIONS: dict[str, dict[str, Any]] = {
    "shockwave": {},
    "each job learns alone": {"make_offers": learn_alone},
    "noise of all epochs known": {"make_offers": foresee_noise, "value_offers": value_ahead},
    "growth of 2 a round": {"make_offers": grow_slowly},
    "restarts cost nothing": {"make_offers": move_freely},
    "restarts paid off to the end": {"LONGEST_STAY": np.inf},
    "equal delay prices": {"price_delays": price_equally},
    "prices by rank (heSRPT)": {"price_delays": price_by_rank},
    "makespan worth nothing (μ = 0)": {"MAKESPAN": 0.0},
}
"""Parts of `solver.elastic` in place of its own, by variant."""

ABLATIONS_OF_TYPES: dict[str, dict[str, Any]] = {
    "shockwave": {},
    "GPUs of all types alike": {"weigh_gpus": weigh_alike},
    "prices of alike work apart": {"level_prices": keep_apart},
    "equal delay prices": {"price_delays": price_equally},
    "makespan worth nothing (μ = 0)": {"MAKESPAN": 0.0},
}
"""The same on several GPU types."""


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


def bound_makespan(workload: Workload, pools: Sequence[Pool]) -> float:
    """Return a lower bound on the makespan on several GPU types, in seconds.

    No job ends sooner than at its fastest, on the fastest type in each epoch. Jobs that arrive from
    some time on need at least as long as a linear program that divides each job's least GPU-time
    among types.
    """
    profile, jobs = workload.profile, workload.specs
    names = sorted({spec.model for spec in jobs})
    service, fastest = np.full((len(names), len(pools)), np.inf), np.full(len(names), np.inf)
    for row, name in enumerate(names):
        spec = next(spec for spec in jobs if spec.model == name)
        speeds = {p.gpu_type: profile.relative_speed(spec, p.gpu_type) for p in pools}
        needs = [
            (find_least(profile.applications[name], pool), speeds[pool.gpu_type]) for pool in pools
        ]
        service[row] = [need.work.sum() / speed for need, speed in needs]
        fastest[row] = np.min([need.seconds / speed for need, speed in needs], axis=0).sum()
    begun = min(spec.arrival_seconds for spec in jobs)
    ends = [spec.arrival_seconds + fastest[names.index(spec.model)] for spec in jobs]
    for since in {spec.arrival_seconds for spec in jobs}:
        later = [spec.model for spec in jobs if spec.arrival_seconds >= since]
        counts = np.array([later.count(name) for name in names], float)
        ends.append(since + _divide_work(counts[:, None] * service, pools))
    return float(max(ends) - begun)


def _divide_work(service: Floats, pools: Sequence[Pool]) -> float:
    """Return the least time in which pools do work, of GPU-seconds by kind and pool."""
    kinds, count = service.shape
    whole = np.kron(np.eye(kinds), np.ones(count))  # the shares of a kind add up to all of it
    busy = np.hstack(
        [
            np.hstack([np.diag(row) for row in service]),
            -np.array([[pool.gpus] for pool in pools], float),
        ]
    )
    found = linprog(
        np.append(np.zeros(kinds * count), 1.0),
        A_ub=busy,
        b_ub=np.zeros(count),
        A_eq=np.hstack([whole, np.zeros((kinds, 1))]),
        b_eq=np.ones(kinds),
    )
    return float(found.fun)


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


def read_workload(folder: Path, name: str, pools: Sequence[Pool]) -> Workload:
    """Read a workload for pools of `MIXED`, or of the measured type."""
    kinds = tuple(pool.gpu_type for pool in pools)
    trace = folder / "workloads" / f"{name}.csv"
    if len(kinds) == 1:
        return Source(trace=trace, applications=folder).open(gpu_types=kinds)
    with tempfile.TemporaryDirectory() as made:
        for file in FILES:
            (Path(made) / file).symlink_to((folder / file).resolve())
        rows = [
            f"{app},{pool.gpu_type},{speed}"
            for app, speeds in SPEEDS.items()
            for pool, speed in zip(pools, speeds, strict=True)
        ]
        (Path(made) / DECLARED).write_text("\n".join(["application,gpu_type,speed", *rows]) + "\n")
        return Source(trace=trace, applications=Path(made)).open(gpu_types=kinds)


def find_data(parser: argparse.ArgumentParser) -> Path:
    """Return the folder of Pollux's workloads and measurements."""
    folder = Path(os.environ.get("SHOCKWAVE_DATA", "")) / "pollux"
    if not folder.is_dir():
        parser.error(f"{folder} is no folder; let SHOCKWAVE_DATA name the folder that has pollux")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--workloads", default="1.0-1,1.0-4,1.0-6,1.0-7")
    parser.add_argument("--policies", default="sia,shockwave")
    parser.add_argument("--ablations", action="store_true", help="change parts of shockwave")
    parser.add_argument("--mixed", action="store_true", help="on three GPU types")
    parser.add_argument("--json", action="store_true", help="print rows by workload, too")
    options = parser.parse_args()
    folder = find_data(parser)
    with read_results(folder / "reference_results.csv", ("workload", "policy")) as read:
        published = {
            row["workload"]: row
            for row in read
            if (row["policy"], row["source"]) == ("pollux", "published")
        }
    names = options.workloads.split(",")
    found: dict[str, list[dict[str, float]]] = {}
    pools = MIXED if options.mixed else (CLUSTER,)
    for name in names:
        if not options.mixed:
            there = published[name]
            found.setdefault("pollux, published", []).append(
                {
                    "mean_jct_s": float(there["mean_jct_s"]),
                    "jct_p99_s": float(there["p99_jct_s"]),
                    "makespan_s": float(there["makespan_s"]),
                }
            )
        workload = read_workload(folder, name, pools)
        own = {policy: (policy, {}) for policy in options.policies.split(",")}
        variants = ABLATIONS_OF_TYPES if options.mixed else ABLATIONS
        changed = {label: ("shockwave", parts) for label, parts in variants.items()}
        for label, (policy, parts) in (changed if options.ablations else own).items():
            settings = Settings(policy, pools, round_seconds=60.0, restart_seconds=30.0)
            with tempfile.TemporaryDirectory() as warehouse, patch.dict(vars(elastic), parts):
                row = measure_figures(workload, settings, Path(warehouse))
            found.setdefault(label, []).append(row)
        if options.mixed:
            bound = {"makespan_s": bound_makespan(workload, pools)}
            found.setdefault("no schedule below", []).append(bound)
        else:
            apps = [workload.profile.applications[spec.model] for spec in workload.specs]
            found.setdefault("no schedule below", []).append(
                bound_schedules(workload.specs, apps, CLUSTER)
            )
        if options.json:
            for policy, rows in found.items():
                print(json.dumps(rows[-1] | {"workload": name, "policy": policy}))
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
