"""Kills of the leader with a standby: lost and doubled entries and rounds.

    python -m harness.attacks.failover [--kills 50] [--jobs 150] [--speed 120] [--seed 0]
        [--postgres]

Two processes serve a warehouse in turn, as with `shockwave up --standby`: the leader has lock and
lease and drives the rounds of a service on eight virtual GPUs, the standby waits. At random
moments, during starts and rounds, the leader is killed with -9 or, one time in five, stopped with
SIGSTOP, which the standby detects by the lease; then it is started again as standby. Submitters
hand in jobs and commands meanwhile. `takeover_s` are the median and the longest time from a kill to
the next round on disk; a round of a real service lasts 120 s. `lost_rounds` counts kills after
which a round on disk has changed or is missing; the other figures are those of `harness.soak`.
Exit code 1 if one of them is not 0, or a takeover took a round. With
--json it prints one JSON object.
"""

import argparse
import json
import math
import os
import signal
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from threading import Event

from flows.api.commands import ServiceCommands
from flows.cli.output import print_table
from flows.scheduler import leadership
from flows.scheduler.options import ServiceOptions
from flows.scheduler.scheduler import open_run, schedule
from flows.scheduler.sinks import FencedSink
from harness.attacks.kills import forked
from harness.attacks.promises import Acknowledged
from harness.attacks.service_kills import LONG
from harness.postgres import postgres
from harness.soak.hands import SUBMITTERS, declared, end, keep, submitter
from harness.soak.kept import BAD, kept
from harness.soak.place import Gauge, Place, begun, server
from harness.soak.processes import children
from tasks.commands import CommandKind
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


def digests(place: Place) -> list[str]:
    with Inbox(place.warehouse, place.url) as inbox:
        return [digest for _, digest in Reader(place.warehouse).records(inbox.run)]


def walk(place: Place, helm: Helm, kills: int, jobs: int) -> dict[str, float]:
    """Kill the leader repeatedly; returns figures."""
    rng, took, lost, seen = Random(place.seed), list[float](), 0, list[str]()
    each = math.ceil(jobs / SUBMITTERS)
    hands = [f"submitter {me}" for me in range(SUBMITTERS)]
    work: dict[str, Callable[[], None]] = {name: lambda: member(place) for name in MEMBERS}
    for me, name in enumerate(hands):
        work[name] = lambda me=me: submitter(place, me, each)  # type: ignore[misc]
    work["api"], work["end"] = lambda: server(place), lambda: end(place)
    with children(work) as all_of_them:
        all_of_them.start(MEMBERS[0])
        while not forked(lambda: begun(place)):
            time.sleep(0.1)
        forked(lambda: steady(place, SUBMIT))
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
        long = next(entry.number for entry in place.acknowledged() if entry.key == SUBMIT)
        forked(lambda: steady(place, CommandKind.CANCEL.value, long))
        while "end" not in all_of_them.done:
            time.sleep(0.1)
            all_of_them.look(hands)
    return {
        "kills": kills,
        "rounds": helm.rounds,
        "takeover_s": round(statistics.median(took), 2),
        "longest_s": round(max(took), 2),
        "lost_rounds": lost,
    }


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        url = opened.enter_context(postgres()).url if options.postgres else ""
        service = ServiceOptions(
            policy="srtf", gpus=GPUS, seed=options.seed, speed=options.speed, driver="plain"
        )
        helm = Helm()
        place = Place(Path(folder) / "warehouse", service, helm, options.seed, url, GPUS, declared)
        figures = walk(place, helm, options.kills, options.jobs)
        figures |= forked(lambda: kept(place))
    if options.json:
        print(json.dumps(figures))
    else:
        print_table([*figures], [[*map(str, figures.values())]])
    bad = any(figures[name] for name in (*BAD, "lost_rounds"))
    return bad or figures["longest_s"] >= ROUND_SECONDS


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--speed", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--postgres", action="store_true", help="inbox and lease in Postgres")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
