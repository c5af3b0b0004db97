"""Sources of jobs and commands."""

import math
from collections.abc import Collection, Iterable, Mapping, Sized
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import Protocol

from containers.virtual.truth import GroundTruth
from predictor.errors import InputError
from predictor.job import JobSpec
from predictor.rows import hash_content, to_row
from predictor.throughput import Profile
from solver.inventory import Inventory
from tasks.commands import Command


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """The numbers of jobs and commands that a run has taken in from a source.

    `clock_seconds` is the run's clock when it last read the source.
    """

    jobs: int = 0
    commands: int = 0
    clock_seconds: float = -math.inf

    @property
    def entries(self) -> int:
        """Number of an inbox's entries: each is a job or a command."""
        return self.jobs + self.commands

    def after(self, clock_seconds: float, jobs: Sized, commands: Sized) -> "SourcePosition":
        """Return the position after further jobs and commands, at a time on the run's clock."""
        return SourcePosition(self.jobs + len(jobs), self.commands + len(commands), clock_seconds)


@dataclass(frozen=True, slots=True)
class Intake:
    """The jobs and commands that a round takes in.

    A service on a virtual cluster makes `truths` for these jobs. `submitters` are the names of
    those who submitted them to a service, in their order; empty where none is known.
    """

    jobs: tuple[JobSpec, ...] = ()
    commands: tuple[Command, ...] = ()
    truths: tuple[GroundTruth, ...] = ()
    submitters: tuple[str, ...] = ()


