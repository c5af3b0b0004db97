"""The gradient noise scale.

It follows McCandlish et al. (2018), "An empirical model of large-batch training", appendix A.1. The
gradient over a batch of B samples is the true gradient G plus noise with covariance Sigma / B, so
its expected squared norm is |G|^2 + tr(Sigma) / B. The norms over parts of a step and over the
whole step give two such equations, whose solution estimates |G|^2 and tr(Sigma) without bias. Their
ratio tr(Sigma) / |G|^2 is the noise scale: up to about this batch size, doubling the batch nearly
halves the number of steps.
"""

from dataclasses import dataclass

MEMORY = 0.95
"""Decay rate of the moving averages per step: about 20 steps. An engineering choice; no sweep is
recorded."""


def estimate(
    small: float, small_square: float, big: float, big_square: float
) -> tuple[float, float]:
    """Return unbiased estimates of |G|^2 and tr(Sigma), equations A.2 and A.3.

    Args:
        small: Samples of a part; for parts of different sizes, their harmonic mean.
        small_square: Squared norm of a part's mean gradient, averaged over the parts.
        big: Samples of the step, more than `small`.
        big_square: Squared norm of the step's mean gradient.
    """
    signal = (big * big_square - small * small_square) / (big - small)
    noise = (small_square - big_square) / (1.0 / small - 1.0 / big)
    return signal, noise


@dataclass(slots=True)
class NoiseScale:
    """Moving averages of both estimates; single estimates are too noisy for a ratio.

    Attributes:
        signal: Average of |G|^2. Both start at zero, and the bias cancels in their ratio.
        noise: Average of tr(Sigma).
    """

    signal: float = 0.0
    noise: float = 0.0

    def add(self, signal: float, noise: float) -> None:
        """Add a step's estimates."""
        self.signal = MEMORY * self.signal + (1.0 - MEMORY) * signal
        self.noise = MEMORY * self.noise + (1.0 - MEMORY) * noise

    @property
    def scale(self) -> float | None:
        """Noise scale in samples; None if the estimate of the gradient is lost in noise."""
        return max(self.noise, 0.0) / self.signal if self.signal > 0.0 else None

    def reaches(self, batch_size: int) -> bool:
        """Return whether the noise scale is at least a batch size."""
        return self.noise > 0.0 and self.noise >= batch_size * self.signal
