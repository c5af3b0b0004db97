"""Coverage and width of the 80 % intervals of a run.

    python -m benchmarks.coverage [--policy shockwave] [--seeds 10-11] [--every 15] [--only NAMES]
        [--recorded WAREHOUSE [--runtime docker]] [--json | --markdown]

Forecasts are of the run time left, as recorded, and of the next start of waiting jobs and the
finish, fair finish and ρ of all jobs, as in `why`; the latter of each EVERY-th round. Runs are the
public traces (in the folder `shockwave` of that which SHOCKWAVE_DATA names), for each seed 120
generated jobs on 32 GPUs, the same with a third of the jobs of each mode, 16 jobs on 16, and
streams of 200 jobs on 16 GPUs (`load`) and on 64 (`load64`), at loads 0.3 to 1.1; with `--only`,
some of these, such as "120 jobs,load 0.9 10". With `--recorded` they are the runs of a
warehouse that have ended, such as those of `benchmarks.fidelity` in containers; each is replayed
from its records. Intervals of all seeds or runs are pooled.

`error` is the standard error of `held` if 80 % is the truth: that of a share in clusters (Liang and
Zeger, Biometrika 1986), with jobs as clusters, since the forecasts of a job are correlated. `width`
is the mean width over the mean truth, both in seconds from the forecast on; of fair finishes, from
the job's arrival on. `baseline` is the width
of split conformal prediction on the same forecasts: an interval about each point forecast, by the
relative errors of earlier finished jobs of the run in the same mode and tenth of progress, or in
more of both if these are too few. `ours` is the width of our intervals where there is a baseline,
`baseline held` the share of truths in the baseline's intervals.
"""

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workloads import STREAMS, TRACES, gpus_of, open_workload, trace_folder
from flows.cli.output import print_table
from flows.prefect_server.garbage import collect_rarely
from flows.runs.simulation import prepare
from flows.runs.start import make_start
from harness.markdown import markdown
from predictor.forecast import HELD
from predictor.intervals import TENTHS, tenth_of
from solver.even_cluster import measure_rho
from tasks.record import RoundRecord, Settings, Timings, make_pool
from tasks.replay import Recording
from tasks.rollouts import forecast_times
from tasks.round import Round, Step, StepResult, call_step, run_round, solve
from tasks.run import Run
from warehouse.analytics.questions import Analytics
from warehouse.store.reader import Reader

LOADS = (0.3, 0.5, 0.7, 0.9, 1.1)
BAND_OF_ALL, BAND = 0.04, 0.08
"""Accepted deviation from 80 %: of all intervals together, and of those of a group."""
LEFT, START, FINISH, FAIR, RHO = "run time left", "start", "finish", "fair finish", "ρ"
COMPARED = (LEFT, FINISH, START)
"""What the baseline is made for in the table of the docs, in its order."""
ROUNDING = 1e-9
"""Relative error of sums: an interval of no width holds a truth that is computed in another way."""


@dataclass(frozen=True)
class Made:
    """A forecast, in seconds, or of ρ.

    Attributes:
        of: What is forecast.
        job_id: The job.
        tenth: Tenth of its epochs.
        since: What it counts from: the job's run time for run times left, its arrival for fair
            finishes, 0 for ρ, else the clock.
        point: The point forecast, from then on, as are both ends.
        low: Lower end of its interval.
        high: Upper end.
    """

    of: str
    job_id: int
    tenth: int
    since: float
    point: float
    low: float
    high: float


