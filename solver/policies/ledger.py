"""The memory of policies that compute shares of time: an account for each job and pair."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

Key: TypeAlias = tuple[int, ...]
"""The ids of a row's jobs: one, or two that share GPUs."""


class ShareAccount(NamedTuple):
    """A row's share x_k and run times, by GPU type.

    Attributes:
        share: x_k.
        received: Run time since the last computation, plus half a round, in seconds.
        deficit: Deficit of run time before the last computation, in seconds.
    """

    share: tuple[float, ...]
    received: tuple[float, ...]
    deficit: tuple[float, ...]


@dataclass(frozen=True)
class Ledger:
    """A share policy's memory.

    Attributes:
        types: GPU types of the accounts.
        computed_at: Clock of the last computation, in seconds.
        stale: Whether the shares have to be computed again.
        rounds: Rounds planned so far.
        planned_at: Clock of the last planned round, in seconds.
        jobs: The jobs of the last round.
        rates: Throughputs at the last computation by GPU type, in steps per second, of the jobs
            that took part in it.
        held_since: Clock at the start of each running job's lease.
        accounts: Accounts by row; missing rows have their `new_account`.
        ran: Pairs that were placed in the last round.
        notes: The policy's notes from the last computation.
    """

    types: tuple[str, ...] = ()
    computed_at: float = 0.0
    stale: bool = True
    rounds: int = 0
    planned_at: float = 0.0
    jobs: tuple[int, ...] = ()
    rates: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    held_since: Mapping[int, float] = field(default_factory=dict)
    accounts: Mapping[tuple[int, ...], ShareAccount] = field(default_factory=dict)
    ran: tuple[tuple[int, ...], ...] = ()
    notes: tuple[tuple[float, ...], ...] = ()

    def account(self, key: Key, start: float) -> ShareAccount:
        """Return a row's account, or its `new_account`."""
        return self.accounts.get(key) or self.new_account(key, start)

    def new_account(self, key: Key, start: float) -> ShareAccount:
        """Return the account of a row that never ran and has no share.

        As published, a pair has received nothing before its first computation, so it is owed the
        half round, `start` seconds, that is then credited to all.
        """
        nothing, half = (0.0,) * len(self.types), (start,) * len(self.types)
        if len(key) == 1:
            return ShareAccount(nothing, half, nothing)
        if all(job in self.rates for job in key):
            return ShareAccount(nothing, half, half)
        return ShareAccount(nothing, nothing, nothing)

    def on_types(self, types: tuple[str, ...], start: float) -> "Ledger":
        """Return the ledger on the GPU types in service, crediting `start` seconds on new ones."""
        if types == self.types:
            return self
        column = {kind: number for number, kind in enumerate(self.types)}

        def move(values: tuple[float, ...], new: float) -> tuple[float, ...]:
            return tuple(values[column[kind]] if kind in column else new for kind in types)

        accounts = {
            key: ShareAccount(
                move(row.share, 0.0), move(row.received, start), move(row.deficit, 0.0)
            )
            for key, row in self.accounts.items()
        }
        rates = {job: move(rate, 0.0) for job, rate in self.rates.items()}
        return replace(self, types=types, stale=True, accounts=accounts, rates=rates)

    def after_round(self, clock: float) -> "Ledger":
        """Return the ledger after a planned round."""
        return replace(self, rounds=self.rounds + 1, planned_at=clock)