class JobSource(Protocol):
    """Jobs and commands in the order of their arrival.

    A source is stateless. The position is part of a run's state, so that a resumed, forked or
    replayed run takes in the same entries.
    """

    def until(self, clock_seconds: float, taken: SourcePosition) -> Intake:
        """Return the entries after a position that arrived by a time on the run's clock."""
        ...

    def idle_until(self, taken: SourcePosition, quotas: Iterable[float] = ()) -> float | None:
        """Return the latest end of a round in which nothing runs, on the run's clock.

        None if unknown. `quotas` are the times at which quotas allow waiting jobs to run again.
        """
        ...

    def is_exhausted(self, taken: SourcePosition) -> bool:
        """Return whether nothing more can arrive."""
        ...


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs and commands that are known when a run begins.

    Attributes:
        jobs: By arrival and then job id.
        truths: Ground truths made for these jobs, in their order; see `Intake`.
        submitters: Who submitted these jobs; see `Intake`.
        before: Position of the first job and command.
    """

    jobs: tuple[JobSpec, ...]
    commands: tuple[Command, ...] = ()
    truths: tuple[GroundTruth, ...] = ()
    submitters: tuple[str, ...] = ()
    before: SourcePosition = SourcePosition()

    def _next(self, taken: SourcePosition) -> tuple[int, int]:
        """Return the indices of the next job and command."""
        return taken.jobs - self.before.jobs, taken.commands - self.before.commands

    def until(self, clock_seconds: float, taken: SourcePosition) -> Intake:
        """See `JobSource.until`."""
        job, command = self._next(taken)
        coming, given = self.jobs[job:], self.commands[command:]
        jobs = tuple(takewhile(lambda job: job.arrival_seconds <= clock_seconds, coming))
        return Intake(
            jobs=jobs,
            commands=tuple(takewhile(lambda command: command.at_seconds <= clock_seconds, given)),
            truths=self.truths[job : job + len(jobs)],
            submitters=self.submitters[job : job + len(jobs)],
        )

    def idle_until(self, taken: SourcePosition, quotas: Iterable[float] = ()) -> float | None:
        """See `JobSource.idle_until`."""
        job, command = self._next(taken)
        jobs, given = self.jobs[job : job + 1], self.commands[command : command + 1]
        arrivals = [job.arrival_seconds for job in jobs] + [entry.at_seconds for entry in given]
        return min([*quotas, *arrivals], default=None)

    def is_exhausted(self, taken: SourcePosition) -> bool:
        """See `JobSource.is_exhausted`."""
        job, command = self._next(taken)
        return job >= len(self.jobs) and command >= len(self.commands)


@dataclass(frozen=True)
class Workload:
    """A trace with its jobs' ground truths and throughput profile.

    Attributes:
        source: Origin: a trace's name or the generator's parameters.
        specs: The jobs as declared, by arrival and then job id.
        truths: Ground truths in the same order, for virtual clusters only.
        places: File and line by job id, for error messages; empty for generated jobs.
        commands: Commands of a service, by time.
        submitters: Who submitted the jobs to a service; see `Intake`.
        service: Whether its jobs came to a service, which made their truths, if any.
        smaller: Remedy for a job that is too large, as an alternative to a larger cluster.
        left_out: Number of a trace's lines that are not jobs, by reason.
        slots: Slots of a GPU, if jobs hold shares of GPUs: demands count slots, not GPUs.
        lacking: Number of a log's jobs by the GPU type that they had, of types that the cluster
            lacks: they run on any.
        reduced: Number of jobs whose tuned GPUs are reduced to those of the cluster.
    """

    source: str
    specs: tuple[JobSpec, ...]
    truths: tuple[GroundTruth, ...]
    profile: Profile
    places: Mapping[int, str] = field(default_factory=dict, compare=False)
    commands: tuple[Command, ...] = ()
    submitters: tuple[str, ...] = ()
    service: bool = False
    smaller: str = field(default="leave the job out", compare=False)
    left_out: Mapping[str, int] = field(default_factory=dict, compare=False)
    slots: int = 1
    lacking: Mapping[str, int] = field(default_factory=dict, compare=False)
    reduced: int = field(default=0, compare=False)

    @cached_property
    def digest(self) -> str:
        """The hash of its jobs and ground truths."""
        jobs = zip(self.specs, self.truths, strict=True)
        return hash_content([[to_row(spec), to_row(truth)] for spec, truth in jobs])

    @property
    def trace(self) -> Trace:
        """Its jobs as a source."""
        truths = self.truths if self.service else ()
        return Trace(self.specs, self.commands, truths, self.submitters)

    def tell_changes(self) -> str:
        """Return sentences about jobs that the cluster changes; empty without any."""
        told = []
        if self.lacking:
            had = ", ".join(f"{number:,} had {kind}" for kind, number in self.lacking.items())
            told.append(
                "Jobs whose GPU type the cluster lacks run on any, at the speed that they had: "
                f"{had}."
            )
        if self.reduced:
            one = self.reduced == 1
            told.append(
                f"{self.reduced:,} {'job was' if one else 'jobs were'} tuned to more GPUs than the "
                f"cluster has; {'it is' if one else 'they are'} tuned to all of its GPUs instead."
            )
        return " ".join(told)

    def figures(self) -> dict[str, str | int | float]:
        """Return source, number of jobs, isolated work in GPU-hours, and last arrival."""
        jobs = zip(self.specs, self.truths, strict=True)
        work = sum(self.profile.reference(s).gpus * t.isolated_seconds for s, t in jobs)
        return {
            "source": self.source,
            "jobs": len(self.specs),
            "gpu_hours": work / 3600,
            "last_arrival_s": self.specs[-1].arrival_seconds,
        }

    def check_fits(self, inventory: Inventory, ended: Collection[int] = ()) -> None:
        """Refuse a workload with a job that a cluster can never run; ended jobs are ignored.

        Raises:
            InputError: A job needs more GPUs, or other GPU types, than a pool of the cluster has.
        """
        pools = inventory.pools
        has = ", ".join(f"{pool.gpus} {pool.gpu_type}" for pool in pools)
        for spec in (spec for spec in self.specs if spec.job_id not in ended):
            place = f"{self.places.get(spec.job_id, self.source)}, job {spec.job_id}"
            needs = f"needs {spec.demand.size} GPUs"
            if self._cannot_be_spread(spec, inventory):
                problem = f"{needs} on one node, as it makes no steps on several"
                raise InputError(place, problem, f"give larger nodes or {self.smaller}")
            if not inventory.menu_of(spec, spec.batch_size, self.profile):
                raise InputError(
                    place,
                    f"{needs}{' of type ' * bool(spec.demand.types)}"
                    f"{' or '.join(spec.demand.types)}"
                    f"{', all of one type that it can run on' * (len(pools) > 1)}, "
                    f"but the cluster has {has if len(pools) > 1 else inventory.gpus}",
                    f"give a larger cluster or {self.smaller}",
                )

    def _cannot_be_spread(self, spec: JobSpec, inventory: Inventory) -> bool:
        """Return whether enough GPUs exist, but only on more nodes than the job can use."""
        menu, size, profile = inventory.menu(spec.demand), spec.batch_size, self.profile
        return not any(profile.can_run(spec, size, there) for there in menu) and any(
            profile.can_run(spec, size, replace(there, nodes=1)) for there in menu
        )

    def on(self, inventory: Inventory) -> "Workload":
        """Return the workload with isolated run times and profile for a cluster's GPU types.

        Isolated run times are on the fewest nodes that fit the gang. On several GPU types, they use
        the mean of a job's rates, weighted by GPUs (the proportional rate of Gavel, OSDI '20).
        """
        if len(self.profile.gpu_types) < 2 and not self.profile.placement_matters:
            return self
        profile = self.profile.of_types(inventory.types)
        found = replace(self, profile=profile)
        if not inventory.mixed and not profile.placement_matters:
            return found
        jobs = zip(self.specs, self.truths, strict=True)
        return replace(found, truths=tuple(_shared(*job, profile, inventory) for job in jobs))


def _shared(
    spec: JobSpec, truth: GroundTruth, profile: Profile, inventory: Inventory
) -> GroundTruth:
    """Return a truth with the isolated run time at the mean rate of a cluster's GPUs."""
    menu, total = inventory.menu(spec.demand.rigid), inventory.gpus
    reference = profile.reference(spec)
    if not inventory.mixed and menu == (reference,):
        return truth
    alone = shared = 0.0
    for size, epochs in ((regime.batch_size, regime.epochs) for regime in truth.profiled):
        rates = {
            found.gpu_type: profile.rate(spec, size, found)
            for found in menu
            if not inventory.mixed or profile.can_run(spec, size, found)
        }
        mean = sum(inventory.capacities[kind] * rate for kind, rate in rates.items()) / total
        alone += epochs / size / profile.rate(spec, size, reference)
        shared += epochs / size / mean
    return replace(truth, isolated_seconds=truth.isolated_seconds * shared / alone)


def sort_by_arrival(
    jobs: Iterable[tuple[JobSpec, GroundTruth]],
) -> tuple[tuple[JobSpec, ...], tuple[GroundTruth, ...]]:
    """Sort jobs and their truths by arrival and then job id."""
    ordered = sorted(jobs, key=lambda job: (job[0].arrival_seconds, job[0].job_id))
    return tuple(spec for spec, _ in ordered), tuple(truth for _, truth in ordered)
