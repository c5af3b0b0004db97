"""What each job is expected to do over the next rounds, for all jobs at once."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from predictor.basis import Basis
from predictor.belief import Belief
from predictor.history import NOTHING, Floats, History
from predictor.job import Mode, Regime
from predictor.learning import point_of, reaches
from predictor.posterior import Sequences, Standing, is_settled, sequences, settled, standing
from predictor.profile import Profile
from predictor.published_predictor import ProfiledRegime

SAMPLES = 32
"""Equally likely run times told of each job."""

LEVELS = ((np.arange(SAMPLES) + 0.5) / SAMPLES)[None, :]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What one job is expected to do.

    Attributes:
        job_id: The job.
        remaining_seconds: Run time still needed on its own GPUs: the number with the least
            expected relative error.
        mean_seconds: Expected run time still needed.
        spread_seconds: Its standard deviation.
        low_seconds: Lower end of the interval that is to hold 80 % of the truths.
        high_seconds: Its upper end.
        run_seconds: Run time so far, restarts excluded.
        samples: Equally likely run times still needed, ascending; empty where no window is
            looked at.
        progress: Share of its epochs expected to be done after 0…T more rounds of
            running, in [0, 1], non-decreasing; T + 1 values.
        regimes: Regimes expected to come, the one under way first.
    """

    job_id: int
    remaining_seconds: float
    mean_seconds: float
    spread_seconds: float
    low_seconds: float
    high_seconds: float
    run_seconds: float
    samples: tuple[float, ...]
    progress: tuple[float, ...]
    regimes: tuple[Regime, ...]


def forecast(
    beliefs: Sequence[Belief],
    profile: Profile,
    history: History = NOTHING,
    *,
    window: int,
    round_seconds: float,
    seed: int = 0,
    basis: Basis = Basis.POSTERIOR,
    schedules: Mapping[int, tuple[ProfiledRegime, ...]] | None = None,
) -> tuple[Forecast, ...]:
    """Forecast every job.

    With l_k epochs of s_k seconds left in stage k of a sequence, the remaining run time is
    R = Σ l_k s_k, and after t seconds Σ_k clip((t − Σ_{i<k} l_i s_i) / s_k, 0, l_k) more
    epochs are done; progress is the mean of that over the samples.

    Args:
        beliefs: One belief per job.
        profile: Throughputs.
        history: What finished jobs went through.
        window: T, rounds to look ahead; 0 tells the progress made so far and no samples.
        round_seconds: Length of a round.
        seed: Of the draws from the prior.
        basis: What they are made from.
        schedules: True schedules by job id, for the oracle alone.

    Returns:
        One forecast per belief, in the same order.
    """
    standings = [standing(belief, profile, history) for belief in beliefs]
    groups: defaultdict[Mode | None, list[int]] = defaultdict(list)
    for row, job in enumerate(standings):
        learns = basis is Basis.POSTERIOR and not is_settled(job, profile)
        groups[job.spec.mode if learns else None].append(row)
    told: dict[int, Forecast] = {}
    for mode, rows in groups.items():
        group = [standings[row] for row in rows]
        if mode:
            ahead = sequences(group, profile, history, seed)
        elif basis is Basis.ORACLE:
            ahead = _foreseen(group, schedules or {})
        else:
            ahead = settled(group, profile)
        run = [beliefs[row].run_seconds for row in rows]
        found = _told(group, run, ahead, history, window, round_seconds)
        told.update(zip(rows, found, strict=True))
    return tuple(told[row] for row in range(len(beliefs)))


