"""Hypothesis strategies for jobs, observations of them, and window markets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from predictor.allocation import Allocation, Demand
from predictor.belief import Belief
from predictor.forecast import Forecast
from predictor.job import EpochReport, JobProgress, JobSpec, Mode
from predictor.throughput import UNTYPED, Profile, epoch_seconds, reachable_batch_sizes
from solver.inventory import Inventory, Pool
from solver.market import Bid, Market
from solver.window.market import WindowMarket

GANGS = (1, 2, 4, 8)


def examples(count: int) -> settings:
    """So many examples of a property, but never more than the quick profile has in that."""
    quick = settings.get_current_profile_name() == "quick"
    return settings(max_examples=min(count, settings.default.max_examples) if quick else count)


@lru_cache(maxsize=None, typed=True)
def among(*choices: Any) -> st.SearchStrategy[Any]:
    """One of some choices: made and checked once, which takes longer than to draw from it."""
    return st.sampled_from(choices)


def cluster(gpus: int, gpus_per_node: int = 1) -> Inventory:
    """GPUs of one type, on alike nodes."""
    return Inventory((Pool(UNTYPED, gpus, gpus_per_node),))


def certain(job_id: int, epochs: float, batch_size: int = 16) -> Forecast:
    """A forecast without any doubt: so many epochs at one batch size."""
    work = (epochs,)
    return Forecast(job_id, (batch_size,), (0.0,), work, work, work, (work,))


def gang_job(job_id: int, model: str, gpus: int) -> JobSpec:
    """A gang that trains at a batch size of 8, a step an epoch, from the beginning."""
    return JobSpec(job_id, model, 8, 8, Demand.gang(gpus), Mode.STATIC, 20_000, 8, 0.0)


def gang_bid(
    job_id: int, gpus: int, utility: float, *, weight: float = 1.0, gpu_type: str = UNTYPED
) -> Bid:
    """The bid of a gang on one GPU type."""
    return Bid(job_id, Allocation(gpu_type, gpus), weight, utility)


def market_of(capacities: Mapping[str, int], bids: Sequence[Bid]) -> Market:
    """The market of some bids."""
    return Market(
        types=tuple(capacities),
        capacities=np.array(list(capacities.values())),
        job_ids=np.array([bid.job_id for bid in bids], dtype=np.int64),
        allocations=tuple(bid.allocation for bid in bids),
        weights=np.array([bid.weight for bid in bids]),
        utility=np.array([bid.utility for bid in bids]),
    )


@dataclass(frozen=True)
class WindowJob:
    """A job of a window problem, with its tables over rounds; by default it has no time left."""

    gpus: int
    utility: Sequence[float]
    remaining: Sequence[float] = ()
    weight: float = 1.0


def window_of(
    gpus: int, window: int, regularizer: float, jobs: Sequence[WindowJob]
) -> WindowMarket:
    """The window problem of some jobs; without any, of no jobs."""
    shape = len(jobs), window + 1
    left = [job.remaining or (0.0,) * len(job.utility) for job in jobs]
    return WindowMarket(
        gpus=gpus,
        window=window,
        regularizer=regularizer,
        job_ids=np.arange(len(jobs)),
        gangs=np.array([job.gpus for job in jobs], dtype=np.int64),
        weights=np.array([job.weight for job in jobs]),
        utility=np.array([job.utility for job in jobs]) if jobs else np.empty(shape),
        remaining=np.array(left) if jobs else np.empty(shape),
    )


@cache
@st.composite
def job_specs(draw: st.DrawFn, job_id: int = 0, modes: Sequence[Mode] = tuple(Mode)) -> JobSpec:
    """Jobs of every mode; some already start at the largest batch size."""
    batch_size = draw(among(8, 20, 64))
    return JobSpec(
        job_id=job_id,
        model=f"model-{job_id}",
        batch_size=batch_size,
        max_batch_size=batch_size * draw(among(1, 2, 4, 5, 16, 1024)),
        demand=Demand.gang(draw(among(*GANGS))),
        mode=draw(among(*modes)),
        epochs=draw(st.integers(1, 200)),
        samples_per_epoch=draw(st.integers(1_000, 100_000)),
        arrival_seconds=float(draw(st.integers(0, 10_000))),
        tenant=draw(among("red", "blue")),
        budget=draw(among(0.5, 1.0, 3.0)),
    )


@st.composite
def profiles(draw: st.DrawFn, specs: Sequence[JobSpec]) -> Profile:
    """Throughputs for all that the jobs can visit; some larger sizes cannot run."""
    table = {}
    for spec in specs:
        for size in spec.batch_sizes:
            runs = size == spec.batch_size or draw(st.integers(0, 9)) > 0
            rate = draw(st.floats(0.05, 50.0)) if runs else 0.0
            table[spec.model, size, spec.demand.least] = rate
    return Profile.of_type(table)


@st.composite
def beliefs(draw: st.DrawFn, spec: JobSpec, profile: Profile) -> Belief:
    """A possible history of observations of a job in its mode."""
    sizes = reachable_batch_sizes(profile, spec)
    visited, at = [sizes[0]], 0
    for _ in range(draw(st.integers(0, 4))):
        at = 1 - at if spec.mode is Mode.ACCORDION else at + 1
        if at < len(sizes):
            visited.append(sizes[at])
    belief, epoch = Belief(spec), 0
    for size in visited:
        epochs = draw(st.integers(0, spec.epochs - 1 - epoch))
        seconds = epochs * epoch_seconds(profile, spec, size)
        if epochs:
            belief = belief.after([EpochReport(spec.job_id, epoch, epochs, size, seconds)], None)
        epoch += epochs
    fraction = draw(among(0.0, 0.25, 0.9))
    run_seconds = float(draw(st.integers(0, 100_000)))
    return belief.after(
        [], JobProgress(spec.job_id, epoch, fraction, visited[-1], 0.0, run_seconds, 0)
    )


@st.composite
def batches_of_beliefs(draw: st.DrawFn) -> tuple[tuple[Belief, ...], Profile]:
    """Beliefs about several jobs, with the profile they share."""
    specs = [draw(job_specs(job_id)) for job_id in range(draw(st.integers(1, 6)))]
    profile = draw(profiles(specs))
    return tuple(draw(beliefs(spec, profile)) for spec in specs), profile


@st.composite
def windows(
    draw: st.DrawFn,
    *,
    gangs: Sequence[int] = GANGS,
    gpus: Sequence[int] = (8, 9, 12),
    max_jobs: int = 6,
    max_window: int = 5,
    concave: bool | None = None,
    regularizers: Sequence[int] = (0, 1, 30),
    largest_exponent: int = 12,
) -> WindowMarket:
    """Small window problems, most of them tight; every number is a whole one.

    Args:
        draw: Hypothesis.
        gangs: Sizes of gangs to choose from; repeat one to favour it.
        gpus: Numbers of GPUs to choose from.
        max_jobs: Most jobs.
        max_window: Most rounds.
        concave: Whether utilities are concave in rounds; None for either.
        regularizers: Welfare lost per second of the longest remaining time, to choose from.
        largest_exponent: Weights go from 1 to 10 to this power.
    """
    window, capacity = draw(st.integers(1, max_window)), draw(among(*gpus))
    steps = st.lists(st.integers(0, 100), min_size=window, max_size=window)
    jobs = []
    for _ in range(draw(st.integers(1, max_jobs))):
        gains, drops = draw(steps), sorted(draw(steps), reverse=True)
        if concave or (concave is None and draw(st.booleans())):
            gains.sort(reverse=True)
        weight = float(10 ** draw(st.integers(0, largest_exponent)))
        utility = (np.cumsum([0, *gains]) - draw(st.integers(0, 1_000))) * weight
        remaining = sum(drops) + draw(st.integers(0, 200)) - np.cumsum([0, *drops])
        gang = draw(among(*(gang for gang in gangs if gang <= capacity)))
        jobs.append(WindowJob(gang, utility.tolist(), remaining.astype(float).tolist(), weight))
    return window_of(capacity, window, float(draw(among(*regularizers))), jobs)


unit_windows = windows(gangs=(1,), gpus=(1, 2, 3))
"""Jobs of one GPU each: every count within capacity can be laid out."""

gang_heavy_windows = windows(gangs=(1, 1, 4, 8, 5, 3), gpus=(8,), max_jobs=7)
"""Gangs that fill a round beside jobs that want all of them: many cannot be laid out."""