@dataclass(frozen=True)
class Interval:
    """An interval and its truth.

    Attributes:
        of: What was forecast.
        job: The run, by its name, and the job.
        mode: Adaptation mode of the job.
        tenth: Tenth of its epochs.
        held: Whether it held the truth.
        width: Its width in seconds.
        baseline: Width of split conformal prediction; NaN if it has too few scores.
        baseline_held: Whether the baseline's interval held the truth.
        left: The truth, in seconds from the forecast on.
    """

    of: str
    job: tuple[str, int]
    mode: str
    tenth: int
    held: bool
    width: float
    baseline: float
    baseline_held: bool
    left: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--policy", default="shockwave")
    parser.add_argument("--seeds", default="10-11", help="FIRST-LAST")
    parser.add_argument("--every", type=int, default=15, help="rounds between played forecasts")
    parser.add_argument("--only", help="names of workloads, separated by commas")
    parser.add_argument("--recorded", type=Path, help="warehouse whose runs are taken instead")
    parser.add_argument("--runtime", help="of these, only those on this runtime, as docker")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print one JSON object a line")
    shape.add_argument("--markdown", action="store_true", help="print the table of the docs")
    asked = parser.parse_args()
    groups: defaultdict[tuple[str, str], list[Interval]] = defaultdict(list)
    for kind, sample in recorded(asked) if asked.recorded else simulated(asked):
        for interval in sample:
            for group in ("all", interval.mode, f"tenth {interval.tenth}", kind):
                groups[interval.of, group].append(interval)
    rows = [row(*group, groups[group]) for group in sorted(groups)]
    if asked.json:
        for one_row in rows:
            print(json.dumps(one_row))
    elif asked.markdown:
        print(table(rows), end="")
    else:
        print_table(list(rows[0]), [list(one_row.values()) for one_row in rows])


def simulated(asked: argparse.Namespace) -> Iterator[tuple[str, list[Interval]]]:
    """The kinds of workloads, and the intervals of a run of each workload."""
    first, last = map(int, asked.seeds.split("-"))
    names = [*TRACES] if trace_folder() else []
    for seed in range(first, last + 1):
        names += [f"generated 32 {seed}", f"generated 16 {seed}", f"modes 32 {seed}"]
        names += [f"{stream} {load} {seed}" for stream in STREAMS for load in LOADS]
    if asked.only:
        names = asked.only.split(",")
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        every = [asked.every] * len(names)
        found = pool.map(intervals, names, [asked.policy] * len(names), every)
        for name, sample in zip(names, found, strict=True):
            yield (name if name in TRACES else name.rpartition(" ")[0]), sample


def recorded(asked: argparse.Namespace) -> Iterator[tuple[str, list[Interval]]]:
    """The runtimes of the runs of a warehouse, and the intervals of each run that has ended."""
    reader, names = Reader(asked.recorded), "SELECT run FROM runs ORDER BY run"
    for (name,) in Analytics(asked.recorded).query(names)[1]:
        start, kept = reader.start(name), Kept()
        if asked.runtime not in (None, str(start.header.settings.runtime)):
            continue
        records = [record for record, _ in reader.records(name)]
        run = prepare(start, recorded=True).on(Recording(records), kept, name)
        for record in records:
            go_on(run, kept, asked.every, record)
        if run.finished:
            yield str(start.header.settings.runtime), seen(name, run, kept)


def row(of: str, group: str, sample: list[Interval]) -> dict[str, Any]:
    """The figures of a group of intervals."""
    both = [interval for interval in sample if not math.isnan(interval.baseline)]

    def relative(widths: list[float], some: list[Interval]) -> float:
        return float(sum(widths) / sum(interval.left for interval in some)) if some else math.nan

    return {
        "of": of,
        "group": group,
        "intervals": len(sample),
        "jobs": len({interval.job for interval in sample}),
        "held": float(np.mean([interval.held for interval in sample])),
        "error": error(sample),
        "width": relative([interval.width for interval in sample], sample),
        "ours": relative([interval.width for interval in both], both),
        "baseline": relative([interval.baseline for interval in both], both),
        "baseline held": float(np.mean([i.baseline_held for i in both])) if both else math.nan,
    }


def error(sample: list[Interval]) -> float:
    """Standard error of the share of intervals that hold, by job, were `HELD` the truth."""
    beyond: defaultdict[tuple[str, int], float] = defaultdict(float)
    for interval in sample:
        beyond[interval.job] += interval.held - HELD
    return math.sqrt(sum(each**2 for each in beyond.values())) / len(sample)


