"""The published system's window problem: its market, and its timetable for the counts.

Zheng et al., Shockwave (NSDI '23), sections 4 to 6, as in their simulator;
`solver.policies.shockwave_published` lists the differences.
"""

from collections.abc import Sequence

import numpy as np

from predictor.arrays import Floats, Ints
from solver.window.market import WindowMarket, make_welfare_market
from solver.window.repair import Timetable

LAST_ROUND_POWER = 100.0
"""Power of the finish-time ratio for jobs with less than a round left, as published."""

HEAVIEST = 1e100
"""Upper bound on weights, against overflow; weights of 1 are already below its rounding error."""


def make_published_market(
    *,
    gpus: int,
    job_ids: Sequence[int],
    gangs: Sequence[int],
    epochs: Floats,
    epochs_done: Floats,
    epoch_seconds: Floats,
    remaining: Floats,
    finish_objectives: Floats,
    clock_seconds: float,
    round_seconds: float,
    window: int,
    regularizer: float,
    fairness_power: float,
    fairness_limit: float = 1.0,
) -> tuple[WindowMarket, Floats]:
    """Return the window problem without the finish-time constraints.

    ρ is the projected over the target finish time. A weight is ρ^λ if ρ exceeds its limit, else 1
    (NSDI '23, section 6); λ is `LAST_ROUND_POWER` in a job's last round.

    Args:
        gpus: GPUs in each round.
        job_ids: Job ids, in the order of the arrays.
        gangs: GPUs of each.
        epochs: Epochs of each job; all arrays have shape (jobs,).
        epochs_done: Completed epochs.
        epoch_seconds: Mean duration of the epochs so far.
        remaining: Predicted residual run time, in seconds.
        finish_objectives: Target finish times, in seconds on the run's clock.
        clock_seconds: Start of the window, in seconds on the run's clock.
        round_seconds: Length of a round.
        window: T.
        regularizer: k.
        fairness_power: λ.
        fairness_limit: ρ above which a job is treated unfairly.

    Returns:
        The market, and the weights (infinite where they overflow), shape (jobs,).
    """
    share = min(1.0, gpus / len(job_ids))
    ratio = (clock_seconds + remaining / share) / finish_objectives
    powers = np.where(remaining < round_seconds, LAST_ROUND_POWER, fairness_power)
    with np.errstate(over="ignore"):
        weights: Floats = np.where(ratio > fairness_limit, ratio**powers, 1.0)
    elapsed = np.arange(window + 1) * round_seconds
    run = np.minimum(elapsed, ((epochs - epochs_done) * epoch_seconds)[:, None])
    market = make_welfare_market(
        gpus=gpus,
        regularizer=regularizer,
        job_ids=job_ids,
        gangs=gangs,
        weights=np.minimum(weights, HEAVIEST),
        progress=(epochs_done[:, None] + run / epoch_seconds[:, None]) / epochs[:, None],
        remaining=np.maximum(remaining[:, None] - run, 0.0),
    )
    return market, weights


def lay_out_by_priority(market: WindowMarket, counts: Ints, priorities: Floats) -> Timetable:
    """Lay counts out with high priorities in early rounds.

    The published system solves a second program: minimise Σ_j priority_j · mean round of job j.
    Here each round is list-scheduled: jobs that need all remaining rounds, then the others by
    priority per GPU and round, with backfilling. This preserves all counts of 1-GPU jobs (least
    laxity first); a gang may lose a round, whose GPUs are backfilled.
    """
    gangs, left = market.gangs, counts.copy()
    table = np.zeros((len(counts), market.window), dtype=bool)
    ranks = np.argsort(-priorities / np.maximum(gangs * counts, 1), kind="stable")
    for number in range(market.window):
        free = market.gpus
        urgent = left[ranks] >= market.window - number
        for job in [*ranks[urgent].tolist(), *ranks[~urgent].tolist()]:
            if left[job] and gangs[job] <= free:
                table[job, number] = True
                free -= int(gangs[job])
                left[job] -= 1
    return table


def fill_with_longest(table: Timetable, market: WindowMarket, remaining: Floats) -> Timetable:
    """Backfill idle GPUs with the jobs that have the longest remaining time, in seconds."""
    table, gangs = table.copy(), market.gangs
    free = market.gpus - gangs @ table
    for job in np.argsort(-remaining, kind="stable").tolist():
        more = ~table[job] & (free >= gangs[job])
        table[job] |= more
        free -= gangs[job] * more
    return table
