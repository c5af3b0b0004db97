"""A service under load: many short jobs and commands from several processes, and kills.

    python -m benchmarks.service_soak [--jobs 1900] [--kills 20] [--speed 3600] [--seed 0] [--json]

Submitters, each a process, hand jobs of five tenants through the API to a service on eight virtual
GPUs and, as the seed draws, cancel, hold, release and requeue them, change budgets, and drain and
uncordon nodes. Over the first two fifths of the entries the scheduler or, less often, the API or a
submitter is killed with -9 at random moments, and started again; later nobody is, so that the
memory of one scheduler is told over time: `grown` is by how much more is resident in the end than
when half of the entries were taken in. Then all holds and drains end, and when the last job has
ended, inbox and records are held against what submitters were told: `lost`, `not_once` and
`without_effect` are the broken promises, `unclean` the findings of `audit`, `differs` the rounds
that replay decides differently.
Exit code 1 if one of these is not 0.
"""

import argparse
import json
import mmap
import os
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, TextIO

import uvicorn

from benchmarks.attacks import promises
from benchmarks.attacks.kills import forked
from benchmarks.attacks.promises import Told
from flows.cli.terminal import print_table
from flows.desk.client import Client
from flows.desk.desk import Desk
from flows.desk.guarded import Guarded
from flows.service.options import ServiceOptions
from flows.service.scheduler import schedule, under_way
from flows.web.api import create_api
from flows.web.asking import Asking
from harness.up import free_port
from predictor.allocation import Demand
from predictor.errors import WarehouseBusy
from predictor.job import JobSpec, Mode
from tasks.commands import CommandKind
from tasks.round import Round, Run, run_round
from warehouse.inbox.entries import SUBMIT
from warehouse.inbox.inbox import Inbox
from warehouse.store.reader import Reader

GPUS, SUBMITTERS = 8, 3
SECRET = "soak:soak"
MOST_ACTIVE = 40
"""Jobs that are active or wait in the inbox, at most: submitters then wait."""

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

DEADLINE_SECONDS = 1800.0
"""Time in which a soak comes to its end, or fails."""


class Gauge:
    """Where the scheduler stands, as it says itself, shared by all processes.

    It says it in fewer bytes than a kill could cut: each is written as a whole.
    """

    NAMES = ("rounds", "active", "taken", "resident_kb")

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 64)

    def tell(self, run: Run) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        state = run.state
        told = (state.round, len(state.beliefs), state.taken.entries, pages * mmap.PAGESIZE >> 10)
        for at, value in enumerate(told):
            struct.pack_into("q", self._memory, 8 * at, value)

    def __getattr__(self, name: str) -> int:
        (value,) = struct.unpack_from("q", self._memory, 8 * self.NAMES.index(name))
        return int(value)


@dataclass(frozen=True)
class Place:
    """A soak's warehouse and settings; `url` is that of an inbox in Postgres, `port` the API's."""

    warehouse: Path
    options: ServiceOptions
    gauge: Gauge
    seed: int
    url: str = ""
    port: int = field(default_factory=free_port)

    def client(self) -> Client:
        return Client(f"http://127.0.0.1:{self.port}", SECRET)

    def told_file(self, submitter: int) -> Path:
        return self.warehouse.parent / f"told-{submitter}.jsonl"

    def told(self) -> list[Told]:
        """What all submitters were told."""
        return [told for file in self.warehouse.parent.glob("told-*.jsonl") for told in read(file)]


def read(file: Path) -> list[Told]:
    """What a submitter was told; a last line that a kill cut is removed."""
    file.touch()
    lines = file.read_text().splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        os.truncate(file, sum(map(len, lines[:-1])))
        lines.pop()
    return [Told(**json.loads(line)) for line in lines]


def scheduler(place: Place) -> None:
    """A service's scheduler, as `flows.service.scheduler` runs it."""

    def driver(run: Run) -> Round:
        done = run_round(run)
        place.gauge.tell(run)
        return done

    with (
        Inbox(place.warehouse, place.url) as inbox,
        under_way(place.warehouse, inbox, place.options) as run,
    ):
        schedule(run, place.warehouse, driver)


def server(place: Place) -> None:
    """A service's API, as `flows.up.app` has it beside Prefect's."""
    asking = Asking(Guarded(place.warehouse, place.url), SECRET)
    uvicorn.run(create_api(asking), host="127.0.0.1", port=place.port, log_level="error")


