"""The three modes of adapting the batch size between epochs."""

from dataclasses import dataclass
from typing import Any

from trainer.job import Job
from trainer.noise import NoiseScale

DECAY = 0.1
"""Factor by which the learning rate decays, as in Accordion."""

DECAY_AT = (1 / 2, 5 / 6)
"""Shares of the epochs at which it decays, as in Accordion: 150 and 250 of 300."""

CRITICAL_CHANGE = 0.5
"""Relative change of the gradient norm that makes a regime critical: Accordion's eta."""

MOST_EPOCHS_BETWEEN = 10
"""Most epochs between two detections, as in Accordion; short jobs use a tenth of their epochs, by
convention."""


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The data on a completed epoch from which a mode decides.

    Attributes:
        gradient_norm: Norm of the mean gradient over the epoch's samples.
    """

    epoch: int
    batch_size: int
    gradient_norm: float
    noise: NoiseScale


class Adaptation:
    """A mode's rule for batch sizes; that of static jobs, which keep theirs."""

    def next_batch_size(self, end: EpochEnd) -> int:
        """Return the batch size of the next epoch."""
        return end.batch_size

    def state(self) -> dict[str, Any]:
        """Return the state between epochs, as JSON; empty if there is none."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the state of an earlier instance."""


class Accordion(Adaptation):
    """Small batches in critical regimes, large ones between them.

    Algorithm 1 of Agarwal et al. (MLSys 2021), with the whole model's accumulated gradient as in
    their batch-size experiments. A regime is critical at the start, if the gradient norm changed by
    half or more since the last detection, or if the learning rate is about to decay. Gradients are
    accumulated per sample, so that epochs of different batch sizes are comparable.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._interval = max(1, min(MOST_EPOCHS_BETWEEN, job.epochs // 10))
        self._last_norm: float | None = None

    def next_batch_size(self, end: EpochEnd) -> int:
        """Return the initial batch size in a critical regime, else the largest."""
        done = end.epoch + 1
        critical = decay(self._job.epochs, done) < decay(self._job.epochs, end.epoch)
        if done % self._interval:
            return self._job.batch_size if critical else end.batch_size
        last, self._last_norm = self._last_norm, end.gradient_norm
        if last is None or abs(last - end.gradient_norm) >= CRITICAL_CHANGE * last:
            critical = True
        return self._job.batch_size if critical else self._job.max_batch_size

    def state(self) -> dict[str, Any]:
        """Return the norm at the last detection."""
        return {"last_norm": self._last_norm}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the norm at the last detection."""
        self._last_norm = state["last_norm"]


class GradientNoise(Adaptation):
    """Doubling once the gradient noise scale reaches the doubled batch size; never shrinks.

    The trainer stores the noise, which it measures in all modes.
    """

    def __init__(self, job: Job) -> None:
        self._most = job.max_batch_size

    def next_batch_size(self, end: EpochEnd) -> int:
        """Return the doubled batch size, capped, if the noise scale reaches it."""
        doubled = 2 * end.batch_size
        return min(doubled, self._most) if end.noise.reaches(doubled) else end.batch_size


def make_adaptation(job: Job) -> Adaptation:
    """Make the adaptation of the job's mode."""
    match job.mode:
        case "accordion":
            return Accordion(job)
        case "gns":
            return GradientNoise(job)
        case _:
            return Adaptation()


def decay(epochs: int, epoch: int) -> float:
    """Return the remaining share of the learning rate in an epoch, counted from 0.

    All modes have the same decay. `epochs` is the total of the job.
    """
    passed = sum(epoch >= share * epochs for share in DECAY_AT)
    return float(DECAY**passed)
