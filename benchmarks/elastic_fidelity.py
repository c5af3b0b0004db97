"""Elastic training jobs in containers against the same jobs as gangs, both real and simulated.

    python -m benchmarks.elastic_fidelity [--runs 3] [--measured FILE] [--warehouse FOLDER]
        [--markdown]

Measures a profile on one, two and four emulated GPUs of the benchmark `fidelity`, or reads one
printed before from FILE. Then runs twelve jobs of its kinds, RUNS times, on four emulated GPUs
under Shockwave: elastic ones of one to four GPUs, and gangs of the same tuned numbers. Each run is
simulated with `--runtime faithful`. Prints for each, and as medians:

- simulated over real makespan and mean JCT;
- `speed`, the speed of the machine in the run over that in the profile: training time that the
  profile expects at the GPUs held, over real training time; and both ratios for a simulation at
  that speed;
- what elasticity changes: mean JCT of elastic jobs over that of gangs, real and simulated;
- the load average of the machine before the run.

Losses: after each epoch, the difference between the elastic job's loss and the gang's, over the
spread of the loss between seeds: the standard deviation of three jobs that differ only in their
seed, each left alone. Floating-point sums depend on the number of workers, so losses differ a
little from the first change of GPUs on.

Exit code 1 if a job did not end, if an epoch was not recorded once with the batch size that the
trainer chose, if no elastic job changed its GPUs, if an adaptive one kept its batch size, if a
median ratio of makespans is beyond its limits, if the change of mean JCT by elasticity differs by
more than 10 % between the simulation at the machine's speed and reality, or if losses differ by a
spread or more in the mean. The limits of a ratio of makespans are 0.93 and 1.07. On a machine that
was slower than in the profile, at a speed s < 1, simulations with the profile are too short: the
lower limit is s - 0.03 if that is less. On a faster one, the upper limit is s + 0.03 if that is
more. Needs root, dockerd, iptables, two processors; few others should run.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from benchmarks.alone import losses, train_alone
from benchmarks.fidelity import (
    CPUS,
    ROUND_SECONDS,
    emulate,
    measured_before,
    regimes_of,
    restarts_of,
    row_of,
    specs,
    take_processors,
    workload_of,
)
from containers.docker.nodes import Nodes
from flows.runs.live import run_live
from flows.runs.profiling import Combination, Measured, combinations_of, measure
from flows.runs.simulation import simulate
from flows.runs.start import make_start
from harness.markdown import markdown
from predictor.allocation import Demand
from predictor.job import JobSpec, Mode
from predictor.throughput import Profile, training_seconds
from tasks.record import RuntimeKind, Settings
from warehouse.analytics.questions import Analytics
from warehouse.store.reader import Reader

GPUS = (1, 2, 4)
"""Numbers of GPUs that are measured, so that elastic jobs may hold them."""
LARGEST = 64
"""Of the batch sizes, twice the first one of most jobs."""
GAP_SECONDS = 7.0
"""Time between arrivals: jobs wait, so it matters how many GPUs each gets."""
SHARE_OF_EPOCHS = 0.5
"""Of the jobs of `fidelity`: one lasts tens of seconds on a GPU."""
SEEDS = 3
MOST_OFF, MOST_OFF_BESIDE_SPEED = 0.07, 0.03
"""Of a median ratio of makespans, from 1 and from the machine's speed."""
MOST_GAIN_OFF = 0.1
ELASTIC, GANGS = "elastic", "gangs"
NAMES = "makespan_s", "mean_jct_s"


def jobs_of(kind: str) -> tuple[JobSpec, ...]:
    """The twelve jobs, elastic or as gangs of their tuned numbers of GPUs."""
    return tuple(
        replace(
            spec,
            demand=Demand(min(GPUS), max(GPUS), tuned=spec.demand.size)
            if kind == ELASTIC
            else spec.demand,
            max_batch_size=LARGEST,
            epochs=round(spec.epochs * SHARE_OF_EPOCHS),
            total_steps=0,
        )
        for spec in specs(GAP_SECONDS)
    )


def combinations() -> list[Combination]:
    """What the jobs may run with; those of as many GPUs are measured at the same time."""
    tuned = {(c.model, c.batch_size, c.epoch_samples) for c in combinations_of(jobs_of(GANGS))}
    return [
        Combination(model, size, gpus, samples)
        for gpus in GPUS
        for model, size, samples in sorted(tuned)
    ]


def speed_of(folder: Path, run: str, profile: Profile, jobs: tuple[JobSpec, ...]) -> float:
    """Training time that a profile expects of a run, over the real one."""
    by_id, done = {spec.job_id: spec for spec in jobs}, {spec.job_id: 0.0 for spec in jobs}
    expected = real = 0.0
    held: dict[int, int] = {}
    for record, _ in Reader(folder).records(run):
        reached = [(r.job_id, r.batch_size, float(r.epoch + r.epochs)) for r in record.reports]
        # And in the open epochs.
        reached += [(at.job_id, at.batch_size, at.epochs + at.fraction) for at in record.progress]
        for job_id, size, epochs in reached:
            spec = by_id[job_id]
            there = replace(profile.reference(spec), gpus=held[job_id])
            seconds = training_seconds(profile, spec, size, there)
            expected += (epochs - done[job_id]) * seconds
            done[job_id] = epochs
        real += sum(at.seconds for at in record.progress)
        held = {lease.job_id: len(lease.gpus) for lease in record.leases}
    return expected / real


