"""How soon do losses fall under SLAQ, which gives GPUs to the jobs whose losses fall most?

    python -m benchmarks.quality [--jobs 40] [--gpus 8] [--seeds 3] [--gap 300]
        [--markdown] [--json]

Jobs are generated, each with a loss curve that is drawn: half of them sublinear, half linear, with
some noise; four fifths of the fall come in about a fifth of the epochs, as Zhang et al. found
(SoCC '17, section 2). Printed are means over the jobs under `slaq` and under policies that ignore
losses: the time from a job's arrival until 90 % and 95 % of its loss's fall were reported, the
remaining share of the fall, averaged over the time from its arrival to the last end in all runs,
and the JCT. Below is the mean error of fitted curves 1 and 10 epochs ahead, as a share of a job's
whole fall. Exit code 1 if `slaq` is not sooner than fair sharing (`gavel`).
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np

from flows.runs.simulation import prepare
from flows.runs.start import make_start
from harness.markdown import markdown
from predictor.quality import fit_curve
from solver.inventory import Pool
from tasks.record import RoundRecord, Settings, Timings
from tasks.round import run_round
from tasks.sources import Workload
from warehouse.workloads.generator import generate_workload
from warehouse.workloads.mix import Mix

POLICIES = "slaq", "gavel", "tiresias-las", "srtf"
NOISE = 0.005
"""Standard deviation of a loss, over the job's whole fall."""
SOON = 0.1, 0.3
"""Share of a job's epochs in which four fifths of its fall come, about a fifth as in the paper."""


@dataclass
class Memory:
    """A sink that keeps the records."""

    records: list[RoundRecord] = field(default_factory=list)

    def append(self, record: RoundRecord, digest: str, timings: Timings) -> None:
        """Keep a record."""
        self.records.append(record)


def curve(epochs: int, rng: np.random.Generator) -> tuple[float, ...]:
    """A loss after each epoch of a job, of one of SLAQ's families, in its own unit."""
    k, sublinear = np.arange(epochs) / (rng.uniform(*SOON) * epochs), rng.random() < 0.5
    falls = 1.0 / (1.0 + 4.0 * k) if sublinear else 0.2**k
    noisy = falls + NOISE * rng.standard_normal(epochs)
    return tuple(map(float, rng.uniform(0.1, 10.0) * (noisy + rng.uniform(0.0, 1.0))))


def workload_of(jobs: int, seed: int, gap: float, mix: Mix | None = None) -> Workload:
    """Generated jobs with losses."""
    rng = np.random.default_rng(seed)
    workload = generate_workload(jobs, rng=rng, mean_interarrival_seconds=gap, mix=mix or Mix())
    epochs = {spec.job_id: spec.epochs for spec in workload.specs}
    truths = [replace(truth, losses=curve(epochs[truth.job_id], rng)) for truth in workload.truths]
    return replace(workload, truths=tuple(truths))


def ran(workload: Workload, policy: str, gpus: int) -> list[RoundRecord]:
    """The rounds of a run on a virtual cluster."""
    settings, sink = Settings(policy, (Pool("", gpus, 4),)), Memory()
    with prepare(make_start(workload, settings)).open_run(sink) as run:
        while not run.finished:
            run_round(run)
    return sink.records


def reported(
    workload: Workload, records: Sequence[RoundRecord]
) -> dict[int, list[tuple[float, float]]]:
    """By job, the times of its reports, each with the remaining share of the loss's fall."""
    curves = {truth.job_id: truth.losses for truth in workload.truths}
    losses: dict[int, list[tuple[float, float]]] = {job: [] for job in curves}
    for record in records:
        for report in record.reports:
            curve = curves[report.job_id]
            end, fall = min(curve), (curve[0] - min(curve)) or 1.0
            last = min(report.epoch + report.epochs, len(curve))
            lowest = min(curve[:last])
            losses[report.job_id].append((record.clock_seconds, (lowest - end) / fall))
    return losses


def figures(workload: Workload, runs: dict[str, list[RoundRecord]]) -> list[dict[str, float | str]]:
    """A row for each policy."""
    until = max(records[-1].clock_seconds for records in runs.values())
    came = {spec.job_id: spec.arrival_seconds for spec in workload.specs}
    rows = []
    for policy, records in runs.items():
        course = reported(workload, records)
        ends = {e.job_id: e.at_seconds for r in records for e in r.finished if e.ends_job}
        rows.append(
            {
                "policy": policy,
                "to_90": fmean(_reached(course[job], 0.1) - at for job, at in came.items()),
                "to_95": fmean(_reached(course[job], 0.05) - at for job, at in came.items()),
                "left": fmean(_mean_left(course[job], at, until) for job, at in came.items()),
                "jct": fmean(ends[job] - at for job, at in came.items()),
            }
        )
    return rows


def _reached(course: Sequence[tuple[float, float]], left: float) -> float:
    return next(at for at, above in course if above <= left)


def _mean_left(course: Sequence[tuple[float, float]], came: float, until: float) -> float:
    """The mean over time of the remaining share of a job's fall; 1 before its first report."""
    times = np.array([came, *(at for at, _ in course), until])
    return float(np.diff(times) @ np.array([1.0, *(above for _, above in course)])) / (until - came)


def errors(workload: Workload, recency: float = 0.9) -> dict[int, float]:
    """Mean error of fitted curves by epochs ahead, as a share of a job's whole fall."""
    errors_ahead: dict[int, list[float]] = {1: [], 10: []}
    for truth in workload.truths:
        losses, every = truth.losses, range(1, len(truth.losses) + 1)
        fall = (losses[0] - min(losses)) or 1.0
        for known in range(5, len(losses) - 9, max(len(losses) // 5, 1)):
            fit = fit_curve(tuple(every[:known]), losses[:known], recency)
            for ahead, off in errors_ahead.items():
                off.append(abs(fit.at(known + ahead) - losses[known + ahead - 1]) / fall)
    return {ahead: fmean(off) for ahead, off in errors_ahead.items() if off}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--gap", type=float, default=300.0, help="mean seconds between arrivals")
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    rows: dict[str, list[dict[str, float | str]]] = {policy: [] for policy in POLICIES}
    off = []
    for seed in range(options.seeds):
        workload = workload_of(options.jobs, seed, options.gap)
        runs = {policy: ran(workload, policy, options.gpus) for policy in POLICIES}
        for row in figures(workload, runs):
            rows[str(row["policy"])].append(row)
        off.append(errors(workload))
    names = "to_90", "to_95", "left", "jct"
    means = {
        policy: {name: fmean(float(row[name]) for row in policy_rows) for name in names}
        for policy, policy_rows in rows.items()
    }
    if options.json:
        for policy, row in means.items():
            print(json.dumps({"policy": policy, **row}))
    else:
        heads = "Policy", "to 90 % (s)", "to 95 % (s)", "loss left", "mean JCT (s)"
        cells = [
            [
                f"`{p}`",
                f"{r['to_90']:,.0f}",
                f"{r['to_95']:,.0f}",
                f"{r['left']:.3f}",
                f"{r['jct']:,.0f}",
            ]
            for p, r in means.items()
        ]
        shown = markdown(heads, cells)
        print(shown if options.markdown else shown.replace("`", ""), end="")
        if not options.markdown:
            ahead = {n: fmean(errors_ahead[n] for errors_ahead in off) for n in (1, 10)}
            print(f"\nfitted curves are off by {ahead[1]:.4f} and {ahead[10]:.4f} of a job's fall")
    return int(means["slaq"]["to_90"] >= means["gavel"]["to_90"])


if __name__ == "__main__":
    sys.exit(main())
