"""Distributions of generated jobs, and their expected work."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from predictor.errors import InputError
from predictor.job import Mode
from warehouse.workloads.fields import LARGEST

SCALE_FACTOR_WEIGHTS: Mapping[int, float] = MappingProxyType({1: 0.6, 2: 0.3, 4: 0.09, 8: 0.01})
"""Probability of each scale factor in the traces of Shockwave (NSDI '23), from their published file
names."""

MODE_WEIGHTS: Mapping[Mode, float] = MappingProxyType({Mode.GNS: 0.5, Mode.ACCORDION: 0.5})
"""Share of each adaptation mode in the same traces."""

SHORTEST_SECONDS, LONGEST_SECONDS = 0.2 * 3600, 5.0 * 3600
"""Range of isolated run times, drawn log-uniformly: 0.2 to 5 h, as in the same traces."""

MOST_SECONDS = 1e9
"""Largest isolated run time, about thirty years. An engineering bound."""


@dataclass(frozen=True)
class Mix:
    """Distributions of generated jobs, without their arrivals.

    Attributes:
        scale_factors: Weight of each scale factor.
        modes: Weight of each adaptation mode.

    Raises:
        InputError: A value is out of range; the error names it.
    """

    shortest_seconds: float = SHORTEST_SECONDS
    longest_seconds: float = LONGEST_SECONDS
    scale_factors: Mapping[int, float] = field(default_factory=lambda: SCALE_FACTOR_WEIGHTS)
    modes: Mapping[Mode, float] = field(default_factory=lambda: MODE_WEIGHTS)

    def __post_init__(self) -> None:
        for name, value, least in (
            ("shortest_seconds", self.shortest_seconds, 1.0),
            ("longest_seconds", self.longest_seconds, self.shortest_seconds),
        ):
            if not least <= value <= MOST_SECONDS:
                remedy = f"give seconds from {least:g} to {MOST_SECONDS:g}"
                raise InputError(name, f"{value:g} is out of range", remedy)
        check_weights("scale_factors", self.scale_factors)
        check_weights("modes", self.modes)
        for gpus in self.scale_factors:
            if not 1 <= gpus <= LARGEST:
                raise InputError("scale_factors", f"{gpus} is out of range", "give 1 or more")

    @property
    def changes(self) -> str:
        """Description of the values that differ from the defaults; empty if none does."""
        changes = []
        if (self.shortest_seconds, self.longest_seconds) != (SHORTEST_SECONDS, LONGEST_SECONDS):
            changes.append(f"{self.shortest_seconds:g} to {self.longest_seconds:g} s long")
        for name, weights, usual in (
            ("scale factors", self.scale_factors, SCALE_FACTOR_WEIGHTS),
            ("modes", self.modes, MODE_WEIGHTS),
        ):
            if dict(weights) != dict(usual):
                changes.append(f"{name} {' '.join(f'{k}={w:g}' for k, w in weights.items())}")
        return ", ".join(changes)

    def mean_gpu_seconds(self) -> float:
        """Return the mean scale factor × isolated run time of a job; the two are independent."""
        weights = self.scale_factors
        gpus = sum(gpus * weight for gpus, weight in weights.items()) / sum(weights.values())
        span = self.longest_seconds - self.shortest_seconds
        if span == 0.0:
            return gpus * self.shortest_seconds
        # Mean of a log-uniform distribution.
        return gpus * span / math.log(self.longest_seconds / self.shortest_seconds)

    def interarrival_seconds(self, contention_factor: float, gpus: int) -> float:
        """Return the mean gap between arrivals that gives a cluster a positive contention factor.

        The contention factor is the arriving work in GPU-seconds per second, divided by the GPUs:
        mean GPU-seconds of a job / (mean gap × GPUs). At 1, a cluster that never idles can just
        keep up.

        Raises:
            InputError: An argument is out of range; the error names it.
        """
        if not 0 < contention_factor < math.inf:
            problem = f"{contention_factor:g} is not a positive number"
            remedy = "give the work that arrives over the work that can be done"
            raise InputError("contention_factor", problem, remedy)
        if gpus < 1:
            raise InputError("gpus", f"{gpus} is not positive", "give at least 1")
        gap = self.mean_gpu_seconds() / (contention_factor * gpus)
        if not 0 < gap <= MOST_SECONDS:
            problem = f"{contention_factor:g} gives a mean gap of {gap:g} s between arrivals"
            remedy = f"give one that leaves more than 0 s, and {MOST_SECONDS:g} s at most"
            raise InputError("contention_factor", problem, remedy)
        return gap


def smaller_than(scale_factors: Mapping[int, float]) -> str:
    """Return the remedy for a generated job that is too large for a cluster."""
    weights = ",".join(f"{gpus}={weight:g}" for gpus, weight in scale_factors.items())
    return f"leave its number out of scale_factors {weights}"


def check_weights(field: str, weights: Mapping[int, float] | Mapping[Mode, float]) -> None:
    """Refuse weights that are all zero, or of which one is out of range.

    Raises:
        InputError: The weights are invalid; the error names the field.
    """
    for name, weight in weights.items():
        if not 0 <= weight <= LARGEST:
            problem = f"the weight {weight:g} of {name} is out of range"
            raise InputError(field, problem, "give 0 or more")
    if not sum(weights.values()) > 0:
        raise InputError(field, "nothing has a weight above 0", "give one of them a weight")
