"""What a runtime may report: each observation must follow from the ones before it."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from containers.runtime import ContainerEvent, EventKind, Observation
from predictor.job import LARGEST_LOSS, EpochReport, JobProgress, JobSpec
from tasks.backoff import PATIENCE


@dataclass
class Reports:
    """The jobs of a runtime as its observations so far imply them.

    Attributes:
        active: Admitted jobs that have not ended, by job id.
        leases: GPUs of jobs at the start of the observed round, by job id.
        epochs: Reported epochs by job id.
        run_seconds: Last reported run time by job id.
        batch_sizes: Last reported batch size by job id.
        failed: Jobs with a failed container; they may be in back-off.
    """

    clock_seconds: float = 0.0
    active: dict[int, JobSpec] = field(default_factory=dict)
    leases: dict[int, tuple[int, ...]] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    epochs: Counter[int] = field(default_factory=Counter)
    run_seconds: dict[int, float] = field(default_factory=dict)
    batch_sizes: dict[int, int] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)

    def check(self, seen: Observation) -> Iterator[str]:
        """Take in the next observation; yield why it cannot be, in words."""
        if not self.clock_seconds <= seen.clock_seconds < math.inf:
            yield f"the clock goes from {self.clock_seconds:g} to {seen.clock_seconds:g} s"
        named = {entry.job_id for entry in seen.reports} | {entry.job_id for entry in seen.losses}
        named |= {entry.job_id for entry in seen.progress} | {end.job_id for end in seen.finished}
        if unknown := sorted(named - self.active.keys()):
            yield f"job {unknown[0]} is reported and is not active"
            return
        before = Counter(self.epochs)
        for report in seen.reports:
            yield from self._check_report(report)
        for found in seen.losses:
            if not before[found.job_id] <= found.epoch < self.epochs[found.job_id]:
                yield f"job {found.job_id} has a loss of epoch {found.epoch}, not reported now"
            if not abs(found.loss) <= LARGEST_LOSS:
                yield f"job {found.job_id} has a loss of {found.loss:g}"
        for entry in seen.progress:
            yield from self._check_progress(entry)
        for event in seen.finished:
            yield from self._check_end(event, seen.clock_seconds)
        self.clock_seconds = seen.clock_seconds

    def _check_report(self, report: EpochReport) -> Iterator[str]:
        job, done = report.job_id, self.epochs[report.job_id]
        if job not in self.leases:
            yield f"job {job} reports epochs and held no GPUs"
        last = report.epoch + report.epochs - 1
        if report.epoch != done or not report.epoch <= last < self.active[job].epochs:
            yield f"job {job} reports epochs {report.epoch} to {last} after {done} epochs"
        if report.batch_size < 1 or not 0 <= report.seconds < math.inf:
            yield f"job {job} reports batch size {report.batch_size}, {report.seconds:g} s"
        self.epochs[job] = last + 1

    def _check_progress(self, entry: JobProgress) -> Iterator[str]:
        job = entry.job_id
        if job not in self.leases:
            yield f"job {job} makes progress and held no GPUs"
        if entry.batch_size < 1:
            yield f"job {job} has the batch size {entry.batch_size}"
        if not self.run_seconds.get(job, 0.0) <= entry.run_seconds < math.inf:
            yield f"the run time of job {job} goes down to {entry.run_seconds:g} s"
        if not 0.0 <= entry.fraction <= 1.0:
            yield f"job {job} has done {entry.fraction:g} of an epoch"
        if not 0.0 <= entry.share <= (1.0 if self.active[job].timed else 0.0):
            yield f"job {job} has done the share {entry.share:g} of its work"
        if entry.epochs != self.epochs[job]:
            yield f"job {job} stands at {entry.epochs} epochs and reported {self.epochs[job]}"
        self.run_seconds[job] = entry.run_seconds
        self.batch_sizes[job] = entry.batch_size

    def _check_end(self, event: ContainerEvent, clock_seconds: float) -> Iterator[str]:
        job = event.job_id
        if not event.ends_job and event.kind not in PATIENCE:
            yield f"job {job} ends by being {event.kind}"
        if not self.clock_seconds <= event.at_seconds <= clock_seconds:
            yield f"job {job} ends at {event.at_seconds:g} s, outside the round"
        if self.leases.pop(job, ()) != event.gpus:
            yield f"job {job} gives back GPUs {list(event.gpus)} that it did not hold"
        if event.kind is not EventKind.FINISHED and not event.reason:
            yield f"job {job} is {event.kind} for no reason"
        if not event.ends_job:
            self.failed.add(job)
            return
        spec = self.active.pop(job)
        if event.kind is EventKind.FINISHED:
            self.finished.add(job)
            # A user's own job may end in the moment in which its GPUs are taken back.
            if self.epochs[job] != spec.epochs and (event.gpus or not spec.timed):
                yield f"job {job} ends after {self.epochs[job]} of {spec.epochs} epochs"