def submitter(place: Place, me: int, requests: int) -> None:
    """Hand in requests, from the first that nothing was told of; each follows from those before."""
    file = place.told_file(me)
    mine = read(file)
    with (
        place.client() as client,
        Inbox(place.warehouse, place.url) as inbox,
        file.open("a") as out,
    ):
        for at in range(len(mine), requests):
            while waiting(place, inbox) > MOST_ACTIVE:
                time.sleep(0.05)
            told = None
            while told is None:
                with suppress(WarehouseBusy):  # the API was killed: once more with the same key
                    rng = Random(f"{place.seed}/{me}/{at}")
                    told = request(client, rng, f"{me}/{at}", mine)
            tell(out, told)
            mine.append(told)


def tell(out: TextIO, told: Told) -> None:
    print(json.dumps(asdict(told)), file=out, flush=True)


def waiting(place: Place, inbox: Inbox) -> int:
    return place.gauge.active + inbox.last() - place.gauge.taken


def request(client: Client, rng: Random, key: str, mine: list[Told]) -> Told:
    """Hand in a job, or two times in five a command; the same for the same past."""
    jobs = [told.number for told in mine if told.kind == SUBMIT]
    if not jobs or rng.random() < 0.6:
        return Told(key, SUBMIT, -1, client.submit(declared(job(rng)), key=key).entry)
    (kind,) = rng.choices([*KINDS], [*KINDS.values()])
    undone = {CommandKind.RELEASE: CommandKind.HOLD, CommandKind.UNCORDON: CommandKind.DRAIN}
    if kind in undone:
        known = sorted(standing(mine, undone[kind], kind))
    else:
        known = [*range(GPUS)] if kind.of_node else jobs[-10:]
    target = rng.choice(known or ([0] if kind.of_node else jobs[-1:]))
    value = rng.choice((0.5, 1.0, 2.0)) if kind is CommandKind.BUDGET else 0.0
    accepted = client.command(kind, str(target), value=value, key=key)
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


def declared(spec: JobSpec) -> dict[str, Any]:
    """A job as who submits it declares it."""
    same = ("model", "batch_size", "max_batch_size", "epochs", "samples_per_epoch", "tenant")
    own = {"scale_factor": spec.demand.least, "mode": spec.mode.value}
    return {name: getattr(spec, name) for name in same} | own


def end(place: Place) -> None:
    """Let everything run that is on hold or drained, and wait for the last job's end."""
    with Desk(place.warehouse, place.url) as desk, place.told_file(SUBMITTERS).open("w") as out:
        for told in place.told():
            if told.kind == CommandKind.HOLD:
                key = f"release/{told.number}"
                (entry,) = desk.command(CommandKind.RELEASE, str(told.target), key=key)
                tell(out, Told(key, "release", told.target, entry.number))
        for node in range(GPUS):
            (entry,) = desk.command(CommandKind.UNCORDON, str(node), key=f"uncordon/{node}")
            tell(out, Told(f"uncordon/{node}", "uncordon", node, entry.number))
        while waiting(place, desk.inbox):
            time.sleep(0.2)


@dataclass
class Children:
    """Processes by name, forked from this one; started again when they are killed."""

    work: dict[str, Callable[[], None]]
    running: dict[int, str] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)

    def start(self, name: str) -> None:
        child = os.fork()
        if child:
            self.running[child] = name
            return
        try:
            self.work[name]()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def kill(self, name: str) -> None:
        """Kill -9, if it runs."""
        for process in [child for child, called in self.running.items() if called == name]:
            os.kill(process, signal.SIGKILL)

    def look(self, hands: Collection[str]) -> None:
        """Start again who was killed; once all hands are done, begin with the end."""
        for child in [*self.running]:
            ended, status = os.waitpid(child, os.WNOHANG)
            if not ended:
                continue
            name, code = self.running.pop(child), os.waitstatus_to_exitcode(status)
            if code == -signal.SIGKILL:
                self.start(name)
                continue
            assert code == 0, f"the {name} has failed with code {code}"
            self.done.add(name)
            if {*hands} <= self.done and name != "end":
                self.start("end")


