"""The place of a soak: a service's warehouse, its processes, and its progress."""

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

from flows.api.client import Client
from flows.scheduler.options import ServiceOptions
from flows.scheduler.scheduler import open_run, schedule
from flows.web.api import create_api
from flows.web.backend import ServiceBackend
from harness.attacks.promises import Acknowledged
from harness.up import free_port
from tasks.round import Round, run_round
from tasks.run import Run
from warehouse.inbox.inbox import Inbox

SECRET = "soak:soak"


class Gauge:
    """The scheduler's progress as it reports it, shared by all processes.

    Each value is written at once, so that no kill can cut it.
    """

    NAMES = ("rounds", "active", "taken", "resident_kb")

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 64)

    def update(self, run: Run) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        state = run.state
        values = (
            state.round,
            len(state.beliefs),
            state.source_position.entries,
            pages * mmap.PAGESIZE >> 10,
        )
        self.show(*values)

    def show(self, *values: int) -> None:
        """Show values, in the order of their names."""
        for at, value in enumerate(values):
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
        gauge: Its progress.
        seed: Seed of all that is drawn.
        url: Of an inbox in Postgres; empty for SQLite.
        nodes: Number of its nodes.
        job: Draws the declaration of a job.
        most_active: Jobs that are active or wait in the inbox, at most: submitters then wait.
        port: The API's.
        secret: Of the installation.
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
    secret: str = SECRET

    def client(self) -> Client:
        return Client(f"http://127.0.0.1:{self.port}", self.secret)

    def acknowledged_file(self, submitter: int) -> Path:
        return self.warehouse.parent / f"acknowledged-{submitter}.jsonl"

    def acknowledged(self) -> list[Acknowledged]:
        """The acknowledged entries of all submitters."""
        files = self.warehouse.parent.glob("acknowledged-*.jsonl")
        return [entry for file in files for entry in read(file)]


def read(file: Path) -> list[Acknowledged]:
    """The acknowledged entries of a submitter; a last line that a kill cut is removed."""
    file.touch()
    lines = file.read_text().splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        os.truncate(file, sum(map(len, lines[:-1])))
        lines.pop()
    return [Acknowledged(**json.loads(line)) for line in lines]


def scheduler(place: Place) -> None:
    """A service's scheduler, as `flows.scheduler.scheduler` runs it."""

    def driver(run: Run) -> Round:
        done = run_round(run)
        place.gauge.update(run)
        return done

    with (
        Inbox(place.warehouse, place.url) as inbox,
        open_run(place.warehouse, inbox, place.options) as run,
    ):
        schedule(run, place.warehouse, driver)


def server(place: Place) -> None:
    """A service's API, as `flows.supervisor.app` has it beside Prefect's."""
    backend = ServiceBackend(place.warehouse, place.secret, place.url)
    uvicorn.run(create_api(backend), host="127.0.0.1", port=place.port, log_level="error")


def begun(place: Place) -> bool:
    """Whether the service takes requests."""
    with Inbox(place.warehouse, place.url) as inbox:
        return bool(inbox.run)


def waiting(place: Place, inbox: Inbox) -> int:
    """How many jobs are active, and entries in the inbox."""
    return place.gauge.active + inbox.last() - place.gauge.taken
