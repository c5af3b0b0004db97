"""A cluster on a virtual clock, apart from how its jobs train."""

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import ClassVar

from containers.runtime import (
    BY_ITS_OWNER,
    ContainerEvent,
    EventKind,
    Lease,
    Observation,
    ResumePoint,
    Runtime,
    RuntimeFactory,
    Terms,
)
from containers.virtual.truth import GroundTruth, by_id, check_jobs, losses_of
from predictor.job import EpochReport, JobProgress, JobSpec
from predictor.parts import Mapper
from solver.inventory import Inventory


class SimulatedCluster(Runtime):
    """A `Runtime` on a virtual clock, whose jobs follow their ground truths.

    Raises:
        InputError: See `check_jobs`.
    """

    published_rules: ClassVar[bool]
    """See `check_jobs`."""

    def __init__(
        self, truths: Mapping[int, GroundTruth], terms: Terms, resume_point: ResumePoint
    ) -> None:
        self._truths, self._terms = truths, terms
        self._clock = resume_point.clock_seconds
        self._finished: list[ContainerEvent] = []
        self._withdrawn: dict[int, str] = {}
        self.admit(resume_point.jobs)

    def admit(self, jobs: Sequence[JobSpec]) -> None:
        """See `Runtime.admit`."""
        check_jobs(jobs, self._truths, self._terms, published_rules=self.published_rules)
        self._add(jobs)

    def withdraw(self, job_id: int, reason: str = BY_ITS_OWNER) -> None:
        """See `Runtime.withdraw`."""
        self._withdrawn[job_id] = reason

    def resize(self, inventory: Inventory, removed: Collection[int]) -> None:
        """See `Runtime.resize`."""
        self._terms = replace(self._terms, inventory=inventory)

    def preempt(
        self, reasons: Mapping[int, str], each: Mapper | None = None
    ) -> tuple[ContainerEvent, ...]:
        """See `Runtime.preempt`."""
        for job_id in reasons:
            self._reset(job_id)
        return tuple(
            ContainerEvent(job_id, EventKind.PREEMPTED, self._clock, self._release(job_id), reason)
            for job_id, reason in reasons.items()
        )

    def launch(
        self, number: int, leases: Sequence[Lease], each: Mapper | None = None
    ) -> tuple[ContainerEvent, ...]:
        """See `Runtime.launch`."""
        return tuple(map(self._launch, leases))

    def observe(self, each: Mapper | None = None) -> Observation:
        """See `Runtime.observe`."""
        ended = {event.job_id for event in self._finished}
        for job_id in sorted(self._withdrawn.keys() & self._active - ended):
            gpus, reason = self._release(job_id), self._withdrawn[job_id]
            event = ContainerEvent(job_id, EventKind.WITHDRAWN, self._clock, gpus, reason)
            self._finished.append(event)
        self._withdrawn.clear()
        finished = [
            replace(event, isolated_seconds=self._truths[event.job_id].isolated_seconds)
            if event.kind is EventKind.FINISHED
            else event
            for event in self._finished
        ]
        self._finished = []
        reports, progress = self._report()
        return Observation(
            clock_seconds=self._clock,
            finished=tuple(sorted(finished, key=lambda event: (event.at_seconds, event.job_id))),
            reports=reports,
            progress=progress,
            losses=losses_of(self._truths, reports),
        )

    def close(self) -> None:
        """See `Runtime.close`; nothing to release."""

    @property
    @abstractmethod
    def _active(self) -> Set[int]:
        """Jobs admitted and not reaped."""

    @abstractmethod
    def _add(self, jobs: Sequence[JobSpec]) -> None:
        """Add jobs, unless they were added before."""

    @abstractmethod
    def _reset(self, job_id: int) -> None:
        """Reset a job to its first step if it writes no checkpoints."""

    @abstractmethod
    def _release(self, job_id: int) -> tuple[int, ...]:
        """Release a job's GPUs, if it has any, and return them."""

    @abstractmethod
    def _launch(self, lease: Lease) -> ContainerEvent: ...

    @abstractmethod
    def _report(self) -> tuple[tuple[EpochReport, ...], tuple[JobProgress, ...]]:
        """Return the epochs completed since the last call, and the progress of jobs that ran."""


class TruthFactory(RuntimeFactory):
    """A virtual clock, and the ground truths that jobs follow on it."""

    cluster: ClassVar[type[SimulatedCluster]]
    """The runtime that it opens."""

    def __init__(self, truths: Iterable[GroundTruth]) -> None:
        self._truths = by_id(truths)

    def check(self, terms: Terms, jobs: Iterable[JobSpec]) -> None:
        """See `RuntimeFactory.check` and `check_jobs`."""
        check_jobs(jobs, self._truths, terms, published_rules=self.cluster.published_rules)

    def open(self, terms: Terms, resume_point: ResumePoint) -> SimulatedCluster:
        """See `RuntimeFactory.open`; begins a run, or replays it from its beginning.

        No job of the resume point may have started, since it does not hold their completed work.

        Raises:
            InputError: See `check_jobs`.
        """
        return self.cluster(self._truths, terms, resume_point)
