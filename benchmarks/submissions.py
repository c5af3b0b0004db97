"""Submissions through the API of a service: latency, and that none is lost.

    python -m benchmarks.submissions [--rate 200] [--seconds 30] [--speed 6] [--database-url URL]
        [--url URL --token TOKEN] [--json]

Without a URL it starts a service of its own on a virtual cluster and a free port, in a temporary
folder, with the inbox in SQLite or in an empty Postgres database; a round takes 120 s by its
clock. Once its first round is over, submissions begin at their rate whether earlier ones are
answered or not, each with its own key; one in ten is sent twice, and so are requests whose
connection was lost. Shown are the latencies of the answers in milliseconds, and the
server's processor time for each; jobs that were acknowledged and are not in the service's list, or
twice; and, once all are taken in, the rounds, and those that were late.
"""

import argparse
import asyncio
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import quantiles
from typing import Any

import aiohttp

from harness.up import ready
from warehouse.inbox.tokens import Role, Tokens

JOB = {"model": "conv-small", "batch_size": 32, "epochs": 5}
CONNECTIONS = 64
RETRIES = 5
SETTLE_SECONDS = 5.0
"""After the first round of a service, whose start has files flushed by the hundred."""


def main() -> None:
    options = parse()
    with reached(options) as (url, token, server):
        figures = asyncio.run(submitted(url, token, server, options.rate, options.seconds))
    if options.json:
        print(json.dumps(figures))
    else:
        print("\n".join(f"{name:>12}  {value}" for name, value in figures.items()))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rate", type=int, default=200, help="submissions a second")
    parser.add_argument("--seconds", type=int, default=30, help="for how long")
    parser.add_argument("--url", default="", help="address of a service")
    parser.add_argument("--token", default="", help="a token of its, of an operator")
    parser.add_argument("--database-url", default="", help="Postgres, else SQLite")
    parser.add_argument("--speed", type=float, default=6.0, help="of the service's clock")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


@contextmanager
def reached(options: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    """The address of a service, a token, and the server's process, 0 if it is not known."""
    if options.url:
        yield options.url, options.token, 0
        return
    speed = ("--speed", str(options.speed))
    database = ("--database-url", options.database_url) if options.database_url else ()
    with tempfile.TemporaryDirectory() as folder, ready(Path(folder), *speed, *database) as up:
        with Tokens(up.warehouse, options.database_url) as tokens:
            token = tokens.add(f"load {time.time_ns()}", Role.OPERATOR)
        (server,) = (
            number
            for number in up.descendants()
            if b"uvicorn" in Path(f"/proc/{number}/cmdline").read_bytes()
        )
        yield up.url, token, server


def processor_seconds(process: int) -> float:
    """What a process has used."""
    if not process:
        return math.nan
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


async def submitted(url: str, token: str, process: int, rate: int, seconds: int) -> dict[str, Any]:
    """Submit at a rate, then compare with the service's list."""
    bearer, seed = {"Authorization": f"Bearer {token}"}, time.time_ns()
    pool, limit = aiohttp.TCPConnector(limit=CONNECTIONS), aiohttp.ClientTimeout(120.0)
    async with aiohttp.ClientSession(connector=pool, headers=bearer, timeout=limit) as client:

        async def submit(number: int) -> tuple[float, int, int]:
            began = time.perf_counter()
            key = {"Idempotency-Key": f"{seed}.{number - number % 10 // 9}"}
            for _ in range(RETRIES):  # a connection that the server has just closed
                with suppress(aiohttp.ClientConnectionError):
                    async with client.post(f"{url}/v1/jobs", json=JOB, headers=key) as answer:
                        content = await answer.json()
                        return time.perf_counter() - began, answer.status, content.get("job_id", -1)
            return time.perf_counter() - began, 0, -1

        async def content_of(path: str) -> Any:
            async with client.get(f"{url}/v1/{path}") as answer:
                return await answer.json()

        await submit(-10)
        while not (await content_of("status"))["rounds"]:
            await asyncio.sleep(0.5)
        await asyncio.sleep(SETTLE_SECONDS)
        asked, began, used = [], time.perf_counter(), processor_seconds(process)
        for number in range(rate * seconds):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            asked.append(asyncio.create_task(submit(number)))
        answers = await asyncio.gather(*asked)
        whole, used = time.perf_counter() - began, processor_seconds(process) - used
        listed = [row["job_id"] for row in (await content_of("jobs"))[1:]]
        while (status := await content_of("status"))["pending"]:
            await asyncio.sleep(0.5)
    refused = [code for _, code, _ in answers if code != 201]
    acknowledged = {job for _, code, job in answers if code == 201}
    cuts = quantiles((taken * 1e3 for taken, _, _ in answers), n=100)
    expected = sum(number % 10 != 9 for number in range(rate * seconds))
    return {
        "submissions": len(answers),
        "seconds": round(whole, 1),
        "refused": len(refused),
        "lost": len(acknowledged - {*listed}),
        "doubled": len(listed) - len({*listed}) + max(0, len(acknowledged) - expected),
        "server_ms": round(used * 1e3 / len(answers), 2),
        "p50_ms": round(cuts[49], 1),
        "p99_ms": round(cuts[98], 1),
        "most_ms": round(max(taken for taken, _, _ in answers) * 1e3, 1),
        "rounds": status["rounds"],
        "late_rounds": status["late"],
    }


if __name__ == "__main__":
    main()
