"""What each job is expected to do over the next rounds, for all jobs at once."""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from predictor.job import Regime
from predictor.posterior import Belief, remaining_regimes
from predictor.profile import Profile


@dataclass(frozen=True, slots=True)
class Forecast:
    """What one job is expected to do.

    Attributes:
        job_id: The job.
        remaining_seconds: Expected run time still needed on its own GPUs.
        run_seconds: Run time so far, restarts excluded.
        progress: Share of its epochs expected to be done after 0…T more rounds of
            running, in [0, 1], non-decreasing; T + 1 values.
        regimes: Regimes expected to come, the one under way first.
    """

    job_id: int
    remaining_seconds: float
    run_seconds: float
    progress: tuple[float, ...]
    regimes: tuple[Regime, ...]


def forecast(
    beliefs: Sequence[Belief], profile: Profile, *, window: int, round_seconds: float
) -> tuple[Forecast, ...]:
    """Forecast every job from what was observed of it, never from its future.

    The remaining regimes are run through in order at their profiled speed (NSDI '23,
    section 5): with l_k epochs of s_k seconds left in regime k, the remaining run time
    is R = Σ l_k s_k, and after t seconds Σ_k clip((t − Σ_{i<k} l_i s_i) / s_k, 0, l_k)
    more epochs are done.

    Args:
        beliefs: One belief per job.
        profile: Throughputs.
        window: T, rounds to look ahead; 0 tells the progress made so far only.
        round_seconds: Length of a round.

    Returns:
        One forecast per belief, in the same order.
    """
    ahead = [_ahead(belief, profile) for belief in beliefs]
    curves = (
        _progress(ahead, window, round_seconds)
        if window and ahead
        else [[min(job.done / job.epochs, 1.0)] for job in ahead]
    )
    return tuple(
        Forecast(
            job_id=belief.spec.job_id,
            remaining_seconds=sum(map(operator.mul, job.left, job.seconds)),
            run_seconds=belief.run_seconds,
            progress=tuple(curve),
            regimes=job.regimes,
        )
        for belief, job, curve in zip(beliefs, ahead, curves, strict=True)
    )


class _Ahead(NamedTuple):
    """What is left of a job: epochs and seconds per epoch by regime."""

    regimes: tuple[Regime, ...]
    done: float
    epochs: float
    left: list[float]
    seconds: list[float]


def _ahead(belief: Belief, profile: Profile) -> _Ahead:
    regimes = remaining_regimes(belief, profile)
    begun = belief.fraction
    # The part done of the epoch under way may outgrow the regime under way.
    left = []
    for regime in regimes:
        cut = min(begun, regime.epochs)
        left.append(regime.epochs - cut)
        begun -= cut
    done = belief.epochs_done
    return _Ahead(
        regimes=regimes,
        done=done,
        epochs=done - belief.fraction + sum(regime.epochs for regime in regimes),
        left=left,
        seconds=[profile.epoch_seconds(belief.spec, regime.batch_size) for regime in regimes],
    )


def _progress(jobs: Sequence[_Ahead], window: int, round_seconds: float) -> list[list[float]]:
    """Share of epochs done after 0…T rounds, in one batch of shape (jobs, T + 1, regimes)."""
    import torch  # a second that policies without a window need not wait

    width = max(len(job.left) for job in jobs)

    def padded(rows: Iterable[list[float]], filler: float) -> torch.Tensor:
        return torch.tensor(
            [[*row, *[filler] * (width - len(row))] for row in rows], dtype=torch.float64
        )

    left = padded((job.left for job in jobs), 0.0)
    seconds = padded((job.seconds for job in jobs), 1.0)
    done = torch.tensor([job.done for job in jobs], dtype=torch.float64)
    epochs = torch.tensor([job.epochs for job in jobs], dtype=torch.float64)
    starts = (left * seconds).cumsum(dim=1) - left * seconds
    elapsed = torch.arange(window + 1, dtype=torch.float64) * round_seconds
    gained = ((elapsed[None, :, None] - starts[:, None, :]) / seconds[:, None, :]).clamp(min=0.0)
    # One by one, as `sum` groups its terms by how many there are.
    gained = torch.minimum(gained, left[:, None, :]).cumsum(dim=2)[:, :, -1]
    curves: list[list[float]] = ((done[:, None] + gained) / epochs[:, None]).clamp(max=1.0).tolist()
    return curves
