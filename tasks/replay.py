"""A recorded run as a runtime and as a sink, so that its rounds can be run again.

`Recording` answers what the real runtime answered; `Comparison` takes the new records
and holds them against the old ones, byte for byte.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from containers.runtime import ContainerEvent, EventKind, Lease, Observation
from predictor.job import JobSpec
from tasks.layouts import FIRST_WITH_REASONS, FIRST_WITH_WORK
from tasks.record import RoundRecord, Timings, content_hash
from tasks.rows import to_row


@dataclass(frozen=True)
class Difference:
    """A field of a round that came out otherwise.

    Attributes:
        round: The round.
        field: The record's field.
        recorded: What was recorded, as plain data.
        replayed: What came out now.
    """

    round: int
    field: str
    recorded: object
    replayed: object


class Recording:
    """A `Runtime` that reports what was recorded.

    Args:
        records: Rounds of one run, from the first to be replayed on.
    """

    def __init__(self, records: Sequence[RoundRecord]) -> None:
        self._records = iter(records)
        self._now: RoundRecord

    def admit(self, jobs: Sequence[JobSpec]) -> None:
        """Its jobs are there."""

    def withdraw(self, job_id: int) -> None:
        """What was withdrawn is recorded."""

    def advance(self, idle_until: float | None) -> None:
        """Nothing passes; `observe` goes on to the next record."""

    def observe(self) -> Observation:
        """The next record's observation."""
        self._now = next(self._records)
        now = self._now
        return now.observation

    def preempt(self, reasons: Mapping[int, str]) -> tuple[ContainerEvent, ...]:
        """What the recorded preemptions answered, where there were the same."""
        events = []
        for job_id, reason in reasons.items():
            event = self._answer(job_id, (), preempted=True)
            same = event.reason.startswith(reason)  # and what the runtime had to add
            same |= self._now.version < FIRST_WITH_REASONS
            events.append(event if same else replace(event, reason=reason))
        return tuple(events)

    def launch(self, number: int, leases: Sequence[Lease]) -> tuple[ContainerEvent, ...]:
        """What the recorded launches answered, where there were the same."""
        return tuple(self._answer(one.job_id, one.gpus, preempted=False) for one in leases)

    def reap(self, job_ids: Sequence[int]) -> None:
        """Nothing to remove."""

    def close(self) -> None:
        """Nothing to let go of."""

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
        differences: What came out otherwise so far.
        rounds: Rounds compared.
        complete: Whether the recorded rounds go to the run's end.
    """

    recorded: Sequence[tuple[RoundRecord, str]]
    differences: list[Difference] = field(default_factory=list)
    rounds: int = 0
    complete: bool = False

    def append(self, record: RoundRecord, digest: str, timings: Timings) -> None:
        """Compare one round."""
        old, _ = self.recorded[record.round]
        self.rounds += 1
        before, after = to_row(old), to_row(record)
        if old.version < FIRST_WITH_WORK:
            # Seconds alone were kept, and anew where nothing but their mean had changed.
            del before["forecasts"]
            news = {one.job_id for one in record.estimates}
            before["estimates"] = [one for one in before["estimates"] if one["job_id"] in news]
        self.differences += [
            Difference(record.round, name, before[name], after[name])
            for name in before
            if content_hash(before[name]) != content_hash(after[name])
        ]
