"""The predictor of the published system, which is clairvoyant.

Shockwave (NSDI '23, section 5): a Dirichlet prior over the batch sizes of a job's profiled
schedule, restated as epochs complete. The published code reads these batch sizes and their
epoch durations from the job's future. It serves only to reproduce published results.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

SPEED_TOLERANCE = 0.4
"""Relative difference of measured and profiled speed above which durations are rescaled, as in the
published code."""


@dataclass(frozen=True, slots=True)
class ProfiledRegime:
    """Consecutive epochs of a job's true schedule, at one batch size."""

    batch_size: int
    epochs: int
    epoch_seconds: float

    @property
    def whole_seconds(self) -> int:
        """Duration of an epoch in whole seconds, at least 1, as in the published system."""
        return max(1, round(self.epoch_seconds))


def seconds_done(schedule: Sequence[ProfiledRegime], epochs: int) -> int:
    """Return the duration of the first epochs of a schedule, in seconds."""
    seconds = 0
    for regime in schedule:
        part = min(regime.epochs, epochs)
        seconds += part * regime.whole_seconds
        epochs -= part
    return seconds


def mean_epoch_seconds(schedule: Sequence[ProfiledRegime], epochs_done: int) -> float:
    """Return the mean duration of the completed epochs and the current epoch."""
    epochs = min(epochs_done + 1, sum(regime.epochs for regime in schedule))
    return seconds_done(schedule, epochs) / epochs


def remaining_seconds(schedule: Sequence[ProfiledRegime], epochs_done: int) -> float:
    """Return the residual run time that the published system predicts, in seconds.

    The pseudo-counts of the batch sizes are equal shares of the epochs. Each epoch up to the
    current one adds 1 to its batch size. The masses are normalised to the number of epochs, and
    these epochs are subtracted, down to 0. Each remaining mass takes the mean epoch duration of
    its batch size; the sum is scaled to the epochs left, which must be at least one.
    """
    profiled: Counter[int] = Counter()
    seen: Counter[int] = Counter()
    seconds: Counter[int] = Counter()
    ahead = epochs_done + 1
    for regime in schedule:
        profiled[regime.batch_size] += regime.epochs
        seconds[regime.batch_size] += regime.epochs * regime.whole_seconds
        part = min(regime.epochs, ahead)
        seen[regime.batch_size] += part
        ahead -= part
    epochs = profiled.total()
    prior, whole = epochs / len(profiled), epochs + seen.total()
    mass = {size: epochs * (prior + seen[size]) / whole for size in profiled}
    mass = {size: share - min(seen[size], int(share)) for size, share in mass.items()}
    total = sum(share * seconds[size] / profiled[size] for size, share in mass.items())
    left = epochs - epochs_done
    return total * left / max(int(sum(mass.values()) + 1), left)


def calibrate(
    schedule: Sequence[ProfiledRegime],
    samples_per_epoch: int,
    *,
    factor: float,
    samples: float,
    seconds: float,
) -> float:
    """Return the scale factor of a schedule's durations, calibrated to measured speed.

    Compares the samples that the job would have trained since the run's start at its measured
    speeds with those of the profile over the same time. The factor stays unchanged if they differ
    by at most `SPEED_TOLERANCE`. `seconds` is the run's clock at the last measurement.
    """
    left, profiled = seconds, 0.0
    for regime in schedule:
        epochs = min(regime.epochs, int(left // regime.whole_seconds))
        profiled += epochs * samples_per_epoch
        left -= epochs * regime.whole_seconds
        if epochs < regime.epochs:
            break
    profiled += samples_per_epoch * left / (regime.whole_seconds * factor)
    if samples <= 0.0 or profiled <= 0.0 or abs(samples / profiled - 1.0) <= SPEED_TOLERANCE:
        return factor
    return profiled / samples
