"""The gradient noise scale.

After McCandlish et al. (2018), "An empirical model of large-batch training", appendix A.1.
The gradient over a batch of B samples is the true gradient G plus noise with covariance
Sigma / B, so the expected square of its norm is |G|^2 + tr(Sigma) / B. The norms over
parts of a step and over the whole step are two such equations, whose solution estimates
|G|^2 and tr(Sigma) without bias. Their ratio tr(Sigma) / |G|^2 is the noise scale: the
batch size up to which twice the samples nearly halve the steps.
"""

from dataclasses import dataclass

MEMORY = 0.95
"""Decay rate of the moving averages per step, about 20 steps. An engineering choice; no sweep is
recorded."""


def estimate(
    small: float, small_square: float, big: float, big_square: float
) -> tuple[float, float]:
    """Unbiased estimates of |G|^2 and tr(Sigma), equations A.2 and A.3.

    Args:
        small: Samples of a part; of parts of different sizes, the harmonic mean.
        small_square: Squared norm of a part's mean gradient, mean over the parts.
        big: Samples of the step, above `small`.
        big_square: Squared norm of the step's mean gradient.
    """
    signal = (big * big_square - small * small_square) / (big - small)
    noise = (small_square - big_square) / (1.0 / small - 1.0 / big)
    return signal, noise


@dataclass(slots=True)
class NoiseScale:
    """Moving averages of both estimates; each alone is too noisy for a ratio.

    Attributes:
        signal: Of |G|^2. Both start at zero, which their ratio does not see.
        noise: Of tr(Sigma).
    """

    signal: float = 0.0
    noise: float = 0.0

    def add(self, signal: float, noise: float) -> None:
        """Take in a step's estimates."""
        self.signal = MEMORY * self.signal + (1.0 - MEMORY) * signal
        self.noise = MEMORY * self.noise + (1.0 - MEMORY) * noise

    @property
    def scale(self) -> float | None:
        """Noise scale in samples; None where no gradient shows above the noise."""
        return max(self.noise, 0.0) / self.signal if self.signal > 0.0 else None

    def reaches(self, batch_size: int) -> bool:
        """Whether the noise scale is at least a batch size."""
        return self.noise > 0.0 and self.noise >= batch_size * self.signal
