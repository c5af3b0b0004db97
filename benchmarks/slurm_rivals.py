"""Slurm's own scheduler against Shockwave, and the simulator, on the same short jobs.

    python -m benchmarks.slurm_rivals [--jobs 100] [--policies srtf,shockwave] [--seed 1]
        [--load 1.2]

Two users submit jobs of one to four GPUs to four nodes with 16 GPUs (`harness.slurm`), half of
which save on SIGTERM: first to Slurm with multifactor priorities, fair share and backfill, then to
a service with rounds of eight seconds, then the same to the simulator, where a job takes as long
as it ran, and rounds and starts what they took on Slurm. Time limits are whole minutes, as Slurm
has them. ρ is the JCT over that in an evenly shared cluster plus a round and a restart. Exits with
1 if the simulation is off by more than 5 %. Few other processes should run. Needs root and the
packages of `.ci/run`.
"""

import argparse
import math
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

from containers.runtime import EventKind
from containers.slurm.declaring import SLACK_SECONDS
from containers.virtual.truth import GroundTruth
from flows.runs.simulation import simulate
from flows.runs.start import make_start
from flows.scheduler.options import ServiceOptions
from harness.markdown import markdown
from harness.slurm import missing, slurm
from harness.slurm_files import GPUS, TYPES
from harness.slurm_users import TICK_SECONDS, UserJob, Users, read_file, scheduler
from predictor.allocation import Demand
from predictor.job import JobKind, Regime, make_timed_job
from predictor.throughput import Profile
from solver.inventory import Pool
from tasks.record import RuntimeKind, Settings
from tasks.sources import Workload
from warehouse.analytics.questions import Analytics
from warehouse.inbox.inbox import Inbox
from warehouse.store.reader import Reader

ROUND_SECONDS, RESTART_SECONDS = 8.0, 1.0
MOST_OFF = 0.05
"""Of the simulated mean JCT and makespan."""
WEIGHTS = {"PriorityWeightFairshare": "10000", "PriorityWeightAge": "1000"}
ALL_GPUS = GPUS * len(TYPES)


