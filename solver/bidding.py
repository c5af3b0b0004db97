"""The bids of jobs for rounds of the window.

A job's utility of n rounds of the window is their contribution to its completion, less the
expected lateness:

    U_j(n) = B_j ω_j √g_j · min(nΔ, e_j) / max(e_j, Δ)
             − λ g_j · E[max(0, finish_j(n) − due_j)] / Δ

- Completion is worth √g_j, in proportion to the share of the residual run time e_j that the
  rounds cover: per GPU-round 1 / (rounds left · √g_j), the index of weighted shortest
  processing time (Smith, 1956), between ranking by run time and ranking by GPU time.
- ω_j is the job's finish-time fairness ρ under an even share from now on, the weight of
  NSDI '23 with λ = 1; B_j is its budget over the mean of the active jobs.
- The due date is the earlier of a share of the fair finish time (finish-time fairness as a
  deadline) and the horizon: the time by which all active work, and its longest job, can be
  done (makespan as a deadline).
- The finish time assumes that the job runs without preemption after the window. The
  expectation is over its forecast's samples, each smoothed by a normal error of a few
  rounds, so that the penalty rises before the deadline is missed.
"""

import math
from dataclasses import dataclass

import numpy as np

from predictor.forecast import SAMPLES
from solver.market import Floats, Market
from solver.plan import Situation


@dataclass(frozen=True, slots=True)
class UtilityParameters:
    """Parameters of the utilities.

    Attributes:
        lateness: λ, penalty of a GPU-round of lateness, in completions of jobs of one GPU.
        fair_share: Due date as a share of the fair finish time.
        blur_rounds: Standard deviation of a finish time about its sample, in rounds.
        blur_share: The same, as a share of the residual run time.
    """

    lateness: float
    fair_share: float
    blur_rounds: float
    blur_share: float


@dataclass(frozen=True)
class Outlook:
    """Policy input of the active jobs, as arrays.

    Attributes:
        samples: Equally likely residual run times, shape (jobs, samples), seconds.
        left: Mean residual run times, shape (jobs,), seconds.
        run: Run times so far, shape (jobs,), seconds.
        age: Times since submission, shape (jobs,), seconds.
        gangs: GPUs per job, shape (jobs,).
        budgets: Budgets over their mean, shape (jobs,).
        contention: Contention factor: jobs *seen so far* per GPU, at least 1. The number of
            jobs still to come is unknown.
    """

    samples: Floats
    left: Floats
    run: Floats
    age: Floats
    gangs: Floats
    budgets: Floats
    contention: float


def outlook(situation: Situation) -> Outlook:
    """The outlook of the active jobs, of which there must be some.

    Args:
        situation: Policy input, with forecasts that have trajectories.
    """
    jobs = situation.jobs
    samples = np.empty((len(jobs), SAMPLES))
    for row, job in enumerate(jobs):
        samples[row] = job.run_time(job.own).samples  # a settled job's single sample broadcasts
    samples = np.maximum(samples, 1.0)
    budgets = np.array([job.spec.budget for job in jobs])
    return Outlook(
        samples=samples,
        left=samples.mean(axis=1),
        run=np.array([job.belief.run_seconds for job in jobs]),
        age=situation.clock_seconds - np.array([job.spec.arrival_seconds for job in jobs]),
        gangs=np.array([float(job.gang) for job in jobs]),
        budgets=budgets / budgets.mean(),
        contention=max(1.0, situation.jobs_seen / situation.inventory.gpus),
    )


def finish_time_fairness(ahead: Outlook) -> Floats:
    """ρ of each job under an even share of the cluster from now on, shape (jobs,)."""
    whole = ahead.contention * (ahead.run + ahead.left)
    ratios: Floats = (ahead.age + ahead.contention * ahead.left) / whole
    return ratios


def utilities(
    ahead: Outlook,
    parameters: UtilityParameters,
    *,
    horizon: float,
    window: int,
    round_seconds: float,
) -> Floats:
    """U_j of 0…T rounds of a window, shape (jobs, T + 1), non-decreasing.

    Args:
        ahead: Outlook of the jobs.
        parameters: Parameters of the utilities.
        horizon: Seconds from now by which all active work is due.
        window: T.
        round_seconds: Δ.
    """
    elapsed = np.arange(window + 1) * round_seconds
    gained = np.minimum(elapsed, ahead.left[:, None])
    worth = ahead.budgets * finish_time_fairness(ahead) * np.sqrt(ahead.gangs)
    progress = worth[:, None] * gained / np.maximum(ahead.left, round_seconds)[:, None]

    # Samples come before rounds, so that the largest array has jobs · samples · (T + 1) numbers.
    fair = ahead.contention * (ahead.run[:, None] + ahead.samples) / ahead.budgets[:, None]
    due = np.minimum(parameters.fair_share * fair - ahead.age[:, None], horizon)[:, :, None]
    left = ahead.samples[:, :, None]
    finish = np.where(left > elapsed, elapsed[-1] + left - elapsed, left)
    least = _LEAST_BLUR * round_seconds
    blur = np.hypot(
        np.maximum(parameters.blur_rounds * round_seconds, least), parameters.blur_share * left
    )
    late = (blur * _expected_excess((finish - due) / blur)).mean(axis=1)
    price = parameters.lateness * ahead.gangs / round_seconds
    # Utilities are non-decreasing; rounding must not make them fall.
    return np.maximum.accumulate(progress - price[:, None] * late, axis=1)


_LEAST_BLUR = 1e-6
"""Lower bound on the blur in rounds, against a division by zero."""


def _expected_excess(mean: Floats) -> Floats:
    """E[max(0, X)] of X normal with this mean and standard deviation 1."""
    from scipy.special import ndtr  # a quarter of a second that policies without bids need not wait

    density = np.exp(-0.5 * mean * mean) / math.sqrt(2.0 * math.pi)
    excess: Floats = density + mean * ndtr(mean)
    return excess


def market(situation: Situation, ahead: Outlook, utility: Floats, favour: float) -> Market:
    """The window market of these utilities.

    Args:
        situation: Policy input.
        ahead: Outlook of the jobs.
        utility: U_j, shape (jobs, T + 1).
        favour: Preemption hysteresis: factor on the bids of running jobs.
    """
    running = np.array([favour if job.gpus else 1.0 for job in situation.jobs])
    return Market(
        types=situation.inventory.types,
        capacities=np.array(list(situation.inventory.capacities.values())),
        window=utility.shape[1] - 1,
        regularizer=0.0,
        job_ids=np.array([job.job_id for job in situation.jobs]),
        allocations=tuple(job.own for job in situation.jobs),
        weights=ahead.budgets * running,
        utility=(utility - utility[:, :1]) * running[:, None],
        remaining=np.zeros(utility.shape),
    )
