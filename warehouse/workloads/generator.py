"""A seeded workload generator, modelled on the Shockwave paper's traces.

The public evaluation (NSDI '23, section 8) draws five model families, gangs of 1 to 8 GPUs,
durations of 0.2 to 5 hours, and GNS or Accordion for each job. Families and throughputs are our
own, see `warehouse.workloads.families`. Batch sizes change at times drawn from hand-chosen ranges,
which `docs/traces.md` lists.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, pairwise

import numpy as np

from containers.virtual.truth import GroundTruth
from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import JobSpec, Mode, Regime
from predictor.throughput import Profile, epoch_seconds
from tasks.sources import Workload
from warehouse.wording import counted
from warehouse.workloads.families import FAMILIES, Family, generated_profile
from warehouse.workloads.kinds import MOST_JOBS, Arrivals
from warehouse.workloads.mix import MOST_SECONDS, Mix, smaller_than
from warehouse.workloads.regimes import isolated_seconds

MEAN_INTERARRIVAL_SECONDS = 90.0
"""With this mean gap, 60 jobs reach 16 GPUs about six times faster than they can be served. Chosen
by hand."""


@dataclass(frozen=True, slots=True)
class JobRequest:
    """Attributes of a job that are drawn before its epochs and regimes.

    Attributes:
        seconds: Target of the isolated run time, which whole epochs approximate.
    """

    job_id: int
    mode: Mode
    scale_factor: int
    arrival_seconds: float
    seconds: float
    tenant: str = "default"
    name: str = ""


def generate_workload(
    jobs: int,
    *,
    rng: np.random.Generator,
    arrivals: Arrivals = Arrivals.POISSON,
    mean_interarrival_seconds: float = MEAN_INTERARRIVAL_SECONDS,
    mix: Mix | None = None,
    source: str | None = None,
) -> Workload:
    """Draw a workload; the same generator state gives the same workload.

    Each adaptation mode has its share of the jobs to within one. A job's isolated run time is as
    near its drawn duration as whole epochs allow.

    Args:
        jobs: Number of jobs.
        rng: Source of all randomness.
        arrivals: Arrival process.
        mean_interarrival_seconds: Mean gap between Poisson arrivals.
        mix: Distributions of the jobs.
        source: Name of the workload; by default, a description of the other arguments.

    Raises:
        InputError: An argument is out of range; the error names it.
    """
    if jobs < 1:
        raise InputError("jobs", f"{jobs} is not positive", "give at least 1")
    if jobs > MOST_JOBS:
        raise InputError("jobs", f"{jobs} is out of range", f"give at most {MOST_JOBS}")
    if not 0 < mean_interarrival_seconds <= MOST_SECONDS:
        problem = f"{mean_interarrival_seconds} is not a positive number of seconds"
        raise InputError("mean_interarrival_seconds", problem, "give the mean gap between arrivals")
    mix = mix or Mix()
    at_seconds = _draw_arrivals(rng, jobs, arrivals, mean_interarrival_seconds)
    modes = draw_modes(rng, jobs, mix.modes)
    profile = generated_profile(mix.scale_factors)
    drawn = [
        _draw_job(rng, job_id, mode, float(arrival), mix, profile)
        for job_id, (mode, arrival) in enumerate(zip(modes, at_seconds, strict=True))
    ]
    pace = f", {mean_interarrival_seconds:g} s apart" if arrivals is Arrivals.POISSON else ""
    changed = f", {mix.changes}" if mix.changes else ""
    return Workload(
        source=source or f"generated: {counted(jobs, 'job')}, {arrivals}{pace}{changed}",
        specs=tuple(spec for spec, _ in drawn),
        truths=tuple(truth for _, truth in drawn),
        profile=profile,
        smaller=smaller_than(mix.scale_factors),
    )


def _draw_arrivals(
    rng: np.random.Generator, jobs: int, arrivals: Arrivals, mean_seconds: float
) -> np.ndarray:
    if arrivals is Arrivals.AT_ONCE:
        return np.zeros(jobs)
    # Nothing happens before the first arrival, so the clock starts there.
    return np.concatenate([[0.0], np.cumsum(rng.exponential(mean_seconds, jobs - 1))])


def draw_modes(rng: np.random.Generator, jobs: int, weights: Mapping[Mode, float]) -> list[Mode]:
    """Return a mode for each job, in random order; each mode has its share to within one."""
    shares = [jobs * weight / sum(weights.values()) for weight in weights.values()]
    # Rounding keeps a whole share whole despite floating-point error.
    ends = [math.ceil(round(end, 6)) for end in accumulate(shares)]
    ordered = [
        mode
        for mode, (start, end) in zip(weights, pairwise([0, *ends]), strict=True)
        for _ in range(start, end)
    ]
    return [ordered[rank] for rank in rng.permutation(jobs)]


def draw_model(rng: np.random.Generator, family: Family | None = None) -> tuple[Family, int]:
    """Return a family, drawn unless given, and one of its initial batch sizes, drawn uniformly."""
    family = family or draw_family(rng)
    return family, family.batch_sizes[rng.integers(len(family.batch_sizes))]


def draw_family(rng: np.random.Generator) -> Family:
    """Draw a family uniformly."""
    return FAMILIES[rng.integers(len(FAMILIES))]


def _draw_job(
    rng: np.random.Generator,
    job_id: int,
    mode: Mode,
    arrival_seconds: float,
    mix: Mix,
    profile: Profile,
) -> tuple[JobSpec, GroundTruth]:
    family, batch_size = draw_model(rng)
    weights = np.array(list(mix.scale_factors.values()))
    gpus = int(rng.choice(list(mix.scale_factors), p=weights / math.fsum(weights)))
    logs = math.log(mix.shortest_seconds), math.log(mix.longest_seconds)
    request = JobRequest(job_id, mode, gpus, arrival_seconds, seconds=math.exp(rng.uniform(*logs)))
    return draw_regimes(rng, request, family, batch_size, profile)


def draw_regimes(
    rng: np.random.Generator, request: JobRequest, family: Family, batch_size: int, profile: Profile
) -> tuple[JobSpec, GroundTruth]:
    """Draw the regimes of a job with about the requested isolated run time."""
    changes = _draw_changes(rng, request.mode, batch_size, family.largest)
    single = JobSpec(
        job_id=request.job_id,
        model=family.name,
        batch_size=batch_size,
        max_batch_size=family.largest,
        demand=Demand.gang(request.scale_factor),
        mode=request.mode,
        epochs=1,
        samples_per_epoch=family.samples,
        arrival_seconds=request.arrival_seconds,
        tenant=request.tenant,
        name=request.name,
    )

    @cache
    def time_epoch(size: int) -> float:
        return epoch_seconds(profile, single, size)

    def seconds(epochs: int) -> float:  # as `isolated_seconds`, but asked forty times per job
        return sum([took * time_epoch(size) for size, took in _spans(changes, epochs)])

    epochs = _closest_epochs(request.seconds, seconds)
    regimes = _regimes(changes, epochs)
    return replace(single, epochs=epochs, total_steps=0), GroundTruth(
        job_id=request.job_id, isolated_seconds=seconds(epochs), profiled=regimes, targets=regimes
    )


def declared_truth(spec: JobSpec, profile: Profile, seed: int) -> GroundTruth:
    """Draw a ground truth for a job that is only declared, by `seed` and the job's id.

    Adaptive jobs change as generated jobs of their mode do. Other jobs take from a tenth of their
    limit to all of it.

    Raises:
        InputError: The profile cannot run one of the batch sizes.
    """
    rng = np.random.default_rng((seed, spec.job_id))
    if spec.timed:
        once = (Regime(1, 1),)
        return GroundTruth(spec.job_id, spec.max_seconds * rng.uniform(0.1, 1.0), once, once)
    changes = _draw_changes(rng, spec.mode, spec.batch_size, spec.max_batch_size)
    regimes = _regimes(changes, spec.epochs)
    return GroundTruth(spec.job_id, isolated_seconds(spec, regimes, profile), regimes, regimes)


Changes = list[tuple[float, int]]
"""Batch sizes by the fraction of the job's epochs at which they start, ascending from 0."""