@dataclass(frozen=True, slots=True)
class ShortJob:
    """A job, its GPUs, its limit in minutes and its arrival in seconds."""

    job: UserJob
    gpus: int
    minutes: int
    arrival: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds by job: from its submission to its end, and for which its processes ran."""

    jct: list[float]
    ran: list[float]
    makespan: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--policies", default="srtf,shockwave")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--load", type=float, default=1.2)
    options = parser.parse_args()
    if lacking := missing():
        print(f"left out: {lacking}")
        return
    loaded = os.getloadavg()[2]
    jobs = make_short_jobs(options.jobs, options.seed, options.load)
    rows, said, off = [], list[str](), list[str]()
    with tempfile.TemporaryDirectory(dir="/tmp") as text:
        folder = Path(text)
        folder.chmod(0o755)
        with slurm(**WEIGHTS) as lab:
            lab.run("sacctmgr", "-i", "modify", "qos", "wait", "set", "GrpJobs=-1")
            theirs = play(Users.of(lab, folder / "alone"), jobs)
            rows.append(row("Slurm", jobs, theirs))
            lab.run("sacctmgr", "-i", "modify", "qos", "wait", "set", "GrpJobs=0")
            for policy in options.policies.split(","):
                service = ServiceOptions(
                    policy=policy,
                    driver="plain",
                    partition="gpu",
                    round_seconds=ROUND_SECONDS,
                    restart_seconds=RESTART_SECONDS,
                )
                with scheduler(lab, folder / policy, service):
                    ours = play(Users.of(lab, folder / f"{policy}-jobs"), jobs)
                lab.clear()
                rows.append(row(policy, jobs, ours))
                times = measure_times(folder / policy, folder / f"{policy}-jobs", jobs)
                said.append(
                    f"{policy}: a round took {times.round_seconds:.2f} s, a start "
                    f"{times.start_seconds:.2f} s (mean of {times.starts})"
                )
                simulated = repeat(policy, jobs, ours, times, folder / "simulated")
                rows.append(row(f"{policy}, simulated", jobs, simulated))
                for what, real, again in (
                    ("mean JCT", fmean(ours.jct), fmean(simulated.jct)),
                    ("makespan", ours.makespan, simulated.makespan),
                ):
                    if abs(again / real - 1.0) > MOST_OFF:
                        off.append(f"{policy}: simulated {what} is {again / real - 1.0:+.1%} off")
    columns = ["System", "Mean JCT (s)", "Makespan (s)", "Mean ρ", "Worst ρ"]
    print(markdown(columns, rows), end="")
    loads = ", ".join(f"{load:.1f}" for load in (loaded, os.getloadavg()[2]))
    print("\n".join((*said, f"Load of the machine, over 15 minutes, before and after: {loads}.")))
    print("\n".join(off) or "The simulation is within 5 %.")
    sys.exit(bool(off))


def make_short_jobs(count: int, seed: int, load: float) -> list[ShortJob]:
    """Return jobs that arrive at random, so that they ask for a share of the GPUs, `load`."""
    generator, made, at = random.Random(seed), list[ShortJob](), 0.0
    for number in range(count):
        gpus = generator.choices((1, 2, 4), (60, 25, 15))[0]
        minutes = generator.choices((1, 2), (70, 30))[0]
        seconds = generator.uniform(10.0, 50.0) if minutes == 1 else generator.uniform(65.0, 110.0)
        saves = number % 2 == 0
        comment = ("--comment=shockwave:checkpointing",) if saves else ()
        job = UserJob(
            f"job-{number}",
            "saves" if saves else "plain",
            generator.choice(("alice", "bob")),
            (f"--gpus={gpus}", f"--time={minutes}", *comment),
            round(seconds / TICK_SECONDS),
        )
        made.append(ShortJob(job, gpus, minutes, at))
        at += generator.expovariate(1.0) * gpus * seconds / ALL_GPUS / load
    return made


def now() -> float:
    """Seconds since the machine started, as jobs write them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def play(users: Users, jobs: Sequence[ShortJob]) -> Outcome:
    """Submit jobs as they arrive, and wait for their ends."""
    began, submitted = now(), list[float]()
    for one in jobs:
        time.sleep(max(began + one.arrival - now(), 0.0))
        submitted.append(now())
        users.submit(one.job)
    while users.active():
        time.sleep(1.0)
    ran = [read_file(users.folder / one.job.name)[0] for one in jobs]
    ends = [processes[-1].ended for processes in ran]
    held = [sum(one.ended - one.began for one in processes) for processes in ran]
    jct = [end - at for end, at in zip(ends, submitted, strict=True)]
    return Outcome(jct, held, max(ends) - began)


@dataclass(frozen=True, slots=True)
class Times:
    """What a service on Slurm took: the median round, and the mean start of a job in seconds.

    Attributes:
        round_seconds: From one observation to the next, of rounds that were not cut short.
        start_seconds: From a lease to the first line of its job, over `starts` of them.
    """

    round_seconds: float
    start_seconds: float
    starts: int


def measure_times(warehouse: Path, folder: Path, jobs: Sequence[ShortJob]) -> Times:
    """Compare the records of a service with what its jobs wrote."""
    with Inbox(warehouse) as inbox:
        run = inbox.run
    assert run
    reader = Reader(warehouse)
    records = [record for record, _ in reader.records(run)]
    # Jobs write the seconds since the machine began, records those since the run did.
    began = reader.created_at(run).timestamp() - (time.time() - now())
    names = {spec.job_id: spec.name for record in records for spec in record.arrivals}
    leased = defaultdict[str, list[float]](list)
    for event in (event for record in records for event in record.events):
        if event.kind in (EventKind.STARTED, EventKind.RESUMED):
            leased[names[event.job_id]].append(began + event.at_seconds)
    starts = []
    for one in jobs:
        at = leased[one.job.name]
        for process in read_file(folder / one.job.name)[0]:
            before = [lease for lease in at if lease <= process.began]
            starts += [process.began - before[-1]] if before else []
    clocks = [record.clock_seconds for record in records]
    rounds = [after - before for before, after in pairwise(clocks)]
    whole = [seconds for seconds in rounds if seconds >= ROUND_SECONDS]
    return Times(median(whole), fmean(starts), len(starts))


