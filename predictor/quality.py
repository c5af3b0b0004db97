"""Loss curves: extrapolations of a job's training loss from the losses of its epochs so far.

After Zhang et al., SLAQ (SoCC '17), section 4: two families of curves are fitted by least squares
in which recent epochs weigh more; the better fit is used.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from predictor.arrays import Floats
from predictor.belief import MOST_LOSSES

NOISE, SMALLEST = 1e-9, 1e-100
"""Losses count as equal if their range is at most the share `NOISE`, for rounding, of the largest
loss, or of `SMALLEST` if all are below that. Conventions."""
ASYMPTOTES = np.geomspace(1e-3, 10.0, 25)
"""Distances of a sublinear curve's asymptote below the lowest loss, in ranges of losses. A grid."""
FACTORS = 1.0 - np.geomspace(1e-3, 0.9, 30)
"""Factors by which a linear curve's distance to its asymptote shrinks per epoch. A grid."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A job's loss by completed epochs.

    With k in epochs, a sublinear curve is 1 / (a k² + b k + c) + d, for first-order methods. Other
    curves are a bᵏ + d (c = 0), for methods that converge linearly or faster.
    """

    sublinear: bool
    a: float
    b: float
    c: float
    d: float

    def at(self, epochs: float) -> float:
        """Return the loss after some epochs."""
        if self.sublinear:
            return 1.0 / (self.a * epochs**2 + self.b * epochs + self.c) + self.d
        return self.a * float(self.b**epochs) + self.d


@lru_cache(maxsize=4096)
def fit_curve(epochs: tuple[int, ...], losses: tuple[float, ...], recency: float) -> Curve:
    """Return the curve that fits the latest losses best; a flat one if they differ by noise only.

    `epochs` are the completed epochs at each loss, ascending. `recency` is the weight of a loss
    relative to the next, in (0, 1].
    """
    k = np.array(epochs[-MOST_LOSSES:], float)
    y = np.array(losses[-MOST_LOSSES:], float)
    weights = recency ** np.arange(len(y) - 1, -1, -1.0)
    low, spread = float(y.min()), float(y.max() - y.min())
    if spread <= NOISE * max(float(abs(y).max()), SMALLEST):
        return Curve(False, 0.0, 1.0, 0.0, float(y[-1]))
    y, scale = (y - low) / spread, float(k[-1])
    found = [*_sublinear(k / scale, y, weights), *_linear(k, y, weights)]
    sound = (entry for entry in found if math.isfinite(entry[0]))
    _, best = min(sound, key=lambda entry: entry[0])
    d = low + spread * best.d
    if best.sublinear:
        a, b, c = best.a / scale**2 / spread, best.b / scale / spread, best.c / spread
        return Curve(True, a, b, c, d)
    return Curve(False, spread * best.a, best.b, 0.0, d)


def _sublinear(x: Floats, y: Floats, weights: Floats) -> list[tuple[float, Curve]]:
    """Fit curves 1 / (a x² + b x + c) + d, y in [0, 1]; return their weighted squared errors, too.

    For each d, the fit is linear in 1 / (y − d), whose errors are weighted by (y − d)⁴ to become
    errors of y. Terms x² and x that would make the loss rise are dropped.
    """
    found = []
    powers = np.stack([x**2, x, np.ones_like(x)], 1)
    for d in -ASYMPTOTES:
        above = y - d
        roots = np.sqrt(weights) * above**2
        for kept in ([0, 1, 2], [1, 2], [0, 2]):
            solved: Any = np.linalg.lstsq(
                powers[:, kept] * roots[:, None], roots / above, rcond=None
            )[0]
            if solved.min() < 0.0 or solved[-1] <= 0.0:
                continue
            terms = np.zeros(3)
            terms[kept] = solved
            error = float(weights @ (1.0 / (powers @ terms) + d - y) ** 2)
            a, b, c = map(float, terms)
            found.append((error, Curve(True, a, b, c, float(d))))
            break
    return found


def _linear(k: Floats, y: Floats, weights: Floats) -> list[tuple[float, Curve]]:
    """Fit curves a μᵏ + d: a flat one, and for each μ a line in μᵏ; return their errors, too."""
    mean = float(weights @ y / weights.sum())
    found = [(float(weights @ (mean - y) ** 2), Curve(False, 0.0, 1.0, 0.0, mean))]
    for factor in FACTORS:
        falls = factor**k
        middle = weights @ falls / weights.sum()
        spread = float(weights @ (falls - middle) ** 2)
        if not spread > 0.0:
            continue
        a = max(float(weights @ ((falls - middle) * (y - mean))) / spread, 0.0)
        d = mean - a * float(middle)
        found.append(
            (float(weights @ (a * falls + d - y) ** 2), Curve(False, a, float(factor), 0.0, d))
        )
    return found
