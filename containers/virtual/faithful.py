"""A cluster on a virtual clock that behaves as containers do.

`VirtualCluster` repeats the published simulator; this one follows real machines. Each launch costs
a restart, batch sizes change at the end of epochs, and a round can end within an epoch or a step.
`docs/simulation.md` compares the two.
"""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import accumulate

from containers.runtime import ContainerEvent, EventKind, Lease, ResumePoint, Terms
from containers.virtual.simulated_cluster import SimulatedCluster, TruthFactory
from containers.virtual.truth import GroundTruth
from predictor.allocation import Allocation
from predictor.job import EpochReport, JobProgress, JobSpec, add_report
from predictor.throughput import Profile


@dataclass
class VirtualJob:
    """A job and its progress.

    Attributes:
        reported: Completed epochs that were reported.
        seconds: Time trained since the last observation.
        epoch_seconds: Time trained in each completed epoch that is not yet reported.
        open_seconds: Time trained in the current epoch.
    """

    spec: JobSpec
    truth: GroundTruth
    allocation: Allocation
    epoch: int = 0
    steps: float = 0.0
    reported: int = 0
    seconds: float = 0.0
    run_seconds: float = 0.0
    started: bool = False
    epoch_seconds: list[float] = field(default_factory=list)
    open_seconds: float = 0.0

    @property
    def batch_size(self) -> int:
        """Batch size of the current epoch."""
        return self._size(min(self.epoch, self.spec.epochs - 1))

    def _size(self, epoch: int) -> int:
        targets = self.truth.targets
        ends = accumulate(regime.epochs for regime in targets)
        held = (regime for regime, end in zip(targets, ends, strict=True) if epoch < end)
        return next(held, targets[-1]).batch_size

    @property
    def _steps(self) -> float:
        """Steps of the current epoch; the only epoch of a timed job lasts as long as the job."""
        if self.spec.timed:
            return self.truth.isolated_seconds
        spec, size = self.spec, self.batch_size
        return spec.steps_after(self.epoch, size) - spec.steps_after(self.epoch + 1, size)

    def restart(self) -> None:
        """Reset the job to its first step if it writes no checkpoints."""
        if not self.spec.preemptible:
            self.steps = 0.0

    @property
    def done(self) -> bool:
        """Whether it has trained its last epoch."""
        return self.epoch == self.spec.epochs

    def train(self, seconds: float, profile: Profile) -> float:
        """Train alone for a time or to the end; return the time used."""
        left = seconds
        while not self.done and left > 0.0:
            rate = profile.rate(self.spec, self.batch_size, self.allocation)
            left -= self._train_epoch(left, rate)
        trained = seconds - max(left, 0.0)
        self.seconds += trained
        self.run_seconds += trained
        return trained

    def train_beside(self, seconds: float, rate: float) -> None:
        """Train at a pair's rate, for a time that must not exceed the current epoch."""
        self._train_epoch(seconds, rate)
        self.seconds += seconds
        self.run_seconds += seconds

    def _train_epoch(self, seconds: float, rate: float) -> float:
        """Train for a time or to the end of the epoch; return the time used."""
        missing = self.epoch_left(rate)
        took = min(missing, seconds)
        self.open_seconds += took
        if took < missing:
            self.steps += took * rate
        else:
            self.epoch_seconds.append(self.open_seconds)
            self.epoch, self.steps, self.open_seconds = self.epoch + 1, 0.0, 0.0
        return took

    def epoch_left(self, rate: float) -> float:
        """Return the seconds to the end of the current epoch at a rate."""
        return (self._steps - self.steps) / rate if rate else math.inf

    def reports(self) -> list[EpochReport]:
        """Return the epochs completed since the last call, merged by batch size."""
        found: list[EpochReport] = []
        for epoch, took in enumerate(self.epoch_seconds, start=self.reported):
            add_report(found, EpochReport(self.spec.job_id, epoch, 1, self._size(epoch), took))
        self.reported, self.epoch_seconds = self.epoch, []
        return found

    def progress(self) -> JobProgress:
        """Return the progress; its `seconds` count from the last call."""
        spec, size = self.spec, self.batch_size
        seconds, self.seconds = self.seconds, 0.0
        return JobProgress(
            job_id=spec.job_id,
            epochs=self.epoch,
            fraction=min(self.steps / spec.steps_per_epoch(size), 1.0),
            batch_size=size,
            seconds=seconds,
            run_seconds=self.run_seconds,
            steps_left=max(spec.steps_after(self.epoch, size) - math.floor(self.steps), 0),
        )


@dataclass
class Holder:
    """A job's hold on GPUs, with the remaining seconds of its restart."""

    gpus: tuple[int, ...]
    lost_seconds: float


@dataclass(frozen=True)
class ClusterState:
    """A cluster's clock, jobs and leases by job id, after the launches of a round."""

    clock_seconds: float
    jobs: Mapping[int, VirtualJob]
    leases: Mapping[int, Holder]


