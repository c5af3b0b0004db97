"""Questions to a service with many active jobs, and what they cost its rounds.

    python -m benchmarks.questions [--jobs 1000] [--gpus 512] [--speed 12] [--questions 100]
        [--rounds 8] [--json]

`shockwave up` serves jobs that outlast it on a virtual cluster, in rounds of 120 / SPEED seconds.
Its API and its page are asked by turns, each time about another job. Rows of questions have the
wall time of answers, and the mean processor time of the server meanwhile. Rows of rounds have
means: of ROUNDS rounds without questions while the process that forecasts is stopped, and of the
rounds while it forecasts and questions are asked. Their processor time is the scheduler's; their
wall time is that of the steps after the wait for the round.
"""

import argparse
import os
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import mean, median, quantiles
from typing import Any

import httpx

from benchmarks.live_round import job
from flows.api.job_history import RoundTimings
from flows.api.round_forecasts import FILE
from flows.cli.output import print_rows
from harness.up import Up, ready
from harness.waiting import wait_for
from warehouse.inbox.inbox import Inbox
from warehouse.store.reader import Reader

QUESTIONS = {
    "queue": "/v1/queue",
    "page": "/live",
    "job page": "/live/jobs/{job}",
    "why": "/v1/jobs/{job}/why",
}
"""Addresses that are asked."""


def main() -> None:
    options = parse()
    size = ("--gpus", str(options.gpus), "--gpus-per-node", "8", "--speed", str(options.speed))
    with (
        tempfile.TemporaryDirectory() as folder,
        ready(Path(folder), *size, "--driver", "plain") as up,
        Inbox(up.warehouse) as inbox,
    ):
        rng = Random(0)
        jobs = [
            replace(job(rng), epochs=rng.randint(200, 2_000), total_steps=0)
            for _ in range(options.jobs)
        ]
        inbox.submit_all(jobs)
        count = Rounds(up, inbox.run)
        wait_for((up.warehouse / FILE).exists)
        os.kill(count.forecaster, signal.SIGSTOP)
        alone = count.measure(lambda: count.wait(options.rounds))
        os.kill(count.forecaster, signal.SIGCONT)
        took, cost, ages = dict[str, list[float]](), defaultdict[str, float](float), list[float]()
        asked = count.measure(lambda: ask(up, options, count.server, took, cost, ages))
    rows: list[dict[str, Any]] = [
        {
            "question": name,
            "median_s": median(seconds),
            "p95_s": quantiles(seconds, n=20)[-1],
            "worst_s": max(seconds),
            "cpu_ms": 1e3 * cost[name] / len(seconds),
        }
        for name, seconds in took.items()
    ]
    print_rows(rows, options.json)
    print_rows([{"rounds": "alone"} | alone, {"rounds": "asked"} | asked], options.json)
    print_rows([{"oldest_forecast_s": max(ages)}], options.json)


def ask(
    up: Up,
    options: argparse.Namespace,
    server: int,
    took: dict[str, list[float]],
    cost: dict[str, float],
    ages: list[float],
) -> None:
    """Ask every question as often as wanted; keep times of answers and of the server's work."""
    user, _, password = up.access.secret.partition(":")
    with httpx.Client(base_url=up.url, timeout=600.0, auth=(user, password)) as client:
        origin = {"Origin": up.url}
        client.post("/live/login", data={"token": up.access.secret}, headers=origin)
        for number in range(options.questions):
            for name, path in QUESTIONS.items():
                began, cpu = time.perf_counter(), processor_seconds(server)
                answer = client.get(path.format(job=1 + number * 7 % options.jobs))
                took.setdefault(name, []).append(time.perf_counter() - began)
                cost[name] += processor_seconds(server) - cpu
                answer.raise_for_status()
                if name == "queue":
                    ages += [row["forecast_age_s"] or 0.0 for row in answer.json()]
            time.sleep(options.rounds * 120.0 / options.speed / options.questions)


class Rounds:
    """The rounds of a service under way."""

    def __init__(self, up: Up, run: str) -> None:
        self._reader, self._run = Reader(up.warehouse), run
        lines = {n: Path(f"/proc/{n}/cmdline").read_bytes() for n in up.descendants()}
        (self.forecaster,) = (n for n, line in lines.items() if b"flows.api.forecaster" in line)
        (self._scheduler,) = (n for n, line in lines.items() if b"scheduler.scheduler" in line)
        (self.server,) = (n for n, line in lines.items() if b"flows.supervisor.app" in line)

    def _read(self, first: int = 0) -> list[RoundTimings]:
        return self._reader.parts(self._run, RoundTimings, first)

    def wait(self, more: int) -> None:
        """Wait for further rounds."""
        known = len(self._read())
        wait_for(lambda: len(self._read(known)) >= more, every=1.0)

    def measure(self, work: Callable[[], None]) -> dict[str, float]:
        """Mean cost of the rounds during some work, from the start of a round on."""
        self.wait(1)
        first, cpu = len(self._read()), processor_seconds(self._scheduler)
        work()
        self.wait(1)
        rounds, cpu = self._read(first), processor_seconds(self._scheduler) - cpu
        steps = ("predict_ms", "solve_ms", "dispatch_ms")
        wall = mean(sum(getattr(row.timings, step) for step in steps) for row in rounds)
        return {"number": len(rounds), "cpu_ms": 1e3 * cpu / len(rounds), "wall_ms": wall}


def processor_seconds(process: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--gpus", type=int, default=512)
    parser.add_argument("--speed", type=float, default=12.0)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", action="store_true", help="print JSON objects")
    return parser.parse_args()


if __name__ == "__main__":
    main()
