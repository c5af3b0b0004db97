"""The hidden state of jobs on a `VirtualCluster`, as arrays.

It follows the published simulator: whole steps, epochs counted in steps of the current batch size,
and batch sizes that change at a round's end. `docs/simulation.md` has the details.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import numpy as np

from containers.runtime import Terms
from containers.virtual.truth import GroundTruth
from predictor.allocation import Allocation
from predictor.arrays import Floats, Ints
from predictor.job import EpochReport, JobProgress, JobSpec, Mode, Regime
from predictor.throughput import Profile

NEVER = np.iinfo(np.int64).max
"""An epoch that no job reaches."""


class SimulatedJobs:
    """The hidden state of jobs: arrays of shape (jobs,), by ascending job id.

    Each ground truth, in the same order, has a row; it is valid once its job is admitted.

    Attributes:
        rows: Row of each admitted job, by job id.
        next_batch_size: Batch size after the next round in which the job runs.
        total_steps: Steps of the whole job at the current batch size.
        restart_seconds: Duration of a restart on its last GPUs.
        left_of_restart: Remaining time of a restart that exceeds a round.
        seconds: Time spent training in the last round that the job ran in.
        stalled_rounds: Rounds without a step left to run.
        timed: Whether its only epoch ends with the job, at a time not known beforehand.
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
        # The current target batch size, and the epoch at which the target changes.
        self._target, self._next_target = np.zeros((2, len(truths)), np.int64)
        self._reported_epochs, self._reported_steps = np.zeros((2, len(truths)), np.int64)
        self._open_seconds = np.zeros(len(truths))  # of the current epoch, at earlier rates
        self._others: dict[int, tuple[int, int]] = {}  # row and batch size of the partner
        self.steps_per_epoch, self.rate = np.ones(len(truths), np.int64), np.ones(len(truths))

    def add(self, specs: Iterable[JobSpec]) -> None:
        """Fill the rows of new jobs."""
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
        """Place a job on GPUs and update its rate."""
        row = self.rows[job_id]
        allocation = terms.allocation(self._specs[row], gpus)
        self.restart_seconds[row] = terms.restart(allocation)
        if allocation != self._allocations[row]:
            self._allocations[row] = allocation
            self._others.pop(row, None)
            self._change_pace(row)

    @property
    def held_together(self) -> dict[int, int]:
        """Row of the partner, by row, for pairs that release their GPUs together."""
        return {
            row: other
            for row, (other, _) in self._others.items()
            if self._specs[row].opportunistic == self._specs[other].opportunistic
        }

    def share(self, others: Mapping[int, int]) -> None:
        """Share GPUs in the coming round: maps a job's row to that of its partner."""
        sharing = {row: (other, int(self.batch_size[other])) for row, other in others.items()}
        changed = {row for row, other in sharing.items() if self._others.get(row) != other}
        changed |= self._others.keys() - sharing.keys()
        self._others = sharing
        for row in sorted(changed):
            self._change_pace(row)

    def _change_pace(self, row: int) -> None:
        """Update the rate of a job; its completed steps keep the time of the old rate."""
        self._open_seconds[row] += (self.steps[row] - self._reported_steps[row]) / self.rate[row]
        self._reported_steps[row] = self.steps[row]
        self._tune(np.array([row]))

    def _tune(self, rows: Ints) -> None:
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
        """Return the number of epochs started, the current one included."""
        return _ceil(self.steps[rows] / self.steps_per_epoch[rows])

    def epochs_complete(self, rows: Ints) -> Ints:
        """Return the number of completed epochs."""
        complete: Ints = self.steps[rows] // self.steps_per_epoch[rows]
        return complete

    def look_ahead(self, rows: Ints) -> None:
        """Choose the batch size that follows the next round, from the present target."""
        epochs, sizes = self.epochs_begun(rows), self.batch_size[rows]
        passed = epochs >= self._next_target[rows]
        for row, epoch in zip(rows[passed].tolist(), epochs[passed].tolist(), strict=True):
            self._target[row], self._next_target[row] = _target(self._truths[row].targets, epoch)
        target = self._target[rows]
        doubled = np.where(target > sizes, 2 * sizes, sizes)
        self.next_batch_size[rows] = np.where(self._doubles[rows], doubled, target)

    def adapt(self, rows: Ints) -> list[EpochReport]:
        """Change the batch size, keeping the number of epochs, and complete the current epoch."""
        begun, sizes = self.epochs_begun(rows), self.next_batch_size[rows]
        epochs = _ceil(self.total_steps[rows] / self.steps_per_epoch[rows])
        reports = self.report(rows, begun)
        total = _ceil(self.total_steps[rows] * self.batch_size[rows] / sizes)
        self.batch_size[rows] = sizes
        for row in rows.tolist():
            self._others.pop(row, None)  # the pair's rate held for the old batch size
        self._tune(rows)
        steps = self.steps_per_epoch[rows]
        # Rounding may have changed the number of epochs; then all epochs are whole.
        self.total_steps[rows] = np.where(_ceil(total / steps) == epochs, total, epochs * steps)
        self.steps[rows] = self._reported_steps[rows] = begun * steps
        return reports

    def report(self, rows: Ints, epochs: Ints) -> list[EpochReport]:
        """Report completed epochs since the last report, up to `epochs` in total."""
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
        """Return the progress of jobs."""
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
        """Reset a job without checkpoints to its first step."""
        row = self.rows[job_id]
        if not self._specs[row].preemptible:
            self.steps[row] = 0


def _ceil(numbers: Floats) -> Ints:
    return np.ceil(numbers).astype(np.int64)


def _target(targets: Sequence[Regime], epoch: int) -> tuple[int, int]:
    """Return the batch size of an epoch, and the epoch at which the next one begins."""
    ends = list(accumulate(int(regime.epochs) for regime in targets[:-1]))
    held = bisect_right(ends, epoch)
    return targets[held].batch_size, ends[held] if held < len(ends) else NEVER
