"""Jobs still to come, foretold from the arrivals so far.

Arrivals are a Poisson process that goes on for an unknown time. Nothing is known of its rate, whose
posterior is a gamma distribution, or of its end: a process that has lasted for a goes on beyond t
with probability a / t (Gott, Nature 1993). A silence since the last arrival is evidence of the end.
"""

from collections.abc import Iterator, Sequence

import numpy as np


def arrivals_after(
    now: float, arrived: Sequence[float], rng: np.random.Generator
) -> Iterator[float]:
    """A draw of the arrivals to come, ascending, in seconds.

    Args:
        now: The clock, not before the last arrival.
        arrived: Arrivals so far, ascending, in seconds from the start.
        rng: Source of the draw.
    """
    if not arrived or arrived[-1] <= 0.0:
        return  # all came at once
    last = arrived[-1]
    while True:
        gap = last / float(rng.gamma(len(arrived)))
        end = last / (1.0 - float(rng.random()))
        following = last + float(rng.exponential(gap))
        if following > min(now, end):
            break  # else there would have been an arrival in the silence
    while following < end:
        yield following
        following += float(rng.exponential(gap))
