"""How many true run times the recorded 80 % intervals held, and how wide they were.

    python benchmarks/coverage.py [--policy shockwave] [--seeds 10-11] [--json]

Runs are the public traces (in the folder `shockwave` of that which SHOCKWAVE_DATA names), for each
seed 120 generated jobs on 32 GPUs and 16 on 16, and streams of 200 jobs on 16 GPUs at loads 0.3 to
1.1. `width` is the mean width over the mean true run time left. `baseline` is the width of split
conformal prediction on the same forecasts: an interval about each point forecast, by the relative
errors of the jobs that finished before it, in the same mode and tenth of progress, or in more of
them where these have too few. `ours` is the width of the recorded intervals with such a baseline.
"""

import argparse
import json
import math
import os
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from flows.cli.terminal import print_table
from flows.runs.garbage import rare_collections
from flows.runs.start import make_start, prepare
from flows.runs.workload_source import Source
from predictor.forecast import HELD
from predictor.intervals import TENTHS
from tasks.record import Estimate, RoundRecord, Settings, Timings, one_pool
from tasks.round import run_round
from tasks.sources import Workload
from warehouse.workloads.generator import generate_workload
from warehouse.workloads.trace import read_workload

TRACES = {
    "120 jobs": ("jobs120_gpus32.trace", "tacc_throughputs.json", 32),
    "220 jobs": ("jobs220_gpus64.trace", "wisr_throughputs.json", 64),
}
LOADS = (0.3, 0.5, 0.7, 0.9, 1.1)


@dataclass(frozen=True)
class Interval:
    """A recorded interval and what came of it.

    Attributes:
        mode: Adaptation mode of the job.
        tenth: Tenth of its epochs.
        held: Whether it held the true run time left.
        width: Its width in seconds.
        baseline: That of split conformal prediction; NaN where it has too few scores.
        left: The truth.
    """

    mode: str
    tenth: int
    held: bool
    width: float
    baseline: float
    left: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--policy", default="shockwave")
    parser.add_argument("--seeds", default="10-11", help="FIRST-LAST")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    asked = parser.parse_args()
    first, last = map(int, asked.seeds.split("-"))
    names = [*TRACES] if "SHOCKWAVE_DATA" in os.environ else []
    for seed in range(first, last + 1):
        names += [f"generated 32 {seed}", f"generated 16 {seed}"]
        names += [f"load {load} {seed}" for load in LOADS]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = dict(
            zip(names, pool.map(intervals, names, [asked.policy] * len(names)), strict=True)
        )
    groups: defaultdict[str, list[Interval]] = defaultdict(list)
    for name, ones in found.items():
        kind = name if name in TRACES else name.rpartition(" ")[0]
        for one in ones:
            for group in ("all", one.mode, f"tenth {one.tenth}", kind):
                groups[group].append(one)
    rows = [row(group, groups[group]) for group in sorted(groups)]
    if asked.json:
        for one_row in rows:
            print(json.dumps(one_row))
    else:
        print_table(list(rows[0]), [list(one_row.values()) for one_row in rows])


def row(group: str, ones: list[Interval]) -> dict[str, Any]:
    """The figures of a group of intervals."""
    left = np.mean([one.left for one in ones])
    both = [one for one in ones if not math.isnan(one.baseline)]
    left_of_both = np.mean([one.left for one in both])
    return {
        "group": group,
        "intervals": len(ones),
        "held": float(np.mean([one.held for one in ones])),
        "width": float(np.mean([one.width for one in ones]) / left),
        "ours": float(np.mean([one.width for one in both]) / left_of_both),
        "baseline": float(np.mean([one.baseline for one in both]) / left_of_both),
    }


def open_workload(name: str) -> tuple[Workload, int]:
    """A workload by its name, and its GPUs."""
    if name in TRACES:
        trace, profile, gpus = TRACES[name]
        data = Path(os.environ["SHOCKWAVE_DATA"]) / "shockwave"
        return read_workload(data / trace, data / profile, data / "gns_regimes.csv"), gpus
    kind, size, seed = name.split(" ")
    if kind == "load":
        return Source(jobs=200, contention_factor=float(size), seed=int(seed)).open(16), 16
    gpus = int(size)
    jobs, gap = (120, 45.0) if gpus == 32 else (16, 90.0)
    rng = np.random.default_rng(int(seed))
    return generate_workload(jobs, rng=rng, mean_interarrival_seconds=gap), gpus


class Kept:
    """A sink that keeps the estimates and ends, in their order."""

    def __init__(self) -> None:
        self.happened: list[Estimate | int] = []

    def append(self, record: RoundRecord, digest: str, timings: Timings) -> None:
        """See `Sink.append`."""
        self.happened += [event.job_id for event in record.finished if event.ends_job]
        self.happened += record.estimates


def intervals(name: str, policy: str) -> list[Interval]:
    """The intervals that a run of a workload recorded."""
    workload, gpus = open_workload(name)
    kept = Kept()
    start = make_start(workload, Settings(policy=policy, pools=one_pool(gpus)))
    with prepare(start).under_way(kept) as run, rare_collections():
        while not run.finished:
            run_round(run)
        total = {belief.spec.job_id: belief.run_seconds for belief in run.state.ended}
    modes = {spec.job_id: spec.mode.value for spec in workload.specs}
    return list(held(kept.happened, total, modes))


def held(
    happened: list[Estimate | int], total: dict[int, float], modes: dict[int, str]
) -> Iterator[Interval]:
    """Each estimate's interval, beside that of split conformal prediction."""
    made: defaultdict[int, dict[int, float]] = defaultdict(dict)
    errors: defaultdict[tuple[str, int], list[float]] = defaultdict(list)

    @cache
    def reach(mode: str, tenth: int) -> float:
        """Conformal quantile of the relative errors, of all modes or all tenths if these lack."""
        for known in (
            errors[mode, tenth],
            [one for key, ones in errors.items() if key[1] == tenth for one in ones],
            [one for ones in errors.values() for one in ones],
        ):
            rank = math.ceil(HELD * (len(known) + 1))
            if rank <= len(known):
                return sorted(known)[rank - 1]
        return math.nan

    for one in happened:
        if isinstance(one, int):
            for tenth, error in made.pop(one, {}).items():
                errors[modes[one], tenth].append(abs(error))
            reach.cache_clear()
            continue
        left = total[one.job_id] - one.run_seconds
        tenth = min(int(one.done * TENTHS), TENTHS - 1)
        made[one.job_id].setdefault(tenth, left / one.remaining_seconds - 1.0)
        share = reach(modes[one.job_id], tenth)
        yield Interval(
            modes[one.job_id],
            tenth,
            one.low_seconds <= left <= one.high_seconds,
            one.high_seconds - one.low_seconds,
            (min(share, 1.0) + share) * one.remaining_seconds,
            left,
        )


if __name__ == "__main__":
    main()
