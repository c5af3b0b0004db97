"""How far a normal variable is expected to exceed 0."""

import math

import numpy as np

from predictor.arrays import Floats


def expected_excess(mean: Floats) -> Floats:
    """E[max(0, X)] of X normal with this mean and standard deviation 1."""
    from scipy.special import ndtr  # a quarter of a second that policies without bids need not wait

    density = np.exp(-0.5 * mean * mean) / math.sqrt(2.0 * math.pi)
    excess: Floats = density + mean * ndtr(mean)
    return excess
