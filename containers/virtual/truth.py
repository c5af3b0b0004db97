"""Ground truth: the true future of jobs, which virtual clusters simulate."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import ClassVar

from containers.runtime import ResumePoint, Runtime, RuntimeFactory, Terms
from predictor.errors import InputError
from predictor.job import EpochLoss, EpochReport, JobSpec, Mode, Regime


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """The true future of a job, visible to the place that simulates it only.

    Attributes:
        job_id: The job.
        isolated_seconds: Isolated run time on its own GPUs, the reference of finish-time
            fairness; of a timed job, how long it takes.
        profiled: Batch size of each epoch in such a run, run-length encoded.
        targets: Batch size that the job strives for in each epoch, run-length encoded
            from epoch 0; the last one holds on. A GNS job approaches a larger target by
            one doubling at a time and never shrinks; an Accordion job jumps.
        losses: Its training loss after each epoch; the last one holds on. None if it reports none.
    """

    job_id: int
    isolated_seconds: float
    profiled: tuple[Regime, ...]
    targets: tuple[Regime, ...]
    losses: tuple[float, ...] = ()


def losses_of(
    truths: Mapping[int, GroundTruth], reports: Iterable[EpochReport]
) -> tuple[EpochLoss, ...]:
    """The training losses of reported epochs, of jobs that report them."""
    return tuple(
        EpochLoss(report.job_id, epoch, curve[min(epoch, len(curve) - 1)])
        for report in reports
        if (curve := truths[report.job_id].losses)
        for epoch in range(report.epoch, report.epoch + report.epochs)
    )


def by_id(truths: Iterable[GroundTruth]) -> dict[int, GroundTruth]:
    """Ground truths by ascending job id."""
    return {truth.job_id: truth for truth in sorted(truths, key=lambda truth: truth.job_id)}


def check_jobs(
    jobs: Iterable[JobSpec],
    truths: Mapping[int, GroundTruth],
    terms: Terms,
    *,
    published_rules: bool,
) -> None:
    """Refuse jobs that a virtual cluster cannot simulate.

    Args:
        jobs: The jobs.
        truths: Ground truths by job id.
        terms: The terms of the run.
        published_rules: Whether the batch sizes of GNS jobs double on the way to a target and
            a round holds whole steps only, as in `containers.virtual.virtual_cluster`.

    Raises:
        InputError: A job has no ground truth, the profile cannot run it, or a round is too
            short for a single step of it.
    """
    for spec in jobs:
        if spec.job_id not in truths:
            raise InputError(f"job {spec.job_id}", "has no ground truth", "give one truth per job")
        sizes = {regime.batch_size for regime in truths[spec.job_id].targets}
        if published_rules:
            sizes |= _on_the_way(spec, max(sizes))
        menu, rate = terms.menu(spec), terms.throughputs.rate
        slowest, size, there = min(
            ((rate(spec, size, found), size, found) for found in menu for size in sorted(sizes)),
            key=itemgetter(0),
        )
        if published_rules and slowest * terms.round_seconds < 1:
            several = len({found.gpu_type for found in menu}) > 1
            where = f" with batch size {size} on {there.gpu_type}" * several
            remedy = f", or 0 as the throughput of {spec.model} there, where it is not to run"
            raise InputError(
                f"job {spec.job_id}",
                f"cannot finish a training step{where} in a round of {terms.round_seconds:g} s",
                "give longer rounds" + remedy * several,
            )


class TruthFactory(RuntimeFactory, ABC):
    """A virtual clock, and jobs that follow their ground truths on it.

    Args:
        truths: A ground truth for each job.
    """

    published_rules: ClassVar[bool]
    """See `check_jobs`."""

    def __init__(self, truths: Iterable[GroundTruth]) -> None:
        self._truths = by_id(truths)

    def check(self, terms: Terms, jobs: Iterable[JobSpec]) -> None:
        """Refuse jobs that cannot run here.

        Raises:
            InputError: See `check_jobs`.
        """
        check_jobs(jobs, self._truths, terms, published_rules=self.published_rules)

    @abstractmethod
    def open(self, terms: Terms, standing: ResumePoint) -> Runtime:
        """See `RuntimeFactory.open`; a run begins here, or is carried out again from its beginning.

        A standing lacks the work that its jobs have done: none of them may have started.

        Raises:
            InputError: A job of the standing cannot run here.
        """


def _on_the_way(spec: JobSpec, largest: int) -> set[int]:
    """The batch sizes between the declared one and the largest target."""
    sizes = {spec.batch_size}
    while spec.mode is Mode.GNS and max(sizes) < largest:
        sizes.add(2 * max(sizes))
    return sizes
