"""The runtime protocol: what a round requires of a place where jobs run, real or virtual."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from predictor.allocation import Allocation
from predictor.job import EpochLoss, EpochReport, JobProgress, JobSpec
from predictor.throughput import Profile, runs_on
from solver.inventory import Inventory

BY_ITS_OWNER = "by its owner"
"""Reason of a withdrawal, unless another is given."""


@dataclass(frozen=True)
class Terms:
    """The part of a run's header that a runtime needs.

    Attributes:
        run: The run's id, part of names and paths; empty for a run that is not stored.
        round_seconds: Maximum length of a round.
        restart_seconds: From a launch to the first training step, where it is simulated and the
            throughputs do not have it.
        throughputs: Throughput profile, where training is simulated.
        inventory: The cluster, where training is simulated; None if all jobs run on their
            reference allocations.
    """

    run: str
    round_seconds: float
    restart_seconds: float = 0.0
    throughputs: Profile = field(default_factory=lambda: Profile({}))
    inventory: Inventory | None = None

    def menu(self, job: JobSpec) -> tuple[Allocation, ...]:
        """The allocations that a job may be given in a simulation."""
        if self._alike or self.inventory is None:
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
        """Whether a job moves to another pool, with GPUs held before and from now on."""
        inventory = self.inventory
        if inventory is None or len(inventory.pools) == 1 or not before:
            return False
        return inventory.pool(before[0]) != inventory.pool(now[0])

    def allocation(self, job: JobSpec, gpus: Sequence[int]) -> Allocation:
        """The allocation of some GPUs that decides the rate of a job in a simulation."""
        if self._alike or self.inventory is None:
            return self.throughputs.reference(job)
        return self.inventory.allocation(gpus)

    @property
    def _alike(self) -> bool:
        """Whether every job is as fast on any GPUs as on its reference allocation."""
        single_pool = self.inventory is None or len(self.inventory.pools) == 1
        return single_pool and not self.throughputs.placement_matters

    def restart(self, allocation: Allocation) -> float:
        """Seconds from a launch on an allocation to the first training step in a simulation."""
        return self.throughputs.restart(allocation, self.restart_seconds)


@dataclass(frozen=True)
class ResumePoint:
    """The state of a run when its runtime opens; by default, its beginning.

    Attributes:
        clock_seconds: Start of the round under way.
        jobs: Jobs that were admitted and have not ended.
        leases: GPUs held in the round, by job id.
        epochs: Completed epochs reported, by job id.
        run_seconds: Run time reported, by job id.
        started: Jobs that were ever launched.
    """

    clock_seconds: float = 0.0
    jobs: tuple[JobSpec, ...] = ()
    leases: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    epochs: Mapping[int, int] = field(default_factory=dict)
    run_seconds: Mapping[int, float] = field(default_factory=dict)
    started: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease: the GPUs that a job holds for the coming round.

    Attributes:
        job_id: The job.
        gpus: GPU indices, ascending; the whole gang.
    """

    job_id: int
    gpus: tuple[int, ...]


class EventKind(StrEnum):
    """What happened to a job's container."""

    STARTED = "started"
    """First launch."""
    RENEWED = "renewed"
    """The lease goes on; the container keeps running."""
    RESUMED = "resumed"
    """Launched again from its checkpoint after a preemption."""
    PREEMPTED = "preempted"
    """Lost its lease at a round boundary."""
    FINISHED = "finished"
    """Trained its last epoch."""
    WITHDRAWN = "withdrawn"
    """Cancelled before its end by its owner."""
    CRASHED = "crashed"
    """Its container failed or hung before the job's end."""
    STOPPED = "stopped"
    """Its container ended before the job's end with the exit code of a stop signal or
    a kill, or of a folder that it could not write to: its own doing or its host's."""
    LOST = "lost"
    """No fault of the job's own: its container vanished or could not start, or its node went out
    of service."""
    FAILED = "failed"
    """Given up: its containers failed too often in a row, or it exceeded a limit."""


