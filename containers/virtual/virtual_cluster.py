"""A cluster on a virtual clock, driven by each job's ground truth.

Repeats the round semantics of the simulator that the Shockwave paper (NSDI '23,
section 8) was evaluated on, itself built on Gavel's (OSDI '20): whole steps, restart
overhead, completion inside a round, changes of batch size that take effect at a
round's end. `docs/simulation.md` spells them out.
"""

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from containers.runtime import (
    BY_ITS_OWNER,
    ContainerEvent,
    EventKind,
    Lease,
    Observation,
    Standing,
    Terms,
)
from containers.virtual.truth import GroundTruth, TruthPlace, check_jobs, losses_of
from predictor.allocation import Allocation
from predictor.job import EpochReport, JobProgress, JobSpec, Mode, Regime
from predictor.throughput import Profile
from solver.inventory import Inventory

SHORT_RUN_SECONDS = 5.0
"""A restart is charged only to a run that ends within this time of the full round, as in the
published simulator (docs/simulation.md)."""

STALL_ROUNDS = 5
"""Rounds without steps left after which a job counts as finished, as in the published
simulator (docs/simulation.md)."""

NEVER = np.iinfo(np.int64).max
"""An epoch that no job reaches."""

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class _Jobs:
    """The hidden state of jobs: arrays of shape (jobs,), by ascending job id.

    There is a row for each ground truth; it means something once its job is there.

    Args:
        truths: Ground truths, by ascending job id.
        profile: Throughputs.

    Attributes:
        rows: Row of each job that is there, by job id.
        ids: Job ids.
        batch_size: Batch size under way.
        next_batch_size: Batch size that follows the next round in which the job runs.
        total_steps: Steps of the whole job at the batch size under way.
        steps: Steps done, counted alike.
        steps_per_epoch: At the batch size under way.
        rate: Steps per second.
        restart_seconds: What a restart takes on the GPUs that it was last given.
        left_of_restart: What is left of one that takes longer than a round.
        seconds: Time spent training in the last round that the job ran in.
        run_seconds: Time spent training.
        stalled_rounds: Rounds without a step left to run.
        started: Whether the job was ever launched.
        timed: Whether its only epoch ends with it, when nobody knows beforehand.
    """

    def __init__(self, truths: Sequence[GroundTruth], profile: Profile) -> None:
        self._truths, self._profile = truths, profile
        self._specs: dict[int, JobSpec] = {}
        self.rows: dict[int, int] = {}
        self.ids = np.array([truth.job_id for truth in truths], np.int64)
        self.batch_size, self.next_batch_size = np.ones((2, len(truths)), np.int64)
        self.total_steps, self.steps, self.stalled_rounds = np.zeros((3, len(truths)), np.int64)
        self.seconds, self.run_seconds = np.zeros((2, len(truths)))
        self.restart_seconds, self.left_of_restart = np.zeros((2, len(truths)))
        self.started, self._doubles, self.timed = np.zeros((3, len(truths)), bool)
        self._declared_steps = np.zeros(len(truths), np.int64)
        self._samples = np.zeros(len(truths), np.int64)
        self._allocations: dict[int, Allocation] = {}
        # The batch size that a job strives for, and the epoch in which it will be another.
        self._target, self._next_target = np.zeros((2, len(truths)), np.int64)
        self._reported_epochs, self._reported_steps = np.zeros((2, len(truths)), np.int64)
        self._open_seconds = np.zeros(len(truths))  # of the epoch under way, on earlier GPUs
        self._others: dict[int, tuple[int, int]] = {}  # row and batch size of who shares its GPUs
        self.steps_per_epoch, self.rate = np.ones(len(truths), np.int64), np.ones(len(truths))

    def add(self, specs: Iterable[JobSpec]) -> None:
        """Fill the rows of jobs in."""
        new = [spec for spec in specs if spec.job_id not in self.rows]
        rows = np.searchsorted(self.ids, np.array([spec.job_id for spec in new], np.int64))
        for spec, row in zip(new, rows.tolist(), strict=True):
            self._specs[row], self.rows[spec.job_id] = spec, row
            self._allocations[row] = self._profile.reference(spec)
            self.batch_size[row] = self.next_batch_size[row] = spec.batch_size
            self.total_steps[row] = self._declared_steps[row] = spec.total_steps
            self.timed[row] = spec.timed
            if spec.timed:
                self.total_steps[row] = math.ceil(self._truths[row].isolated_seconds)
            self._samples[row] = spec.samples_per_epoch
            self._doubles[row] = spec.mode is Mode.GNS
        self._tune(rows)

    def move(self, job_id: int, terms: Terms, gpus: Sequence[int]) -> None:
        """Put a job on GPUs, where its rate may be another."""
        row = self.rows[job_id]
        allocation = terms.allocation(self._specs[row], gpus)
        self.restart_seconds[row] = terms.restart(allocation)
        if allocation != self._allocations[row]:
            self._allocations[row] = allocation
            self._others.pop(row, None)
            self._change_pace(row)

    @property
    def held_together(self) -> dict[int, int]:
        """Row of the job on the same GPUs, by row, of jobs that give them back together."""
        return {
            row: other
            for row, (other, _) in self._others.items()
            if self._specs[row].opportunistic == self._specs[other].opportunistic
        }

    def share(self, others: Mapping[int, int]) -> None:
        """Have jobs share their GPUs in the coming round: rows, by row; all others share none."""
        sharing = {row: (other, int(self.batch_size[other])) for row, other in others.items()}
        changed = {row for row, other in sharing.items() if self._others.get(row) != other}
        changed |= self._others.keys() - sharing.keys()
        self._others = sharing
        for row in sorted(changed):
            self._change_pace(row)

    def _change_pace(self, row: int) -> None:
        """Look the rate of a job up anew; what it has done so far took its time at the old one."""
        self._open_seconds[row] += (self.steps[row] - self._reported_steps[row]) / self.rate[row]
        self._reported_steps[row] = self.steps[row]
        self._tune(np.array([row]))

    def _tune(self, rows: Ints) -> None:
        """Look up what follows from the batch size and the allocation."""
        sizes = self.batch_size[rows]
        self.steps_per_epoch[rows] = _ceil(self._samples[rows] / sizes)
        for row, size in zip(rows.tolist(), sizes.tolist(), strict=True):
            spec, found = self._specs[row], self._allocations[row]
            if row in self._others:
                other, other_size = self._others[row]
                self.rate[row] = self._profile.shared_rate(
                    spec, size, self._specs[other], other_size, found
                )
            else:
                self.rate[row] = self._profile.rate(spec, size, found)

    def epochs_begun(self, rows: Ints) -> Ints:
        """Inside its tenth epoch a job is at 10."""
        return _ceil(self.steps[rows] / self.steps_per_epoch[rows])

    def epochs_complete(self, rows: Ints) -> Ints:
        """Inside its tenth epoch a job is at 9."""
        complete: Ints = self.steps[rows] // self.steps_per_epoch[rows]
        return complete

    def look_ahead(self, rows: Ints) -> None:
        """Note the batch size that the ground truth asks for now, to follow next time."""
        epochs, sizes = self.epochs_begun(rows), self.batch_size[rows]
        passed = epochs >= self._next_target[rows]
        for row, epoch in zip(rows[passed].tolist(), epochs[passed].tolist(), strict=True):
            self._target[row], self._next_target[row] = _target(self._truths[row].targets, epoch)
        target = self._target[rows]
        doubled = np.where(target > sizes, 2 * sizes, sizes)
        self.next_batch_size[rows] = np.where(self._doubles[rows], doubled, target)

    def adapt(self, rows: Ints) -> list[EpochReport]:
        """Change the batch size, keeping the number of epochs; close the open epoch."""
        begun, sizes = self.epochs_begun(rows), self.next_batch_size[rows]
        epochs = _ceil(self.total_steps[rows] / self.steps_per_epoch[rows])
        reports = self.report(rows, begun)
        total = _ceil(self.total_steps[rows] * self.batch_size[rows] / sizes)
        self.batch_size[rows] = sizes
        for row in rows.tolist():
            self._others.pop(row, None)  # the rate of its pair was another
        self._tune(rows)
        steps = self.steps_per_epoch[rows]
        self.total_steps[rows] = np.where(_ceil(total / steps) == epochs, total, epochs * steps)
        self.steps[rows] = self._reported_steps[rows] = begun * steps
        return reports

    def report(self, rows: Ints, epochs: Ints) -> list[EpochReport]:
        """Report the epochs completed since the last report, up to `epochs` in all."""
        new = epochs > self._reported_epochs[rows]
        rows, epochs = rows[new], epochs[new]
        steps = np.minimum(self.steps[rows], epochs * self.steps_per_epoch[rows])
        reports = map(
            EpochReport,
            self.ids[rows].tolist(),
            self._reported_epochs[rows].tolist(),
            (epochs - self._reported_epochs[rows]).tolist(),
            self.batch_size[rows].tolist(),
            (
                self._open_seconds[rows] + (steps - self._reported_steps[rows]) / self.rate[rows]
            ).tolist(),
        )
        self._open_seconds[rows] = 0.0
        self._reported_epochs[rows], self._reported_steps[rows] = epochs, steps
        return list(reports)

    def progress(self, rows: Ints) -> tuple[JobProgress, ...]:
        """Progress of jobs."""
        epochs, steps = self._reported_epochs[rows], self.steps_per_epoch[rows]
        begun = np.maximum(self.steps[rows] - epochs * steps, 0)
        left = self.total_steps[rows] - self.steps[rows]
        going = self.timed[rows] & (left > 0)
        left[going] = np.maximum(self._declared_steps[rows] - self.steps[rows], 0)[going]
        progress = map(
            JobProgress,
            self.ids[rows].tolist(),
            epochs.tolist(),
            np.minimum(begun / steps, 1.0).tolist(),
            self.batch_size[rows].tolist(),
            self.seconds[rows].tolist(),
            self.run_seconds[rows].tolist(),
            left.tolist(),
        )
        return tuple(progress)

    def restart(self, job_id: int) -> None:
        """Take a job that keeps nothing back to its first step."""
        row = self.rows[job_id]
        if not self._specs[row].preemptible:
            self.steps[row] = 0


