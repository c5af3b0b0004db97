"""Ground truth: the true future of jobs, which virtual clusters simulate."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter

from containers.runtime import Terms
from predictor.errors import InputError
from predictor.job import EpochLoss, EpochReport, JobSpec, Mode, Regime


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """The true future of a job, visible only to its simulator.

    Attributes:
        isolated_seconds: Isolated run time on its own GPUs, the reference of finish-time
            fairness; for a timed job, its run time.
        profiled: Batch size of each epoch in an isolated run, run-length encoded.
        targets: Target batch size of each epoch, run-length encoded from epoch 0; the last one
            persists. A GNS job doubles step by step towards a larger target and never shrinks;
            an Accordion job jumps.
        losses: Training loss after each epoch; the last one persists. Empty if it reports none.
    """

    job_id: int
    isolated_seconds: float
    profiled: tuple[Regime, ...]
    targets: tuple[Regime, ...]
    losses: tuple[float, ...] = ()


def losses_of(
    truths: Mapping[int, GroundTruth], reports: Iterable[EpochReport]
) -> tuple[EpochLoss, ...]:
    """Return the training losses of reported epochs, for jobs that report losses."""
    return tuple(
        EpochLoss(report.job_id, epoch, curve[min(epoch, len(curve) - 1)])
        for report in reports
        if (curve := truths[report.job_id].losses)
        for epoch in range(report.epoch, report.epoch + report.epochs)
    )


def by_id(truths: Iterable[GroundTruth]) -> dict[int, GroundTruth]:
    """Index ground truths by ascending job id."""
    return {truth.job_id: truth for truth in sorted(truths, key=lambda truth: truth.job_id)}


def check_jobs(
    jobs: Iterable[JobSpec],
    truths: Mapping[int, GroundTruth],
    terms: Terms,
    *,
    published_rules: bool,
) -> None:
    """Refuse jobs that a virtual cluster cannot simulate.

    Under the `published_rules`, GNS jobs double their batch size on the way to a target, and rounds
    hold only whole steps.

    Raises:
        InputError: A job has no ground truth, the profile cannot run it, or it cannot finish a
            step in a round.
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


def _on_the_way(spec: JobSpec, largest: int) -> set[int]:
    """Return the batch sizes from the declared one to the largest target."""
    sizes = {spec.batch_size}
    while spec.mode is Mode.GNS and max(sizes) < largest:
        sizes.add(2 * max(sizes))
    return sizes
