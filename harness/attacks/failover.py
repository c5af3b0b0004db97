"""Kills of a service: lost and doubled entries and rounds, and wrong accounts.

    python -m harness.attacks.failover [--kills 50] [--jobs 150] [--speed 120] [--seed 0]
        [--postgres] [--up SECONDS]

Two processes serve a warehouse in turn, as with `shockwave up --standby`: the leader has lock and
lease and drives the rounds of a service on eight virtual GPUs, the standby waits. At random
moments, during starts and rounds, the leader is killed with -9 or, one time in five, stopped with
SIGSTOP, which the standby detects by the lease; then it is started again as standby. Submitters
hand in jobs and commands meanwhile, with keys, and containers crash. `takeover_s` are the median
and the longest time from a kill to the next round on disk; a round of a real service lasts 120 s.
`lost_rounds` counts kills after which a round on disk has changed or is missing; `differs_s` is the
largest difference between two accounts of a tenant's GPU time, and `miscounted` counts those above
a second and missing accounts (`harness.soak.accounts`); the other figures are those of
`harness.soak.kept`.

With `--up`, `shockwave up` serves instead, and is started again whenever it ends. Within these
seconds, its processes are killed with -9 in volleys of 20, each time one of a kind that is drawn
first: the supervisor, Prefect's server with API and page, the deployments, the scheduler, the
forecasts. If none of a kind runs, the kill waits for one; after 10 s it takes another that the
supervisor started, and after 30 s the supervisor. Afterwards, the trial fails unless `status` says
that all run. No container crashes and GPUs have no price, because both are changes to a scheduler
of this process, and `shockwave up` starts its own.

Exit code 1 if a promise was broken, or a takeover took a round. With --json it prints one JSON
object.
"""

import argparse
import json
import math
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from threading import Event

from flows.api.commands import ServiceCommands
from flows.api.queries import ServiceQueries
from flows.cli.output import print_table
from flows.prefect_server.secret import read_secret
from flows.scheduler import leadership, scheduler
from flows.scheduler.options import ServiceOptions
from flows.scheduler.scheduler import open_run, schedule
from flows.scheduler.sinks import FencedSink
from harness.attacks.kills import forked
from harness.attacks.promises import Acknowledged
from harness.attacks.service_kills import LONG
from harness.postgres import postgres
from harness.soak.accounts import compare
from harness.soak.crashes import CrashingCluster
from harness.soak.hands import SUBMITTERS, agree, declared, end, keep, submitter
from harness.soak.kept import BAD, kept
from harness.soak.place import Gauge, Place, begun, server
from harness.soak.processes import Children, children
from harness.up import PROGRAM, Up, descendants, launch, outside
from harness.waiting import wait_for
from tasks.commands import CommandKind
from tasks.record import Settings
from tasks.round import Round, run_round
from tasks.run import Run
from warehouse.inbox.entries import SUBMIT
from warehouse.inbox.inbox import Inbox
from warehouse.inbox.lease import Leases
from warehouse.store.reader import Reader

GPUS = 8
LEASE_SECONDS = 2.0
ROUND_SECONDS = 120.0
MEMBERS = ("first", "second")
PRICE = 2.5

KINDS = {
    "server": b"flows.supervisor.app:create_app",
    "deployments": b"flows.deployments.serving",
    "scheduler": b"flows.scheduler.scheduler",
    "forecasts": b"flows.api.forecaster",
}
"""The kinds of processes that `shockwave up` starts, each with a part of its command line."""

VOLLEY = 20
"""Number of kills in a volley."""

VOLLEY_SECONDS = 3.0
"""Length of a volley."""

KIND_SECONDS = 10.0
"""Longest wait for a process of the drawn kind."""

CHILD_SECONDS = 30.0
"""Longest wait for any process that the supervisor has started."""


class PricedOptions(ServiceOptions):
    """A virtual cluster whose GPUs have a price."""

    def make_settings(self) -> Settings:
        settings = super().make_settings()
        pools = tuple(replace(pool, price=PRICE) for pool in settings.pools)
        return replace(settings, pools=pools)


class Helm(Gauge):
    """A gauge that also shows the leading process."""

    def update(self, run: Run) -> None:
        super().update(run)
        struct.pack_into("q", self._memory, 56, os.getpid())

    @property
    def driver(self) -> int:
        (process,) = struct.unpack_from("q", self._memory, 56)
        return int(process)


