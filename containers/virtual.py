"""A cluster on a virtual clock, driven by each job's ground truth.

Repeats the round semantics of the simulator that the Shockwave paper (NSDI '23,
section 8) was evaluated on, itself built on Gavel's (OSDI '20): whole steps, restart
overhead, completion inside a round, changes of batch size that take effect at a
round's end. `docs/simulation.md` spells them out.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from containers.runtime import ContainerEvent, EventKind, Launch, Observation
from predictor.errors import InputError
from predictor.job import EpochReport, JobProgress, JobSpec, Mode, Regime
from predictor.profile import Profile

SHORT_RUN_SECONDS = 5.0
"""A restart is charged only to a run that ends within this much of the full round."""

STALL_ROUNDS = 5
"""Rounds without a step left to run after which a job counts as finished."""


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """What a job will really do; only the virtual cluster may see it.

    Attributes:
        job_id: The job.
        isolated_seconds: Run time alone on its own GPUs, the yardstick of finish-time
            fairness.
        profiled: Batch size of each epoch in such a run, run-length encoded.
        targets: Batch size that the job strives for in each epoch, run-length encoded
            from epoch 0; the last one holds on. A GNS job approaches a larger target by
            one doubling at a time and never shrinks; an Accordion job jumps.
    """

    job_id: int
    isolated_seconds: float
    profiled: tuple[Regime, ...]
    targets: tuple[Regime, ...]


class _Job:
    """A job's hidden state: steps done, batch size and what it has reported."""

    def __init__(self, spec: JobSpec, truth: GroundTruth, profile: Profile) -> None:
        self.spec = spec
        self.profile = profile
        self.batch_size = spec.batch_size
        self.total_steps = spec.total_steps
        self.starts = list(accumulate((int(r.epochs) for r in truth.targets[:-1]), initial=0))
        self.sizes = [regime.batch_size for regime in truth.targets]
        self.steps = 0
        self.seconds = 0.0
        self.run_seconds = 0.0
        self.next_batch_size: int | None = None
        self.reported_epochs = 0
        self.reported_steps = 0
        self.stalled_rounds = 0
        self.started = False
        self._tune()

    def _tune(self) -> None:
        self.steps_per_epoch = math.ceil(self.spec.samples_per_epoch / self.batch_size)
        self.rate = self.profile.throughput(
            self.spec.model, self.batch_size, self.spec.scale_factor
        )

    def slowest_steps_per_second(self) -> float:
        """Least throughput among the batch sizes that the ground truth can ask for."""
        sizes = {self.spec.batch_size, *self.sizes}
        if self.spec.mode is Mode.GNS:
            size = self.spec.batch_size
            while size < max(self.sizes):
                size *= 2
                sizes.add(size)
        spec = self.spec
        return min(self.profile.throughput(spec.model, s, spec.scale_factor) for s in sizes)

    @property
    def epoch(self) -> int:
        """Epochs begun; inside its tenth epoch a job is at 10."""
        return math.ceil(self.steps / self.steps_per_epoch)

    def due_batch_size(self) -> int | None:
        """The batch size that the ground truth asks for now, if it is another one."""
        target = self.sizes[bisect_right(self.starts, self.epoch) - 1]
        if self.spec.mode is Mode.GNS:
            return self.batch_size * 2 if target > self.batch_size else None
        return target if target != self.batch_size else None

    def adapt(self, batch_size: int) -> list[EpochReport]:
        """Change the batch size, keeping the number of epochs; close the open epoch."""
        epoch, epochs = self.epoch, math.ceil(self.total_steps / self.steps_per_epoch)
        reports = self.report(epoch)
        total = math.ceil(self.total_steps * self.batch_size / batch_size)
        self.batch_size = batch_size
        self._tune()
        if math.ceil(total / self.steps_per_epoch) != epochs:
            total = epochs * self.steps_per_epoch
        self.total_steps = total
        self.steps = self.reported_steps = epoch * self.steps_per_epoch
        return reports

    def report(self, epochs: int) -> list[EpochReport]:
        """Report the epochs completed since the last report, up to `epochs` in all."""
        new = epochs - self.reported_epochs
        if new <= 0:
            return []
        steps = min(self.steps, epochs * self.steps_per_epoch)
        report = EpochReport(
            job_id=self.spec.job_id,
            epoch=self.reported_epochs,
            epochs=new,
            batch_size=self.batch_size,
            seconds=(steps - self.reported_steps) / self.rate,
        )
        self.reported_epochs, self.reported_steps = epochs, steps
        return [report]

    def progress(self) -> JobProgress:
        """Where the job stands."""
        done = max(0, self.steps - self.reported_epochs * self.steps_per_epoch)
        return JobProgress(
            job_id=self.spec.job_id,
            epochs=self.reported_epochs,
            fraction=min(done / self.steps_per_epoch, 1.0),
            batch_size=self.batch_size,
            seconds=self.seconds,
            run_seconds=self.run_seconds,
            steps_left=self.total_steps - self.steps,
        )


