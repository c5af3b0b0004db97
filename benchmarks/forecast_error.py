"""Error of run-time forecasts on jobs with known ground truth."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from predictor.basis import Basis
from predictor.belief import Belief
from predictor.forecast import forecast, run_time
from predictor.history import History
from predictor.intervals import TENTHS, Calibration, Scored, kinds
from predictor.job import JobProgress, Mode, Regime
from predictor.posterior import learn
from predictor.published_predictor import ProfiledRegime, remaining_seconds
from predictor.throughput import Throughput, training_seconds
from tasks.sources import Workload

POINTS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
"""Shares of a job's epochs at which it is forecast, as in docs/predictor.md."""

EXACT = 1e-9
"""Relative tolerance for rounding in a sum over epochs. A numerical tolerance: any of its
order would do."""


@dataclass(frozen=True, slots=True)
class ForecastError:
    """Mean relative errors over the jobs of an adaptation mode, at a point of their progress.

    Attributes:
        mode: Adaptation mode.
        progress: Share of their epochs done.
        error: Mean |forecast − truth| / truth of the remaining run time.
        error_published: The same for the published predictor, given each job's batch sizes.
        error_extrapolation: The same for extrapolation of the present batch size.
        coverage_80: Share of true run times inside the 80 % interval.
        jobs: Number of jobs.
    """

    mode: Mode
    progress: float
    error: float
    error_published: float
    error_extrapolation: float
    coverage_80: float
    jobs: int


def forecast_errors(workload: Workload, seed: int = 0) -> tuple[ForecastError, ...]:
    """Measure the forecast error on a workload; learns from its jobs in the order of arrival.

    Each job is forecast at points of an isolated run of its true schedule, from a history of
    the jobs that arrived before it. The job is then added to the history as finished.

    Args:
        workload: Jobs with their ground truth.
        seed: Seed of the draws from the prior.

    Returns:
        Mean errors by mode and progress.
    """
    rows: defaultdict[tuple[Mode, int], list[tuple[float, float, float, bool]]] = defaultdict(list)
    profile, history, calibration = workload.profile, History(), Calibration()
    for spec, truth in zip(workload.specs, workload.truths, strict=True):
        if spec.timed:
            continue  # it has no trajectory to be forecast
        whole = Belief(spec, truth.profiled)
        schedule = tuple(
            ProfiledRegime(
                regime.batch_size,
                int(regime.epochs),
                training_seconds(profile, spec, regime.batch_size) * _WHOLE,
            )
            for regime in truth.profiled
        )
        alone, scored = seconds_left(whole, 0, profile), []
        for point, progress in enumerate(POINTS):
            epochs = int(progress * spec.epochs)
            belief, left = until(whole, epochs), seconds_left(whole, epochs, profile)
            expected, extrapolated = (
                run_time(trajectory, spec, profile, profile.reference(spec))
                for by in (Basis.POSTERIOR, Basis.REACTIVE)
                for trajectory in forecast(
                    [belief], profile, history, trajectories=False, seed=seed, basis=by
                )
            )
            made = Scored(kinds(spec), int(TENTHS * progress), alone - left, expected)
            low, high = calibration.interval(made)
            scored.append(made)
            held = low <= left * (1 + EXACT) and left <= high * (1 + EXACT)
            rows[spec.mode, point].append(
                (
                    abs(expected.remaining / left - 1),
                    abs(remaining_seconds(schedule, epochs) / _WHOLE / left - 1),
                    abs(extrapolated.remaining / left - 1),
                    held,
                )
            )
        history = learn(history, [whole], profile, seed)
        calibration = calibration.after([(scored, alone)])
    return tuple(_means(rows))


_WHOLE = 1e6
"""The published code rounds to whole seconds; scaled, so that it rounds to microseconds."""


def _means(
    rows: defaultdict[tuple[Mode, int], list[tuple[float, float, float, bool]]],
) -> Iterator[ForecastError]:
    for mode in Mode:
        for point, progress in enumerate(POINTS):
            if (mode, point) in rows:
                errors = np.array(rows[mode, point])
                error, published, extrapolation, held = errors.mean(axis=0).tolist()
                yield ForecastError(
                    mode, progress, error, published, extrapolation, held, len(errors)
                )


def until(belief: Belief, epochs: int) -> Belief:
    """The belief about a job when it had completed its first epochs.

    Args:
        belief: Its observed trajectory.
        epochs: Length of the prefix, below the job's number of epochs.
    """
    observed: list[Regime] = []
    left = epochs
    for regime in belief.observed:
        batch_size, held = regime.batch_size, int(regime.epochs)
        if left < held:
            break
        observed.append(regime)
        left -= held
    if left:
        observed.append(Regime(batch_size, left))
    spec = belief.spec
    steps_left = (spec.epochs - epochs) * spec.steps_per_epoch(batch_size)
    return Belief(
        spec,
        tuple(observed),
        JobProgress(spec.job_id, epochs, 0.0, batch_size, 0.0, 0.0, steps_left),
    )


def seconds_left(belief: Belief, epochs: int, throughput: Throughput) -> float:
    """Profiled residual run time of a finished job after its first epochs, in seconds.

    Args:
        belief: Its observed trajectory.
        epochs: Length of the prefix.
        throughput: Throughput model.
    """
    ends = accumulate(int(regime.epochs) for regime in belief.observed)
    return sum(
        [
            min(int(regime.epochs), max(end - epochs, 0))
            * training_seconds(throughput, belief.spec, regime.batch_size)
            for regime, end in zip(belief.observed, ends, strict=True)
        ]
    )