@contextmanager
def children(work: dict[str, Callable[[], None]]) -> Iterator[Children]:
    """Processes that are gone when this is left."""
    made = Children(work)
    try:
        yield made
    finally:
        for child in made.running:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def soak(place: Place, jobs: int, kills: int) -> dict[str, float]:
    """Let everybody work and kill them; returns figures of how it went."""
    rng, requests = Random(place.seed), max(round(jobs / 0.6 / SUBMITTERS), 1)
    total = requests * SUBMITTERS
    due = sorted(rng.randint(1, max(total * 4 // 10, 1)) for _ in range(kills))
    hands = [f"submitter {me}" for me in range(SUBMITTERS)]
    work: dict[str, Callable[[], None]] = {
        "scheduler": lambda: scheduler(place),
        "api": lambda: server(place),
    }
    for me, name in enumerate(hands):
        work[name] = lambda me=me: submitter(place, me, requests)  # type: ignore[misc]
    work["end"] = lambda: end(place)
    half, peak, killed = 0, 0, 0
    limit = time.monotonic() + DEADLINE_SECONDS
    with children(work) as all_of_them:
        all_of_them.start("scheduler")
        while not forked(lambda: begun(place)):
            time.sleep(0.1)
        for name in ("api", *hands):
            all_of_them.start(name)
        while "end" not in all_of_them.done:
            assert time.monotonic() < limit, "the soak does not come to its end"
            time.sleep(rng.uniform(0.0, 0.1))
            if due and place.gauge.taken >= due[0]:
                due.pop(0)
                killed += 1
                victims = ("scheduler", "api", rng.choice(hands))
                all_of_them.kill(*rng.choices(victims, (3, 1, 1)))
            if place.gauge.taken > total // 2 and not due:
                half, peak = half or place.gauge.resident_kb, place.gauge.resident_kb
            all_of_them.look(hands)
    return {
        "kills": killed,
        "rounds": place.gauge.rounds,
        "half_mb": half >> 10,
        "end_mb": peak >> 10,
        "grown": round(peak / half - 1.0, 3) if half else 0.0,
    }


def begun(place: Place) -> bool:
    """Whether the service can be handed something."""
    with Inbox(place.warehouse, place.url) as inbox:
        return bool(inbox.run)


BAD = ("lost", "not_once", "without_effect", "unclean", "differs")


def kept(place: Place) -> dict[str, int]:
    """How often what was promised was not kept, and what there was to be kept."""
    from flows.history.replay import replay
    from warehouse.store.audit import audit

    warehouse, told = place.warehouse, place.told()
    with Inbox(warehouse, place.url) as inbox:
        run = inbox.run
    unknown = {*promises.in_inbox(warehouse, place.url)} - {*told}
    records = [record for record, _ in Reader(warehouse).records(run)]
    broken = {
        "lost": [
            *promises.lost(warehouse, told, place.url),
            *(f"{entry} was not told" for entry in unknown),
        ],
        "not_once": promises.not_once(warehouse, run, place.url, all_taken=True),
        "without_effect": promises.without_effect(warehouse, run, all_ended=True),
        "unclean": audit(warehouse, run).findings,
        "differs": replay(run, warehouse).differences,
    }
    found = {name: [*map(str, problems)] for name, problems in broken.items()}
    for name, problems in found.items():
        for problem in problems[:3]:
            print(f"{name}: {problem}", file=sys.stderr)
    return {
        "jobs": sum(len(record.arrivals) for record in records),
        "commands": sum(len(record.commands) for record in records),
        "preempted": sum(e.kind == "preempted" for record in records for e in record.events),
        **{name: len(problems) for name, problems in found.items()},
    }


def main() -> int:
    options = parse()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        service = ServiceOptions(
            policy=options.policy,
            gpus=GPUS,
            seed=options.seed,
            speed=options.speed,
            driver="plain",
        )
        place = Place(Path(folder) / "warehouse", service, Gauge(), options.seed)
        figures = soak(place, options.jobs, options.kills)
        figures |= forked(lambda: kept(place))
    figures["seconds"] = round(time.perf_counter() - started)
    if options.json:
        print(json.dumps(figures))
    else:
        print_table([*figures], [[*map(str, figures.values())]])
    return any(figures[name] for name in BAD)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1900)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--speed", type=float, default=3600.0)
    parser.add_argument("--policy", default="shockwave")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