def _told(
    jobs: Sequence[Standing],
    run_seconds: Sequence[float],
    ahead: Sequences,
    history: History,
    window: int,
    round_seconds: float,
) -> list[Forecast]:
    seconds, weights = ahead.seconds, ahead.weights
    mean = _sum(weights * seconds)
    spread = np.sqrt(_sum(weights * (seconds - mean[:, None]) ** 2))
    # Minimises Σ w |R − r| / r: the median under w / r.
    point = ahead.quantiles(weights / seconds, _MEDIAN)
    reach = np.array(
        [reaches(history, job.spec.mode)[point_of(job.done / job.spec.epochs)] for job in jobs]
    )[:, None]
    interval = ahead.quantiles(weights, 0.5 + reach * [-1.0, 1.0])
    median, low, high = np.take_along_axis(seconds, np.hstack([point, interval]), axis=1).T
    low, high = np.minimum(low, median), np.maximum(high, median)
    expected = _sum(weights[:, :, None] * ahead.epochs)
    done = np.array([job.done for job in jobs])
    total = done + np.array([job.left for job in jobs])
    progress, samples = (done / total)[:, None], np.zeros((len(jobs), 0))
    if window:
        columns = ahead.quantiles(weights, LEVELS)
        samples = np.take_along_axis(seconds, columns, axis=1)
        left = np.take_along_axis(ahead.epochs, columns[:, :, None], axis=1)
        elapsed = np.arange(window + 1, dtype=np.float64) * round_seconds
        gained = _gained(left, ahead.epoch_seconds, elapsed)
        progress = (done[:, None] + gained) / total[:, None]
    columns_of = (median, mean, spread, low, high, np.array(run_seconds))
    return [
        Forecast(
            job_id=job.spec.job_id,
            remaining_seconds=numbers[0],
            mean_seconds=numbers[1],
            spread_seconds=numbers[2],
            low_seconds=numbers[3],
            high_seconds=numbers[4],
            run_seconds=numbers[5],
            samples=tuple(drawn),
            progress=tuple(curve),
            regimes=tuple(
                Regime(size, epochs)
                for stage, (size, epochs) in enumerate(zip(sizes, left, strict=False))
                if epochs >= _LEAST_EPOCHS or not stage
            ),
        )
        for job, numbers, drawn, curve, left, sizes in zip(
            jobs,
            np.stack(columns_of, axis=1).tolist(),
            samples.tolist(),
            np.minimum(progress, 1.0).tolist(),
            expected.tolist(),
            ahead.sizes,
            strict=True,
        )
    ]


_MEDIAN = np.array([[0.5]])

_LEAST_EPOCHS = 0.01
"""Expected epochs below which a regime is not told."""


def _sum(array: Floats) -> Floats:
    """Sum over the second axis, one by one: the size of the batch changes no bit."""
    total: Floats = np.cumsum(array, axis=1)[:, -1]
    return total


def _gained(left: Floats, seconds: Floats, elapsed: Floats) -> Floats:
    """Mean epochs gained after some time, in one batch of jobs, samples, times and stages.

    Args:
        left: Epochs by stage, shape (jobs, samples, stages).
        seconds: What one of them takes, shape (jobs, stages).
        elapsed: Times, shape (times,).

    Returns:
        Shape (jobs, times).
    """
    import torch  # a second that policies without a window need not wait

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    epochs, each, times = (
        torch.from_numpy(array).to(device, torch.float64) for array in (left, seconds, elapsed)
    )
    gained = torch.zeros((*epochs.shape[:2], len(times)), dtype=torch.float64, device=device)
    start = torch.zeros(epochs.shape[:2], dtype=torch.float64, device=device)
    for stage in range(epochs.shape[2]):  # one by one: padding changes no bit
        there = epochs[:, :, stage]
        pace = each[:, stage, None]
        ran = (times[None, None, :] - start[:, :, None]) / pace[:, :, None]
        gained += torch.minimum(ran.clamp(min=0.0), there[:, :, None])
        start += there * pace
    # Summed here: on a GPU the order of a sum, and so its last bits, may differ.
    return _sum(gained.cpu().numpy()) / gained.shape[1]


def _foreseen(
    jobs: Sequence[Standing], schedules: Mapping[int, tuple[ProfiledRegime, ...]]
) -> Sequences:
    """What is left of jobs by their true schedules."""
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
        if not ahead:  # as it was simulated, the job went past its schedule
            last = schedules[job.spec.job_id][-1]
            ahead.append((last.batch_size, job.left, last.epoch_seconds))
        sizes.append(tuple(size for size, _, _ in ahead))
        epochs[row, 0, : len(ahead)] = [held for _, held, _ in ahead]
        seconds[row, : len(ahead)] = [each for _, _, each in ahead]
    return Sequences(np.ones((len(jobs), 1)), epochs, seconds, tuple(sizes))
