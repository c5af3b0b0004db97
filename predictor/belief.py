"""The belief about a job: its observed trajectory, folded over its container's reports."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from predictor.allocation import Allocation
from predictor.application import Placement
from predictor.goodput import Agent
from predictor.job import EpochLoss, EpochReport, JobProgress, JobSpec, Mode, Regime
from predictor.lazily import lazily
from predictor.throughput import Throughput

LEAST_LEFT = 1e-9
"""Lower bound on the epochs left of a running job, so that no forecast is zero. A numerical bound:
any value of this order would do."""

MILESTONES = 32
"""Milestones kept. An engineering bound on memory; no sweep is recorded."""

MOST_LOSSES = 60
"""Latest losses kept for curve fitting; older ones hardly weigh. An engineering bound."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Measured speed of a job at a batch size, over all visits to it; seconds exclude restarts."""

    batch_size: int
    steps: int
    seconds: float


@dataclass(frozen=True)
class Belief:
    """The observed trajectory of a job.

    Attributes:
        observed: Regimes so far, in order; the last is the current one.
        progress: Last reported progress; None before the job first ran.
        paces: Measured speeds by batch size, in order of first visit, in seconds of the
            reference allocation.
        elsewhere_seconds: Run time converted to the reference allocation, minus the actual run
            time; 0 if the job ran only there.
        milestones: For a timed job, the latest shares of its work that it reported, each with
            the run time at which it first reported it.
        losses: Training losses of the latest epochs; empty unless the policy reads losses.
        largest_change: Largest change between consecutive losses, over all epochs so far.
        rounds: Steps and seconds timed since the last change of batch size: over all rounds,
            then in the last round. Empty if no steps were timed.
        agent: What a job that chooses its batch sizes has measured; else None.
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
    agent: Agent | None = None

    @property
    def fraction(self) -> float:
        """Completed fraction of the current epoch, in [0, 1]."""
        return self.progress.fraction if self.progress else 0.0

    @property
    def batch_size(self) -> int:
        """Batch size of the current epoch; the declared batch size before the job first ran."""
        if self.progress:
            return self.progress.batch_size
        return self.observed[-1].batch_size if self.observed else self.spec.batch_size

    @property
    def run_seconds(self) -> float:
        """Time spent training so far, restarts excluded."""
        return self.progress.run_seconds if self.progress else 0.0

    @property
    def reference_seconds(self) -> float:
        """Run time so far, converted to the reference allocation."""
        return self.run_seconds + self.elsewhere_seconds

    @property
    def steps_left(self) -> int:
        """Training steps left at the current batch size; all declared steps at first."""
        return self.progress.steps_left if self.progress else self.spec.total_steps

    @lazily
    def epochs_left(self) -> float:
        """Epochs left at the current batch size; fractional."""
        steps = self.spec.steps_per_epoch(self.batch_size)
        return max(self.steps_left / steps, LEAST_LEFT)

    @lazily
    def share_done(self) -> float:
        """Completed share of the job's epochs, in [0, 1].

        For a timed job, this is the last reported share of its work. If it reported none, this is
        the share of its limit that it has run.
        """
        if self.milestones:
            return self.milestones[-1][0]
        done = self.epochs_done
        return min(done / (done + self.epochs_left), 1.0)

    @lazily
    def epochs_done(self) -> float:
        """Completed epochs, the completed fraction of the current epoch included."""
        return sum([regime.epochs for regime in self.observed]) + self.fraction

    def slowness(
        self, throughput: Throughput, reference: Allocation | None = None
    ) -> list[tuple[int, float, float]]:
        """Return the measured slowness by batch size.

        An entry is the batch size, the log of measured over profiled time per step, and the seconds
        measured. Who knows the job's reference allocation passes it on.
        """
        spec, rate = self.spec, throughput.rate
        allocation = reference or throughput.reference(spec)
        timed = [(pace.batch_size, pace.steps, pace.seconds) for pace in self.paces]
        return [
            (size, math.log(rate(spec, size, allocation) * seconds / steps), seconds)
            for size, steps, seconds in timed
        ]

    def after(
        self, reports: Sequence[EpochReport], progress: JobProgress | None, speed: float = 1.0
    ) -> "Belief":
        """Return the belief after new reports, in order, and progress, if the job ran.

        `speed` is the profiled rate on the allocation on which it ran, over that on its reference.
        """
        observed = self.observed
        for report in reports:
            if observed and observed[-1].batch_size == report.batch_size:
                *before, last = observed
                observed = (*before, Regime(report.batch_size, last.epochs + report.epochs))
            else:
                observed = (*observed, Regime(report.batch_size, report.epochs))
        seconds = progress.seconds if progress else 0.0
        paces, rounds = self.paces, self.rounds
        if progress:
            paces, rounds = self._timed(progress, speed)
        if reports and any([report.batch_size != self.batch_size for report in reports]):
            rounds = ()
        return Belief(  # `replace` takes twice the time
            self.spec,
            observed,
            progress or self.progress,
            paces,
            self.elsewhere_seconds + seconds * (speed - 1.0),
            self._reached(progress) if progress else self.milestones,
            self.losses,
            self.largest_change,
            rounds,
            self.agent,
        )

    def with_losses(self, losses: Sequence[EpochLoss]) -> "Belief":
        """Return the belief after the losses of further epochs, in order."""
        known = (*self.losses, *losses)
        changes = (abs(before.loss - after.loss) for before, after in pairwise(known))
        largest = max(self.largest_change, *changes, 0.0)
        return replace(self, losses=known[-MOST_LOSSES:], largest_change=largest)

    def with_measurements(self, reports: Sequence[EpochReport], placement: Placement) -> "Belief":
        """Return the belief after a round on a placement, `reports` being those of the round.

        Step times and noise follow from the batch size of each epoch that the job trained in.
        """
        progress, agent = self.progress, self.agent
        assert progress is not None, "the job ran"
        assert agent is not None, "the job chooses its batch sizes"
        for report in reports:
            for epoch in range(report.epoch, report.epoch + report.epochs):
                agent = agent.after(placement, report.batch_size, epoch)
        if progress.fraction:
            agent = agent.after(placement, progress.batch_size, progress.epochs)
        return replace(self, agent=agent)

    def _reached(self, progress: JobProgress) -> tuple[tuple[float, float], ...]:
        """Return the milestones, extended by the reported share if it is new."""
        known = self.milestones or ((0.0, 0.0),)
        if progress.epochs or progress.share == known[-1][0]:  # ended, or reported nothing new
            return self.milestones
        return (*known, (progress.share, progress.run_seconds))[-MILESTONES:]

    def _timed(
        self, progress: JobProgress, speed: float
    ) -> tuple[tuple[Pace, ...], tuple[float, ...]]:
        """Add the steps since the last report to paces and rounds.

        Steps across a change of batch size are not timed: their batch size is unknown.
        """
        size, steps = progress.batch_size, self.steps_left - progress.steps_left
        if size != self.batch_size:
            return self.paces, ()
        if steps <= 0 or progress.seconds <= 0.0:
            return self.paces, self.rounds
        seconds, paces = progress.seconds * speed, self.paces
        for place, pace in enumerate(paces):
            if pace.batch_size == size:
                timed = Pace(size, pace.steps + steps, pace.seconds + seconds)
                paces = (*paces[:place], timed, *paces[place + 1 :])
                break
        else:
            paces = (*paces, Pace(size, steps, seconds))
        all_steps, all_seconds = self.rounds[:2] or (0, 0.0)
        rounds = all_steps + steps, all_seconds + seconds, steps, seconds
        return paces, rounds


def list_stages(spec: JobSpec, sizes: tuple[int, ...], changes: int) -> tuple[int, ...]:
    """List a job's batch sizes after 0 to `changes` changes, in the order of its adaptation mode.

    GNS climbs the batch sizes that the job can reach, and stops at the largest; Accordion
    alternates between the initial and the largest; a static job keeps its batch size.

    Args:
        spec: The job.
        sizes: Those of `predictor.throughput.reachable_batch_sizes`.
        changes: The most changes.
    """
    if spec.mode is Mode.ACCORDION and len(sizes) > 1:
        return tuple(sizes[change % 2] for change in range(changes + 1))
    return sizes[: changes + 1]


def find_changes(
    spec: JobSpec, regimes: Sequence[Regime], sizes: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the epochs, ascending, at which a job changed its batch size; `sizes` it can reach.

    If a GNS job skips a batch size, its epoch counts twice. A decrease under GNS, as in the last
    epochs of the public traces, is not a change.
    """
    size = spec.batch_size
    if len(sizes) == 1 or all([regime.batch_size == size for regime in regimes]):
        return ()
    found, epoch = [], 0
    for regime in regimes:
        if spec.mode is Mode.GNS:
            found += [epoch for reached in sizes if size < reached <= regime.batch_size]
            size = max(size, regime.batch_size)
        else:
            found += [epoch] * (regime.batch_size != size)
            size = regime.batch_size
        epoch += int(regime.epochs)
    return tuple(found)
