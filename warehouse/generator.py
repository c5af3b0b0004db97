"""A seeded workload generator in the manner of the Shockwave paper's traces.

The public evaluation (NSDI '23, section 8) draws five model families, gangs of 1 to
8 GPUs, durations of 0.2 to 5 hours, and GNS or Accordion for each job. Families and
throughputs are our own, see `warehouse.families`.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from containers.virtual import GroundTruth
from predictor.errors import InputError
from predictor.job import JobSpec, Mode, Regime
from predictor.profile import Profile
from warehouse.families import FAMILIES, SCALE_FACTORS, generated_profile
from warehouse.workload import Arrivals, Workload

SCALE_FACTOR_WEIGHTS = (0.6, 0.3, 0.09, 0.01)
"""Probability of each of `SCALE_FACTORS`; small gangs dominate, as in published clusters."""

SHORTEST_SECONDS, LONGEST_SECONDS = 0.2 * 3600, 5.0 * 3600
"""Isolated run times are drawn log-uniformly between these."""

MEAN_INTERARRIVAL_SECONDS = 90.0
"""60 jobs on 16 GPUs arrive some six times faster than they can be served."""


def generate_workload(
    jobs: int,
    *,
    rng: np.random.Generator,
    arrivals: Arrivals = Arrivals.POISSON,
    mean_interarrival_seconds: float = MEAN_INTERARRIVAL_SECONDS,
    source: str | None = None,
) -> Workload:
    """Draw a workload; the same generator state gives the same workload.

    Half of the jobs, to within one, adapt by GNS and the others by Accordion. A job's
    isolated run time is as near its drawn duration as whole epochs allow.

    Args:
        jobs: How many.
        rng: Source of all randomness.
        arrivals: When they arrive.
        mean_interarrival_seconds: Mean gap between Poisson arrivals.
        source: Name of the workload; by default it tells the other arguments.

    Raises:
        InputError: An argument is out of range; names its option.
    """
    if jobs < 1:
        raise InputError("--jobs", f"{jobs} is not positive", "give at least 1")
    if not 0 < mean_interarrival_seconds < math.inf:
        raise InputError(
            "--mean-interarrival",
            f"{mean_interarrival_seconds} is not a positive number of seconds",
            "give the mean gap between arrivals",
        )
    at_seconds = _draw_arrivals(rng, jobs, arrivals, mean_interarrival_seconds)
    adapts_by_gns = rng.permutation(jobs) < (jobs + 1) // 2
    profile = generated_profile()
    drawn = [
        _draw_job(rng, job_id, Mode.GNS if gns else Mode.ACCORDION, float(arrival), profile)
        for job_id, (gns, arrival) in enumerate(zip(adapts_by_gns, at_seconds, strict=True))
    ]
    pace = f", {mean_interarrival_seconds:g} s apart" if arrivals is Arrivals.POISSON else ""
    return Workload(
        source=source or f"generated: {jobs} jobs, {arrivals}{pace}",
        specs=tuple(spec for spec, _ in drawn),
        truths=tuple(truth for _, truth in drawn),
        profile=profile,
    )


def _draw_arrivals(
    rng: np.random.Generator, jobs: int, arrivals: Arrivals, mean_seconds: float
) -> np.ndarray:
    if arrivals is Arrivals.AT_ONCE:
        return np.zeros(jobs)
    # A cluster that waits for its first job shows nothing, so the clock starts there.
    return np.concatenate([[0.0], np.cumsum(rng.exponential(mean_seconds, jobs - 1))])


def _draw_job(
    rng: np.random.Generator, job_id: int, mode: Mode, arrival_seconds: float, profile: Profile
) -> tuple[JobSpec, GroundTruth]:
    family = FAMILIES[rng.integers(len(FAMILIES))]
    batch_size = family.batch_sizes[rng.integers(len(family.batch_sizes))]
    gpus = int(rng.choice(SCALE_FACTORS, p=SCALE_FACTOR_WEIGHTS))
    duration = math.exp(rng.uniform(math.log(SHORTEST_SECONDS), math.log(LONGEST_SECONDS)))
    draw = _draw_doublings if mode is Mode.GNS else _draw_critical_spans
    changes = draw(rng, batch_size, family.largest)
    spec = JobSpec(
        job_id=job_id,
        model=family.name,
        batch_size=batch_size,
        max_batch_size=family.largest,
        scale_factor=gpus,
        mode=mode,
        epochs=1,
        samples_per_epoch=family.samples,
        arrival_seconds=arrival_seconds,
    )

    def isolated_seconds(epochs: int) -> float:
        return sum(
            regime.epochs * profile.epoch_seconds(spec, regime.batch_size)
            for regime in _regimes(changes, epochs)
        )

    epochs = _closest_epochs(duration, isolated_seconds)
    return replace(spec, epochs=epochs, total_steps=0), GroundTruth(
        job_id=job_id,
        isolated_seconds=isolated_seconds(epochs),
        profiled=_regimes(changes, epochs),
        targets=_regimes(changes, epochs),
    )


Changes = list[tuple[float, int]]
"""Fractions of the job's epochs, ascending from 0, each with the batch size from there."""


def _draw_doublings(rng: np.random.Generator, batch_size: int, largest: int) -> Changes:
    """None to all doublings, anywhere between 5 % and 80 % of the job."""
    doublings = rng.integers((largest // batch_size).bit_length())
    fractions = np.sort(rng.uniform(0.05, 0.8, doublings))
    sizes = [batch_size << doubling for doubling in range(1, doublings + 1)]
    return [(0.0, batch_size), *zip(fractions.tolist(), sizes, strict=True)]


def _draw_critical_spans(rng: np.random.Generator, batch_size: int, largest: int) -> Changes:
    """Critical for the first 10 % to 40 %, and in half of the jobs for a later span."""
    first = rng.uniform(0.1, 0.4)
    again, length = rng.uniform(first + 0.1, 0.75), rng.uniform(0.05, 0.15)
    has_later_span = rng.random() < 0.5
    changes = [(0.0, batch_size)]
    if batch_size < largest:
        changes.append((first, largest))
        if has_later_span:
            changes += [(again, batch_size), (again + length, largest)]
    return changes


def _regimes(changes: Changes, epochs: int) -> tuple[Regime, ...]:
    """Changes at whole epochs, never in the first; those that coincide merge."""
    starts = [0, *(max(1, round(fraction * epochs)) for fraction, _ in changes[1:]), epochs]
    return tuple(
        Regime(size, end - start)
        for (_, size), (start, end) in zip(changes, pairwise(starts), strict=True)
        if end > start
    )


def _closest_epochs(seconds: float, isolated_seconds: Callable[[int], float]) -> int:
    """The number of epochs whose isolated run time is nearest to `seconds`."""
    low, high = 1, 2
    while isolated_seconds(high) < seconds:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if isolated_seconds(middle) < seconds else (low, middle)
    # Rounded changes make the run time rise unevenly, so look a little around.
    return min(
        range(max(1, low - 8), high + 9), key=lambda epochs: abs(isolated_seconds(epochs) - seconds)
    )
