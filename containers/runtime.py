"""The runtime protocol: what a round requires of the place where jobs run."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from predictor.allocation import Allocation
from predictor.job import EpochLoss, EpochReport, JobProgress, JobSpec
from predictor.parts import Mapper
from predictor.throughput import Profile, runs_on
from solver.inventory import Inventory

BY_ITS_OWNER = "by its owner"
"""Default reason of a withdrawal."""


@dataclass(frozen=True)
class Terms:
    """The part of a run's header that a runtime needs.

    Attributes:
        run: The run's id, part of names and paths; empty if the run is not stored.
        restart_seconds: Simulated seconds from a launch to the first training step, unless
            `throughputs` has its own.
        inventory: The simulated cluster; None if all jobs run on their reference allocations.
        adapts: Whether jobs of measured applications choose their batch sizes.
    """

    run: str
    round_seconds: float
    restart_seconds: float = 0.0
    throughputs: Profile = field(default_factory=lambda: Profile({}))
    inventory: Inventory | None = None
    adapts: bool = False

    def menu(self, job: JobSpec) -> tuple[Allocation, ...]:
        """Return the allocations that a job may get in a simulation."""
        if self.inventory is None:
            return (self.throughputs.reference(job),)
        menu = self.inventory.menu_of(job, job.batch_size, self.throughputs)
        spread = (
            replace(found, nodes=nodes)
            for found in menu
            for nodes in self.throughputs.by_nodes
            if found.nodes < nodes <= found.gpus
        )
        return *menu, *(found for found in spread if runs_on(self.throughputs, job, found))

    def moves(self, before: Sequence[int], now: Sequence[int]) -> bool:
        """Return whether a job moves to another pool, or to another number of GPUs."""
        inventory = self.inventory
        if inventory is None or not before:
            return False
        if len(before) != len(now):
            return True
        return len(inventory.pools) > 1 and inventory.pool(before[0]) != inventory.pool(now[0])

    def allocation(self, job: JobSpec, gpus: Sequence[int]) -> Allocation:
        """Return the allocation that decides a job's simulated rate on some GPUs."""
        if self.inventory is None:
            return self.throughputs.reference(job)
        return self.inventory.allocation(gpus)

    def restart(self, allocation: Allocation) -> float:
        """Return the simulated seconds from a launch to the first training step."""
        return self.throughputs.restart(allocation, self.restart_seconds)


@dataclass(frozen=True)
class ResumePoint:
    """The state of a run when its runtime opens; by default, that of a new run.

    Attributes:
        clock_seconds: Start of the current round.
        leases: GPUs held in the round, by job id.
        epochs: Completed epochs reported, by job id.
        run_seconds: Run time reported, by job id.
    """

    clock_seconds: float = 0.0
    jobs: tuple[JobSpec, ...] = ()
    leases: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    epochs: Mapping[int, int] = field(default_factory=dict)
    run_seconds: Mapping[int, float] = field(default_factory=dict)
    started: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Lease:
    """The GPUs that a job holds for the coming round.

    Attributes:
        gpus: GPU indices of the whole gang, ascending.
    """

    job_id: int
    gpus: tuple[int, ...]


class EventKind(StrEnum):
    """An event of a job's container."""

    STARTED = "started"
    """First launch."""
    RENEWED = "renewed"
    """Kept its lease; the container keeps running."""
    RESUMED = "resumed"
    """Launched again from its checkpoint after a preemption."""
    PREEMPTED = "preempted"
    """Lost its lease at a round boundary."""
    FINISHED = "finished"
    """Trained its last epoch."""
    WITHDRAWN = "withdrawn"
    """Cancelled by a user, or because a job before it failed."""
    CRASHED = "crashed"
    """Its container failed or hung."""
    STOPPED = "stopped"
    """Its container exited early, with the exit code of a stop signal, a kill or an unwritable
    folder. Either the job or its host may be the cause."""
    UNSTARTED = "unstarted"
    """Not started: its node lacks an image or a secret that the job names. Costs nothing."""
    LOST = "lost"
    """Lost without the job's fault: its container vanished, its node could not start it or went
    out of service."""
    FAILED = "failed"
    """Given up: its containers failed too often in a row, or it exceeded a limit."""


DISPATCHED = (EventKind.STARTED, EventKind.RENEWED, EventKind.RESUMED, EventKind.PREEMPTED)
"""Events that a round's dispatch causes; the others happen while the round runs."""


