"""The belief about a job: its observed trajectory, a fold over its container's reports."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from predictor.job import EpochLoss, EpochReport, JobProgress, JobSpec, Mode, Regime
from predictor.throughput import Throughput, reachable_batch_sizes

LEAST_LEFT = 1e-9
"""Lower bound on the epochs left of a running job, so that no forecast is zero. A numerical bound:
any of its order would do."""

MILESTONES = 32
"""Milestones kept. An engineering bound on memory; no sweep is recorded."""

MOST_LOSSES = 60
"""Latest losses kept, to which curves are fitted: older ones hardly weigh. An engineering bound."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Measured speed of a job at a batch size, over all visits to it.

    Attributes:
        batch_size: The batch size.
        steps: Training steps timed.
        seconds: Time that these steps took, restarts excluded.
    """

    batch_size: int
    steps: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Belief:
    """The observed trajectory of a job.

    Attributes:
        spec: The declared job.
        observed: Regimes so far, the current regime included, in order.
        progress: Last reported progress; None before the job first ran.
        paces: Measured speeds by batch size, in order of first visit, in seconds of the
            reference allocation.
        elsewhere_seconds: Run time so far on its reference allocation minus its actual run time;
            0 if it ran there only.
        milestones: Shares of its work that a timed job reported, the latest ones, each with the
            run time at which it was first seen, from its start; none if it reported none.
        losses: Training losses of its latest epochs, of runs whose policy reads them.
        largest_change: The largest change from one loss to the next, of all epochs so far.
        rounds: Steps and seconds timed since it last changed its batch size, in all rounds and in
            the last; none if there was none.
    """

    spec: JobSpec
    observed: tuple[Regime, ...] = ()
    progress: JobProgress | None = None
    paces: tuple[Pace, ...] = ()
    elsewhere_seconds: float = 0.0
    milestones: tuple[tuple[float, float], ...] = ()
    losses: tuple[EpochLoss, ...] = ()
    largest_change: float = 0.0
    rounds: tuple[float, ...] = ()

    @property
    def fraction(self) -> float:
        """Completed fraction of the current epoch, in [0, 1]."""
        return self.progress.fraction if self.progress else 0.0

    @property
    def batch_size(self) -> int:
        """Batch size of the current epoch; initially the declared batch size."""
        if self.progress:
            return self.progress.batch_size
        return self.observed[-1].batch_size if self.observed else self.spec.batch_size

    @property
    def run_seconds(self) -> float:
        """Time spent training so far, restarts excluded."""
        return self.progress.run_seconds if self.progress else 0.0

    @property
    def reference_seconds(self) -> float:
        """Its run time so far, converted to its reference allocation."""
        return self.run_seconds + self.elsewhere_seconds

    @property
    def steps_left(self) -> int:
        """Training steps left at the current batch size; initially all declared steps."""
        return self.progress.steps_left if self.progress else self.spec.total_steps

    @property
    def epochs_left(self) -> float:
        """Epochs left at the current batch size: the steps left as a share of an epoch's."""
        steps = self.spec.steps_per_epoch(self.batch_size)
        return max(self.steps_left / steps, LEAST_LEFT)

    @property
    def share_done(self) -> float:
        """Completed share of the job's epochs, in [0, 1].

        Of a timed job, the reported share of its work; without a report, the share of its limit.
        """
        if self.milestones:
            return self.milestones[-1][0]
        done = self.epochs_done
        return min(done / (done + self.epochs_left), 1.0)

    @property
    def epochs_done(self) -> float:
        """Completed epochs, the completed fraction of the current epoch included."""
        return sum([regime.epochs for regime in self.observed]) + self.fraction

    def slowness(self, throughput: Throughput) -> list[tuple[int, float, float]]:
        """Measured slowness by batch size.

        Returns:
            For each timed batch size: the batch size, the log of measured over profiled time
            per step, and the seconds measured.
        """
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

    def after(
        self, reports: Sequence[EpochReport], progress: JobProgress | None, speed: float = 1.0
    ) -> "Belief":
        """The belief updated with new reports.

        Args:
            reports: New epoch reports of this job, in order.
            progress: Reported progress, if the job ran.
            speed: Profiled rate on the allocation on which it ran, over that on its reference.
        """
        observed = list(self.observed)
        for report in reports:
            if observed and observed[-1].batch_size == report.batch_size:
                observed[-1] = Regime(report.batch_size, observed[-1].epochs + report.epochs)
            else:
                observed.append(Regime(report.batch_size, report.epochs))
        seconds = progress.seconds if progress else 0.0
        paces, rounds = self.paces, self.rounds
        if progress:
            paces, rounds = self._timed(progress, speed)
        if any([report.batch_size != self.batch_size for report in reports]):
            rounds = ()
        return replace(
            self,
            observed=tuple(observed),
            progress=progress or self.progress,
            paces=paces,
            elsewhere_seconds=self.elsewhere_seconds + seconds * (speed - 1.0),
            milestones=self._reached(progress) if progress else self.milestones,
            rounds=rounds,
        )

    def with_losses(self, losses: Sequence[EpochLoss]) -> "Belief":
        """The belief with the losses of further epochs, in order."""
        known = (*self.losses, *losses)
        changes = (abs(before.loss - after.loss) for before, after in pairwise(known))
        largest = max(self.largest_change, *changes, 0.0)
        return replace(self, losses=known[-MOST_LOSSES:], largest_change=largest)

    def _reached(self, progress: JobProgress) -> tuple[tuple[float, float], ...]:
        """Milestones, with the newly reported share if it differs from the last."""
        known = self.milestones or ((0.0, 0.0),)
        if progress.epochs or progress.share == known[-1][0]:  # it ended, or reports nothing new
            return self.milestones
        return (*known, (progress.share, progress.run_seconds))[-MILESTONES:]

    def _timed(
        self, progress: JobProgress, speed: float
    ) -> tuple[tuple[Pace, ...], tuple[float, ...]]:
        """Paces and rounds, with the steps since the last report at an unchanged batch size."""
        size, steps = progress.batch_size, self.steps_left - progress.steps_left
        if size != self.batch_size:
            return self.paces, ()
        if steps <= 0 or progress.seconds <= 0.0:
            return self.paces, self.rounds
        seconds = progress.seconds * speed
        paces = {pace.batch_size: pace for pace in self.paces}
        before = paces.get(size, Pace(size, 0, 0.0))
        paces[size] = Pace(size, before.steps + steps, before.seconds + seconds)
        all_steps, all_seconds = self.rounds[:2] or (0, 0.0)
        rounds = all_steps + steps, all_seconds + seconds, steps, seconds
        return tuple(paces.values()), rounds


def list_stages(spec: JobSpec, throughput: Throughput, changes: int) -> tuple[int, ...]:
    """Batch sizes of a job by number of changes, as its adaptation mode orders them.

    GNS climbs the batch sizes that the profile can run; Accordion alternates between the
    initial and the largest; a static job keeps its batch size.

    Args:
        spec: The declared job.
        throughput: Defines the feasible batch sizes.
        changes: Number of changes to enumerate; GNS stops early at its largest batch size.

    Returns:
        The initial batch size, then the batch size after each change.
    """
    sizes = reachable_batch_sizes(throughput, spec)
    if spec.mode is Mode.ACCORDION and len(sizes) > 1:
        return tuple(sizes[change % 2] for change in range(changes + 1))
    return sizes[: changes + 1]


def find_changes(
    spec: JobSpec, regimes: Sequence[Regime], throughput: Throughput
) -> tuple[int, ...]:
    """The epochs, ascending, at which a job changed its batch size.

    A GNS job that skips a batch size counts as two changes at the same epoch. A decrease
    under GNS, as in the last epochs of the public traces, is no change.

    Args:
        spec: The declared job.
        regimes: Observed regimes, the current regime included.
        throughput: Defines the feasible batch sizes.
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
