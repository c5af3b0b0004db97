"""What jobs bid for the rounds of a window, in GPU-rounds.

A job's utility of n rounds of the window is what they are worth to its mean completion
time, less the lateness that it must then expect:

    U_j(n) = B_j ω_j √g_j · min(nΔ, e_j) / max(e_j, Δ)
             − λ g_j · E[max(0, finish_j(n) − due_j)] / Δ

- Finishing a job is worth √g_j, and each round brings its share of the run time e_j left:
  per GPU-round 1 / (rounds left · √g_j), the index of weighted shortest processing time
  (Smith, 1956), between ranking by run time and ranking by GPU time.
- ω_j is its finish-time fairness ρ if it got an even share from now on, the weight of
  NSDI '23 with λ = 1; B_j its budget over the mean of the active jobs.
- It is due at the earlier of a share of its fair finish (finish-time fairness as a
  deadline) and of the horizon: the time by which all the work at hand, and its longest
  job, can be done (makespan as a deadline).
- It finishes when it has run what is left after the window without a break. The
  expectation is over its forecast's samples, each blurred by a normal error of a few
  rounds: the price of a deadline rises before it is missed.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from predictor.forecast import SAMPLES
from solver.market import Floats, Market
from solver.plan import Situation


@dataclass(frozen=True, slots=True)
class Terms:
    """What utilities are made of.

    Attributes:
        lateness: λ, worth of a GPU-round of lateness: of finishing so many jobs of one GPU.
        fair_share: Share of its fair finish time by which a job is due.
        blur_rounds: Standard deviation of a finish time about a sample's, in rounds.
        blur_share: The same, in shares of the run time left.
    """

    lateness: float
    fair_share: float
    blur_rounds: float
    blur_share: float


@dataclass(frozen=True)
class Outlook:
    """What is expected of the active jobs, as arrays.

    Attributes:
        samples: Equally likely run times left, shape (jobs, samples), seconds.
        left: Their means, shape (jobs,).
        run: Run time so far, shape (jobs,).
        age: Time since submission, shape (jobs,).
        gangs: GPUs per job, shape (jobs,).
        budgets: Budgets over their mean, shape (jobs,).
        contention: Jobs *seen so far* per GPU, at least 1: how many will come is not known.
    """

    samples: Floats
    left: Floats
    run: Floats
    age: Floats
    gangs: Floats
    budgets: Floats
    contention: float


def outlook(situation: Situation) -> Outlook:
    """What is expected of the active jobs; at least one.

    Args:
        situation: What the policy is told, with forecasts that have samples.
    """
    jobs = situation.jobs
    samples = np.empty((len(jobs), SAMPLES))
    for row, job in enumerate(jobs):
        samples[row] = job.run_time(job.own).samples  # one stands for all of them
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
    """ρ of each job if it got an even share of the cluster from now on, shape (jobs,)."""
    whole = ahead.contention * (ahead.run + ahead.left)
    ratios: Floats = (ahead.age + ahead.contention * ahead.left) / whole
    return ratios


def utilities(
    ahead: Outlook, terms: Terms, *, horizon: float, window: int, round_seconds: float
) -> Floats:
    """U_j of 0…T rounds of a window, shape (jobs, T + 1), non-decreasing.

    Args:
        ahead: What is expected.
        terms: What utilities are made of.
        horizon: Seconds from now by which all work at hand is to be done.
        window: T.
        round_seconds: Δ.
    """
    elapsed = np.arange(window + 1) * round_seconds
    gained = np.minimum(elapsed, ahead.left[:, None])
    worth = ahead.budgets * finish_time_fairness(ahead) * np.sqrt(ahead.gangs)
    progress = worth[:, None] * gained / np.maximum(ahead.left, round_seconds)[:, None]

    # Samples come before rounds, so that the largest array has jobs · samples · (T + 1) numbers.
    fair = ahead.contention * (ahead.run[:, None] + ahead.samples) / ahead.budgets[:, None]
    due = np.minimum(terms.fair_share * fair - ahead.age[:, None], horizon)[:, :, None]
    left = ahead.samples[:, :, None]
    finish = np.where(left > elapsed, elapsed[-1] + left - elapsed, left)
    least = _LEAST_BLUR * round_seconds
    blur = np.hypot(np.maximum(terms.blur_rounds * round_seconds, least), terms.blur_share * left)
    late = (blur * _expected_excess((finish - due) / blur)).mean(axis=1)
    price = terms.lateness * ahead.gangs / round_seconds
    # What rounding takes away is given back: more rounds are never worth less.
    return np.maximum.accumulate(progress - price[:, None] * late, axis=1)


_LEAST_BLUR = 1e-6
"""Rounds; without any blur there would be nothing to divide by."""


def _expected_excess(mean: Floats) -> Floats:
    """E[max(0, X)] of X normal with that mean and deviation 1."""
    density = np.exp(-0.5 * mean * mean) / math.sqrt(2.0 * math.pi)
    excess: Floats = density + mean * ndtr(mean)
    return excess


def market(situation: Situation, ahead: Outlook, utility: Floats, favour: float) -> Market:
    """The window market of these utilities.

    Args:
        situation: What the policy is told.
        ahead: What is expected.
        utility: U_j, shape (jobs, T + 1).
        favour: Times that the bids of a running job count, as it needs no restart.
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
