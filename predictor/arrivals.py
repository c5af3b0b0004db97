"""Jobs still to come, foretold from the arrivals so far.

Arrivals are a Poisson process that goes on for an unknown time. Nothing is known of its rate, whose
posterior is a gamma distribution, or of its end: a process that has lasted for a goes on beyond t
with probability a / t (Gott, Nature 1993). A silence since the last arrival is evidence of the end.
"""

from collections.abc import Iterator, Sequence

import numpy as np


def arrivals_left(now: float, count: int, last: float) -> float:
    """How long arrivals are expected to go on: as long again as so far, if they have not ended.

    That is the median of a process that goes on; the silence since the last arrival says how
    likely that is. With z = (last / now)^(n + 1), of n arrivals, it is (n + 1) z / (1 + n z): an
    end within the silence has probability (1 − z) / (n + 1), a silence without one z.

    Args:
        now: The clock, in seconds from the start.
        count: Arrivals so far.
        last: The last of them, not after now, in seconds from the start.
    """
    if last <= 0.0:
        return 0.0  # all came at once
    silent = (last / now) ** (count + 1)
    return now * (count + 1) * silent / (1.0 + count * silent)


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