def member(place: Place) -> None:
    """Stand by, then serve."""
    where = leadership.LeaseSite(place.warehouse, place.url, "", place.options.speed, LEASE_SECONDS)
    stop = Event()
    with (
        leadership.lead(where, stop, lambda line: None, standby=True) as leader,
        Inbox(place.warehouse, place.url) as inbox,
        open_run(place.warehouse, inbox, place.options) as run,
        closing(Leases(place.warehouse, place.url)) as leases,
    ):
        assert leader
        run.check = partial(leases.check, leader.token)
        run.sink = FencedSink(run.sink, run.check)

        def driver(run: Run) -> Round:
            leader.check()
            done = run_round(run)
            place.gauge.update(run)
            return done

        schedule(run, place.warehouse, driver)


def steady(place: Place, kind: str, target: int = -1) -> None:
    """Hand in a job that outlasts the walk and keeps rounds going, or cancel it."""
    with (
        ServiceCommands(place.warehouse, place.url) as commands,
        place.acknowledged_file(SUBMITTERS + 1).open("a") as out,
    ):
        if kind == SUBMIT:
            (entry,) = commands.submit(replace(LONG, epochs=10**6, total_steps=0), key=kind)
        else:
            (entry,) = commands.command(CommandKind.CANCEL, str(target), key=kind)
        keep(out, Acknowledged(kind, kind, target, entry.number))


def begin(place: Place) -> None:
    """Make the terms of tenants, and hand in the long job."""
    agree(place)
    steady(place, SUBMIT)


def digests(place: Place) -> list[str]:
    with Inbox(place.warehouse, place.url) as inbox:
        return [digest for _, digest in Reader(place.warehouse).records(inbox.run)]


def submitters(place: Place, jobs: int) -> tuple[list[str], dict[str, Callable[[], None]]]:
    """Names of the submitters, and the work of all who use the service."""
    each, hands = math.ceil(jobs / SUBMITTERS), [f"submitter {me}" for me in range(SUBMITTERS)]
    work: dict[str, Callable[[], None]] = {"end": lambda: end(place)}
    for me, name in enumerate(hands):
        work[name] = lambda me=me: submitter(place, me, each)  # type: ignore[misc]
    return hands, work


def let_end(place: Place, users: Children, hands: list[str]) -> None:
    """Cancel the long job, and wait until all others have ended."""
    long = next(entry.number for entry in place.acknowledged() if entry.key == SUBMIT)
    forked(lambda: steady(place, CommandKind.CANCEL.value, long))
    while "end" not in users.done:
        time.sleep(0.1)
        users.look(hands)


def walk(place: Place, helm: Helm, kills: int, jobs: int) -> dict[str, float]:
    """Kill the leader repeatedly; returns figures."""
    rng, took, lost, seen = Random(place.seed), list[float](), 0, list[str]()
    hands, work = submitters(place, jobs)
    work |= {name: lambda: member(place) for name in MEMBERS} | {"api": lambda: server(place)}
    with children(work) as all_of_them:
        all_of_them.start(MEMBERS[0])
        while not forked(lambda: begun(place)):
            time.sleep(0.1)
        forked(lambda: begin(place))
        for name in (MEMBERS[1], "api", *hands):
            all_of_them.start(name)
        for _ in range(kills):
            time.sleep(rng.uniform(0.0, 2.0))
            while helm.driver not in all_of_them.running:
                time.sleep(0.02)
                all_of_them.look(hands)
            killed, before, began = helm.driver, helm.rounds, time.monotonic()
            os.kill(killed, signal.SIGSTOP if rng.random() < 0.2 else signal.SIGKILL)
            lost += 1  # until the rounds are checked
            while helm.driver == killed or helm.rounds <= before - 1:
                time.sleep(0.02)
                all_of_them.look(hands)
                assert time.monotonic() - began < ROUND_SECONDS, "nobody takes over"
            took.append(time.monotonic() - began)
            now = forked(lambda: digests(place))
            lost -= now[: len(seen)] == seen and len(now) >= before
            seen = now
        let_end(place, all_of_them, hands)
        accounts = forked(lambda: compare(place, PRICE))
    return accounts | {
        "kills": kills,
        "rounds": helm.rounds,
        "takeover_s": round(statistics.median(took), 2),
        "longest_s": round(max(took), 2),
        "lost_rounds": lost,
    }


def watch(place: Place) -> None:
    """Show the progress of a service that other processes serve."""
    with ServiceQueries(place.warehouse, place.url) as service:
        while True:
            now = service.get_status()
            active = now.running + now.waiting + now.held
            place.gauge.show(now.rounds, active, now.inbox - now.pending, 0)
            time.sleep(0.5)