def _ceil(numbers: Floats) -> Ints:
    return np.ceil(numbers).astype(np.int64)


def _target(targets: Sequence[Regime], epoch: int) -> tuple[int, int]:
    """The batch size of an epoch, and the epoch in which the next batch size begins."""
    ends = list(accumulate(int(regime.epochs) for regime in targets[:-1]))
    held = bisect_right(ends, epoch)
    return targets[held].batch_size, ends[held] if held < len(ends) else NEVER


class VirtualPlace(TruthPlace):
    """A virtual clock, and jobs that follow the published simulator's rules on it."""

    published_rules = True

    def open(self, terms: Terms, standing: Standing) -> "VirtualCluster":
        """See `TruthPlace.open`."""
        return VirtualCluster(self._truths, terms, standing)


class VirtualCluster:
    """A `Runtime` on a virtual clock; a `VirtualPlace` opens it.

    Of `Terms`, `restart` is the part of a full round that a job without a lease in the round
    before spends on restoring its checkpoint. Nothing is charged in the first round of a run.

    Args:
        truths: Ground truths by ascending job id.
        terms: What to know of the run.
        standing: Where it begins.

    Raises:
        InputError: See `VirtualPlace.check`.
    """

    def __init__(self, truths: Mapping[int, GroundTruth], terms: Terms, standing: Standing) -> None:
        self._truths, self._terms = truths, terms
        self._jobs = _Jobs(tuple(truths.values()), terms.throughputs)
        self._round_seconds = terms.round_seconds
        self._clock = standing.clock_seconds
        self._first_round = True
        self._leases: dict[int, tuple[int, ...]] = {}
        self._ran = np.zeros(len(truths), bool)
        self._finished: list[ContainerEvent] = []
        self._withdrawn: dict[int, str] = {}
        self._reports: list[EpochReport] = []
        self.admit(standing.jobs)

    def admit(self, jobs: Sequence[JobSpec]) -> None:
        """See `Runtime.admit`."""
        check_jobs(jobs, self._truths, self._terms, published_rules=True)
        self._jobs.add(jobs)

    def withdraw(self, job_id: int, reason: str = BY_ITS_OWNER) -> None:
        """See `Runtime.withdraw`."""
        self._withdrawn[job_id] = reason

    def resize(self, inventory: Inventory, removed: Collection[int]) -> None:
        """See `Runtime.resize`."""
        self._terms = replace(self._terms, inventory=inventory)

    def preempt(self, reasons: Mapping[int, str]) -> tuple[ContainerEvent, ...]:
        """See `Runtime.preempt`."""
        for job in reasons:
            self._jobs.restart(job)
        return tuple(
            ContainerEvent(job, EventKind.PREEMPTED, self._clock, self._leases.pop(job, ()), reason)
            for job, reason in reasons.items()
        )

    def launch(self, number: int, leases: Sequence[Lease]) -> tuple[ContainerEvent, ...]:
        """See `Runtime.launch`."""
        return tuple(map(self._launch, leases))

    def _launch(self, lease: Lease) -> ContainerEvent:
        row, held = self._jobs.rows[lease.job_id], self._leases.get(lease.job_id, ())
        if self._terms.moves(held, lease.gpus):
            self._ran[row] = False  # it pays a restart
        self._jobs.move(lease.job_id, self._terms, lease.gpus)
        if self._ran[row] or held == lease.gpus:
            kind = EventKind.RENEWED
        else:
            kind = EventKind.RESUMED if self._jobs.started[row] else EventKind.STARTED
        self._jobs.started[row] = True
        self._leases[lease.job_id] = lease.gpus
        return ContainerEvent(lease.job_id, kind, self._clock, lease.gpus)

    def advance(self, idle_until: float | None) -> None:
        """See `Runtime.advance`."""
        rows = np.array([self._jobs.rows[job_id] for job_id in self._leases], np.int64)
        self._jobs.share(self._sharing())
        if self._leases:
            held, ended = self._run(rows)
            self._note(rows, ended, self._clock + held)
            self._first_round = False
            self._clock += float(held.max())
        elif idle_until is not None:
            self._clock = max(self._clock, idle_until)
        self._ran[:] = False
        self._ran[rows] = True

    def _sharing(self) -> dict[int, int]:
        """Rows of the jobs that share their GPUs, by row."""
        first: dict[int, int] = {}
        sharing: dict[int, int] = {}
        for job_id, gpus in self._leases.items():
            row = self._jobs.rows[job_id]
            other = first.setdefault(gpus[0], row)
            if other != row:
                sharing |= {row: other, other: row}
        return sharing

    def _run(self, rows: Ints) -> tuple[Floats, Bools]:
        """Train jobs for a round. Two that share their GPUs hold them until both are done.

        But for an opportunistic one and one that is not: that ends as if it were alone.

        Returns:
            The seconds that each held its GPUs, and whether it ended.
        """
        jobs, rate = self._jobs, self._jobs.rate[rows]
        left = np.maximum(jobs.total_steps[rows] - jobs.steps[rows], 0)
        steps = np.minimum(np.trunc(rate * self._round_seconds), left)
        held: Floats = (self._clock + steps / rate) - self._clock  # rounded as the clock is
        if together := jobs.held_together:
            place = {row: n for n, row in enumerate(rows.tolist())}
            pairs = np.array([[place[row], place[other]] for row, other in together.items()])
            held[pairs[:, 0]] = held[pairs].max(axis=1)
        ran = held.copy()
        if not self._first_round:
            restores = ~self._ran[rows]
            lost = np.where(restores, jobs.restart_seconds[rows], jobs.left_of_restart[rows])
            pays = held > max(self._round_seconds - SHORT_RUN_SECONDS, 0.0)
            pays &= restores | (lost > 0.0)
            ran[pays] = np.maximum(held[pays] - lost[pays], 0.0)
            steps[pays] = np.trunc(steps[pays] * ran[pays] / held[pays])
            jobs.left_of_restart[rows] = np.where(pays, lost - self._round_seconds, 0.0).clip(0.0)
        jobs.steps[rows] += steps.astype(np.int64)
        jobs.seconds[rows] = ran
        jobs.run_seconds[rows] += ran
        jobs.stalled_rounds[rows] += left == 0
        return held, (left > 0) & (steps == left) | (jobs.stalled_rounds[rows] >= STALL_ROUNDS)

    def _note(self, rows: Ints, ended: Bools, at_seconds: Floats) -> None:
        """Record the events and reports of a round, and apply due changes of batch size.

        Args:
            rows: Jobs that ran.
            ended: Whether each ended.
            at_seconds: When each stopped, on the cluster's clock.
        """
        jobs = self._jobs
        # The epoch that a job ends in is complete, however short.
        complete = np.where(ended, jobs.epochs_begun(rows), jobs.epochs_complete(rows))
        complete = np.where(jobs.timed[rows], ended, complete)
        reports = jobs.report(rows, complete)
        for row, at in zip(rows[ended].tolist(), at_seconds[ended].tolist(), strict=True):
            job_id = int(jobs.ids[row])
            gpus = self._leases.pop(job_id)
            self._finished.append(ContainerEvent(job_id, EventKind.FINISHED, at, gpus))
        going = rows[~ended]
        due = going[jobs.next_batch_size[going] != jobs.batch_size[going]]
        if due.size:
            reports += jobs.adapt(due)
            order = {job_id: place for place, job_id in enumerate(jobs.ids[rows].tolist())}
            reports.sort(key=lambda report: order[report.job_id])
        jobs.look_ahead(going)
        self._reports += reports

    def observe(self) -> Observation:
        """See `Runtime.observe`."""
        ended = {event.job_id for event in self._finished}
        for job_id in sorted(self._withdrawn.keys() & self._jobs.rows.keys() - ended):
            gpus = self._leases.pop(job_id, ())
            self._finished.append(
                ContainerEvent(
                    job_id, EventKind.WITHDRAWN, self._clock, gpus, self._withdrawn[job_id]
                )
            )
        self._withdrawn.clear()
        observation = Observation(
            clock_seconds=self._clock,
            finished=tuple(sorted(self._finished, key=lambda e: (e.at_seconds, e.job_id))),
            reports=tuple(self._reports),
            progress=self._jobs.progress(np.flatnonzero(self._ran)),
            losses=losses_of(self._truths, self._reports),
        )
        self._finished, self._reports = [], []
        return observation

    def reap(self, job_ids: Sequence[int]) -> None:
        """See `Runtime.reap`."""
        for job_id in job_ids:
            self._ran[self._jobs.rows.pop(job_id)] = False
            self._leases.pop(job_id, None)

    def close(self) -> None:
        """See `Runtime.close`; there is nothing to let go of."""
