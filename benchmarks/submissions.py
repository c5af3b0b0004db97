"""Submissions through the API of a service: how long each takes, and that none is lost.

    python benchmarks/submissions.py [--rate 200] [--seconds 30] [--url URL --token TOKEN] [--json]

Without a URL it starts a service of its own on a virtual cluster and a free port, in a temporary
folder. Submissions begin at their rate whether earlier ones are answered or not, each with a key
of its own; one in ten is sent twice, and so is what a lost connection leaves in doubt. Shown are
the latencies of the answers in milliseconds; jobs that were acknowledged and are not in the
service's list, or twice; and the rounds that were late.
"""

import argparse
import asyncio
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx

from harness.up import PROGRAM, ready

JOB = {"model": "conv-small", "batch_size": 32, "epochs": 5}
CONNECTIONS = 64
RETRIES = 5


def main() -> None:
    options = parse()
    with reached(options) as (url, token):
        figures = asyncio.run(submitted(url, token, options.rate, options.seconds))
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
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


@contextmanager
def reached(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """The address of a service and a token."""
    if options.url:
        yield options.url, options.token
        return
    with tempfile.TemporaryDirectory() as folder, ready(Path(folder)) as up:
        add = [PROGRAM, "token", "add", "load", "--role", "operator", "--warehouse", up.warehouse]
        token = subprocess.run(add, check=True, capture_output=True, text=True).stdout.strip()
        yield up.url, token


async def submitted(url: str, token: str, rate: int, seconds: int) -> dict[str, Any]:
    """Submit at a rate, then compare with what the service has."""
    bearer = {"Authorization": f"Bearer {token}"}
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    seed = time.time_ns()
    async with httpx.AsyncClient(
        base_url=f"{url}/v1", headers=bearer, limits=limits, timeout=120.0
    ) as client:

        async def submit(number: int) -> tuple[float, int, int]:
            began = time.perf_counter()
            key = {"Idempotency-Key": f"{seed}.{number - number % 10 // 9}"}
            for _ in range(RETRIES):  # a connection that the server has just closed
                try:
                    answer = await client.post("/jobs", json=JOB, headers=key)
                    break
                except httpx.TransportError:
                    continue
            else:
                return time.perf_counter() - began, 0, -1
            taken = time.perf_counter() - began
            job = answer.json()["job_id"] if answer.status_code == 201 else -1
            return taken, answer.status_code, job

        asked, began = [], time.perf_counter()
        for number in range(rate * seconds):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            asked.append(asyncio.create_task(submit(number)))
        found = await asyncio.gather(*asked)
        whole = time.perf_counter() - began
        listed = [row["job_id"] for row in (await client.get("/jobs")).json()]
        status = (await client.get("/status")).json()
    refused = [code for _, code, _ in found if code != 201]
    acknowledged = {job for _, code, job in found if code == 201}
    cuts = quantiles((taken * 1e3 for taken, _, _ in found), n=100)
    expected = sum(number % 10 != 9 for number in range(rate * seconds))
    return {
        "submissions": len(found),
        "seconds": round(whole, 1),
        "refused": len(refused),
        "lost": len(acknowledged - {*listed}),
        "doubled": len(listed) - len({*listed}) + max(0, len(acknowledged) - expected),
        "p50_ms": round(cuts[49], 1),
        "p99_ms": round(cuts[98], 1),
        "most_ms": round(max(taken for taken, _, _ in found) * 1e3, 1),
        "late_rounds": status["late"],
    }


if __name__ == "__main__":
    main()
