"""Durations of timed jobs, as shares of their declared limits.

The limit of such a job and the durations of similar jobs are known. If they are exchangeable, the
job's share falls into each of the m + 1 gaps between 0, their m shares and 1 with probability
1 / (m + 1): Hill's assumption A(n) (JASA 1968), the predictive distribution of conformal
prediction without covariates (Vovk, Shen, Manokhin and Xie, Machine Learning 2019). For a job that
already ran for a share of its limit, the same holds among similar jobs that took longer. Without
any, its share is uniform over the rest of its limit.

A job may report the share of its work that is done; a step leads from one report to the next. Below
`ENOUGH` steps, the duration extrapolated from each step counts as that of a similar job. From
`ENOUGH` steps on, the job's paces alone predict its duration (`predictor.paces`), unless it has
exceeded that prediction.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from predictor.arrays import Floats
from predictor.belief import LEAST_LEFT, Belief
from predictor.job import JobSpec
from predictor.paces import LEAST_LEFT_SHARE, list_steps, predict_total

Alike = tuple[str, str, str]
"""Name, tenant and image of jobs assumed exchangeable. An empty name stands for all jobs of the
tenant with the image."""

Shares = Mapping[Alike, tuple[float, ...]]
"""Shares of their limits that ended jobs took, in the order of their ends."""

ENOUGH = 9
"""Number of jobs of the same name, or of steps of the job itself, from which no other jobs are
used. With fewer, an 80 % interval reaches from 0 to the limit."""

LEAST_WIDTH = 0.01
"""Least width of an interval, as a share of the expected rest: measurements may be rounded. A
convention."""

KEPT = 128
"""Latest shares kept per group of similar jobs. An engineering bound on memory; no sweep is
recorded."""

KEPT_ALIKE = 4096
"""Names kept in total, as users keep inventing names. Beyond it, the tenant with the most names
loses its oldest. An engineering bound on memory; no sweep is recorded."""


def list_cohorts(spec: JobSpec) -> tuple[Alike, ...]:
    """List the groups of similar jobs that a timed job belongs to, the narrowest first."""
    of_all = "", spec.tenant, spec.image
    return ((spec.name, spec.tenant, spec.image), of_all) if spec.name else (of_all,)


def measure_share(belief: Belief) -> float:
    """Return the share of its limit that an ended job took, in [0, 1]."""
    return min(sum([pace.seconds for pace in belief.paces]) / belief.spec.max_seconds, 1.0)


def add_share(shares: Shares, belief: Belief) -> dict[Alike, tuple[float, ...]]:
    """Return the shares with that of another ended job; unchanged if it was never measured."""
    found = dict(shares)
    if not belief.paces:
        return found
    for key in list_cohorts(belief.spec):
        found[key] = (*found.pop(key, ()), measure_share(belief))[-KEPT:]
    while len(found) > KEPT_ALIKE:
        most = Counter(tenant for _, tenant, _ in found).most_common(1)[0][0]
        del found[next(key for key in found if key[1] == most)]
    return found


def extrapolate_steps(belief: Belief) -> tuple[float, ...]:
    """Extrapolate a job's duration, as a share of its limit, from each step between milestones.

    Durations that the job has already exceeded are left out.
    """
    if not belief.milestones:
        return ()
    (share, seconds), limit = belief.milestones[-1], belief.spec.max_seconds
    left = max(1.0 - share, LEAST_LEFT_SHARE)
    totals = [seconds + left * took / part for part, took in list_steps(belief)]
    return tuple(min(total / limit, 1.0) for total in totals if total > belief.run_seconds)


def has_enough_steps(belief: Belief) -> bool:
    """Return whether a job reported enough steps to be forecast by its paces alone."""
    return len(belief.milestones) > ENOUGH and len(list_steps(belief)) >= ENOUGH


def predict_shares(
    belief: Belief, shares: Shares, coverage: float, levels: Sequence[float]
) -> Floats:
    """Predict the share of its limit that a timed job takes.

    Returns:
        The median, the ends of the interval (`coverage` is its least probability), then a quantile
        for each level. All are of the same distribution, except that the interval is never a point.
    """
    limit = belief.spec.max_seconds
    done = min(belief.run_seconds / limit, 1.0)
    tails = (1.0 - coverage) / 2.0, (1.0 + coverage) / 2.0
    asked = np.array([0.5, *tails, *levels])
    taken = predict_total(belief) if has_enough_steps(belief) else None
    if taken and taken.longer(np.array([belief.run_seconds]))[0] > 1.0 / (ENOUGH + 1):
        found = taken.quantiles(asked, belief.run_seconds, limit) / limit
    else:
        ends = find_gaps((*choose_shares(shares, belief.spec), *extrapolate_steps(belief)), done)
        found = compute_quantiles(ends, asked)
        found[1:3] = find_interval(ends, coverage)
    median, low, high = found[:3]
    least = max(LEAST_WIDTH * (median - done) / 2.0, 2.0 * LEAST_LEFT)
    found[1:3] = min(low, median - least), max(high, median + least)
    return found


def choose_shares(shares: Shares, spec: JobSpec) -> tuple[float, ...]:
    """Return the shares of jobs similar to a job: of its name, if there are enough."""
    known = [shares.get(key, ()) for key in list_cohorts(spec)]
    return next((found for found in known if len(found) >= ENOUGH), known[-1])


def find_gaps(past: Sequence[float], done: float) -> Floats:
    """Return the ends of the gaps into which a job's share falls with equal probability, ascending.

    `past` are the shares of similar jobs, `done` the share for which the job has run.
    """
    done = min(done, 1.0)
    return np.array([done, *sorted(share for share in past if share > done), 1.0])


def compute_quantiles(ends: Floats, levels: Floats) -> Floats:
    """Return quantiles of a job's share, given the ends of gaps.

    The share is taken as uniform within each gap, which the theory leaves open.
    """
    return np.interp(levels, np.linspace(0.0, 1.0, len(ends)), ends)


def find_interval(ends: Floats, coverage: float) -> tuple[float, float]:
    """Return an interval that contains a job's share with at least the probability `coverage`.

    It misses on either side equally often. Its ends are ends of gaps, so that it holds for any
    distribution.
    """
    outside = math.floor((1.0 - coverage) / 2.0 * (len(ends) - 1) + 1e-9)
    return float(ends[outside]), float(ends[-1 - outside])
