"""Who hands jobs and commands to a soak's service, and what."""

import json
import time
from contextlib import suppress
from dataclasses import asdict, replace
from random import Random
from typing import Any, TextIO

from benchmarks.attacks.promises import Told
from benchmarks.soak.place import Place, read, waiting
from flows.desk.client import Client
from flows.desk.desk import Desk
from predictor.allocation import Demand
from predictor.errors import InputError, WarehouseBusy
from predictor.job import JobSpec, Mode
from tasks.commands import CommandKind
from warehouse.inbox.entries import SUBMIT
from warehouse.inbox.inbox import Inbox

SUBMITTERS = 3
PATIENCE_SECONDS = 20.0
"""Longest wait for jobs to end: all may be on hold, or all nodes drained."""

JOBS = 0.6
"""Share of jobs in what is handed in; the rest are commands."""

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
    """Hand in so many jobs, and commands between them; each follows from those before.

    It begins with the first that nothing was told of.
    """
    file = place.told_file(me)
    mine = read(file)
    with (
        place.client() as client,
        Inbox(place.warehouse, place.url) as inbox,
        file.open("a") as out,
    ):
        while sum(told.kind == SUBMIT for told in mine) < jobs:
            at, until = len(mine), time.monotonic() + PATIENCE_SECONDS
            while waiting(place, inbox) > place.most_active and time.monotonic() < until:
                time.sleep(0.05)
            told = None
            while told is None:
                with suppress(WarehouseBusy):  # the API was killed: once more with the same key
                    rng = Random(f"{place.seed}/{me}/{at}")
                    told = request(place, client, rng, f"{me}/{at}", mine)
            tell(out, told)
            mine.append(told)


def tell(out: TextIO, told: Told) -> None:
    print(json.dumps(asdict(told)), file=out, flush=True)


def request(place: Place, client: Client, rng: Random, key: str, mine: list[Told]) -> Told:
    """Hand in a job or a command; the same for the same past."""
    jobs = [told.number for told in mine if told.kind == SUBMIT]
    if not jobs or rng.random() < JOBS:
        return Told(key, SUBMIT, -1, client.submit(place.job(rng), key=key).entry)
    (kind,) = rng.choices([*KINDS], [*KINDS.values()])
    undone = {CommandKind.RELEASE: CommandKind.HOLD, CommandKind.UNCORDON: CommandKind.DRAIN}
    if kind in undone:
        known = sorted(standing(mine, undone[kind], kind))
    else:
        known = [*range(place.nodes)] if kind.of_node else jobs[-10:]
    target = rng.choice(known or ([0] if kind.of_node else jobs[-1:]))
    value = rng.choice((0.5, 1.0, 2.0)) if kind is CommandKind.BUDGET else 0.0
    try:
        accepted = client.command(kind, str(target), value=value, key=key)
    except InputError:  # the job has ended meanwhile
        return Told(key, SUBMIT, -1, client.submit(place.job(rng), key=key).entry)
    return Told(key, kind.value, target, accepted.entry)


def standing(mine: list[Told], does: str, undoes: str) -> set[int]:
    """The targets of commands that were not undone."""
    found = set[int]()
    for told in mine:
        if told.kind == does:
            found.add(told.target)
        elif told.kind == undoes:
            found.discard(told.target)
    return found


def job(rng: Random) -> JobSpec:
    """A short job: one to some three rounds."""
    model, samples, batch, most = rng.choice(FAMILIES)
    demand, mode = Demand.gang(rng.choice((1, 1, 1, 2, 2, 4))), rng.choice([*Mode])
    spec = JobSpec(0, model, batch, most, demand, mode, rng.randint(3, 8), samples, 0.0)
    return replace(spec, tenant=rng.choice(TENANTS))


def declared(rng: Random) -> dict[str, Any]:
    """The same as who submits it declares it."""
    spec = job(rng)
    same = ("model", "batch_size", "max_batch_size", "epochs", "samples_per_epoch", "tenant")
    own = {"scale_factor": spec.demand.least, "mode": spec.mode.value}
    return {name: getattr(spec, name) for name in same} | own


def end(place: Place) -> None:
    """Let everything run that is on hold or drained, and wait for the last job's end."""
    with Desk(place.warehouse, place.url) as desk, place.told_file(SUBMITTERS).open("w") as out:
        for told in place.told():
            if told.kind == CommandKind.HOLD:
                key = f"release/{told.number}"
                with suppress(InputError):  # it was cancelled
                    (entry,) = desk.command(CommandKind.RELEASE, str(told.target), key=key)
                    tell(out, Told(key, "release", told.target, entry.number))
        for node in range(place.nodes):
            (entry,) = desk.command(CommandKind.UNCORDON, str(node), key=f"uncordon/{node}")
            tell(out, Told(f"uncordon/{node}", "uncordon", node, entry.number))
        while waiting(place, desk.inbox):
            time.sleep(0.2)
