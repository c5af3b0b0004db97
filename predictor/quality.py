"""Loss curves: how far a job's training loss will fall, from what its epochs lost so far.

After Zhang et al., SLAQ (SoCC '17), section 4: two families of curves, fitted by least squares in
which recent epochs weigh more, of which the better one is taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MOST_POINTS = 60
"""Latest losses that a curve is fitted to: with the weights below, older ones count for nothing. An
engineering bound."""
ASYMPTOTES = np.geomspace(1e-3, 10.0, 25)
"""How far below the lowest loss a sublinear curve may end, over the range of all losses. A grid."""
FACTORS = 1.0 - np.geomspace(1e-3, 0.9, 30)
"""What is left of a linear curve's distance to its end after an epoch. A grid."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A job's loss by completed epochs.

    Attributes:
        sublinear: Whether it is 1 / (a k² + b k + c) + d, as of first-order methods, and not
            a μᵏ + d, as of methods that converge linearly or faster; k in epochs.
        a: Of the family.
        b: Of the family; μ where it is not sublinear.
        c: Of the family; 0 where it is not sublinear.
        d: The loss at the end.
    """

    sublinear: bool
    a: float
    b: float
    c: float
    d: float

    def at(self, epochs: float) -> float:
        """The loss after some epochs."""
        if self.sublinear:
            return 1.0 / (self.a * epochs**2 + self.b * epochs + self.c) + self.d
        return self.a * float(self.b**epochs) + self.d


@lru_cache(maxsize=4096)
def fitted(epochs: tuple[int, ...], losses: tuple[float, ...], recency: float) -> Curve:
    """The curve that fits losses best.

    Args:
        epochs: Completed epochs at each loss, ascending.
        losses: The losses.
        recency: Weight of a loss over that of the next one, in (0, 1].
    """
    k = np.array(epochs[-MOST_POINTS:], float)
    y = np.array(losses[-MOST_POINTS:], float)
    weights = recency ** np.arange(len(y) - 1, -1, -1.0)
    spread = float(y.max() - y.min())
    if not spread > 0.0:
        return Curve(False, 0.0, 1.0, 0.0, float(y[-1]))
    scale = k[-1]
    found = [*_sublinear(k / scale, y, weights, spread), *_linear(k / scale, y, weights, scale)]
    _, curve = min(found, key=lambda entry: entry[0])
    if curve.sublinear:
        return Curve(True, curve.a / scale**2, curve.b / scale, curve.c, curve.d)
    return curve


def _sublinear(x: Floats, y: Floats, weights: Floats, spread: float) -> list[tuple[float, Curve]]:
    """Curves 1 / (a x² + b x + c) + d with their weighted squared errors.

    For each d the rest is linear in 1 / (y − d), whose errors count by (y − d)⁴ to be those of y.
    Of the terms x² and x those are left out that would make the loss rise.
    """
    found = []
    powers = np.stack([x**2, x, np.ones_like(x)], 1)
    for d in y.min() - ASYMPTOTES * spread:
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


def _linear(x: Floats, y: Floats, weights: Floats, scale: float) -> list[tuple[float, Curve]]:
    """Curves a μᵏ + d with their weighted squared errors: for each μ a line in μᵏ."""
    found = []
    mean = float(weights @ y / weights.sum())
    for factor in FACTORS:
        falls = factor ** (x * scale)
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


def largest_fall(losses: Sequence[float]) -> float:
    """The largest change from one loss to the next, by which changes of jobs become comparable."""
    return max((abs(a - b) for a, b in pairwise(losses)), default=0.0)
