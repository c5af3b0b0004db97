"""kill -9 of Postgres while it accepts entries.

    python -m harness.attacks.database_kills [--kills 300] [--seed 0] [--json]

Jobs, commands and terms are handed in, one to three at a time. At the first, second, … statement or
commit of the inbox, or up to 5 ms after that as the seed draws, all processes of Postgres are
killed; it is started again, recovers, and unacknowledged requests are handed in again with the same
keys. `acknowledged` counts kills after which the answer came nevertheless. `lost` counts kills
after which an acknowledged entry was missing, an entry was there twice, or numbers had gaps;
`not_once` counts entries that the rounds of a service then do not take in exactly once, `unclean`
the findings of `audit`. Exit code 1 if one of these is not 0.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Timer
from typing import Any

from sqlalchemy import Engine, event

from flows.cli.output import print_table
from flows.scheduler.scheduler import open_run, schedule
from harness.attacks import promises
from harness.attacks.promises import Acknowledged
from harness.attacks.service_kills import LONG, OPTIONS
from harness.postgres import Postgres, postgres
from predictor.allocation import Demand
from predictor.errors import WarehouseBusy
from tasks.commands import NO_TERMS, CommandKind
from warehouse.inbox.entries import SUBMIT, Entry, Submission
from warehouse.inbox.inbox import Inbox
from warehouse.store.audit import audit

POINTS = 9
"""Statements and commits of an acceptance, or more."""

LATEST_SECONDS = 0.005


class Trap:
    """Kills Postgres at a statement or commit."""

    def __init__(self, database: Postgres, rng: Random) -> None:
        self._database, self._rng, self._left = database, rng, -1
        self._timer: Timer | None = None

    def set(self, after: int) -> None:
        """Kill at the statement after so many."""
        self._left = after

    def reached(self) -> None:
        if self._left == 0:
            if self._rng.random() < 0.5:
                self._timer = Timer(self._rng.uniform(0.0, LATEST_SECONDS), self._kill)
                self._timer.start()
            else:
                self._kill()
        self._left -= 1

    def _kill(self) -> None:
        self._left = -1
        self._database.kill()

    def sprung(self) -> None:
        """Kill now, if there were not so many statements; start it again."""
        if self._timer:
            self._timer.join()
            self._timer = None
        elif self._left >= 0:
            self._kill()
        self._left = -1
        self._database.start()


@contextmanager
def trap(database: Postgres, rng: Random) -> Iterator[Trap]:
    """A trap on all statements and commits of this process."""
    made = Trap(database, rng)

    def reached(*of: Any) -> None:
        made.reached()

    names = ("before_cursor_execute", "commit")
    for name in names:
        event.listen(Engine, name, reached)
    try:
        yield made
    finally:
        for name in names:
            event.remove(Engine, name, reached)


def request(at: int, rng: Random) -> list[Submission]:
    """Requests that are handed in together."""
    made = list[Submission]()
    for place in range(rng.choice((1, 1, 2, 3))):
        key, kind = f"{at}/{place}", rng.choice((SUBMIT, SUBMIT, SUBMIT, "hold", "tenant"))
        if kind == SUBMIT:
            made.append(Submission(SUBMIT, replace(LONG, demand=Demand.gang(1)), key=key))
        elif kind == "hold":
            made.append(Submission(CommandKind.HOLD.value, target=1, key=key))
        else:
            terms = replace(NO_TERMS, tenant="b", budget=float(rng.randint(1, 9)))
            made.append(Submission("tenant", terms=terms, given=("budget",), key=key))
    return made


def answered(requests: list[Submission], entries: list[Entry]) -> list[Acknowledged]:
    return [
        Acknowledged(asked.key, asked.kind, asked.target, entry.number)
        for asked, entry in zip(requests, entries, strict=True)
    ]


def walk(warehouse: Path, database: Postgres, kills: int, seed: int) -> dict[str, int]:
    rng, acknowledged, at_once, lost = Random(seed), list[Acknowledged](), 0, 0
    with Inbox(warehouse, database.url) as inbox, trap(database, rng) as armed:
        for at in range(kills):
            requests, entries = request(at, rng), list[Entry]()
            armed.set(at % POINTS)
            with suppress(WarehouseBusy):
                entries = inbox.accept(requests)
                at_once += 1
                acknowledged += answered(requests, entries)
            armed.sprung()
            wrong = [*promises.lost(warehouse, acknowledged, database.url)]
            if not entries:
                acknowledged += answered(requests, inbox.accept(requests))
            wrong += promises.lost(warehouse, acknowledged, database.url)
            for problem in wrong[:3]:
                print(f"kill {at}: {problem}", file=sys.stderr)
            lost += bool(wrong)
        there = promises.in_inbox(warehouse, database.url)
        lost += there != acknowledged
    return {"kills": kills, "acknowledged": at_once, "entries": len(there), "lost": lost}


def taken_in(warehouse: Path, url: str) -> dict[str, int]:
    """The problems after a service has taken everything in."""
    with Inbox(warehouse, url) as inbox, open_run(warehouse, inbox, OPTIONS) as run:
        while run.state.source_position.entries < inbox.last():
            schedule(run, warehouse, rounds=1)
        name = run.name
    not_once = [*promises.not_once(warehouse, name, url, all_taken=True)]
    return {"not_once": len(not_once), "unclean": len(audit(warehouse, name).findings)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, postgres() as database:
        warehouse = Path(folder) / "warehouse"
        figures = walk(warehouse, database, options.kills, options.seed)
        figures |= taken_in(warehouse, database.url)
    if options.json:
        print(json.dumps(figures))
    else:
        print_table([*figures], [[*map(str, figures.values())]])
    return any(figures[name] for name in ("lost", "not_once", "unclean"))


if __name__ == "__main__":
    sys.exit(main())