class Restarted:
    """`shockwave up`, started again whenever it ends; `starts` counts."""

    def __init__(self, place: Place) -> None:
        self._place, self._known, self.starts = place, set[int](), 0
        self.look()

    def look(self) -> None:
        """Start it if it does not run."""
        if self.starts and self.up.process.poll() is None:
            return
        options, folder = self._place.options, self._place.warehouse.parent
        size = ("--gpus", str(options.gpus), "--speed", str(options.speed), "--seed")
        url = ("--database-url", self._place.url) if self._place.url else ()
        self.up: Up = launch(
            *(folder, self._place.port, *size, str(options.seed), *url),
            env=outside(folder / "home") | {"NO_COLOR": "1"},
        )
        self.starts += 1

    def processes(self) -> dict[str, int]:
        """Its processes by kind; those of an earlier start may be among them."""
        self._known |= descendants(self.up.process.pid)
        found = dict[str, int]()
        for process in sorted(self._known):
            line = b""
            with suppress(OSError):
                line = Path(f"/proc/{process}/cmdline").read_bytes()
            if not line:
                self._known.discard(process)  # it has ended
            found |= {kind: process for kind, words in KINDS.items() if words in line}
        return found | (
            {"supervisor": self.up.process.pid} if self.up.process.poll() is None else {}
        )

    def is_up(self) -> bool:
        """Whether `status` says that the service and all its processes run."""
        command = [PROGRAM, "status", "--json", "--warehouse", str(self.up.warehouse)]
        said = subprocess.run(command, env=self.up.env, capture_output=True, text=True)
        status = json.loads(said.stdout) if not said.returncode else {}
        return status.get("service") == "running" and "down" not in status


def walk_up(place: Place, kills: int, seconds: float, jobs: int) -> dict[str, float]:
    """Kill processes of `shockwave up` repeatedly; returns figures."""
    rng, killed = Random(place.seed), Counter[str]()
    apart = (seconds - VOLLEY_SECONDS - CHILD_SECONDS) / max(math.ceil(kills / VOLLEY) - 1, 1)
    due = sorted(at // VOLLEY * apart + rng.uniform(0.0, VOLLEY_SECONDS) for at in range(kills))
    hands, work = submitters(place, jobs)
    work["watch"] = lambda: watch(place)
    with children(work) as users:
        service = Restarted(place)
        try:
            service.up.until_ready()
            forked(lambda: begin(place))
            for name in ("watch", *hands):
                users.start(name)
            began, rounds = time.monotonic(), place.gauge.rounds
            for at in due:
                kind, late = rng.choice(["supervisor", *KINDS]), -1.0
                while not (there := service.processes()) or late < (
                    0.0 if kind in there else KIND_SECONDS if len(there) > 1 else CHILD_SECONDS
                ):
                    time.sleep(0.05)
                    service.look()
                    users.look(hands)
                    late = time.monotonic() - began - at
                others = sorted({*there} - {"supervisor"}) or ["supervisor"]
                kind = kind if kind in there else rng.choice(others)
                with suppress(ProcessLookupError):
                    os.kill(there[kind], signal.SIGKILL)
                    killed[kind] += 1
            took, rounds = time.monotonic() - began, place.gauge.rounds - rounds
            wait_for(lambda: service.look() or service.is_up(), every=1.0)
            let_end(place, users, hands)
            figures = forked(lambda: compare(place))
        finally:
            service.up.stop()
    return {
        "kills": sum(killed.values()),
        **dict(sorted(killed.items())),
        "starts": service.starts,
        "seconds": round(took),
        "rounds_meanwhile": rounds,
        **figures,
    }


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        url = opened.enter_context(postgres()).url if options.postgres else ""
        scheduler.RealTimeCluster = CrashingCluster  # type: ignore[misc]
        service = PricedOptions(
            policy="srtf", gpus=GPUS, seed=options.seed, speed=options.speed, driver="plain"
        )
        helm, warehouse = Helm(), Path(folder) / "warehouse"
        place = Place(warehouse, service, helm, options.seed, url, GPUS, declared)
        if options.up:
            place = replace(place, secret=read_secret(warehouse.parent / "home/shockwave-auth"))
            figures = walk_up(place, options.kills, options.up, options.jobs)
        else:
            figures = walk(place, helm, options.kills, options.jobs)
        figures |= forked(lambda: kept(place))
    if options.json:
        print(json.dumps(figures))
    else:
        print_table([*figures], [[*map(str, figures.values())]])
    bad = any(figures.get(name) for name in (*BAD, "lost_rounds", "miscounted"))
    return bad or figures.get("longest_s", 0.0) >= ROUND_SECONDS


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--speed", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--postgres", action="store_true", help="inbox and lease in Postgres")
    parser.add_argument("--up", type=float, default=0.0, help="kill `shockwave up` for SECONDS")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
