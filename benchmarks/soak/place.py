"""Where a soak takes place: a service's warehouse, its processes, and how far it is."""

import json
import mmap
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import uvicorn

from benchmarks.attacks.promises import Told
from flows.desk.client import Client
from flows.desk.guarded import Guarded
from flows.service.options import ServiceOptions
from flows.service.scheduler import schedule, under_way
from flows.web.api import create_api
from flows.web.asking import Asking
from harness.up import free_port
from tasks.round import Round, Run, run_round
from warehouse.inbox.inbox import Inbox

SECRET = "soak:soak"


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
    """A soak's warehouse and settings.

    Attributes:
        warehouse: The service's warehouse.
        options: Its settings.
        gauge: Where it stands.
        seed: What follows of it is drawn from this.
        url: Of an inbox in Postgres; empty for SQLite.
        nodes: How many nodes it has.
        job: Draws the declaration of a job.
        most_active: Jobs that are active or wait in the inbox, at most: submitters then wait.
        port: The API's.
    """

    warehouse: Path
    options: ServiceOptions
    gauge: Gauge
    seed: int
    url: str
    nodes: int
    job: Callable[[Random], dict[str, Any]]
    most_active: int = 40
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


def begun(place: Place) -> bool:
    """Whether the service can be handed something."""
    with Inbox(place.warehouse, place.url) as inbox:
        return bool(inbox.run)


def waiting(place: Place, inbox: Inbox) -> int:
    """How many jobs are active, and entries in the inbox."""
    return place.gauge.active + inbox.last() - place.gauge.taken
