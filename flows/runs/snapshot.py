"""The position of a run between two rounds, and snapshots of it on disk.

A service never ends, so it must not read all its rounds for every query. A snapshot caches the fold
over the records up to some round. If it is missing, differs from the ledger, or belongs to other
records or another version of the code, the fold starts from the beginning.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from containers.clock import LATE_SHARE
from containers.runtime import EventKind
from containers.virtual.faithful import ClusterState
from flows.runs.code_version import code_version
from flows.runs.costs import GpuCost, Tariff
from predictor.errors import WarehouseError
from predictor.rows import from_row, to_row
from tasks.record import RoundRecord, RunHeader, Start, Timings
from tasks.run import Run, Sink
from tasks.state import RunState, advance
from warehouse.store.durable import find_left_overs, write_text
from warehouse.store.ledger import enter_file, read_entered
from warehouse.store.reader import Reader

STATE_CODE = ("containers", "flows/runs", "predictor", "solver", "tasks")
"""Folders whose code determines a position."""

Kept = TypeVar("Kept")

EVERY = 64
"""Rounds between two snapshots, and the most rounds to read and replay. An engineering choice; no
sweep is recorded."""


@dataclass(frozen=True)
class RunProgress:
    """The position of a run between two rounds: a fold over its records.

    Attributes:
        started: Active jobs that have held GPUs.
        late: Number of rounds that began late.
        accounts: GPU time held and its cost, by tenant, up to the last round.
        prices: Market prices of a GPU-round in the last round, by GPU type.
        ends: Number of containers' ends, by kind of event.
    """

    state: RunState
    started: frozenset[int] = frozenset()
    late: int = 0
    accounts: Mapping[str, GpuCost] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    ends: Mapping[EventKind, int] = field(default_factory=dict)

    def at(self, header: RunHeader, record: RoundRecord, state: RunState) -> "RunProgress":
        """Return the position after another record, given the state after it."""
        before, began = self.state, self.state.clock_seconds
        passed, length = record.clock_seconds - began, header.settings.round_seconds
        late = bool(before.leases) and passed > (1.0 + LATE_SHARE) * length
        meter = Tariff(before.inventory(header), self.prices, length)
        accounts = {**self.accounts}
        for job_id, account in meter.read(before.time_held, before.leases, record):
            tenant = before.beliefs[job_id].spec.tenant
            accounts[tenant] = accounts.get(tenant, GpuCost()) + account
        started = frozenset((self.started | state.leases.keys()) & state.beliefs.keys())
        ends = {**self.ends}
        for event in record.finished:
            ends[event.kind] = ends.get(event.kind, 0) + 1
        return RunProgress(state, started, self.late + late, accounts, record.solve.price_of, ends)

    def after(self, header: RunHeader, record: RoundRecord, digest: str) -> "RunProgress":
        """Return the position after another record."""
        return self.at(header, record, advance(header, self.state, record, digest))

    def after_all(
        self, header: RunHeader, rounds: Iterable[tuple[RoundRecord, str]]
    ) -> "RunProgress":
        """Return the position after more records, each with its hash."""
        position = self
        for record, digest in rounds:
            position = position.after(header, record, digest)
        return position

    @property
    def known(self) -> tuple[int, str]:
        """Number of rounds, and the hash of the last."""
        return self.state.round, self.state.last_hash


@dataclass(frozen=True)
class Snapshot:
    """A copy of a run's position at one of its rounds.

    Attributes:
        position: Its position before the round.
        cluster: State of its virtual cluster after the round; None in containers.
    """

    run: str
    position: RunProgress
    cluster: ClusterState | None = None


@dataclass
class SnapshotSink:
    """A sink that saves a snapshot of its run every `EVERY` rounds.

    Attributes:
        run: The run whose sink this is.
        position: The run's position before the last record.
        cluster: Returns the state of its virtual cluster; None in containers.
    """

    sink: Sink
    run: Run
    path: Path
    position: RunProgress
    cluster: Callable[[], ClusterState | None] = lambda: None
    last: RoundRecord | None = None

    def append(self, record: RoundRecord, digest: str, timings: Timings) -> None:
        """See `Sink.append`."""
        self.sink.append(record, digest, timings)
        # `run.state` is still the state before this record, hence after the last one.
        if self.last:
            self.position = self.position.at(self.run.header, self.last, self.run.state)
        self.last = record
        if (record.round + 1) % EVERY == 0:
            with suppress(OSError, WarehouseError):  # the next round reports a full disk
                write_snapshot(self.path, Snapshot(self.run.name, self.position, self.cluster()))


def write_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Enter a snapshot in the ledger, then replace the previous snapshot.

    Raises:
        OSError: It cannot be written.
        WarehouseError: The ledger cannot be written.
    """
    for left_over in find_left_overs(path.parent, path.name):
        left_over.unlink(missing_ok=True)
    write_text(path, encode(snapshot), partial(enter_file, path.parents[1]))


def read_snapshot(path: Path, run: str) -> Snapshot | None:
    """Return the snapshot of a run; None unless it matches ledger, run and current code."""
    snapshot = decode(Snapshot, read_entered(path.parents[1], path))
    return snapshot if snapshot and snapshot.run == run else None


def encode(kept: object) -> str:
    """Return a dataclass as JSON, with the version of the code that determines it."""
    return json.dumps({"code": _version(), "kept": to_row(kept)})


def decode(kind: type[Kept], content: bytes) -> Kept | None:
    """Return what `encode` was given; None if other code or nothing encoded it."""
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        document: dict[str, Any] = json.loads(content)
        if document["code"] == _version():
            return from_row(kind, document["kept"])
    return None


def _version() -> str:
    return code_version(packages=STATE_CODE)


def read_progress(
    reader: Reader, start: Start, run: str, snapshot: Snapshot | None
) -> tuple[RunProgress, list[tuple[RoundRecord, str]]]:
    """Return a run's position at its snapshot or beginning, and the rounds after it.

    Raises:
        WarehouseError: Its records are damaged.
    """
    if snapshot:
        with suppress(WarehouseError):  # the snapshot is of other records; damage is raised below
            rounds = reader.records(run, *snapshot.position.known)
            if rounds:
                return snapshot.position, rounds
    return RunProgress(RunState.initial(start)), reader.records(run)