def table(rows: list[dict[str, Any]]) -> str:
    """The table of the docs: jobs of a group, coverage, width and the baseline's, in %.

    Tenths of progress are left out.
    """
    found = {(row["of"], row["group"]): row for row in rows}
    named = (row["group"] for row in rows if not row["group"].startswith("tenth "))
    groups = dict.fromkeys(["all", *named])
    shown = []
    for group in groups:
        cells = [group]
        for of in (*COMPARED, FAIR, RHO):
            one = found.get((of, group))
            jobs, held = (f"{one['jobs']:,}", held_of(one)) if one else ("–", "–")
            cells += [jobs, held] if of in COMPARED else [held]
            for name in ("width", "ours", "baseline") if of in COMPARED else ("width",):
                value = one[name] if one else math.nan
                cells.append("–" if math.isnan(value) else f"{100.0 * value:.0f}")
        shown.append(cells)
    columns = ("held", "width", "ours", "baseline")
    heads = [head for of in COMPARED for head in (f"{of}: jobs", *columns)]
    heads += [head for of in (FAIR, RHO) for head in (f"{of}: held", "width")]
    return markdown(("", *heads), shown)


def held_of(row: dict[str, Any]) -> str:
    """The share of truths held and its error, in %; bold outside of the band."""
    band = BAND_OF_ALL if row["group"] == "all" else BAND
    text = f"{100.0 * row['held']:.0f} ± {100.0 * row['error']:.0f}"
    return f"**{text}**" if abs(row["held"] - HELD) > band else text


class Kept:
    """A sink that keeps forecasts and the ends of jobs in order, and the truths of forecasts."""

    def __init__(self) -> None:
        self.happened: list[Made | int] = []
        self.clocks: list[float] = []
        self.leased: defaultdict[int, list[float]] = defaultdict(list)
        self.ends: dict[int, float] = {}
        self.fair: dict[int, float] = {}
        self.rho: dict[int, float] = {}

    def append(self, record: RoundRecord, digest: str, timings: Timings) -> None:
        """See `Sink.append`."""
        for event in record.finished:
            if event.ends_job:
                self.happened.append(event.job_id)
                self.ends[event.job_id] = event.at_seconds
        self.fair |= {found.job_id: found.at_seconds for found in record.fair_finishes}
        for lease in record.leases:
            self.leased[lease.job_id].append(record.clock_seconds)
        self.happened += [
            Made(
                LEFT,
                estimate.job_id,
                min(int(estimate.done * TENTHS), TENTHS - 1),
                estimate.run_seconds,
                estimate.remaining_seconds,
                estimate.low_seconds,
                estimate.high_seconds,
            )
            for estimate in record.estimates
        ]

    def play(self, run: Run, this: Round) -> None:
        """Keep what is expected of a solved round's jobs."""
        clock = this.observation.clock_seconds
        for job_id, ahead in forecast_times(run, this, this.active.keys()).items():
            tenth = tenth_of(this.state.beliefs[job_id])
            arrival = this.state.beliefs[job_id].spec.arrival_seconds
            made = [(FINISH, clock, ahead.finish)]
            if job_id not in this.plan.placement:
                made.append((START, clock, ahead.start))
            if ahead.fair_finish and ahead.rho:
                made += [(FAIR, arrival, ahead.fair_finish), (RHO, 0.0, ahead.rho)]
            self.happened += [
                Made(of, job_id, tenth, at, found.median - at, found.low - at, found.high - at)
                for of, at, found in made
            ]

    def measure_rho(self, run: Run) -> None:
        """Keep the true ρ of each job of a run that has ended."""
        settings = run.header.settings
        least = settings.round_seconds, settings.restart_seconds
        for belief in run.state.learning.finished:
            job, arrival = belief.spec.job_id, belief.spec.arrival_seconds
            self.rho[job] = measure_rho(self.ends[job], arrival, self.fair[job], *least)

    def truth(self, made: Made, total: dict[int, float]) -> float:
        """The truth of a forecast, counted from the same as it."""
        if made.of == LEFT:
            return total[made.job_id] - made.since
        if made.of == FINISH:
            return self.ends[made.job_id] - made.since
        if made.of == FAIR:
            return self.fair[made.job_id] - made.since
        if made.of == RHO:
            return self.rho[made.job_id]
        return next(at for at in self.leased[made.job_id] if at >= made.since) - made.since


