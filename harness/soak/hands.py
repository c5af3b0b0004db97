"""Submitters of a soak, and their jobs and commands."""

import json
import time
from contextlib import suppress
from dataclasses import asdict, replace
from random import Random
from typing import Any, TextIO

from flows.api.client import Client
from flows.api.commands import ServiceCommands
from harness.attacks.promises import Acknowledged
from harness.soak.accounts import QUOTA
from harness.soak.place import Place, read, waiting
from predictor.allocation import Demand
from predictor.errors import InputError, WarehouseBusy
from predictor.job import TABLE_MODES, JobSpec
from tasks.commands import CommandKind
from warehouse.inbox.entries import SUBMIT
from warehouse.inbox.inbox import Inbox

SUBMITTERS = 3
PATIENCE_SECONDS = 20.0
"""Longest wait for jobs to end: all may be on hold, or all nodes drained."""

RETRY_SECONDS = 0.2
"""Pause while the API is away."""

JOBS = 0.6
"""Share of jobs among requests; the rest are commands."""

TENANTS = ("a", "b", "c", "d", "e")
FAMILIES = (("conv-small", 40_000, 32, 256), ("translator", 16_000, 16, 128))
KINDS = {
    CommandKind.CANCEL: 4,
    CommandKind.HOLD: 3,
    CommandKind.RELEASE: 4,
    CommandKind.REQUEUE: 2,
    CommandKind.BUDGET: 2,
    CommandKind.DRAIN: 1,
    CommandKind.UNCORDON: 2,
}
"""Commands and their weights."""


def submitter(place: Place, me: int, jobs: int) -> None:
    """Hand in so many jobs, and commands between them; each depends on those before.

    It begins with the first request that was not acknowledged.
    """
    file = place.acknowledged_file(me)
    mine = read(file)
    with (
        place.client() as client,
        Inbox(place.warehouse, place.url) as inbox,
        file.open("a") as out,
    ):
        while sum(entry.kind == SUBMIT for entry in mine) < jobs:
            at, until = len(mine), time.monotonic() + PATIENCE_SECONDS
            while waiting(place, inbox) > place.most_active and time.monotonic() < until:
                time.sleep(0.05)
            entry = None
            while entry is None:
                try:
                    rng = Random(f"{place.seed}/{me}/{at}")
                    entry = request(place, client, rng, f"{me}/{at}", mine)
                except WarehouseBusy:  # the API was killed: once more with the same key
                    time.sleep(RETRY_SECONDS)
            keep(out, entry)
            mine.append(entry)


def keep(out: TextIO, entry: Acknowledged) -> None:
    print(json.dumps(asdict(entry)), file=out, flush=True)


def request(
    place: Place, client: Client, rng: Random, key: str, mine: list[Acknowledged]
) -> Acknowledged:
    """Hand in a job or a command; deterministic given the past."""
    jobs = [entry.number for entry in mine if entry.kind == SUBMIT]
    if not jobs or rng.random() < JOBS:
        return Acknowledged(key, SUBMIT, -1, client.submit(place.job(rng), key=key).entry)
    (kind,) = rng.choices([*KINDS], [*KINDS.values()])
    undone = {CommandKind.RELEASE: CommandKind.HOLD, CommandKind.UNCORDON: CommandKind.DRAIN}
    if kind in undone:
        known = sorted(standing(mine, undone[kind], kind))
    else:
        known = [*range(place.nodes)] if kind.of_node else jobs[-10:]
    target = rng.choice(known or ([0] if kind.of_node else jobs[-1:]))
    value = rng.choice((0.5, 1.0, 2.0)) if kind is CommandKind.BUDGET else 0.0
    try:
        accepted = client.send_command(kind, str(target), value=value, key=key)
    except InputError:  # the job has ended meanwhile
        return Acknowledged(key, SUBMIT, -1, client.submit(place.job(rng), key=key).entry)
    return Acknowledged(key, kind.value, target, accepted.entry)


def standing(mine: list[Acknowledged], does: str, undoes: str) -> set[int]:
    """The targets of commands that were not undone."""
    targets = set[int]()
    for entry in mine:
        if entry.kind == does:
            targets.add(entry.target)
        elif entry.kind == undoes:
            targets.discard(entry.target)
    return targets


def job(rng: Random) -> JobSpec:
    """A short job: one to some three rounds."""
    model, samples, batch, most = rng.choice(FAMILIES)
    demand, mode = Demand.gang(rng.choice((1, 1, 1, 2, 2, 4))), rng.choice(TABLE_MODES)
    spec = JobSpec(0, model, batch, most, demand, mode, rng.randint(3, 8), samples, 0.0)
    return replace(spec, tenant=rng.choice(TENANTS))


def declared(rng: Random) -> dict[str, Any]:
    """The job as its submitter declares it."""
    spec = job(rng)
    same = ("model", "batch_size", "max_batch_size", "epochs", "samples_per_epoch", "tenant")
    own = {"scale_factor": spec.demand.least, "mode": spec.mode.value}
    return {name: getattr(spec, name) for name in same} | own


def agree(place: Place) -> None:
    """Give each tenant the terms `QUOTA`."""
    with (
        ServiceCommands(place.warehouse, place.url) as commands,
        place.acknowledged_file(SUBMITTERS + 1).open("a") as out,
    ):
        for tenant in TENANTS:
            entry = commands.update_tenant(tenant, QUOTA, key=f"tenant/{tenant}")
            keep(out, Acknowledged(f"tenant/{tenant}", entry.kind, entry.target, entry.number))


def end(place: Place) -> None:
    """Release all holds and drains, and wait for the last job's end."""
    with (
        ServiceCommands(place.warehouse, place.url) as commands,
        place.acknowledged_file(SUBMITTERS).open("w") as out,
    ):
        for entry in place.acknowledged():
            if entry.kind == CommandKind.HOLD:
                key = f"release/{entry.number}"
                with suppress(InputError):  # it was cancelled
                    (entry,) = commands.command(CommandKind.RELEASE, str(entry.target), key=key)
                    keep(out, Acknowledged(key, "release", entry.target, entry.number))
        for node in range(place.nodes):
            (entry,) = commands.command(CommandKind.UNCORDON, str(node), key=f"uncordon/{node}")
            keep(out, Acknowledged(f"uncordon/{node}", "uncordon", node, entry.number))
        while waiting(place, commands.inbox):
            time.sleep(0.2)
