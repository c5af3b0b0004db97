"""What was observed of a job, as a fold over the reports of its container."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from predictor.job import EpochReport, JobProgress, JobSpec, Mode, Regime
from predictor.throughput import Throughput, reachable_batch_sizes

LEAST_LEFT = 1e-9
"""Epochs that a job which runs has left at least."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a job trained at one batch size, over all its visits.

    Attributes:
        batch_size: The batch size.
        steps: Training steps timed.
        seconds: What they took, restarts excluded.
    """

    batch_size: int
    steps: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Belief:
    """All that was observed of a job.

    Attributes:
        spec: What was declared.
        observed: Completed regimes and the one under way, in order.
        progress: Where the job stood when it last ran; nowhere by default.
        paces: Measured speed by batch size, in the order met.
    """

    spec: JobSpec
    observed: tuple[Regime, ...] = ()
    progress: JobProgress | None = None
    paces: tuple[Pace, ...] = ()

    @property
    def fraction(self) -> float:
        """Part of the epoch under way that is done, in [0, 1]."""
        return self.progress.fraction if self.progress else 0.0

    @property
    def batch_size(self) -> int:
        """Batch size of the epoch under way; at first the declared one."""
        if self.progress:
            return self.progress.batch_size
        return self.observed[-1].batch_size if self.observed else self.spec.batch_size

    @property
    def run_seconds(self) -> float:
        """Time spent training so far, restarts excluded."""
        return self.progress.run_seconds if self.progress else 0.0

    @property
    def steps_left(self) -> int:
        """Training steps left at the batch size under way; at first all declared ones."""
        return self.progress.steps_left if self.progress else self.spec.total_steps

    @property
    def epochs_left(self) -> float:
        """Epochs left, at least what the one under way needs."""
        whole = max(self.spec.epochs - (self.epochs_done - self.fraction), 1)
        return max(whole - self.fraction, LEAST_LEFT)

    @property
    def share_done(self) -> float:
        """Share of its epochs that is done, in [0, 1]."""
        done = self.epochs_done
        return min(done / (done + self.epochs_left), 1.0)

    @property
    def epochs_done(self) -> float:
        """Completed epochs, the done part of the one under way included."""
        return sum([regime.epochs for regime in self.observed]) + self.fraction

    def slowness(self, throughput: Throughput) -> list[tuple[int, float, float]]:
        """Batch sizes timed: the log of measured over profiled time per step, the seconds."""
        allocation = throughput.reference(self.spec)
        return [
            (
                pace.batch_size,
                math.log(
                    throughput.rate(self.spec, pace.batch_size, allocation)
                    * pace.seconds
                    / pace.steps
                ),
                pace.seconds,
            )
            for pace in self.paces
        ]

    def after(self, reports: Sequence[EpochReport], progress: JobProgress | None) -> "Belief":
        """The belief after more epochs were reported.

        Args:
            reports: Reports on this job, in order.
            progress: Where the job stands now, if it ran.
        """
        observed = list(self.observed)
        for report in reports:
            if observed and observed[-1].batch_size == report.batch_size:
                observed[-1] = Regime(report.batch_size, observed[-1].epochs + report.epochs)
            else:
                observed.append(Regime(report.batch_size, report.epochs))
        return replace(
            self,
            observed=tuple(observed),
            progress=progress or self.progress,
            paces=self._timed(progress) if progress else self.paces,
        )

    def _timed(self, progress: JobProgress) -> tuple[Pace, ...]:
        """Speeds, with the steps since the last look if the batch size did not change."""
        steps = self.steps_left - progress.steps_left
        if progress.batch_size != self.batch_size or steps <= 0 or progress.seconds <= 0.0:
            return self.paces
        paces = {pace.batch_size: pace for pace in self.paces}
        before = paces.get(progress.batch_size, Pace(progress.batch_size, 0, 0.0))
        paces[progress.batch_size] = Pace(
            progress.batch_size, before.steps + steps, before.seconds + progress.seconds
        )
        return tuple(paces.values())


def stages(spec: JobSpec, throughput: Throughput, changes: int) -> tuple[int, ...]:
    """Batch sizes of a job by how often it has changed: the order in which its mode goes.

    GNS climbs the sizes that the profile can run; Accordion goes to and fro between the
    first and the largest; a static job stays.

    Args:
        spec: What was declared.
        throughput: Says which batch sizes can run at all.
        changes: How many changes to look at; GNS ends at its largest size before.

    Returns:
        The first size, and one for each change.
    """
    sizes = reachable_batch_sizes(throughput, spec)
    if spec.mode is Mode.ACCORDION and len(sizes) > 1:
        return tuple(sizes[change % 2] for change in range(changes + 1))
    return sizes[: changes + 1]


def changes(spec: JobSpec, regimes: Sequence[Regime], throughput: Throughput) -> tuple[int, ...]:
    """The epochs, ascending, at which a job changed its batch size.

    A GNS job that skips a size changes twice at once; one that falls back (the public
    traces' last epochs do) does not change.

    Args:
        spec: What was declared.
        regimes: What it went through, the one under way included.
        throughput: Says which batch sizes can run at all.
    """
    sizes, found, epoch = reachable_batch_sizes(throughput, spec), [], 0
    if len(sizes) == 1:
        return ()
    size = spec.batch_size
    for regime in regimes:
        if spec.mode is Mode.GNS:
            found += [epoch for reached in sizes if size < reached <= regime.batch_size]
            size = max(size, regime.batch_size)
        else:
            found += [epoch] * (regime.batch_size != size)
            size = regime.batch_size
        epoch += int(regime.epochs)
    return tuple(found)
