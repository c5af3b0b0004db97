"""A cluster on a virtual clock whose jobs are measured applications, perhaps beside others.

It repeats the rounds of Pollux's simulator (Qiao et al., OSDI '21): speed by placement, progress by
measured noise, and restarts wherever a job moves. Other jobs train as on a `FaithfulCluster`.
`docs/simulation.md` has the details.
"""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from containers.runtime import ContainerEvent, EventKind, Lease, ResumePoint, Terms
from containers.virtual.faithful import VirtualJob
from containers.virtual.simulated_cluster import SimulatedCluster, TruthFactory
from containers.virtual.truth import GroundTruth
from predictor.allocation import Allocation
from predictor.application import Application, Placement
from predictor.errors import InputError
from predictor.goodput import Agent
from predictor.job import EpochReport, JobProgress, JobSpec, add_report
from predictor.throughput import Profile
from solver.inventory import Inventory


@dataclass
class TrainingJob:
    """A job of a measured application.

    Attributes:
        agent: What it has measured, if it chooses its batch sizes; else None.
        gpus: GPUs that it holds.
        placement: Its GPUs by node.
        speed: Its speed on GPUs of their type, over that on the measured one.
        restart_left: Seconds until its restart is over.
        work: Progress since its beginning, in steps of the initial batch size.
        seconds: Training time in the last round.
        open_seconds: Training time in the current epoch.
    """

    spec: JobSpec
    app: Application
    agent: Agent | None = None
    gpus: tuple[int, ...] = ()
    placement: Placement = ()
    speed: float = 1.0
    restart_left: float = 0.0
    started: bool = False
    epoch: int = 0
    work: float = 0.0
    seconds: float = 0.0
    run_seconds: float = 0.0
    open_seconds: float = 0.0
    batch_size: int = 0
    unreported: list[EpochReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.batch_size = self.spec.batch_size

    @property
    def done(self) -> bool:
        """Whether it has trained its last epoch."""
        return self.epoch == self.app.epochs

    def stays(self, gpus: Sequence[int], inventory: Inventory) -> bool:
        """Return whether it continues on other GPUs without a restart: as many on each node."""
        return [*map(inventory.node, self.gpus)] == [*map(inventory.node, gpus)]

    def move(self, allocation: Allocation, nodes: Sequence[int], profile: Profile) -> None:
        """Move to an allocation, given the node of each GPU."""
        self.placement = self.app.place(nodes)
        self.speed = profile.relative_speed(self.spec, allocation.gpu_type)

    def restart(self) -> None:
        """Do nothing: it writes checkpoints."""

    def hold(self, seconds: float, profile: Profile) -> float:
        """Hold its GPUs for a time, or to the job's end; return the time until then.

        As in the published simulator, epochs end at whole seconds after their beginning.
        """
        self._adapt()
        lost = min(self.restart_left, seconds)
        self.restart_left -= lost
        left, self.seconds = seconds - lost, 0.0
        while left > 0.0 and not self.done:
            took, ends = self._rest_of_epoch(left)
            left -= took
            self.seconds += took
            self.open_seconds += took
            if ends:
                size, spent = self.batch_size, self.open_seconds
                report = EpochReport(self.spec.job_id, self.epoch, 1, size, spent)
                add_report(self.unreported, report)
                self.epoch, self.open_seconds = self.epoch + 1, 0.0
                self._adapt()
        self.run_seconds += self.seconds
        return seconds - left

    def _rest_of_epoch(self, seconds: float) -> tuple[float, bool]:
        """Train in an epoch; return the seconds used, and whether it has ended."""
        size, gpus = self.batch_size, len(self.gpus)
        if self.agent:
            self.agent = self.agent.after(self.placement, size, self.epoch)
        gain = self.app.gain(size, gpus, self.epoch)
        step = self.app.step_seconds(self.placement, size)
        if step == math.inf:
            problem = f"{self.app.name} was not measured at batch size {size} on {self.placement}"
            raise InputError(f"job {self.spec.job_id}", problem, "add the measurements")
        goodput = gain / step * self.speed
        end = self.app.progress_after(self.epoch + 1)
        if self.work + goodput * seconds < end:
            self.work += goodput * seconds
            return seconds, False
        took = min(float(round((end - self.work) / goodput)), seconds)
        self.work = end
        return took, True

    def _adapt(self) -> None:
        """Choose the batch size for the coming epoch or round."""
        if self.agent and not self.done:
            tuned = self.spec.batch_size
            self.batch_size = self.agent.choose_batch_size(self.placement, tuned)

    def reports(self) -> list[EpochReport]:
        """Return the epochs completed since the last call."""
        found, self.unreported = self.unreported, []
        return found

    def progress(self) -> JobProgress:
        """Return its progress, in steps of whole epochs at its batch size."""
        spec, size = self.spec, self.batch_size
        fraction = 0.0
        if not self.done:
            began, end = (self.app.progress_after(self.epoch + n) for n in (0, 1))
            fraction = min((self.work - began) / (end - began), 1.0)
        left = spec.steps_after(self.epoch, size)
        return JobProgress(
            job_id=spec.job_id,
            epochs=self.epoch,
            fraction=fraction,
            batch_size=size,
            seconds=self.seconds,
            run_seconds=self.run_seconds,
            steps_left=left - math.floor(fraction * spec.steps_per_epoch(size)),
        )


@dataclass
class OtherJob(VirtualJob):
    """A job of a table of rates, or a timed one; attributes are those of a `TrainingJob`."""

    agent: None = None
    gpus: tuple[int, ...] = ()
    restart_left: float = 0.0

    def stays(self, gpus: Sequence[int], inventory: Inventory) -> bool:
        """See `TrainingJob.stays`; it restarts on any other GPUs, as on a `FaithfulCluster`."""
        return self.gpus == gpus

    def move(self, allocation: Allocation, nodes: Sequence[int], profile: Profile) -> None:
        """See `TrainingJob.move`."""
        self.allocation = allocation

    def hold(self, seconds: float, profile: Profile) -> float:
        """See `TrainingJob.hold`."""
        lost = min(self.restart_left, seconds)
        self.restart_left -= lost
        return lost + self.train(seconds - lost, profile)


class ApplicationCluster(SimulatedCluster):
    """A `Runtime` on a virtual clock; an `ApplicationFactory` opens it.

    Rounds have their full length. A job of an application restarts if its number of GPUs on a node
    changes, another one if any of its GPUs does: it holds them for `Terms.restart` without
    training, at its first launch too.
    """

    published_rules = False

    def __init__(
        self, truths: Mapping[int, GroundTruth], terms: Terms, resume_point: ResumePoint
    ) -> None:
        self._jobs: dict[int, TrainingJob | OtherJob] = {}
        self._ran: list[TrainingJob | OtherJob] = []
        super().__init__(truths, terms, resume_point)

    @property
    def _active(self) -> Set[int]:
        return self._jobs.keys()

    def _add(self, jobs: Sequence[JobSpec]) -> None:
        profile = self._terms.throughputs
        for spec in jobs:
            job: TrainingJob | OtherJob
            if app := profile.applications.get(spec.model):
                job = TrainingJob(spec, app, Agent.of(spec, app) if self._terms.adapts else None)
            else:
                job = OtherJob(spec, self._truths[spec.job_id], profile.reference(spec))
            self._jobs.setdefault(spec.job_id, job)

    def find_agent(self, job_id: int) -> Agent | None:
        """Return what a job has measured, if it chooses its batch sizes."""
        return self._jobs[job_id].agent

    def _reset(self, job_id: int) -> None:
        self._jobs[job_id].restart()

    def _release(self, job_id: int) -> tuple[int, ...]:
        job = self._jobs[job_id]
        gpus, job.gpus = job.gpus, ()
        return gpus

    def _launch(self, lease: Lease) -> ContainerEvent:
        job, inventory = self._jobs[lease.job_id], self._terms.inventory
        assert inventory is not None, "a simulation has a cluster"
        if job.stays(lease.gpus, inventory):
            kind = EventKind.RENEWED
        else:
            kind = EventKind.RESUMED if job.started else EventKind.STARTED
            allocation = self._terms.allocation(job.spec, lease.gpus)
            job.restart_left = self._terms.restart(allocation)
            nodes = [inventory.node(gpu) for gpu in lease.gpus]
            job.move(allocation, nodes, self._terms.throughputs)
        job.gpus, job.started = lease.gpus, True
        return ContainerEvent(lease.job_id, kind, self._clock, lease.gpus)

    def advance(self, idle_until: float | None) -> None:
        """See `Runtime.advance`; the clock goes on by whole rounds."""
        self._ran = [job for job in self._jobs.values() if job.gpus]
        seconds = self._terms.round_seconds
        for job in self._ran:
            held = job.hold(seconds, self._terms.throughputs)
            if job.done:
                at = self._clock + held
                gpus = self._release(job.spec.job_id)
                event = ContainerEvent(job.spec.job_id, EventKind.FINISHED, at, gpus)
                self._finished.append(event)
        rounds = 1
        if not self._ran and idle_until is not None:
            rounds = max(math.ceil((idle_until - self._clock) / seconds), 1)
        self._clock += rounds * seconds

    def _report(self) -> tuple[tuple[EpochReport, ...], tuple[JobProgress, ...]]:
        ran, self._ran = sorted(self._ran, key=lambda job: job.spec.job_id), []
        reports = tuple(report for job in ran for report in job.reports())
        return reports, tuple(job.progress() for job in ran)

    def reap(self, job_ids: Sequence[int]) -> None:
        """See `Runtime.reap`."""
        for job_id in job_ids:
            del self._jobs[job_id]


class ApplicationFactory(TruthFactory):
    """A virtual clock with jobs of measured applications, perhaps beside others."""

    cluster = ApplicationCluster