def run_both(
    nodes: Nodes, folder: Path, runs: int, printed: Path | None, report: Callable[[str], None]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Run and simulate the jobs of both kinds; return the figures of each, and problems."""
    measured = (
        measured_before(printed)
        if printed
        else {"cpu": measure(nodes, combinations(), epochs=5, steps=16, together=True)}
    )
    for entry in measured["cpu"]:
        report(json.dumps({"gpu_type": "cpu"} | entry.row))
    restarts = restarts_of(measured)
    for (_, gpus), took in restarts.items():
        report(f"restart on {gpus} GPUs {took:.2f} s")
    rows: list[dict[str, Any]] = []
    real_runs: dict[str, list[str]] = {ELASTIC: [], GANGS: []}
    for number in range(runs):
        for kind, done in real_runs.items():
            jobs = jobs_of(kind)
            settings = Settings(
                "shockwave",
                nodes.inventory.pools,
                round_seconds=ROUND_SECONDS,
                restart_seconds=round(fmean(restarts.values()), 2),
                seed=number,
                runtime=RuntimeKind.DOCKER,
            )
            workload = workload_of(measured, {}, jobs)
            load = os.getloadavg()[0]
            real = run_live(make_start(workload, settings), nodes, folder)
            row = {
                "jobs": kind,
                **simulate_twice(folder, real, measured, settings, jobs),
                "load_before": load,
                "load_after": os.getloadavg()[0],
            }
            rows.append(row)
            done.append(real)
            report(json.dumps(row))
    amiss = [
        f"{run}: {problem}"
        for kind, done in real_runs.items()
        for run in done
        for problem in _problems(nodes, folder, kind, run)
    ]
    off = compare_losses(nodes, real_runs, report)
    if off >= 1.0:
        amiss.append(f"losses differ by {off:.2f} spreads between seeds")
    return rows, amiss


def simulate_twice(
    folder: Path,
    real: str,
    measured: dict[str, list[Measured]],
    settings: Settings,
    jobs: tuple[JobSpec, ...],
) -> dict[str, float]:
    """Simulate a run with its profile, and at the speed of the machine in the run."""
    regimes = regimes_of(folder, real)
    settings = replace(settings, runtime=RuntimeKind.FAITHFUL)
    known = workload_of(measured, regimes, jobs)
    speed = speed_of(folder, real, known.profile, jobs)
    row = row_of(folder, real, simulate(make_start(known, settings), folder))
    at_speed = [
        replace(
            entry,
            steps_per_second=entry.steps_per_second * speed,
            restart_seconds=entry.restart_seconds / speed,
        )
        for entry in measured["cpu"]
    ]
    known = workload_of({"cpu": at_speed}, regimes, jobs)
    settings = replace(settings, restart_seconds=settings.restart_seconds / speed)
    there = row_of(folder, real, simulate(make_start(known, settings), folder))
    for name in NAMES:
        row[f"at_speed_{name}"] = there[f"simulated_{name}"]
        row[f"at_speed_{name}_ratio"] = there[f"{name}_ratio"]
    return row | {"speed": round(speed, 4)}


def _problems(nodes: Nodes, folder: Path, kind: str, run: str) -> Iterator[str]:
    ended = "SELECT count(finish_seconds) FROM job_outcomes"
    held = "SELECT count(DISTINCT len(gpus)) AS held FROM leases GROUP BY job_id"
    changed = f"SELECT count(*) FROM ({held}) WHERE held > 1"
    ended_jobs, changed_jobs = (
        Analytics(folder).query(query, [run])[1][0][0] for query in (ended, changed)
    )
    if ended_jobs != len(jobs_of(kind)):
        yield f"{ended_jobs} jobs finished"
    planned_with = regimes_of(folder, run)
    for spec in jobs_of(kind):
        trained = losses(nodes.folder(run, spec.job_id))
        sizes = [min(trained[epoch])[0] for epoch in sorted(trained)]
        if sizes != [r.batch_size for r in planned_with[spec.job_id] for _ in range(int(r.epochs))]:
            yield f"job {spec.job_id} trained epochs of {sizes}, not as recorded"
        if (len({*sizes}) > 1) != (spec.mode is not Mode.STATIC):
            yield f"job {spec.job_id}, {spec.mode}, trained with {sorted({*sizes})}"
    if (kind == ELASTIC) != bool(changed_jobs):
        yield f"{changed_jobs} jobs changed their GPUs"


def compare_losses(
    nodes: Nodes, real_runs: dict[str, list[str]], report: Callable[[str], None]
) -> float:
    """Return the mean difference of losses between elastic jobs and gangs, in spreads of seeds."""
    jobs, seeds = jobs_of(GANGS), nodes.storage / "seeds"
    others = [
        replace(spec, job_id=spec.job_id + number * len(jobs))  # its seed, too
        for number in range(SEEDS)
        for spec in jobs
    ]
    train_alone(others, seeds)
    means = []
    for spec in jobs:
        alone = [
            _by_epoch(seeds / f"job-{spec.job_id + number * len(jobs)}") for number in range(SEEDS)
        ]
        spread = [stdev(values) for values in zip(*alone, strict=True)]
        found = []
        for elastic, gang in zip(real_runs[ELASTIC], real_runs[GANGS], strict=True):
            both = (
                _by_epoch(nodes.folder(elastic, spec.job_id)),
                _by_epoch(nodes.folder(gang, spec.job_id)),
            )
            apart = [abs(a - b) for a, b in zip(*both, strict=True)]
            found.append(fmean(apart) / fmean(spread))
        row = {
            "job": spec.job_id,
            "model": spec.model,
            "mode": str(spec.mode),
            "last_loss": round(alone[0][-1], 4),
            "last_spread": round(spread[-1], 4),
            "difference_in_spreads": [round(each, 4) for each in found],
        }
        report(json.dumps(row))
        means.append(fmean(found))
    return fmean(means)


def _by_epoch(folder: Path) -> list[float]:
    """Losses of a job after each epoch."""
    found = losses(folder)
    return [min(found[epoch])[1] for epoch in sorted(found)]


def summarize(rows: list[dict[str, Any]]) -> tuple[str, list[str]]:
    """The table of all runs, and which figures are further off than they may be."""
    shown, problems, medians = [], [], {}
    for kind in (ELASTIC, GANGS):
        own = [row for row in rows if row["jobs"] == kind]
        medians[kind] = middle = {
            key: median(row[key] for row in own) for key in own[0] if key != "jobs"
        }
        for label, row in [*((kind, row) for row in own), (f"{kind}, median", middle)]:
            cells = [
                cell
                for name in NAMES
                for cell in (
                    f"{row[f'real_{name}']:.0f}",
                    f"{row[f'simulated_{name}']:.0f}",
                    f"{row[f'{name}_ratio']:.3f}",
                    f"{row[f'at_speed_{name}_ratio']:.3f}",
                )
            ]
            shown.append([label, *cells, f"{row['speed']:.3f}", f"{row['load_before']:.0f}"])
        ratio, speed = middle["makespan_s_ratio"], middle["speed"]
        least = min(1.0 - MOST_OFF, speed - MOST_OFF_BESIDE_SPEED)
        most = max(1.0 + MOST_OFF, speed + MOST_OFF_BESIDE_SPEED)
        if not least <= ratio <= most:
            problems.append(
                f"{kind}: simulated makespans are {ratio:.3f} of real ones, at a speed of "
                f"{speed:.3f} beyond {least:.3f} to {most:.3f}"
            )
    real, simulated, at_speed = (
        medians[ELASTIC][f"{how}_mean_jct_s"] / medians[GANGS][f"{how}_mean_jct_s"]
        for how in ("real", "simulated", "at_speed")
    )
    ratios = real, simulated, simulated / real, at_speed / real
    shown.append(["elastic / gangs", *[""] * 4, *(f"{ratio:.3f}" for ratio in ratios), "", ""])
    if abs(at_speed / real - 1.0) > MOST_GAIN_OFF:
        problems.append(
            f"elastic jobs have {real:.3f} of the mean JCT of gangs, simulated at the speed of the "
            f"machine {at_speed:.3f}"
        )
    heads = ["Jobs"]
    for name in ("Makespan", "Mean JCT"):
        heads += [f"{name} (s)", "simulated (s)", "simulated / real", "at its speed"]
    return markdown([*heads, "Speed", "Load"], shown), problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--measured", type=Path, help="what an earlier run printed")
    parser.add_argument("--warehouse", type=Path, help="folder that keeps the records")
    parser.add_argument("--markdown", action="store_true", help="print the table of the docs only")
    asked = parser.parse_args()
    if lacking := take_processors():
        print(f"error: {lacking}", file=sys.stderr)
        return 2

    def report(text: str) -> None:
        if not asked.markdown:
            print(text, flush=True)

    with emulate({"cpu": (CPUS, 4)}) as nodes:
        folder = asked.warehouse or nodes.storage.parent / "warehouse"
        rows, amiss = run_both(nodes, folder, asked.runs, asked.measured, report)
    table, problems = summarize(rows)
    print(table)
    print("\n".join([*amiss, *problems]) or "all as asked", file=sys.stderr)
    return int(bool(amiss or problems))


if __name__ == "__main__":
    sys.exit(main())
