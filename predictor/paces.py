"""The total duration of a job's work, predicted from the paces that it reported.

The seconds that equal parts of the work took are modelled as a stationary Gaussian autoregression
of order 1 (Box and Jenkins, Time Series Analysis, 1970), so that persistent paces count as few
observations. Mean and variance are unknown, with the prior 1 / σ². Given the correlation ρ of
neighbouring parts, the mean of the remaining parts has Student's t distribution (the predictive
distribution of generalised least squares). Each ρ of `CORRELATIONS` is equally likely a priori,
and weighted by its marginal likelihood.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from predictor.arrays import Floats
from predictor.belief import Belief

CORRELATIONS = np.array([0.0, 0.5, 0.9, 0.97])
"""Correlations of neighbouring parts. A convention; tests/predictor/test_durations.py measures the
resulting coverage."""

LEAST_LEFT_SHARE = 0.01
"""Lower bound on the remaining share of the work: reports may be rounded. A convention."""

RESOLUTION = 1.0 / math.sqrt(12.0)
"""Least standard deviation of the rest, in steps from one report to the next: the position within a
step is unknown (standard deviation of a uniform distribution)."""

LEAST_SPREAD = 1e-6
"""Least standard deviation of parts, as a share of their mean. A numerical bound."""

HALVINGS = 40
"""Bisections of the interval that holds a quantile, to far below the resolution of measurements."""


@dataclass(frozen=True, slots=True)
class TotalTime:
    """Distribution of the seconds that the whole work takes: a mixture of Student's t.

    Attributes:
        weights: Weights of the components, with sum 1.
        centres: Their medians, in seconds.
        scales: Their scales, in seconds.
        freedom: Degrees of freedom of each.
    """

    weights: Floats
    centres: Floats
    scales: Floats
    freedom: int

    def longer(self, seconds: Floats) -> Floats:
        """Return the probabilities that the work takes longer than these seconds."""
        from scipy.special import stdtr  # imported late: it takes a quarter of a second

        beyond = (self.centres - seconds[:, None]) / self.scales
        return np.asarray(stdtr(self.freedom, beyond) @ self.weights)

    def quantiles(self, levels: Floats, least: float, most: float) -> Floats:
        """Return quantiles, given that the work takes more than `least`, at most `most` seconds."""
        low, high = np.full(len(levels), min(least, most)), np.full(len(levels), most)
        sought = (1.0 - levels) * self.longer(np.array([least]))
        for _ in range(HALVINGS):
            middle = (low + high) / 2.0
            later = self.longer(middle) > sought
            low, high = np.where(later, middle, low), np.where(later, high, middle)
        return high


def list_steps(belief: Belief) -> list[tuple[float, float]]:
    """List the share and seconds of each step from a milestone to the next.

    Steps in which a job returned to a checkpoint are left out.
    """
    return [
        (after - before, until - since)
        for (before, since), (after, until) in pairwise(belief.milestones)
        if after > before
    ]


def predict_total(belief: Belief) -> TotalTime:
    """Predict the duration of a job's whole work, if the rest proceeds as before.

    The job must have reported two steps or more.
    """
    (reached, seconds), found = belief.milestones[-1], np.array(list_steps(belief))
    shares, times = np.vstack([np.zeros(2), found.cumsum(axis=0)]).T
    parts = len(found)
    part = shares[-1] / parts
    took = np.diff(np.interp(np.linspace(0.0, shares[-1], parts + 1), shares, times))
    left = max(1.0 - reached, LEAST_LEFT_SHARE) / part
    ahead, rho = max(left, 1.0), CORRELATIONS[:, None]

    number = np.arange(parts)
    between = CORRELATIONS[:, None, None] ** np.abs(number[:, None] - number)
    # `shared` is the covariance of the mean of the remaining parts with each finished part,
    # `own` its variance, both in units of the variance of a part.
    passing = rho * (1.0 - rho**ahead) / (1.0 - rho) / ahead
    shared = rho ** number[::-1] * passing
    own = ((1.0 + rho) / (1.0 - rho) / ahead - 2.0 * passing / (1.0 - rho) / ahead)[:, 0]
    given = np.stack([np.ones_like(shared), np.broadcast_to(took, shared.shape), shared], axis=-1)
    ones, taken, weighed = np.moveaxis(np.linalg.solve(between, given), -1, 0)
    known = ones.sum(axis=1)
    mean = taken.sum(axis=1) / known
    beside = taken - mean[:, None] * ones
    least = LEAST_SPREAD * took.mean()
    squares = np.maximum(((took - mean[:, None]) * beside).sum(axis=1) / (parts - 1), least**2)
    centre = mean + (shared * beside).sum(axis=1)
    spread = own - (shared * weighed).sum(axis=1) + (1.0 - weighed.sum(axis=1)) ** 2 / known
    logs = -(np.linalg.slogdet(between)[1] + np.log(known) + (parts - 1) * np.log(squares)) / 2.0
    weights = np.exp(logs - logs.max())
    return TotalTime(
        weights=weights / weights.sum(),
        centres=seconds + left * centre,
        scales=np.maximum(left * np.sqrt(squares * spread), RESOLUTION * took.mean()),
        freedom=parts - 1,
    )
