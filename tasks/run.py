"""An active run, and the sink of its records."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from containers.runtime import Runtime
from predictor.published_predictor import ProfiledRegime
from predictor.throughput import Throughput
from solver.plan import ActiveJob, Policy
from tasks.commands import Orders
from tasks.record import RoundRecord, RunHeader, Timings
from tasks.sources import JobSource
from tasks.state import RunState, advance


class Sink(Protocol):
    """The destination of a run's records."""

    def append(self, record: RoundRecord, digest: str, timings: Timings) -> None:
        """Append a round's record; on return it is durable."""
        ...


@dataclass
class Run:
    """An active run; only `record` changes its state.

    Attributes:
        throughput: Throughput model known to the scheduler.
        state: Live state, a fold over its records.
        schedules: True batch-size schedules by job id, for oracles and clairvoyant policies.
        active: Policy input of the last round, by job id.
        check: Called before a round touches its jobs; raises if another process runs them.
    """

    name: str
    header: RunHeader
    throughput: Throughput
    policy: Policy
    source: JobSource
    runtime: Runtime
    sink: Sink
    state: RunState
    schedules: Mapping[int, tuple[ProfiledRegime, ...]]
    active: dict[int, ActiveJob] = field(default_factory=dict)
    check: Callable[[], object] = lambda: None

    @property
    def finished(self) -> bool:
        """Whether every job has arrived and ended."""
        return self.state.is_finished(self.source)

    def follow(self, record: RoundRecord, digest: str) -> None:
        """Advance the state past a recorded round with this hash, without planning it again."""
        before = self.state.orders
        self.state = advance(self.header, self.state, record, digest)
        self.resize(before, self.state.orders)

    def resize(self, before: Orders, now: Orders) -> None:
        """Report added and removed nodes to the runtime."""
        if (now.added, now.removed) != (before.added, before.removed):
            inventory = self.header.settings.inventory_in(self.state.round, now.added)
            self.runtime.resize(inventory, now.removed)
