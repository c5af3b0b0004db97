"""The promises of a service, checked against its inbox and its records.

The checks use none of the product's code for numbering entries or folding orders.
"""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from containers.runtime import EventKind
from tasks.commands import CommandKind
from tasks.record import RoundRecord
from warehouse.inbox.entries import SUBMIT
from warehouse.inbox.inbox import FILE
from warehouse.store.reader import Reader


@dataclass(frozen=True)
class Acknowledged:
    """An entry as acknowledged to its submitter.

    Attributes:
        key: Its key.
        kind: Its kind.
        target: Its target; of a job -1.
        number: Its number.
    """

    key: str
    kind: str
    target: int
    number: int


def in_inbox(warehouse: Path, url: str = "") -> list[Acknowledged]:
    """The entries of an inbox in SQLite or Postgres, in order; none if there is no inbox yet."""
    asked = "SELECT key, kind, target, number FROM shockwave_entries ORDER BY number"
    if url:
        return [Acknowledged(*row) for row in asyncio.run(_in_postgres(url, asked))]
    if not (warehouse / FILE).exists():
        return []
    with closing(sqlite3.connect(warehouse / FILE)) as database:
        if not database.execute("PRAGMA table_info(shockwave_entries)").fetchall():
            return []
        return [Acknowledged(*row) for row in database.execute(asked)]


async def _in_postgres(url: str, asked: str) -> list[tuple[str, str, int, int]]:
    database = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        return [tuple(row) for row in await database.fetch(asked)]
    finally:
        await database.close()


def lost(warehouse: Path, acknowledged: list[Acknowledged], url: str = "") -> Iterator[str]:
    """Acknowledged entries that are missing or doubled, and wrong numbers."""
    there = in_inbox(warehouse, url)
    yield from (f"{entry} is not in the inbox" for entry in {*acknowledged} - {*there})
    if [entry.number for entry in there] != [*range(1, len(there) + 1)]:
        yield "entries are not numbered from 1 without gaps"
    if len({entry.key for entry in there}) != len(there):
        yield "an entry is there twice"


def not_once(warehouse: Path, run: str, url: str = "", *, all_taken: bool) -> Iterator[str]:
    """Entries that no round or two rounds took in, or with another content."""
    due = {entry.number: (entry.kind, entry.target) for entry in in_inbox(warehouse, url)}
    taken = Counter[int]()
    for record, _ in Reader(warehouse).records(run):
        taken_now = {spec.job_id: (SUBMIT, -1) for spec in record.arrivals}
        for command in record.commands:
            refused = command.kind is CommandKind.REFUSED
            kind = SUBMIT if refused else command.kind.value
            taken_now[command.number] = (kind, command.target)
        taken.update(taken_now.keys())
        for number, what in taken_now.items():
            if due.get(number) != what:
                yield f"round {record.round} took entry {number} for {what}"
    count = len(due) if all_taken else sum(taken.values())
    if taken != Counter(range(1, count + 1)):
        yield f"{sum(taken.values())} of {len(due)} entries were taken in, or some twice"


def without_effect(warehouse: Path, run: str, *, all_ended: bool) -> Iterator[str]:
    """Commands without effect, and jobs that did not end exactly once."""
    reader = Reader(warehouse)
    per_node = reader.header(run).settings.pools[0].gpus_per_node
    held, cancelled, drained = set[int](), set[int](), set[int]()
    active, ends = set[int](), Counter[int]()
    for record, _ in reader.records(run):
        gone = {event.job_id: event.kind for event in record.finished if event.ends_job}
        ends.update(gone.keys())
        for job in cancelled:
            if gone.get(job) is not EventKind.WITHDRAWN:
                yield f"round {record.round}: job {job} was cancelled and is not withdrawn"
        active -= gone.keys()
        active |= {spec.job_id for spec in record.arrivals}
        cancelled, requeued = set(), set[int]()
        for command in record.commands:
            match command.kind:
                case CommandKind.CANCEL:
                    cancelled.add(command.target)
                case CommandKind.REQUEUE:
                    requeued.add(command.target)
                case CommandKind.HOLD if command.target in active:
                    held.add(command.target)
                case CommandKind.RELEASE:
                    held.discard(command.target)
                case CommandKind.DRAIN:
                    drained.add(command.target)
                case CommandKind.UNCORDON:
                    drained.discard(command.target)
        cancelled &= active
        yield from _leased(record, held | cancelled | requeued, drained, per_node)
    jobs = {spec.job_id for record, _ in reader.records(run) for spec in record.arrivals}
    if any(count > 1 for count in ends.values()) or (all_ended and ends.keys() != jobs):
        yield f"{len(ends)} of {len(jobs)} jobs have ended, or some twice"


def _leased(
    record: RoundRecord, barred: set[int], drained: set[int], per_node: int
) -> Iterator[str]:
    for lease in record.leases:
        if lease.job_id in barred:
            yield f"round {record.round}: job {lease.job_id} has GPUs against a command"
        if drained & {gpu // per_node for gpu in lease.gpus}:
            yield f"round {record.round}: job {lease.job_id} is on a drained node"