def repeat(
    policy: str, jobs: Sequence[ShortJob], real: Outcome, times: Times, warehouse: Path
) -> Outcome:
    """Simulate the jobs, each as long as it ran."""
    pools = tuple(Pool(kind, GPUS * 2, GPUS) for kind in dict.fromkeys(TYPES.values()))
    profile = Profile(
        {(kind.value, 1, pool.gpu_type, 1): 1.0 for kind in JobKind for pool in pools}
    )
    once, specs, truths = (Regime(1, 1),), [], []
    for number, one in enumerate(jobs):
        kind = JobKind.CHECKPOINTING if one.job.saves else JobKind.OPAQUE
        limit = 60.0 * one.minutes + SLACK_SECONDS
        account = "research" if one.job.user == "alice" else "production"
        demand = Demand.gang(one.gpus)
        spec = make_timed_job(number, kind, demand, limit, one.arrival, tenant=account)
        specs.append(spec)
        truths.append(GroundTruth(number, real.ran[number], once, once))
    settings = Settings(
        policy,
        pools,
        round_seconds=times.round_seconds,
        restart_seconds=times.start_seconds,
        runtime=RuntimeKind.FAITHFUL,
    )
    workload = Workload("rivals", tuple(specs), tuple(truths), profile)
    run = simulate(make_start(workload, settings), warehouse)
    asked = "SELECT job_id, jct_seconds FROM job_outcomes ORDER BY job_id"
    _, found = Analytics(warehouse).query(asked, [run])
    jct = [float(seconds) for _, seconds in found]
    ends = [one.arrival + seconds for one, seconds in zip(jobs, jct, strict=True)]
    return Outcome(jct, real.ran, max(ends))


def share_evenly(jobs: Sequence[ShortJob], seconds: Sequence[float]) -> list[float]:
    """Return the JCTs in an evenly shared cluster: all present jobs train at the same rate."""
    left, ends, clock = dict[int, float](), dict[int, float](), 0.0
    arrivals = [one.arrival for one in jobs] + [math.inf]
    following = 0
    while len(ends) < len(jobs):
        rate = min(1.0, ALL_GPUS / max(sum(jobs[job].gpus for job in left), 1))
        until = min((clock + most / rate for most in left.values()), default=math.inf)
        until = min(until, arrivals[following])
        left = {job: most - rate * (until - clock) for job, most in left.items()}
        clock = until
        for job in [job for job, most in left.items() if most <= 1e-9]:
            ends[job] = clock
            del left[job]
        if clock == arrivals[following]:
            left[following] = seconds[following]
            following += 1
    return [ends[number] - one.arrival for number, one in enumerate(jobs)]


def row(name: str, jobs: Sequence[ShortJob], outcome: Outcome) -> list[str]:
    """Return a row of the table."""
    even = share_evenly(jobs, [one.job.ticks * TICK_SECONDS for one in jobs])
    slack = ROUND_SECONDS + RESTART_SECONDS
    rho = [jct / (fair + slack) for jct, fair in zip(outcome.jct, even, strict=True)]
    figures = (fmean(outcome.jct), outcome.makespan)
    return [name, *(f"{it:,.0f}" for it in figures), f"{fmean(rho):.2f}", f"{max(rho):.2f}"]


if __name__ == "__main__":
    main()
