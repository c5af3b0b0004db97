"""Fidelity of the simulator against real training jobs.

    python -m benchmarks.fidelity [--runs 3] [--mixed] [--measured FILE] [--driver prefect|plain]
        [--warehouse FOLDER] [--json]

Measures a profile of this machine, or reads one printed before from FILE, runs twelve
training jobs of three families, in all three modes, on one and two of four emulated GPUs, in
rounds of twelve seconds under Shockwave, RUNS times; then simulates the same jobs with
`--runtime faithful`, the measured profile and the batch sizes that the jobs went through (they
follow from the jobs alone). Prints real and simulated makespan and mean JCT of each run, what the
latter is made of (time that jobs waited, trained, and lost to starts and ends), and the medians of
the ratios; `training_ratio` is that of the training time, which depends on the profile only.

Each emulated GPU is a quota of the same single processor: jobs on different processors would slow
each other down through shared caches, memory and often cores. The scheduler and Prefect get the
other processors.
With `--mixed` they are two pools, whose GPUs have quotas of two sizes.
Few jobs wait: with a long queue, plans depend on near ties, and mean JCTs of two runs of the same
jobs differ by 7 % (simulated, with speeds varied by 3 %).

At the end each job's losses are compared with those of the same job undisturbed. Exit code 1 if
they are not bit-equal, if an adaptive job kept its batch size, or if a median is off by more than
5 %; also if no job was preempted, or, with two pools, if a job ended on another type than in
simulation, or would have preferred another at its price.

Containers and the scheduler have priority over all other processes of the machine, but share its
caches and memory: few others should run. Needs root, dockerd, iptables, two processors.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.alone import losses, train_alone
from containers.docker.nodes import Gpu, Nodes
from containers.virtual.truth import GroundTruth
from flows.prefect_server.own_server import run_own_server
from flows.prefect_server.prefect_driver import embedded_prefect, open_prefect_driver
from flows.runs.live import run_live
from flows.runs.profiling import Combination, Measured, combinations_of, measure
from flows.runs.simulation import simulate
from flows.runs.start import make_start
from harness.dockerd import cluster, dockerd, missing
from predictor.allocation import Demand
from predictor.job import JobSpec, Mode, Regime
from predictor.throughput import Profile, epoch_seconds
from tasks.record import RuntimeKind, Settings
from tasks.round import run_round
from tasks.sources import Workload
from warehouse.analytics.questions import Analytics
from warehouse.store.reader import Reader

GROUP = "shockwave-fidelity"
"""Control group of all containers."""
CONTROL = Path("/sys/fs/cgroup")
MOST_SHARES, MOST_WEIGHT = 262_144, 10_000
"""Largest weight of a control group, in versions 1 and 2."""
FIRST = min(os.sched_getaffinity(0))
"""Processor of all containers."""
NICE = -10
"""Of the scheduler."""

CPUS = 0.23
"""Processor quota of an emulated GPU; four of them leave a little of the processor."""
FAST, SLOW = 0.3, 0.15
"""Quotas of the emulated GPUs of two pools of two."""
ROUND_SECONDS = 12.0
GAP_SECONDS, GAP_OF_TYPES = 20.0, 37.0
"""Time between arrivals, on one pool and on two: gangs of two fill a pool of two. No multiple of
rounds: a job arriving with a round would be in time for it in simulation, but late in reality."""
MOST_OFF = 0.05
"""Of a median ratio."""
JOBS = (
    ("ResNet-18", 32, Demand.gang(1), Mode.STATIC, 40),
    ("LM", 32, Demand.gang(2), Mode.GNS, 96),
    ("Recommendation", 32, Demand.gang(1), Mode.ACCORDION, 240),
    ("LM", 16, Demand.gang(1), Mode.STATIC, 40),
    ("ResNet-18", 32, Demand.gang(2), Mode.GNS, 64),
    ("Recommendation", 32, Demand.gang(2), Mode.STATIC, 192),
    ("LM", 32, Demand.gang(1), Mode.ACCORDION, 64),
    ("ResNet-18", 64, Demand.gang(1), Mode.STATIC, 48),
    ("Recommendation", 32, Demand.gang(1), Mode.GNS, 320),
    ("LM", 32, Demand.gang(2), Mode.ACCORDION, 80),
    ("ResNet-18", 32, Demand.gang(1), Mode.ACCORDION, 40),
    ("Recommendation", 64, Demand.gang(1), Mode.STATIC, 256),
)


def specs(gap: float = GAP_SECONDS) -> tuple[JobSpec, ...]:
    return tuple(
        JobSpec(job_id, model, size, 128, gang, mode, epochs, 256, gap * job_id)
        for job_id, (model, size, gang, mode, epochs) in enumerate(JOBS)
    )


def fidelity(
    nodes: Nodes,
    folder: Path,
    runs: int,
    driver: Any,
    report: Callable[[str], None],
    printed: Path | None,
) -> tuple[list[dict[str, float]], list[str]]:
    """Profile, real runs, simulations; returns the figures of each, and the problems of jobs."""
    measured = (
        measured_before(printed)
        if printed
        else {
            kind: measure(
                nodes, combinations_of(specs()), epochs=5, steps=16, together=True, gpu_type=kind
            )
            for kind in nodes.inventory.types
        }
    )
    for kind, some in measured.items():
        for entry in some:
            report(json.dumps({"gpu_type": kind} | entry.row))
    mixed = len(measured) > 1
    jobs = specs(GAP_OF_TYPES if mixed else GAP_SECONDS)
    restarts = restarts_of(measured)
    (kind, *_), starts = measured, restarts.values()
    restart = min(starts) if mixed else fmean(restarts[kind, s.demand.least] for s in specs())
    for (kind, gpus), took in restarts.items():
        report(f"restart on {gpus} {kind} {took:.2f} s")
    rows: list[dict[str, float]] = []
    real_runs: list[tuple[str, str]] = []
    for number in range(runs):
        settings = Settings(
            "shockwave",
            nodes.inventory.pools,
            round_seconds=ROUND_SECONDS,
            restart_seconds=round(restart, 2),
            seed=number,
            runtime=RuntimeKind.DOCKER,
        )
        start = make_start(workload_of(measured, {}, jobs), settings)
        real = run_live(start, nodes, folder, driver=driver)
        regimes = regimes_of(folder, real)
        again = replace(settings, runtime=RuntimeKind.FAITHFUL)
        simulated = simulate(make_start(workload_of(measured, regimes, jobs), again), folder)
        rows.append(row_of(folder, real, simulated))
        real_runs.append((real, simulated))
        report(json.dumps(rows[-1]))
    train_alone(specs(), nodes.storage / "alone")
    amiss = [problem for run, _ in real_runs for problem in _amiss(nodes, run)]
    if mixed:
        amiss += [problem for both in real_runs for problem in _misplaced(folder, *both)]
    elif not any(row["real_preemptions"] for row in rows):
        amiss.append("no job was preempted")
    return rows, amiss


def _misplaced(folder: Path, real: str, simulated: str) -> list[str]:
    """Jobs that ended on another GPU type than in simulation, or preferred another at its price."""
    ended = "SELECT job_id, arg_max(gpu_type, round) FROM leases GROUP BY job_id"
    there, expected = (dict(Analytics(folder).query(ended, [run])[1]) for run in (real, simulated))
    problems = [
        f"{real}: job {job} ended on {kind}, and on {expected[job]} in simulation"
        for job, kind in sorted(there.items())
        if kind != expected[job]
    ]
    envious = Analytics(folder).query("SELECT sum(envious) FROM solves", [real])[1][0][0]
    return [*problems, *[f"{real}: jobs preferred another type {envious} times"] * bool(envious)]


def measured_before(printed: Path) -> dict[str, list[Measured]]:
    """The measurements that an earlier run printed, by GPU type."""
    profile: dict[str, list[Measured]] = {}
    for line in printed.read_text().splitlines():
        row = json.loads(line) if line.startswith('{"gpu_type"') else None
        if row:
            what = Combination(row["model"], row["batch_size"], row["scale_factor"])
            entry = Measured(what, row["steps_per_second"], restart_seconds=row["restart_seconds"])
            profile.setdefault(row["gpu_type"], []).append(entry)
    return profile


def _amiss(nodes: Nodes, run: str) -> list[str]:
    """The problems of the losses and batch sizes of a run, in words."""
    problems = []
    for spec in specs():
        there = losses(nodes.folder(run, spec.job_id))
        if there != losses(nodes.storage / "alone" / f"job-{spec.job_id}"):
            problems.append(
                f"{run}: losses of job {spec.job_id} differ from those of the undisturbed job"
            )
        sizes = {size for each in there.values() for size, _ in each}
        if (len(sizes) > 1) != (spec.mode is not Mode.STATIC):
            problems.append(f"{run}: job {spec.job_id}, {spec.mode}, trained with {sorted(sizes)}")
    return problems


def restarts_of(measured: dict[str, list[Measured]]) -> dict[tuple[str, int], float]:
    """Duration of a start by GPU type and GPUs, in seconds."""
    seconds: dict[tuple[str, int], list[float]] = {}
    for kind, some in measured.items():
        for entry in some:
            gpus = entry.combination.scale_factor
            seconds.setdefault((kind, gpus), []).append(entry.restart_seconds)
    return {key: median(took) for key, took in seconds.items()}


def workload_of(
    measured: dict[str, list[Measured]],
    regimes: dict[int, tuple[Regime, ...]],
    jobs: tuple[JobSpec, ...],
) -> Workload:
    """The jobs with a measured profile; without `regimes` they keep their batch sizes."""
    profile = Profile(
        {
            (what.model, what.batch_size, kind, what.scale_factor): entry.steps_per_second
            for kind, some in measured.items()
            for entry in some
            for what in [entry.combination]
        },
        restarts=restarts_of(measured),
    )
    truths = []
    for spec in jobs:
        own = regimes.get(spec.job_id) or (Regime(spec.batch_size, spec.epochs),)
        seconds = sum(r.epochs * epoch_seconds(profile, spec, r.batch_size) for r in own)
        truths.append(GroundTruth(spec.job_id, seconds, own, own))
    return Workload("fidelity", jobs, tuple(truths), profile)


def regimes_of(folder: Path, run: str) -> dict[int, tuple[Regime, ...]]:
    """The batch sizes that each job went through."""
    sizes: dict[int, list[int]] = {}
    for record, _ in Reader(folder).records(run):
        for report in record.reports:
            sizes.setdefault(report.job_id, []).extend([report.batch_size] * report.epochs)
    return {
        job: tuple(Regime(size, len(list(same))) for size, same in groupby(each))
        for job, each in sizes.items()
    }


def row_of(folder: Path, real: str, simulated: str) -> dict[str, float]:
    """Figures of a run and of its simulation, and ratios of simulated to real ones."""
    names = "makespan_s, mean_jct_s, preemptions, rounds"
    query = f"SELECT run, {names} FROM run_summary"
    trained = "SELECT run, sum(seconds) FROM usage GROUP BY run"
    seconds = dict(Analytics(folder).query(trained)[1])
    figures = {row[0]: row[1:] for row in Analytics(folder).query(query)[1]}
    row = {"training_ratio": round(seconds[simulated] / seconds[real], 4)}
    for place, name in enumerate(names.split(", ")):
        row[f"real_{name}"] = round(figures[real][place], 2)
        row[f"simulated_{name}"] = round(figures[simulated][place], 2)
    for run, kind in ((real, "real"), (simulated, "simulated")):
        row |= {f"{kind}_{name}": seconds for name, seconds in _parts(folder, run).items()}
    for name in ("makespan_s", "mean_jct_s"):
        row[f"{name}_ratio"] = round(row[f"simulated_{name}"] / row[f"real_{name}"], 4)
    return row


def _parts(folder: Path, run: str) -> dict[str, float]:
    """The parts of a mean JCT in seconds: time waited, trained, and lost in leases.

    Time is lost to starts, and between the last step and its detection.
    """
    query = """
        SELECT mean(waiting_seconds), mean(run_seconds),
            mean(jct_seconds - waiting_seconds - run_seconds)
        FROM job_outcomes"""
    ((waited, trained, lost),) = Analytics(folder).query(query, [run])[1]
    return {"waited_s": round(waited, 2), "trained_s": round(trained, 2), "lost_s": round(lost, 2)}


def go_first() -> None:
    """Give containers priority over all other processes, within their quotas."""
    second = (CONTROL / "cgroup.controllers").exists()
    group = CONTROL / GROUP if second else CONTROL / "cpu" / GROUP
    group.mkdir(exist_ok=True)
    if second:
        (group / "cpu.weight").write_text(str(MOST_WEIGHT))
    else:
        (group / "cpu.shares").write_text(str(MOST_SHARES))


def take_processors() -> str:
    """Leave the first processor to containers; return what this machine lacks, in words."""
    processors = sorted(os.sched_getaffinity(0))
    if lacking := missing() or "one processor is too few" * (len(processors) < 2):
        return lacking
    os.sched_setaffinity(0, processors[1:])
    os.nice(NICE)
    return ""


@contextmanager
def emulate(sizes: Mapping[str, tuple[float, int]]) -> Iterator[Nodes]:
    """Nodes of emulated GPUs, which go first on the processor that was left to them.

    Args:
        sizes: By GPU type, the quota of a GPU and the number of them.
    """
    with dockerd(f"--cgroup-parent=/{GROUP}") as daemon, TemporaryDirectory() as storage:
        Path(storage).chmod(0o755)
        go_first()
        plain = cluster(daemon, Path(storage) / "jobs")
        nodes = tuple(
            replace(
                plain.nodes[0],
                name=kind,
                gpu_type=kind,
                gpus=(Gpu(cpus=cpus, cpuset=str(FIRST)),) * count,
            )
            for kind, (cpus, count) in sizes.items()
        )
        yield replace(plain, nodes=nodes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--mixed", action="store_true", help="on GPUs of two speeds")
    parser.add_argument("--measured", type=Path, help="what an earlier run printed")
    parser.add_argument("--warehouse", type=Path, help="folder that keeps the records")
    parser.add_argument("--driver", choices=("plain", "prefect"), default="prefect")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()

    if lacking := take_processors():
        print(f"error: {lacking}", file=sys.stderr)
        return 2

    def report(text: str) -> None:
        if not asked.json:
            print(text, flush=True)

    sizes = {"fast": (FAST, 2), "slow": (SLOW, 2)} if asked.mixed else {"cpu": (CPUS, 4)}
    with (
        emulate(sizes) as nodes,
        embedded_prefect(),
        run_own_server(),
        open_prefect_driver() as in_prefect,
    ):
        driver = run_round if asked.driver == "plain" else in_prefect
        folder = asked.warehouse or nodes.storage.parent / "warehouse"
        rows, amiss = fidelity(nodes, folder, asked.runs, driver, report, asked.measured)
    ratios = {name: median(row[name] for row in rows) for name in rows[0] if "ratio" in name}
    print(json.dumps({"runs": rows, **ratios, "amiss": amiss}) if asked.json else ratios)
    if not asked.json:
        print("\n".join(amiss) or "losses as of the undisturbed jobs, batch sizes changed")
    return int(bool(amiss) or any(abs(ratio - 1.0) > MOST_OFF for ratio in ratios.values()))


if __name__ == "__main__":
    sys.exit(main())
