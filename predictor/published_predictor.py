"""The predictor of the published system, which is told each job's true schedule.

Shockwave (NSDI '23, section 5): a Dirichlet prior over the batch sizes of a job's
profiled schedule, restated as epochs complete. The published code takes those batch
sizes, and what an epoch of each takes, from the job's future; it serves to repeat
published results and nothing else here.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

SPEED_TOLERANCE = 0.4
"""Relative difference of measured and profiled speed above which durations are scaled."""


@dataclass(frozen=True, slots=True)
class ProfiledRegime:
    """Consecutive epochs of a job's true schedule.

    Attributes:
        batch_size: Of all of them.
        epochs: How many.
        epoch_seconds: What one of them takes.
    """

    batch_size: int
    epochs: int
    epoch_seconds: float

    @property
    def whole_seconds(self) -> int:
        """What one of them takes as the published system counts it: whole, at least 1."""
        return max(1, round(self.epoch_seconds))


def seconds_done(schedule: Sequence[ProfiledRegime], epochs: int) -> int:
    """What the first so many epochs of a schedule take."""
    seconds = 0
    for regime in schedule:
        part = min(regime.epochs, epochs)
        seconds += part * regime.whole_seconds
        epochs -= part
    return seconds


def mean_epoch_seconds(schedule: Sequence[ProfiledRegime], epochs_done: int) -> float:
    """Mean over the completed epochs and the one under way."""
    epochs = min(epochs_done + 1, sum(regime.epochs for regime in schedule))
    return seconds_done(schedule, epochs) / epochs


def remaining_seconds(schedule: Sequence[ProfiledRegime], epochs_done: int) -> float:
    """Run time left, as the published system predicts it.

    Each batch size of the schedule starts with an even share of the epochs; every epoch
    profiled, up to the one under way, adds one; the masses are scaled back to the number
    of epochs, and each of those epochs takes one off where there is one. What is left
    takes its mean time, scaled to the epochs left.

    Args:
        schedule: The job's true schedule.
        epochs_done: Completed epochs, fewer than it has.
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


def calibrated(
    schedule: Sequence[ProfiledRegime],
    samples_per_epoch: int,
    *,
    factor: float,
    samples: float,
    seconds: float,
) -> float:
    """By how much the durations of a schedule are scaled, after a look at measured speed.

    The samples that would have been trained from the run's start until now, had the job
    run all along at the speeds measured of it, are held against those that the profile
    has for as long a time.

    Args:
        schedule: The job's true schedule.
        samples_per_epoch: Size of its data set.
        factor: By how much they are scaled so far.
        samples: Measured, as above.
        seconds: The run's clock at the last measurement.

    Returns:
        The new factor, or the old one where the speeds differ by 40 % at most.
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