@dataclass(frozen=True, slots=True)
class ContainerEvent:
    """An event of a job's container.

    Attributes:
        job_id: The job.
        kind: What happened.
        at_seconds: When, on the run's clock.
        gpus: GPUs held (after a launch) or given back (after a preemption, a loss or the end).
        reason: Why, in words, where the kind alone does not say it.
    """

    job_id: int
    kind: EventKind
    at_seconds: float
    gpus: tuple[int, ...]
    reason: str = ""

    @property
    def ends_job(self) -> bool:
        """Whether the event ends the job, and not only a lease."""
        return self.kind in (EventKind.FINISHED, EventKind.WITHDRAWN, EventKind.FAILED)


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """What keeps a node out of service.

    Attributes:
        node: The node.
        problem: In words.
    """

    node: int
    problem: str


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that a runtime reports at a round boundary, since the last boundary.

    Attributes:
        clock_seconds: The run's clock at the boundary.
        finished: Containers that ended by themselves, by time: of jobs that trained their last
            epoch, were withdrawn or given up, and of others that crashed, stopped or were lost.
        reports: Completed epochs, in order within each job.
        progress: Where each job that ran since then stands.
        drained: Nodes that are out of service, ascending.
        problems: What is wrong with nodes, as far as it is known, by node.
        losses: Training losses of completed epochs, in order within each job, as far as known.
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
    """

    def admit(self, jobs: Sequence[JobSpec]) -> None:
        """Admit jobs, which may be launched from now on.

        Raises:
            InputError: A job cannot run here.
        """
        ...

    def withdraw(self, job_id: int, reason: str = BY_ITS_OWNER) -> None:
        """Cancel a job at the next round boundary, unless it ends before.

        `observe` reports the cancellation, after which its GPUs are free. An unknown job, which
        may just have ended, is no error.

        Args:
            job_id: The job.
            reason: Why, in words.
        """
        ...

    def resize(self, inventory: Inventory, removed: Collection[int]) -> None:
        """Change the nodes from the coming round on.

        Args:
            inventory: The nodes: the present ones with their numbers, then further ones.
            removed: Nodes that get no leases any more, including those removed before.
        """
        ...

    def preempt(self, reasons: Mapping[int, str]) -> tuple[ContainerEvent, ...]:
        """Preempt jobs, which keep their checkpoints.

        Args:
            reasons: Reasons for the events, by job id, of jobs that hold a lease.

        Returns:
            An event for each, in their order.
        """
        ...

    def launch(self, number: int, leases: Sequence[Lease]) -> tuple[ContainerEvent, ...]:
        """Start or resume jobs, or renew their leases, for the coming round.

        A job that holds other GPUs releases them first.

        Args:
            number: The round.
            leases: The new leases of the round.

        Returns:
            An event for each, in their order.
        """
        ...

    def advance(self, idle_until: float | None) -> None:
        """Let the round pass: until its longest job is done, or the round is over.

        Args:
            idle_until: Where the clock goes when nothing is launched (the next
                arrival), or None to leave it.
        """
        ...

    def observe(self) -> Observation:
        """The observation since the last call."""
        ...

    def reap(self, job_ids: Sequence[int]) -> None:
        """Forget ended jobs and remove what they left behind, a lease included."""
        ...

    def close(self) -> None:
        """Release the connections; jobs that run on their own go on."""
        ...


class RuntimeFactory(Protocol):
    """Where runs run: machines, or a clock and what jobs will do on it."""

    @property
    def live(self) -> bool:
        """Whether its jobs go on while no scheduler runs.

        A resumed run then starts from its standing; otherwise its rounds are first executed again.
        """
        return False

    def check(self, terms: Terms, jobs: Iterable[JobSpec]) -> None:
        """Refuse jobs that cannot run here, before their run begins; the default refuses none.

        Raises:
            InputError: A job cannot run here.
        """
        return None

    def open(self, terms: Terms, standing: ResumePoint) -> Runtime:
        """Open a run's runtime; the caller closes it.

        Args:
            terms: The terms of the run.
            standing: Where the run stands.
        """
        ...
