"""What each job is expected to do over the next rounds, for all jobs at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

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
    more epochs are done. One batched computation of shape (jobs, T + 1, regimes).

    Args:
        beliefs: One belief per job.
        profile: Throughputs.
        window: T, rounds to look ahead.
        round_seconds: Length of a round.

    Returns:
        One forecast per belief, in the same order.
    """
    if not beliefs:
        return ()
    regimes = [remaining_regimes(belief, profile) for belief in beliefs]
    width = max(map(len, regimes))
    left = torch.zeros((len(beliefs), width), dtype=torch.float64)
    seconds = torch.ones_like(left)
    for row, (belief, ahead) in enumerate(zip(beliefs, regimes, strict=True)):
        for column, regime in enumerate(ahead):
            left[row, column] = regime.epochs
            seconds[row, column] = profile.epoch_seconds(belief.spec, regime.batch_size)
    done = torch.tensor([belief.epochs_done for belief in beliefs], dtype=torch.float64)
    fraction = torch.tensor([belief.fraction for belief in beliefs], dtype=torch.float64)
    epochs = done - fraction + left.sum(dim=1)
    before = left.cumsum(dim=1) - left
    # The part done of the epoch under way may outgrow the regime under way.
    left -= torch.minimum((fraction[:, None] - before).clamp(min=0.0), left)
    ends = (left * seconds).cumsum(dim=1)
    starts = ends - left * seconds
    elapsed = torch.arange(window + 1, dtype=torch.float64) * round_seconds
    gained = ((elapsed[None, :, None] - starts[:, None, :]) / seconds[:, None, :]).clamp(min=0.0)
    gained = torch.minimum(gained, left[:, None, :]).sum(dim=2)
    progress = ((done[:, None] + gained) / epochs[:, None]).clamp(max=1.0)
    curves, totals = progress.tolist(), ends[:, -1].tolist()
    return tuple(
        Forecast(
            job_id=belief.spec.job_id,
            remaining_seconds=total,
            run_seconds=belief.run_seconds,
            progress=tuple(curve),
            regimes=ahead,
        )
        for belief, total, curve, ahead in zip(beliefs, totals, curves, regimes, strict=True)
    )
