"""Rounds of a service with many active jobs, through Prefect, with everything recorded.

    python -m benchmarks.live_round [--jobs 900] [--gpus 256] [--rounds 5] [--driver prefect]
        [--sqlite] [--json]

Jobs that outlast it are handed to the inbox of a service on a virtual cluster, and its rounds are
driven as `shockwave up` drives them, without the waits between them. Inbox and Prefect's server
have a Postgres of their own, or SQLite. A round is the whole flow run, with the question before it
whether users paused the service. Its processor time is that of the scheduler; that of the server is
apart, and it includes work of earlier rounds, which the server does later. Requests are those of
the scheduler to the server. The first round, which takes all jobs in, has a row of its own; the
other row has the means of the others.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import httpx

from flows.cli.output import print_table
from flows.scheduler.options import ServiceOptions
from flows.scheduler.scheduler import open_run, schedule
from harness.postgres import postgres
from predictor.allocation import Demand
from predictor.job import JobSpec, Mode
from tasks.round import RecordedRound, run_round
from tasks.run import Run
from warehouse.inbox.inbox import Inbox

SPEED = 100_000.0
"""Seconds of the service in a second: so many that no round waits for its time."""


FAMILIES = (("conv-small", 40_000, 32, 256), ("translator", 16_000, 16, 128))
"""Models with samples per epoch, batch size and largest batch size."""


def job(rng: Random) -> JobSpec:
    """A short job: one to some three rounds."""
    model, samples, batch, most = rng.choice(FAMILIES)
    demand, mode = Demand.gang(rng.choice((1, 1, 1, 2, 2, 4))), rng.choice([*Mode])
    spec = JobSpec(0, model, batch, most, demand, mode, rng.randint(3, 8), samples, 0.0)
    return replace(spec, tenant=rng.choice("abcde"))


def main() -> None:
    options = parse()
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        url = "" if options.sqlite else opened.enter_context(postgres()).url
        os.environ["PREFECT_HOME"] = str(folder / "home")
        if url:
            os.environ["PREFECT_API_DATABASE_CONNECTION_URL"] = url
        rounds = opened.enter_context(taken(folder / "warehouse", url, options))
    shown = [rounds[0], {name: mean(row[name] for row in rounds[1:]) for name in rounds[0]}]
    if options.json:
        print(json.dumps(shown))
    else:
        cells = [[f"{value:,.0f}" for value in row.values()] for row in shown]
        print_table(["", *shown[0]], [["first", *cells[0]], ["others", *cells[1]]])


@contextmanager
def taken(
    warehouse: Path, url: str, options: argparse.Namespace
) -> Iterator[list[dict[str, float]]]:
    """Milliseconds of each round, of its steps, and of processor time."""
    service = ServiceOptions(gpus=options.gpus, gpus_per_node=4, speed=SPEED, driver=options.driver)
    rng = Random(0)
    jobs = [replace(job(rng), epochs=200_000, total_steps=0) for _ in range(options.jobs)]
    rows = list[dict[str, float]]()
    with Inbox(warehouse, url) as inbox, open_run(warehouse, inbox, service) as run:
        inbox.submit_all(jobs)
        waited = list[float]()
        advance = run.runtime.advance

        def wait(idle_until: float | None) -> None:
            began = time.perf_counter()
            advance(idle_until)
            waited.append(time.perf_counter() - began)

        run.runtime.advance = wait  # type: ignore[method-assign]
        seconds = service.round_seconds / SPEED
        with driving(options.driver, seconds) as (drive, ask), counted_requests() as requests:

            def driver(run: Run) -> RecordedRound:
                waited.clear()
                requests.clear()
                began, cpu, server = time.perf_counter(), time.process_time(), children_seconds()
                ask()
                this = drive(run)
                seconds = time.perf_counter() - began - sum(waited)
                rows.append(
                    {
                        "jobs": len(this.active),
                        "round ms": seconds * 1e3,
                        "cpu ms": (time.process_time() - cpu) * 1e3,
                        "server cpu ms": (children_seconds() - server) * 1e3,
                        "requests": len(requests),
                        **{
                            f"{name.removesuffix('_ms')} ms": took
                            for name, took in asdict(this.timings).items()
                        },
                    }
                )
                return this

            schedule(run, warehouse, driver, rounds=options.rounds)
    yield rows


def children_seconds() -> float:
    """Processor time so far of this process's children, such as Prefect's server."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def counted_requests() -> Iterator[list[str]]:
    """Method and path of the requests of this process so far."""
    seen, send = list[str](), httpx.Client.send

    def count(client: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        seen.append(f"{request.method} {request.url.path}")
        return send(client, request, **options)

    httpx.Client.send = count  # type: ignore[method-assign,assignment]
    try:
        yield seen
    finally:
        httpx.Client.send = send  # type: ignore[method-assign]


@contextmanager
def driving(
    driver: str, seconds: float
) -> Iterator[tuple[Callable[[Run], RecordedRound], Callable[[], object]]]:
    """The driver of a service whose rounds take `seconds`, and what is asked before a round."""
    if driver == "plain":
        yield run_round, lambda: None
        return
    from flows.prefect_server.own_server import run_own_server
    from flows.prefect_server.prefect_driver import embedded_prefect, open_prefect_driver

    with (
        embedded_prefect(),
        run_own_server(),
        open_prefect_driver(seconds) as drive,
    ):
        assert drive.deployment
        yield drive, drive.deployment.read_request


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=900)
    parser.add_argument("--gpus", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--driver", choices=("prefect", "plain"), default="prefect")
    parser.add_argument("--sqlite", action="store_true", help="in place of Postgres")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


if __name__ == "__main__":
    main()