class FaithfulCluster(SimulatedCluster):
    """A `Runtime` on a virtual clock that behaves as containers do; a `FaithfulFactory` opens it.

    Targets are batch sizes of epochs.
    """

    published_rules = False

    def __init__(
        self, truths: Mapping[int, GroundTruth], terms: Terms, resume_point: ResumePoint
    ) -> None:
        self._jobs: dict[int, VirtualJob] = {}
        self._leases: dict[int, Holder] = {}
        self._ran: list[int] = []
        super().__init__(truths, terms, resume_point)

    def state(self) -> ClusterState:
        """Return the state after `launch`; valid until the next call."""
        return ClusterState(self._clock, self._jobs, self._leases)

    @property
    def _active(self) -> Set[int]:
        return self._jobs.keys()

    def _add(self, jobs: Sequence[JobSpec]) -> None:
        for spec in jobs:
            allocation = self._terms.throughputs.reference(spec)
            job = VirtualJob(spec, self._truths[spec.job_id], allocation)
            self._jobs.setdefault(spec.job_id, job)

    def _reset(self, job_id: int) -> None:
        self._jobs[job_id].restart()

    def _release(self, job_id: int) -> tuple[int, ...]:
        lease = self._leases.pop(job_id, None)
        return lease.gpus if lease else ()

    def _launch(self, lease: Lease) -> ContainerEvent:
        job, held = self._jobs[lease.job_id], self._leases.get(lease.job_id)
        if held and held.gpus == lease.gpus:
            kind = EventKind.RENEWED
        else:
            kind = EventKind.RESUMED if job.started else EventKind.STARTED
            job.allocation = self._terms.allocation(job.spec, lease.gpus)
            lost = self._terms.restart(job.allocation)
            self._leases[lease.job_id] = Holder(lease.gpus, lost)
        job.started = True
        return ContainerEvent(lease.job_id, kind, self._clock, lease.gpus)

    def advance(self, idle_until: float | None) -> None:
        """See `Runtime.advance`."""
        self._ran = sorted(self._leases)
        longest = 0.0
        passed: dict[int, float] = {}
        for pair in self._pairs():
            passed |= dict.fromkeys(pair, self._run_together(*pair))
        for job_id in self._ran:
            job, lease = self._jobs[job_id], self._leases[job_id]
            together = passed.get(job_id, 0.0)
            left = max(self._terms.round_seconds - together, 0.0)
            lost = min(lease.lost_seconds, left)
            lease.lost_seconds -= lost
            held = together + lost + job.train(left - lost, self._terms.throughputs)
            if job.done:
                del self._leases[job_id]
                self._finished.append(
                    ContainerEvent(job_id, EventKind.FINISHED, self._clock + held, lease.gpus)
                )
            longest = max(longest, held)
        if self._ran:
            self._clock += longest
        elif idle_until is not None:
            self._clock = max(self._clock, idle_until)

    def _pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of jobs that hold the same GPUs."""
        first: dict[tuple[int, ...], int] = {}
        pairs = []
        for job_id in self._ran:
            other = first.setdefault(self._leases[job_id].gpus, job_id)
            if other != job_id:
                pairs.append((other, job_id))
        return pairs

    def _run_together(self, *pair: int) -> float:
        """Train two jobs on the same GPUs until one or the round ends; return the seconds used.

        The survivor then continues alone. Both train at their shared rates from the first second,
        even while the other restarts. The rates change with either batch size, at the end of an
        epoch.
        """
        jobs, leases = [self._jobs[job] for job in pair], [self._leases[job] for job in pair]
        round_seconds, shared_rate = self._terms.round_seconds, self._terms.throughputs.shared_rate
        passed = 0.0
        while passed < round_seconds and not any(job.done for job in jobs):
            rates = [
                shared_rate(job.spec, job.batch_size, other.spec, other.batch_size, job.allocation)
                for job, other in zip(jobs, reversed(jobs), strict=True)
            ]
            both = list(zip(jobs, leases, rates, strict=True))
            ends = (lease.lost_seconds or job.epoch_left(rate) for job, lease, rate in both)
            # The rates hold until the first end of a restart or an epoch.
            lasts = min(round_seconds - passed, *ends)
            for job, lease, rate in both:
                if lease.lost_seconds:
                    lease.lost_seconds -= lasts
                else:
                    job.train_beside(lasts, rate)
            passed += lasts
        return passed

    def _report(self) -> tuple[tuple[EpochReport, ...], tuple[JobProgress, ...]]:
        ran, self._ran = [self._jobs[job_id] for job_id in self._ran], []
        reports = tuple(report for job in ran for report in job.reports())
        return reports, tuple(job.progress() for job in ran)

    def reap(self, job_ids: Sequence[int]) -> None:
        """See `Runtime.reap`."""
        for job_id in job_ids:
            del self._jobs[job_id]
            self._release(job_id)


class FaithfulFactory(TruthFactory):
    """Factory of virtual clusters whose jobs behave as containers do."""

    cluster = FaithfulCluster
