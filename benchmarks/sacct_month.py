"""Times `shockwave hindsight` on a made-up month of a Slurm cluster, as `sacct` prints it.

    python -m benchmarks.sacct_month [--jobs 30000] [--gpus 512] [--policies shockwave,fifo,…]

Jobs start first in, first out, with backfilling among the first hundred that wait, so waits are
those of a queue. The rows have what exports have: steps, requeues, tasks of arrays, jobs that were
cancelled while they waited, and jobs without GPUs.
"""

import argparse
import heapq
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter

import numpy as np

COLUMNS = (
    *("JobIDRaw", "JobID", "JobName", "User", "Account", "QOS", "Partition", "State", "ExitCode"),
    *("Submit", "Eligible", "Start", "End", "ElapsedRaw", "TimelimitRaw", "ReqTRES", "AllocTRES"),
    *("NNodes", "NodeList"),
)
MONTH = 30 * 86_400
BEGIN = datetime(2026, 10, 1, tzinfo=UTC).timestamp()
PER_NODE = 8
GANGS, WEIGHTS = (1, 2, 4, 8, 16, 32), (0.56, 0.14, 0.12, 0.13, 0.035, 0.015)
MEAN_SECONDS, SPREAD = 4_000.0, 1.9
"""Median run time, and the standard deviation of its logarithm."""


@dataclass(slots=True)
class MonthJob:
    """A job of the month; times are seconds since its begin."""

    number: int
    user: str
    account: str
    submit: float
    seconds: float
    gpus: int
    state: str
    start: float = -1.0


