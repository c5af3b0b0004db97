"""Forecasts of the work that remains, for all jobs at once, and of its run time.

A forecast is of work: epochs by regime. `run_time` converts it to seconds on an allocation.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from predictor.allocation import Allocation
from predictor.arrays import Bools, Floats
from predictor.basis import Basis
from predictor.belief import LEAST_LEFT, Belief
from predictor.durations import predict_shares
from predictor.history import NOTHING, History
from predictor.job import JobSpec
from predictor.parts import Mapper, map_in_order
from predictor.posterior import (
    PRIOR_SECONDS,
    Evidence,
    Sequences,
    draw_sequences,
    gather_evidence,
)
from predictor.published_predictor import ProfiledRegime
from predictor.throughput import Throughput, training_seconds

SAMPLES = 32
"""Number of equally likely trajectories of an unsettled job. An engineering bound on the size of
records and bids; no sweep is recorded."""

HELD = 0.8
"""Nominal coverage of the forecast interval, a definition (docs/glossary.md)."""

LEVELS = ((np.arange(SAMPLES) + 0.5) / SAMPLES)[None, :]
"""Quantile levels of the equally likely trajectories, shape (1, `SAMPLES`)."""

Work = tuple[float, ...]
"""Epochs by regime, in the order of `Forecast.batch_sizes`."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The work expected of a job until its end.

    Attributes:
        batch_sizes: Batch sizes of the remaining regimes, the current regime first.
        slowness: Log of expected over profiled time per step in each regime.
        median: The trajectory whose run time has the least expected relative error.
        low: The trajectory at the posterior's 10 % quantile.
        high: The trajectory at the posterior's 90 % quantile.
        trajectories: Equally likely trajectories, ascending by run time; a single one for a
            settled job, none if only the interval was requested.
    """

    job_id: int
    batch_sizes: tuple[int, ...]
    slowness: tuple[float, ...]
    median: Work
    low: Work
    high: Work
    trajectories: tuple[Work, ...]


@dataclass(frozen=True, slots=True)
class RunTime:
    """A forecast in seconds on an allocation.

    Attributes:
        remaining: Residual run time: the estimate with the least expected relative error.
        low: The posterior's 10 % quantile, at most the estimate. `predictor.intervals`
            calibrates `low` and `high`.
        high: The posterior's 90 % quantile, at least the estimate.
        samples: Equally likely residual run times, ascending; see `Forecast.trajectories`.
    """

    remaining: float
    low: float
    high: float
    samples: tuple[float, ...]


def run_time(
    forecast: Forecast, job: JobSpec, throughput: Throughput, allocation: Allocation
) -> RunTime:
    """Return the residual run time of a job on an allocation.

    Raises:
        InputError: The job cannot run on the allocation.
    """
    epoch_times = [
        training_seconds(throughput, job, size, allocation) * math.exp(log)
        for size, log in zip(forecast.batch_sizes, forecast.slowness, strict=True)
    ]

    works = [forecast.median, forecast.low, forecast.high, *forecast.trajectories]
    remaining, low, high, *samples = _total(works, epoch_times)
    samples.sort()
    return RunTime(
        remaining=remaining,
        low=min(low, remaining),
        high=max(high, remaining),
        samples=tuple(samples),
    )


def _total(works: Sequence[Work], epoch_times: Sequence[float]) -> list[float]:
    if len(epoch_times) == 1:  # most jobs: faster without a loop over regimes
        (only,) = epoch_times
        return [epochs * only for (epochs,) in works]
    if len(epoch_times) == 2:
        first, second = epoch_times
        return [epochs * first + then * second for epochs, then in works]
    # Stage by stage: since Python 3.12, `sum` of floats rounds otherwise than additions in order.
    totals = [0.0] * len(works)
    for stage, seconds in zip(zip(*works, strict=True), epoch_times, strict=True):
        totals = [total + epochs * seconds for total, epochs in zip(totals, stage, strict=True)]
    return totals


def forecast(
    beliefs: Sequence[Belief],
    throughput: Throughput,
    history: History = NOTHING,
    *,
    trajectories: bool,
    seed: int = 0,
    basis: Basis = Basis.POSTERIOR,
    schedules: Mapping[int, tuple[ProfiledRegime, ...]] | None = None,
    prior_seconds: float = PRIOR_SECONDS,
    each: Mapper | None = None,
    times: dict[int, RunTime] | None = None,
) -> tuple[Forecast, ...]:
    """Forecast every job, in the order of the beliefs.

    With l_k epochs of s_k seconds left in stage k of a sequence, the residual run time is
    R = Σ l_k s_k on the job's reference allocation. Trajectories are ranked by R. Timed jobs are
    forecast from their reports, their limits and similar jobs (`predictor.durations`).

    Only policies that look ahead need `trajectories`, and only the oracle needs `schedules`, the
    true schedules by job id. `prior_seconds` is the weight of the prior slowness, in seconds of
    measured training. `each` forecasts the modes apart; without it, they are forecast together,
    which is faster and changes no bit. `times` gets the run times on the jobs' reference
    allocations, by job id, only those that were computed anyway; `run_time` returns the same.
    """
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for row, belief in enumerate(beliefs):
        kind = belief.spec.mode if each and basis is Basis.POSTERIOR else basis
        groups["timed" if belief.spec.timed else str(kind)].append(row)

    def forecast_group(rows: Sequence[int]) -> Sequence[Forecast]:
        group = [beliefs[row] for row in rows]
        if group[0].spec.timed:
            return [_timed(job, history, trajectories, basis, schedules or {}) for job in group]
        jobs = [gather_evidence(job, throughput, history, prior_seconds) for job in group]
        if basis is Basis.ORACLE:
            return _summarised(jobs, _scheduled(jobs, schedules or {}), trajectories)[0]
        if basis is Basis.REACTIVE:
            return [_settled(job, trajectories) for job in jobs]
        return _learned(jobs, throughput, history, seed, trajectories, times)

    found: dict[int, Forecast] = {}
    parts = (each or map_in_order)("forecast", forecast_group, groups)
    for rows, forecasts in zip(groups.values(), parts, strict=True):
        found.update(zip(rows, forecasts, strict=True))
    return tuple(found[row] for row in range(len(beliefs)))


def _learned(
    jobs: Sequence[Evidence],
    throughput: Throughput,
    history: History,
    seed: int,
    trajectories: bool,
    times: dict[int, RunTime] | None,
) -> list[Forecast]:
    """Forecast jobs: unsettled jobs from the posterior over their sequences."""
    settled = [job.is_settled for job in jobs]
    learning = [job for job, keeps in zip(jobs, settled, strict=True) if not keeps]
    learned = iter(list[Forecast]())
    if learning:
        ahead = draw_sequences(learning, throughput, history, seed)
        forecasts, work = _summarised(learning, ahead, trajectories)
        learned = iter(forecasts)
        if times is not None:
            times |= zip([job.spec.job_id for job in learning], _measure(work, ahead), strict=True)
    return [
        _settled(job, trajectories) if keeps else next(learned)
        for job, keeps in zip(jobs, settled, strict=True)
    ]


def _timed(
    belief: Belief,
    history: History,
    trajectories: bool,
    basis: Basis,
    schedules: Mapping[int, tuple[ProfiledRegime, ...]],
) -> Forecast:
    """Forecast a timed job, whose only epoch is as long as its limit."""
    spec = belief.spec
    done = min(belief.run_seconds / spec.max_seconds, 1.0)
    if basis is Basis.POSTERIOR:
        levels = LEVELS[0].tolist() if trajectories else ()
        median, low, high, *shares = predict_shares(belief, history.shares, HELD, levels).tolist()
    else:
        whole = sum([part.epochs * part.epoch_seconds for part in schedules.get(spec.job_id, ())])
        median = low = high = whole / spec.max_seconds if basis is Basis.ORACLE else 1.0
        shares = [median] * trajectories

    def left(share: float) -> Work:
        return (max(float(share) - done, LEAST_LEFT),)

    return Forecast(
        job_id=spec.job_id,
        batch_sizes=(spec.batch_size,),
        slowness=(0.0,),
        median=left(median),
        low=left(low),
        high=left(high),
        trajectories=tuple(map(left, shares)),
    )


def _settled(job: Evidence, trajectories: bool) -> Forecast:
    """Forecast a job that keeps its batch size, as a single trajectory."""
    work: Work = (float(job.left),)
    size = job.batch_size
    return Forecast(
        job_id=job.spec.job_id,
        batch_sizes=(size,),
        slowness=(job.slowness_at(size),),
        median=work,
        low=work,
        high=work,
        trajectories=(work,) * trajectories,
    )


def _summarised(
    jobs: Sequence[Evidence], ahead: Sequences, trajectories: bool
) -> tuple[list[Forecast], Floats]:
    """Summarise weighted candidates as median, interval and equally likely trajectories.

    Also returns their epochs, in this order, shape (jobs, 3 + trajectories, stages).
    """
    seconds, weights = ahead.seconds, ahead.weights
    # The r that minimises the expected relative error Σ w |R − r| / R is the median under w / R.
    point = ahead.quantiles(weights / seconds, _MEDIAN)
    interval = ahead.quantiles(weights, _ENDS)
    columns = np.hstack([point, interval])
    if trajectories:
        drawn = ahead.quantiles(weights, LEVELS) if weights.shape[1] > 1 else point
        columns = np.hstack([columns, drawn])
    work = np.take_along_axis(ahead.epochs, columns[:, :, None], axis=1)
    # Drop the regimes that no trajectory reaches, but keep the current regime.
    reached: Bools = work.max(axis=1) > 0.0
    last = reached.shape[1] - np.argmax(reached[:, ::-1], axis=1)
    forecasts = dict[int, Forecast]()
    for stages in np.unique(last).tolist():
        places = np.flatnonzero(last == stages)
        for place, rows in zip(places.tolist(), work[places, :, :stages].tolist(), strict=True):
            job, sizes = jobs[place], ahead.sizes[place][:stages]
            median, low, high, *others = map(tuple, rows)
            forecasts[place] = Forecast(
                job_id=job.spec.job_id,
                batch_sizes=sizes,
                slowness=tuple([ahead.slowness(job, size) for size in sizes]),
                median=median,
                low=low,
                high=high,
                trajectories=tuple(others),
            )
    return [forecasts[place] for place in range(len(jobs))], work


def _measure(work: Floats, ahead: Sequences) -> Iterator[RunTime]:
    """Yield the run times of `_summarised`, on the reference allocations: `run_time` of all."""
    totals = np.zeros(work.shape[:2])
    for stage in range(work.shape[2]):  # as `_total` adds
        totals += work[:, :, stage] * ahead.epoch_seconds[:, None, stage]
    samples = np.sort(totals[:, 3:], axis=1)
    for (remaining, low, high), drawn in zip(totals[:, :3].tolist(), samples.tolist(), strict=True):
        yield RunTime(remaining, min(low, remaining), max(high, remaining), tuple(drawn))


_MEDIAN = np.array([[0.5]])
_ENDS = (1.0 + HELD * np.array([[-1.0, 1.0]])) / 2.0


def _scheduled(
    jobs: Sequence[Evidence], schedules: Mapping[int, tuple[ProfiledRegime, ...]]
) -> Sequences:
    """Return the remaining regimes of the jobs' true schedules, as a single candidate each."""
    width = max(len(schedules[job.spec.job_id]) for job in jobs)
    epochs, seconds, sizes = np.zeros((len(jobs), 1, width)), np.ones((len(jobs), width)), []
    for row, job in enumerate(jobs):
        begun = job.done
        ahead = []
        for regime in schedules[job.spec.job_id]:
            cut = min(begun, regime.epochs)
            begun -= cut
            if cut < regime.epochs:
                ahead.append((regime.batch_size, regime.epochs - cut, regime.epoch_seconds))
        if not ahead:  # the simulated job ran past its schedule
            last = schedules[job.spec.job_id][-1]
            ahead.append((last.batch_size, job.left, last.epoch_seconds))
        sizes.append(tuple(size for size, _, _ in ahead))
        epochs[row, 0, : len(ahead)] = [held for _, held, _ in ahead]
        seconds[row, : len(ahead)] = [epoch_time for _, _, epoch_time in ahead]
    return Sequences(np.ones((len(jobs), 1)), epochs, seconds, tuple(sizes), profiled=True)
