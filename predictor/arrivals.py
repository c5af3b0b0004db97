"""Forecast of future arrivals from past ones.

Arrivals are a Poisson process that lasts for an unknown time. Its rate has a gamma posterior. A
process that has lasted for a continues beyond t with probability a / t (Gott, Nature 1993). A
silence since the last arrival is evidence of the end.

Only the latest arrivals count, so that the expectation does not grow with the age of the cluster.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from predictor.job import JobSpec

COUNTED = 256
"""Number of latest arrivals that count, from the time of the one before them. A convention: more
than the jobs of the traces that other constants were chosen on, and some days of a busy cluster."""


def add_arrivals(arrived: tuple[float, ...], jobs: Iterable[JobSpec]) -> tuple[float, ...]:
    """Return the latest arrival times with those of new jobs, ascending, as many as count.

    Tasks of an array arrive together, so only the first counts.
    """
    new = [job.arrival_seconds for job in jobs if not job.options.task.place]
    return tuple(sorted((*arrived, *new))[-COUNTED - 1 :]) if new else arrived


def arrivals_left(now: float, arrived: Sequence[float]) -> float:
    """Return the expected time until arrivals end: if they have not ended, as long again as so far.

    That is the median of a process that continues. The silence since the last arrival determines
    how likely that is: an end within the silence has probability (1 − z) / (n + 1), a silence
    without an end z, with n arrivals and z = (last / now)^(n + 1). The process therefore
    continues with probability (n + 1) z / (1 + n z).

    `now` is not before the last arrival; `arrived` is ascending, in seconds from the start.
    """
    begin, count, last = _counted(arrived)
    if last <= begin:
        return 0.0  # all came at once
    age = now - begin
    silent = ((last - begin) / age) ** (count + 1)
    return age * (count + 1) * silent / (1.0 + count * silent)


def arrivals_after(
    now: float, arrived: Sequence[float], rng: np.random.Generator
) -> Iterator[float]:
    """Draw future arrivals, ascending, in seconds.

    `now` is not before the last arrival; `arrived` is ascending, in seconds from the start.
    """
    begin, count, last = _counted(arrived)
    if last <= begin:
        return  # all came at once
    age = last - begin
    while True:
        gap = age / float(rng.gamma(count))
        end = begin + age / (1.0 - float(rng.random()))
        following = last + float(rng.exponential(gap))
        if following > min(now, end):
            break  # reject draws with an arrival in the silence, which had none
    while following < end:
        yield following
        following += float(rng.exponential(gap))


def _counted(arrived: Sequence[float]) -> tuple[float, int, float]:
    """Return the start of the counted arrivals, their number, and the time of the last."""
    if len(arrived) > COUNTED:
        return arrived[-COUNTED - 1], COUNTED, arrived[-1]
    return 0.0, len(arrived), arrived[-1] if arrived else 0.0