def draw_month(jobs: int, gpus: int, load: float, rng: np.random.Generator) -> list[MonthJob]:
    """Draw jobs whose work is a share of what the cluster can do in a month, and start them."""
    gangs = rng.choice(GANGS, jobs, p=WEIGHTS)
    seconds = np.clip(rng.lognormal(np.log(MEAN_SECONDS), SPREAD, jobs), 5, 4 * 86_400)
    seconds *= load * gpus * MONTH / float(gangs @ seconds)
    hours = np.arange(24 * 30)
    busy = 1.0 + 0.7 * np.sin((hours % 24 - 8) / 24 * 2 * np.pi)
    busy *= np.where(hours // 24 % 7 >= 5, 0.5, 1.0)
    at = rng.choice(hours, jobs, p=busy / busy.sum()) * 3_600 + rng.uniform(0, 3_600, jobs)
    people = rng.zipf(1.6, jobs) % 60
    states = rng.choice(
        ["COMPLETED", "FAILED", "CANCELLED by 1042", "TIMEOUT"], jobs, p=[0.72, 0.14, 0.1, 0.04]
    )
    made = [
        MonthJob(
            10_000 + n, f"u{who:02}", f"group{who % 7}", float(t), float(s), int(g), str(state)
        )
        for n, (t, who, s, g, state) in enumerate(
            zip(np.sort(at), people, np.ceil(seconds), gangs, states, strict=True)
        )
    ]
    _start_all(made, gpus)
    return made


def _start_all(jobs: list[MonthJob], gpus: int) -> None:
    """Start jobs in their order, and those behind a job that does not fit if they end in time."""
    waiting: deque[MonthJob] = deque()
    ends: list[tuple[float, int]] = []
    free, coming = gpus, deque(jobs)
    while waiting or coming:
        now = min(ends[0][0] if ends else np.inf, coming[0].submit if coming else np.inf)
        while ends and ends[0][0] <= now:
            free += heapq.heappop(ends)[1]
        while coming and coming[0].submit <= now:
            waiting.append(coming.popleft())
        left, shadow = free, np.inf
        for job in list(waiting)[:100]:
            if job.gpus <= free and (shadow == np.inf or now + job.seconds <= shadow):
                job.start = float(np.ceil(now))
                free -= job.gpus
                heapq.heappush(ends, (job.start + job.seconds, job.gpus))
                waiting.remove(job)
            elif shadow == np.inf:
                left = free
                for end, held in sorted(ends):
                    left += held
                    if left >= job.gpus:
                        shadow = end
                        break


def write_month(path: Path, jobs: int, gpus: int, load: float = 0.9, seed: int = 0) -> None:
    """Write the rows of a month."""
    rng = np.random.default_rng(seed)
    month = draw_month(jobs, gpus, load, rng)
    with path.open("w", encoding="utf-8") as file:
        file.write("|".join(COLUMNS) + "\n")
        for job in month:
            for row in _rows(job, rng):
                file.write("|".join(row) + "\n")


def _rows(job: MonthJob, rng: np.random.Generator) -> Iterator[list[str]]:
    nodes = -(-job.gpus // PER_NODE)
    first = int(rng.integers(1, 64))
    places = f"n{first}" if nodes == 1 else f"n[{first}-{first + nodes - 1}]"
    tres = f"billing={job.gpus},cpu={4 * job.gpus},gres/gpu:a100={job.gpus},gres/gpu={job.gpus}"
    tres += f",mem={32 * job.gpus}G,node={nodes}"
    end, kind = job.start + job.seconds, rng.random()
    base = {
        "JobIDRaw": str(job.number),
        "JobID": str(job.number)
        if kind > 0.1
        else f"{job.number - job.number % 10}_{job.number % 10}",
        "JobName": f"train-{job.user}-{job.number % 17}",
        "User": job.user,
        "Account": job.account,
        "QOS": "normal",
        "Partition": "gpu",
        "State": job.state,
        "ExitCode": "0:0" if job.state == "COMPLETED" else "1:0",
        "Submit": _time(job.submit),
        "Eligible": _time(job.submit),
        "Start": _time(job.start),
        "End": _time(end),
        "ElapsedRaw": f"{job.seconds:.0f}",
        "TimelimitRaw": "5760",
        "ReqTRES": tres,
        "AllocTRES": tres,
        "NNodes": str(nodes),
        "NodeList": places,
    }
    lone = {"JobIDRaw": f"{job.number + 900_000}", "JobID": f"{job.number + 900_000}"}
    if kind > 0.99:  # cancelled while it waited
        gone = {"State": "CANCELLED by 1042", "Start": "None", "NodeList": "None assigned"}
        yield _row(base | lone | gone | {"AllocTRES": "", "ElapsedRaw": "0"})
    elif kind > 0.97:
        yield _row(base | lone | {"ReqTRES": "cpu=8,mem=32G", "AllocTRES": "cpu=8,mem=32G"})
    if kind < 0.01 and job.seconds > 7_200:  # a node failed, and the job ran again
        at = job.start + job.seconds // 2
        rest = {"Submit": _time(at), "Start": _time(at), "ElapsedRaw": f"{end - at:.0f}"}
        yield _row(
            base | {"State": "NODE_FAIL", "End": _time(at), "ElapsedRaw": f"{at - job.start:.0f}"}
        )
        yield _row(base | rest)
    else:
        yield _row(base)
    step = {"JobIDRaw": f"{job.number}.batch", "JobID": f"{base['JobID']}.batch"}
    yield _row(base | step | {"JobName": "batch", "User": "", "QOS": "", "Partition": ""})


def _row(fields: dict[str, str]) -> list[str]:
    return [fields[column] for column in COLUMNS]


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(BEGIN + int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%S")


def main() -> None:
    """Write a month, compare policies on it, and print what that took."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=30_000)
    parser.add_argument("--gpus", type=int, default=512)
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--policies", default="shockwave,fifo,srtf,tiresias-las,gavel")
    asked = parser.parse_args()
    if asked.gpus < max(GANGS):
        parser.error(f"--gpus: the largest jobs have {max(GANGS)} GPUs")
    with tempfile.TemporaryDirectory() as folder:
        month = Path(folder) / "month.txt"
        write_month(month, asked.jobs, asked.gpus, asked.load)
        command = [str(Path(sys.executable).with_name("shockwave")), "hindsight", str(month)]
        command += ["--policies", asked.policies, "--warehouse", str(Path(folder) / "warehouse")]
        begun = perf_counter()
        subprocess.run(command, check=True)
        wall, used = perf_counter() - begun, getrusage(RUSAGE_CHILDREN)
    print(
        f"{wall:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processor time, "
        f"{used.ru_maxrss / 2**20:.2f} GiB in the largest process"
    )


if __name__ == "__main__":
    main()
