"""How the batch size changes between epochs: the three modes."""

from dataclasses import dataclass
from typing import Any, Protocol

from trainer.job import Job
from trainer.noise import NoiseScale

DECAY = 0.1
"""Factor of a decay of the learning rate, as with Accordion."""

DECAY_AT = (1 / 2, 5 / 6)
"""Shares of the epochs after which it decays: 150 and 250 of 300 with Accordion."""

CRITICAL_CHANGE = 0.5
"""Relative change of the gradient's norm from which a regime is critical: Accordion's eta."""

MOST_EPOCHS_BETWEEN = 10
"""Epochs between two detections in long jobs, as with Accordion; in short ones a tenth of all, by
convention."""


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """What a mode sees of a completed epoch.

    Attributes:
        epoch: Its index from 0.
        batch_size: Samples per step in it.
        gradient_norm: Norm of the mean gradient over its samples.
        noise: Gradient noise so far.
    """

    epoch: int
    batch_size: int
    gradient_norm: float
    noise: NoiseScale


class Adaptation(Protocol):
    """A mode's way to choose batch sizes."""

    def next_batch_size(self, end: EpochEnd) -> int:
        """Batch size of the epoch that follows."""
        ...

    def state(self) -> dict[str, Any]:
        """Its state, as JSON."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the state of an earlier instance."""
        ...


class Static:
    """Never changes."""

    def next_batch_size(self, end: EpochEnd) -> int:
        """The same again."""
        return end.batch_size

    def state(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Nothing."""


class Accordion:
    """Small batches in critical regimes, large ones between them.

    After Agarwal et al., "Adaptive gradient communication via critical learning regime
    identification" (MLSys 2021), algorithm 1 with the whole model's accumulated gradient,
    as for batch sizes there. A regime is critical if the gradient's norm changed by half or
    more since the last detection, or if the learning rate is about to decay; so is the start.
    Gradients are accumulated per sample, so that epochs of different batch sizes compare.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._interval = max(1, min(MOST_EPOCHS_BETWEEN, job.epochs // 10))
        self._last_norm: float | None = None

    def next_batch_size(self, end: EpochEnd) -> int:
        """The initial batch size in a critical regime, else the largest."""
        done = end.epoch + 1
        critical = decay(self._job.epochs, done) < decay(self._job.epochs, end.epoch)
        if done % self._interval:
            return self._job.batch_size if critical else end.batch_size
        last, self._last_norm = self._last_norm, end.gradient_norm
        if last is None or abs(last - end.gradient_norm) >= CRITICAL_CHANGE * last:
            critical = True
        return self._job.batch_size if critical else self._job.max_batch_size

    def state(self) -> dict[str, Any]:
        """The norm at the last detection."""
        return {"last_norm": self._last_norm}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from the norm at the last detection."""
        self._last_norm = state["last_norm"]


class GradientNoise:
    """Doubles when the gradient noise scale reaches the doubled batch size; never shrinks."""

    def __init__(self, job: Job) -> None:
        self._most = job.max_batch_size

    def next_batch_size(self, end: EpochEnd) -> int:
        """Twice the batch size, at most the largest, if the noise asks for it."""
        doubled = 2 * end.batch_size
        return min(doubled, self._most) if end.noise.reaches(doubled) else end.batch_size

    def state(self) -> dict[str, Any]:
        """Nothing: the noise is kept with the epoch's sums, which every mode has."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Nothing."""


def make_adaptation(job: Job) -> Adaptation:
    """The job's mode."""
    match job.mode:
        case "accordion":
            return Accordion(job)
        case "gns":
            return GradientNoise(job)
        case _:
            return Static()


def decay(epochs: int, epoch: int) -> float:
    """Share of the learning rate that is left in an epoch, alike in all modes.

    Args:
        epochs: Of the whole job.
        epoch: Counted from 0.
    """
    passed = sum(epoch >= share * epochs for share in DECAY_AT)
    return float(DECAY**passed)
