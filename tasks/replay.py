"""Replay: a recorded run as a runtime and as a sink.

`Recording` returns what the real runtime returned; `Comparison` compares the new records
with the recorded ones, byte for byte.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from containers.runtime import BY_ITS_OWNER, ContainerEvent, EventKind, Lease, Observation
from predictor.job import JobSpec
from predictor.parts import Mapper
from predictor.rows import hash_content, to_row
from solver.inventory import Inventory
from tasks.record import RoundRecord, Timings


@dataclass(frozen=True)
class Difference:
    """A field of a round whose replay differs from its record; the values are plain data."""

    round: int
    field: str
    recorded: object
    replayed: object


class Recording:
    """A `Runtime` that reports recorded rounds, from the first replayed round on."""

    def __init__(self, records: Sequence[RoundRecord]) -> None:
        self._records = iter(records)
        self._now: RoundRecord

    def admit(self, jobs: Sequence[JobSpec]) -> None:
        """Do nothing: jobs are recorded."""

    def withdraw(self, job_id: int, reason: str = BY_ITS_OWNER) -> None:
        """Do nothing: withdrawals are recorded."""

    def resize(self, inventory: Inventory, removed: Collection[int]) -> None:
        """Do nothing: placements are recorded."""

    def advance(self, idle_until: float | None) -> None:
        """Do nothing: `observe` advances to the next record."""

    def observe(self, each: Mapper | None = None) -> Observation:
        """Return the next record's observation."""
        self._now = next(self._records)
        return self._now.observation

    def preempt(
        self, reasons: Mapping[int, str], each: Mapper | None = None
    ) -> tuple[ContainerEvent, ...]:
        """Return the recorded events of the same preemptions."""
        events = []
        for job_id, reason in reasons.items():
            event = self._answer(job_id, (), preempted=True)
            same = event.reason.startswith(reason)  # the runtime may have added remarks
            events.append(event if same else replace(event, reason=reason))
        return tuple(events)

    def launch(
        self, number: int, leases: Sequence[Lease], each: Mapper | None = None
    ) -> tuple[ContainerEvent, ...]:
        """Return the recorded events of the same launches."""
        return tuple(self._answer(lease.job_id, lease.gpus, preempted=False) for lease in leases)

    def reap(self, job_ids: Sequence[int]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def _answer(self, job_id: int, gpus: tuple[int, ...], *, preempted: bool) -> ContainerEvent:
        for event in self._now.events:
            if event.job_id == job_id and (event.kind is EventKind.PREEMPTED) is preempted:
                return event
        kind = EventKind.PREEMPTED if preempted else EventKind.STARTED
        return ContainerEvent(job_id, kind, self._now.clock_seconds, gpus)


@dataclass
class Comparison:
    """A sink that compares new records with the recorded ones.

    Attributes:
        recorded: Records and the hashes stored for them, by round.
        complete: Whether the recorded rounds reach the run's end.
        remarks: Remarks for readers of the differences, in words.
    """

    recorded: Sequence[tuple[RoundRecord, str]]
    differences: list[Difference] = field(default_factory=list)
    rounds: int = 0
    complete: bool = False
    remarks: Sequence[str] = ()

    def append(self, record: RoundRecord, digest: str, timings: Timings) -> None:
        """Compare a round with its record."""
        old, _ = self.recorded[record.round]
        self.rounds += 1
        before, after = to_row(old), to_row(record)
        self.differences += [
            Difference(record.round, name, before[name], after[name])
            for name in before
            if hash_content(before[name]) != hash_content(after[name])
        ]
