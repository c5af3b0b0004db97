"""What the round asks of a place where jobs run, whether real or virtual."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from predictor.job import EpochReport, JobProgress, JobSpec
from predictor.profile import Profile


@dataclass(frozen=True)
class Terms:
    """What a runtime has to know of a run's header.

    Attributes:
        run: The run's id, part of names and paths; empty for a run that is not kept.
        round_seconds: Longest round.
        restart_seconds: From a launch to the first training step, where that is played.
        throughputs: Speed at which jobs run, where that is played.
    """

    run: str
    round_seconds: float
    restart_seconds: float = 0.0
    throughputs: Profile = field(default_factory=lambda: Profile({}))


@dataclass(frozen=True)
class Standing:
    """Where a run stands when its runtime opens; by default, at its beginning.

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
        gpus: Indices of the GPUs, ascending; as many as its scale factor.
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
    """Taken out before its end, by who owns it."""
    CRASHED = "crashed"
    """Its container failed or hung before the job's end."""
    LOST = "lost"
    """No fault of the job's own: its container vanished, could not start or write to its
    folder, was stopped from outside, or its node went out of service."""
    FAILED = "failed"
    """Given up: it crashed too often in a row."""


@dataclass(frozen=True, slots=True)
class ContainerEvent:
    """One thing that happened to a job's container, and when.

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
        """Whether the job ended with it, and not just a lease."""
        return self.kind in (EventKind.FINISHED, EventKind.WITHDRAWN, EventKind.FAILED)


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that a runtime reports at a round boundary, since the one before.

    Attributes:
        clock_seconds: The run's clock at the boundary.
        finished: Containers that ended by themselves, by time: of jobs that trained their last
            epoch or were withdrawn, and of others that crashed or were lost.
        reports: Completed epochs, in order within each job.
        progress: Where each job that ran since then stands.
        drained: Nodes that are out of service, ascending.
    """

    clock_seconds: float
    finished: tuple[ContainerEvent, ...]
    reports: tuple[EpochReport, ...]
    progress: tuple[JobProgress, ...]
    drained: tuple[int, ...] = ()

    @property
    def ended(self) -> tuple[int, ...]:
        """Jobs that ended."""
        return tuple(event.job_id for event in self.finished if event.ends_job)


class Runtime(Protocol):
    """The jobs of one run, in rounds, in the place where they run.

    A caller admits jobs, dispatches a round (`preempt` what lost its lease, then `launch` what
    has one), lets it pass (`advance`), reads what happened (`observe`), and forgets what ended
    (`reap`). Admitting a job or dispatching a round once more changes nothing.
    """

    def admit(self, jobs: Sequence[JobSpec]) -> None:
        """Take jobs in, which may be launched from now on.

        Raises:
            InputError: A job cannot run here.
        """
        ...

    def withdraw(self, job_id: int) -> None:
        """Take a job out at the next boundary, unless it ends before.

        `observe` reports it, and its GPUs are free from then on. A job that is not here, as it
        may just have ended, is no error.
        """
        ...

    def preempt(self, reasons: Mapping[int, str]) -> tuple[ContainerEvent, ...]:
        """Take the GPUs of jobs back; they keep their progress.

        Args:
            reasons: Why, for the events, by job id; of jobs that hold a lease.

        Returns:
            An event for each, in their order.
        """
        ...

    def launch(self, number: int, leases: Sequence[Lease]) -> tuple[ContainerEvent, ...]:
        """Start or resume jobs, or renew their leases, for the coming round.

        One that holds other GPUs gives them back first.

        Args:
            number: The round.
            leases: Those of the round that are new.

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
        """What happened since the last call."""
        ...

    def reap(self, job_ids: Sequence[int]) -> None:
        """Forget ended jobs and remove what they left behind."""
        ...

    def close(self) -> None:
        """Let go of the place; what runs there runs on."""
        ...


class Place(Protocol):
    """Where runs run: machines, or a clock and what jobs will do on it."""

    def open(self, terms: Terms, standing: Standing) -> Runtime:
        """A run's runtime; who opens it closes it.

        Args:
            terms: What it has to know of the run.
            standing: Where the run stands.
        """
        ...