class VirtualCluster:
    """A `Runtime` on a virtual clock.

    Args:
        specs: The jobs.
        truths: One ground truth per job.
        profile: Throughputs; the speed at which the jobs really run.
        round_seconds: Longest round.
        restart_seconds: Part of a full round that a job without a lease in the round
            before spends on restoring its checkpoint. Nothing is charged in the first
            round of a run.

    Raises:
        InputError: A job has no ground truth, the profile cannot run it, or a round is
            too short for a single step of it.
    """

    def __init__(
        self,
        specs: Iterable[JobSpec],
        truths: Iterable[GroundTruth],
        profile: Profile,
        *,
        round_seconds: float,
        restart_seconds: float,
    ) -> None:
        by_id = {truth.job_id: truth for truth in truths}
        self._jobs: dict[int, _Job] = {}
        for spec in specs:
            if spec.job_id not in by_id:
                raise InputError(
                    f"job {spec.job_id}", "has no ground truth", "give one truth per job"
                )
            job = _Job(spec, by_id[spec.job_id], profile)
            if job.slowest_steps_per_second() * round_seconds < 1:
                raise InputError(
                    f"job {spec.job_id}",
                    f"cannot finish a training step in a round of {round_seconds:g} s",
                    "give longer --round-seconds",
                )
            self._jobs[spec.job_id] = job
        self._round_seconds = round_seconds
        self._restart_seconds = restart_seconds
        self._clock = 0.0
        self._first_round = True
        self._leases: dict[int, tuple[int, ...]] = {}
        self._ran: frozenset[int] = frozenset()
        self._finished: list[ContainerEvent] = []
        self._reports: list[EpochReport] = []

    def launch(self, launch: Launch) -> ContainerEvent:
        """See `Runtime.launch`."""
        job = self._jobs[launch.job_id]
        if launch.job_id in self._ran:
            kind = EventKind.RENEWED
        else:
            kind = EventKind.RESUMED if job.started else EventKind.STARTED
        job.started = True
        self._leases[launch.job_id] = launch.gpus
        return ContainerEvent(launch.job_id, kind, self._clock, launch.gpus)

    def preempt(self, job_id: int) -> ContainerEvent:
        """See `Runtime.preempt`."""
        return ContainerEvent(job_id, EventKind.PREEMPTED, self._clock, self._leases.pop(job_id))

    def advance(self, idle_until: float | None) -> None:
        """See `Runtime.advance`."""
        start, longest = self._clock, 0.0
        for job_id in list(self._leases):
            longest = max(longest, self._run(self._jobs[job_id], start))
        if self._leases:
            self._first_round = False
            self._clock = start + longest
        elif idle_until is not None:
            self._clock = max(start, idle_until)
        self._ran = frozenset(self._leases)
        for event in self._finished:
            self._leases.pop(event.job_id, None)

    def _run(self, job: _Job, start: float) -> float:
        """Run one job for the round; returns the seconds that it held its GPUs."""
        job_id = job.spec.job_id
        left = job.total_steps - job.steps
        steps = max(0, min(int(job.rate * self._round_seconds), left))
        held = (start + steps / job.rate) - start  # as the clock's stamps tell it
        ran = held
        restarted = job_id not in self._ran and not self._first_round
        if restarted and held > self._round_seconds - SHORT_RUN_SECONDS:
            ran = max(0.0, held - self._restart_seconds)
            steps = int(steps * ran / held)
        job.steps += steps
        job.seconds = ran
        job.run_seconds += ran
        job.stalled_rounds += left <= 0
        if 0 < left <= steps or job.stalled_rounds >= STALL_ROUNDS:
            self._reports += job.report(max(job.epoch, job.reported_epochs))
            gpus = self._leases[job_id]
            self._finished.append(ContainerEvent(job_id, EventKind.FINISHED, start + held, gpus))
            return held
        self._reports += job.report(job.steps // job.steps_per_epoch)
        if job.next_batch_size is not None:
            self._reports += job.adapt(job.next_batch_size)
        job.next_batch_size = job.due_batch_size()
        return held

    def observe(self) -> Observation:
        """See `Runtime.observe`."""
        observation = Observation(
            clock_seconds=self._clock,
            finished=tuple(sorted(self._finished, key=lambda e: (e.at_seconds, e.job_id))),
            reports=tuple(self._reports),
            progress=tuple(self._jobs[job_id].progress() for job_id in sorted(self._ran)),
        )
        self._finished, self._reports = [], []
        return observation

    def reap(self, job_ids: Sequence[int]) -> None:
        """See `Runtime.reap`."""
        for job_id in job_ids:
            del self._jobs[job_id]
        self._ran -= frozenset(job_ids)