@dataclass(frozen=True, slots=True)
class ContainerEvent:
    """An event of a job's container.

    Attributes:
        gpus: GPUs held (after a launch) or released (after a preemption, a loss or the end).
        reason: Reason in words, unless the kind implies it.
        isolated_seconds: For a finished job, its isolated run time if the runtime knows it; else 0.
    """

    job_id: int
    kind: EventKind
    at_seconds: float
    gpus: tuple[int, ...]
    reason: str = ""
    isolated_seconds: float = 0.0

    @property
    def ends_job(self) -> bool:
        """Whether the event ends the job, not only its lease."""
        return self.kind in (EventKind.FINISHED, EventKind.WITHDRAWN, EventKind.FAILED)


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """A problem that keeps a node out of service."""

    node: int
    problem: str


@dataclass(frozen=True, slots=True)
class Observation:
    """A runtime's report at a round boundary, of everything since the previous one.

    Attributes:
        finished: Containers that ended on their own, by time, whether their jobs ended (finished,
            withdrawn, failed) or not (crashed, stopped, lost).
        reports: Completed epochs, in order within each job.
        drained: Nodes out of service, ascending.
        losses: Known training losses of completed epochs, in order within each job.
    """

    clock_seconds: float
    finished: tuple[ContainerEvent, ...]
    reports: tuple[EpochReport, ...]
    progress: tuple[JobProgress, ...]
    drained: tuple[int, ...] = ()
    problems: tuple[NodeProblem, ...] = ()
    losses: tuple[EpochLoss, ...] = ()

    @property
    def ended(self) -> tuple[int, ...]:
        """Jobs that ended."""
        return tuple(event.job_id for event in self.finished if event.ends_job)


class Runtime(Protocol):
    """Executes the jobs of a run in rounds.

    A caller admits jobs, dispatches a round (`preempt` jobs that lost their lease, then `launch`
    jobs with a new lease), waits for its end (`advance`), reads its events (`observe`), and
    removes ended jobs (`reap`). Admission and dispatch are idempotent.

    A runtime of several hosts divides work by host if it is given a mapper (`each`).
    """

    def admit(self, jobs: Sequence[JobSpec]) -> None:
        """Admit jobs, which may then be launched.

        Raises:
            InputError: A job cannot run here.
        """
        ...

    def withdraw(self, job_id: int, reason: str = BY_ITS_OWNER) -> None:
        """Cancel a job at the next round boundary, unless it ends before.

        `observe` reports the cancellation, which frees the GPUs. An unknown job, which may just
        have ended, is ignored.
        """
        ...

    def resize(self, inventory: Inventory, removed: Collection[int]) -> None:
        """Change the nodes from the coming round on.

        Args:
            inventory: The present nodes with their numbers, then new ones.
            removed: Nodes that get no more leases, including those removed before.
        """
        ...

    def preempt(
        self, reasons: Mapping[int, str], each: Mapper | None = None
    ) -> tuple[ContainerEvent, ...]:
        """Preempt jobs that hold a lease; they keep their checkpoints.

        Returns an event for each job, in order; `reasons` gives their reasons by job id.
        """
        ...

    def launch(
        self, number: int, leases: Sequence[Lease], each: Mapper | None = None
    ) -> tuple[ContainerEvent, ...]:
        """Start or resume jobs, or renew their leases, for the coming round `number`.

        A job that holds other GPUs releases them first. Returns an event for each lease, in order.
        """
        ...

    def advance(self, idle_until: float | None) -> None:
        """Let the round pass, until its longest job is done or the round is over.

        Args:
            idle_until: Where the clock goes if no job is launched (the next arrival), or None to
                leave it.
        """
        ...

    def observe(self, each: Mapper | None = None) -> Observation:
        """Return what happened since the last call."""
        ...

    def reap(self, job_ids: Sequence[int]) -> None:
        """Forget ended jobs and remove their remains, leases included."""
        ...

    def close(self) -> None:
        """Close connections; jobs that run without a scheduler (`live`) keep running."""
        ...


class RuntimeFactory(Protocol):
    """Opens runtimes, on machines or on a virtual clock."""

    @property
    def live(self) -> bool:
        """Whether jobs keep running without a scheduler.

        A resumed run then continues from its resume point; otherwise its rounds are replayed first.
        """
        return False

    def check(self, terms: Terms, jobs: Iterable[JobSpec]) -> None:
        """Refuse jobs that cannot run here, before their run begins; by default none.

        Raises:
            InputError: A job cannot run here.
        """
        return None

    def open(self, terms: Terms, resume_point: ResumePoint) -> Runtime:
        """Open a run's runtime; the caller closes it."""
        ...
