"""The even cluster computed in another way: by its definition, all rates anew at each change."""

from collections.abc import Sequence

import numpy as np

Job = tuple[float, float, int, float]
"""Arrival, isolated run time, gang and budget of a job."""


def fluid(
    jobs: Sequence[Job], gpus: int, changes: Sequence[tuple[float, int]] = ()
) -> dict[int, float]:
    """When each job ends.

    `changes` are times and the GPUs from then on. With changes, a job is absent while its gang is
    larger than the cluster.
    """
    at, seconds, gangs, budgets = (
        np.array(column, dtype=float) for column in zip(*jobs, strict=True)
    )
    left, clock, ends = seconds.copy(), 0.0, dict[int, float]()
    while len(ends) < len(jobs):
        size = [gpus, *(count for when, count in changes if when <= clock)][-1]
        here = (at <= clock) & (left > 0.0)
        here &= gangs <= size if changes else True
        # The largest θ for which all rates fit, by bisection of its logarithm.
        low, high = -60.0, 60.0
        for _ in range(100):
            middle = (low + high) / 2
            fits = gangs[here] @ np.minimum(1.0, budgets[here] * np.exp(middle)) <= size
            low, high = (middle, high) if fits else (low, middle)
        rates = np.where(here, np.minimum(1.0, budgets * np.exp(low)), 0.0)
        coming = [when - clock for when in (*at, *(when for when, _ in changes)) if when > clock]
        step = min([*coming, *(left[here] / rates[here])])
        clock += step
        left -= rates * step
        for n in np.flatnonzero(here & (left <= 1e-9)):
            left[n] = 0.0
            ends[int(n)] = clock
    return ends
