"""A service whose Prefect server is away for an hour, accelerated.

    python -m harness.endurance.outage [--round-seconds 10] [--rounds 30] [--hung]

A service runs on a virtual cluster, with rounds of 120 s that take `--round-seconds` of wall time.
After two rounds its Prefect server is killed, or stopped so that it accepts requests and answers
none; it comes back after `--rounds` rounds. Timeouts and pauses are those of a service with such
short rounds, so they weigh more than in one with rounds of 120 s. Prints how late rounds began, and
what the service said.
"""

import argparse
import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import mean

from prefect.settings import PREFECT_HOME, temporary_settings

from flows.prefect_server.access import read_access
from flows.prefect_server.fallback import open_fallback_driver
from flows.prefect_server.own_server import apply_settings, run_plain_server
from flows.scheduler.options import ServiceOptions
from flows.scheduler.pause import Pause
from flows.scheduler.scheduler import open_run, schedule
from harness.up import find_server, free_port
from predictor.allocation import Demand
from predictor.job import JobSpec, Mode
from warehouse.inbox.inbox import Inbox

ROUND_SECONDS = 120.0
"""Length of a round on the service's clock."""

SETTLED = 2
"""Rounds before the outage."""

JOB = JobSpec(0, "conv-small", 32, 32, Demand.gang(1), Mode.STATIC, 5_000_000, 40_000, 0.0)


def main() -> int:
    options = parse()
    seconds, said = options.round_seconds, list[str]()
    service = ServiceOptions(gpus=8, speed=ROUND_SECONDS / seconds)
    late = list[float]()
    with tempfile.TemporaryDirectory() as name, ExitStack() as opened:
        warehouse, port = Path(name) / "warehouse", free_port()
        opened.enter_context(temporary_settings({PREFECT_HOME: Path(name) / "home"}))
        access = read_access(f"http://127.0.0.1:{port}")
        opened.enter_context(apply_settings(access.client_settings()))
        inbox = opened.enter_context(Inbox(warehouse))
        run = opened.enter_context(open_run(warehouse, inbox, service))
        driver = opened.enter_context(open_fallback_driver(seconds, said.append))
        first = opened.enter_context(ExitStack())
        first.enter_context(run_plain_server(port=port))
        inbox.submit_all([JOB] * 8)
        advance = run.runtime.advance

        def measured(idle_until: float | None) -> None:
            """Note how long ago the round should have begun when it first could."""
            pace = run.runtime.pace  # type: ignore[attr-defined]
            if run.state.leases:
                due = run.state.clock_seconds + ROUND_SECONDS
                late.append(max(0.0, pace.now() - due) / pace.speed)
            advance(idle_until)

        run.runtime.advance = measured  # type: ignore[method-assign]
        pause = Pause(inbox, driver.read_request)

        def go(rounds: int) -> None:
            schedule(run, warehouse, driver, rounds=rounds, may_begin=pause.may_begin)

        go(SETTLED)
        os.kill(find_server(os.getpid()), signal.SIGSTOP if options.hung else signal.SIGKILL)
        before = len(late)
        go(options.rounds)
        away = late[before:]
        if options.hung:
            os.kill(find_server(os.getpid()), signal.SIGCONT)
        else:
            first.close()
            opened.enter_context(run_plain_server(port=port))
        while len(said) < 2:  # until a pause between two tries is over
            go(1)
    print(
        f"{len(away)} rounds of {seconds:g} s without the server; a round could begin "
        f"{mean(away):.2f} s late on average, {max(away):.2f} s at most"
    )
    print(*said, sep="\n")
    return int(max(away) > 0.0)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--round-seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--hung", action="store_true", help="stop the server instead of killing it")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