def _draw_changes(rng: np.random.Generator, mode: Mode, batch_size: int, largest: int) -> Changes:
    match mode:
        case Mode.GNS:
            return _draw_doublings(rng, batch_size, largest)
        case Mode.ACCORDION:
            return _draw_critical_spans(rng, batch_size, largest)
        case Mode.STATIC | Mode.GOODPUT:
            return [(0.0, batch_size)]


def _draw_doublings(rng: np.random.Generator, batch_size: int, largest: int) -> Changes:
    """Draw between none and all doublings, at 5 % to 80 % of the job."""
    doublings = rng.integers((largest // batch_size).bit_length())
    fractions = np.sort(rng.uniform(0.05, 0.8, doublings))
    sizes = [batch_size << doubling for doubling in range(1, doublings + 1)]
    return [(0.0, batch_size), *zip(fractions.tolist(), sizes, strict=True)]


def _draw_critical_spans(rng: np.random.Generator, batch_size: int, largest: int) -> Changes:
    """Draw critical spans: the first 10 % to 40 % and, for half of the jobs, a later span."""
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
    """Round changes to whole epochs, never the first; coinciding changes merge."""
    return tuple(Regime(size, took) for size, took in _spans(changes, epochs))


def _spans(changes: Changes, epochs: int) -> list[tuple[int, int]]:
    """Return batch sizes and numbers of epochs; see `_regimes`."""
    starts = [0, *[max(1, round(fraction * epochs)) for fraction, _ in changes[1:]], epochs]
    spans = zip(changes, pairwise(starts), strict=True)
    return [(size, end - start) for (_, size), (start, end) in spans if end > start]


def _closest_epochs(seconds: float, isolated_seconds: Callable[[int], float]) -> int:
    """Return the number of epochs whose isolated run time is nearest to `seconds`."""
    low, high = 1, 2
    while isolated_seconds(high) < seconds:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if isolated_seconds(middle) < seconds else (low, middle)
    # Rounded changes make the run time rise unevenly, so search the neighbourhood.
    return min(
        range(max(1, low - 8), high + 9), key=lambda epochs: abs(isolated_seconds(epochs) - seconds)
    )
