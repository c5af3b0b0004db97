"""The memory of policies that compute shares of time: an account of each job."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import orjson

NO_SHARE = -1.0
"""Share of a job that arrived after the last computation."""

NO_LEASE = -1.0
"""Lease start of a job without a lease."""


class Account(NamedTuple):
    """A job's shares and received run times, by GPU type.

    Attributes:
        share: x_jk, or `NO_SHARE`.
        received: Run time since the last computation, plus half a round, in seconds.
        deficit: Deficit of run time before the last computation, in seconds.
        rate: Throughput at the last computation, in steps per second.
        held_since: Clock at the start of its current lease, or `NO_LEASE`.
        notes: Policy-specific numbers of the last computation.
    """

    share: tuple[float, ...]
    received: tuple[float, ...]
    deficit: tuple[float, ...]
    rate: tuple[float, ...]
    held_since: float
    notes: tuple[float, ...] = ()

    @classmethod
    def new(cls, types: int, received: float) -> "Account":
        """The account of a job that arrived since the last computation."""
        nothing = (0.0,) * types
        return cls((NO_SHARE,) * types, (received,) * types, nothing, nothing, NO_LEASE)

    @property
    def shared(self) -> bool:
        """Whether it took part in the last computation."""
        return self.share[0] >= 0.0


@dataclass(frozen=True)
class Ledger:
    """A share policy's memory.

    Attributes:
        computed_at: Clock of the last computation, in seconds.
        stale: Whether the shares have to be computed again.
        accounts: By job id.
        types: GPU types of the accounts, where there are several.
        rounds: Rounds planned so far, where there are several types.
        planned_at: Clock of the last of them, in seconds.
    """

    computed_at: float = 0.0
    stale: bool = True
    accounts: Mapping[int, Account] = field(default_factory=dict)
    types: tuple[str, ...] = ()
    rounds: int = 0
    planned_at: float = 0.0

    @classmethod
    def read(cls, memory: str) -> "Ledger":
        """Decode the JSON of `written`; empty text is an empty ledger."""
        if not memory:
            return cls()
        computed_at, stale, rows, *of_types = orjson.loads(memory)
        types, rounds, planned_at = of_types or ((), 0, 0.0)
        accounts: dict[int, Account] = {}
        for job, *by_type, held_since, notes in ((*row[:6], row[6:]) for row in rows):
            share, received, deficit, rate = (tuple(kept) if types else (kept,) for kept in by_type)
            accounts[job] = Account(share, received, deficit, rate, held_since, tuple(notes))
        return cls(computed_at, stale, accounts, tuple(types), rounds, planned_at)

    def written(self) -> str:
        """As JSON: computed_at, stale, and a row of numbers per job.

        With several types four of the numbers are lists, and three fields follow.
        """
        rows: list[list[Any]] = [
            [
                job,
                *(kept if self.types else kept[0] for kept in account[:4]),
                account.held_since,
                *account.notes,
            ]
            for job, account in self.accounts.items()
        ]
        of_types = (self.types, self.rounds, self.planned_at) if self.types else ()
        return orjson.dumps([self.computed_at, self.stale, rows, *of_types]).decode()

    def of(self, types: tuple[str, ...], received: float) -> "Ledger":
        """The same for other GPU types, of which some may be new or gone.

        What a ledger of a single type says is not carried over, as it does not name the type.
        """
        if types == self.types or not self.accounts:
            return replace(self, types=types)
        new = Account.new(1, received)
        names = types or ("",)
        places = [self.types.index(kind) if kind in self.types else -1 for kind in names]

        def moved(kept: tuple[float, ...], at_first: tuple[float, ...]) -> tuple[float, ...]:
            return tuple(kept[place] if place >= 0 else at_first[0] for place in places)

        accounts = {
            job: account._replace(
                share=moved(account.share, new.share),
                received=moved(account.received, new.received),
                deficit=moved(account.deficit, new.deficit),
                rate=moved(account.rate, new.rate),
            )
            for job, account in self.accounts.items()
        }
        return replace(self, stale=True, accounts=accounts, types=types)