def intervals(name: str, policy: str, every: int) -> list[Interval]:
    """The intervals of a run of a workload.

    Args:
        name: The workload.
        policy: The policy.
        every: Rounds between those in which starts and finishes are forecast.
    """
    workload, kept = open_workload(name), Kept()
    start = make_start(workload, Settings(policy=policy, pools=make_pool(gpus_of(name))))
    with prepare(start).open_run(kept) as run, collect_rarely():
        while not run.finished:
            go_on(run, kept, every)
    return seen(name, run, kept)


def go_on(run: Run, kept: Kept, every: int, done: RoundRecord | None = None) -> None:
    """A round of a run, with the starts and finishes that are forecast in it.

    Args:
        run: The run.
        kept: Takes the forecasts.
        every: Rounds between those in which starts and finishes are forecast.
        done: The recorded round, whose plan is carried out.
    """

    def call(step: Step, run: Run, *inputs: StepResult[Any]) -> StepResult[Any]:
        result: StepResult[Any] = call_step(step, run, *inputs)
        if step is solve and done:
            placement = {lease.job_id: lease.gpus for lease in done.leases}
            result = StepResult(replace(result.value, placement=placement), result.milliseconds)
        if step is solve and run.state.round % every == every // 2:
            kept.play(run, Round(**vars(inputs[0].value), plan=result.value))
        return result

    run_round(run, call)


def seen(name: str, run: Run, kept: Kept) -> list[Interval]:
    """The intervals of a run that has ended, by its name."""
    kept.measure_rho(run)
    total = {belief.spec.job_id: belief.run_seconds for belief in run.state.learning.finished}
    modes = {belief.spec.job_id: belief.spec.mode.value for belief in run.state.learning.finished}
    return list(held(name, kept, total, modes))


def held(
    name: str, kept: Kept, total: dict[int, float], modes: dict[int, str]
) -> Iterator[Interval]:
    """Each forecast's interval, beside that of split conformal prediction."""
    made: defaultdict[int, dict[tuple[str, int], float]] = defaultdict(dict)
    errors: defaultdict[tuple[str, int, str], list[float]] = defaultdict(list)

    @cache
    def reach(of: str, tenth: int, mode: str) -> float:
        """Conformal quantile of the relative errors, of all modes or all tenths if these lack."""
        alike = {key: scores for key, scores in errors.items() if key[0] == of}
        for known in (
            errors[of, tenth, mode],
            [score for key, scores in alike.items() if key[1] == tenth for score in scores],
            [score for scores in alike.values() for score in scores],
        ):
            rank = math.ceil(HELD * (len(known) + 1))
            if rank <= len(known):
                return sorted(known)[rank - 1]
        return math.nan

    for event in kept.happened:
        if isinstance(event, int):
            for key, error in made.pop(event, {}).items():
                errors[*key, modes[event]].append(abs(error))
            reach.cache_clear()
            continue
        left = kept.truth(event, total)
        made[event.job_id].setdefault((event.of, event.tenth), left / event.point - 1.0)
        share = reach(event.of, event.tenth, modes[event.job_id])
        rounding = ROUNDING * abs(left)
        yield Interval(
            event.of,
            (name, event.job_id),
            modes[event.job_id],
            event.tenth,
            event.low - rounding <= left <= event.high + rounding,
            event.high - event.low,
            (min(share, 1.0) + share) * event.point,
            abs(left / event.point - 1.0) <= share,
            left,
        )


if __name__ == "__main__":
    main()
