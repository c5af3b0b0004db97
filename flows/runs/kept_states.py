"""States of a large run at some of its rounds, so that a question about one need not fold all.

A state is a cache. If it is missing, differs from the ledger, or belongs to other records or
another version of the code, the fold starts from an earlier one, or from the beginning.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from flows.runs.snapshot import decode, encode
from predictor.errors import WarehouseError
from tasks.run import Run
from tasks.state import RunState
from warehouse.store.reader import Reader
from warehouse.store.states import list_states, read_state, write_state

LEASES_BETWEEN = 16_384
"""Leases after which a state is kept: a second of folding. A small run has none. An engineering
choice; no sweep is recorded."""

JOBS_PER_LEASE = 10
"""Active jobs that take as long to fold as a lease, measured with 7 leases and 1,438 jobs."""


@dataclass
class StateKeeper:
    """Keeps the state of a run whenever about a second of folding has come together."""

    warehouse: Path
    leases: int = 0

    def see(self, run: Run) -> None:
        """Keep the state of a run after a round, if it is due."""
        self.leases += len(run.state.leases) + len(run.state.beliefs) // JOBS_PER_LEASE
        if self.leases < LEASES_BETWEEN:
            return
        self.leases = 0
        # Nothing reads the other jobs that finished: encoding all would take longer every time.
        state = replace(run.state, learning=run.state.learning.with_latest_arrivals())
        with suppress(OSError, WarehouseError):  # the next round reports a full disk
            write_state(self.warehouse, run.name, state.round, encode(state).encode())


@dataclass(frozen=True, slots=True)
class _Hashed:
    round: int
    hash: str


def find_state(reader: Reader, run: str, number: int) -> RunState | None:
    """Return the last kept state of a run before a round; None if no state is usable.

    Of the jobs that finished, it has those of `Learning.with_latest_arrivals`.

    Raises:
        WarehouseError: The records are damaged.
    """
    for at in reversed([at for at in list_states(reader.warehouse, run) if at <= number]):
        state = decode(RunState, read_state(reader.warehouse, run, at))
        if state and reader.parts(run, _Hashed, at - 1, at) == [_Hashed(at - 1, state.last_hash)]:
            return state
    return None
