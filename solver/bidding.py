"""The bids of jobs for rounds of the window.

A job's utility of n rounds of the window is their contribution to its completion, less the
expected lateness:

    U_j(n) = B_j g_j · E[ρ_j^φ · (1 + μ · 1[age_j + R_j > τ]) · min(nΔ / R_j, 1)]
             − λ_j g_j · E[max(0, finish_j(n) − due_j)] / Δ

- Completion is worth g_j, in proportion to the share of the residual run time R_j that the
  rounds cover: per GPU-round 1 / rounds left, shortest remaining time first. Expectations are over
  the samples of the forecast, so that a job which may end soon is worth a try.
- ρ_j is the job's finish-time fairness if it runs from now on, (s_j + R_j) / (run + R_j) with
  s_j the service that an even share would have given it: the weight of NSDI '23, which grows
  while the job waits. B_j is its budget over the mean of the active jobs.
- The completion of a job is worth 1 + μ times as much if its JCT, where it runs from now on, is in
  the tail; μ is 0 by default. The tail begins at τ, a share of what the longest job takes in a
  queue: the longest run time of the active jobs, and the time for all their work.
- The due date is the earlier of a share of the fair finish time (finish-time fairness as a
  deadline) and the horizon: the time by which all active work, and its longest job, can be
  done, and not before arrivals are expected to end (makespan as a deadline).
- λ_j rises from 0 to λ with the mean contention of the job's life so far. At a contention of 1
  the fair finish time is the isolated one, which every wait misses, and the longest job alone
  sets the horizon: such deadlines do not show which job should wait.
- The finish time assumes that the job runs without preemption after the window. Each sample of it
  is smoothed by a normal error of a few rounds, so that the penalty rises before the deadline
  is missed.

On several GPU types a job bids on each the future cost that a round there saves
(`solver.backends.foresight`).
"""

from dataclasses import dataclass
from itertools import chain

import numpy as np

from predictor.allocation import Allocation
from predictor.arrays import Bools, Floats, Ints
from predictor.forecast import SAMPLES
from solver.excess import expected_excess
from solver.plan import ActiveJob, Situation


@dataclass(frozen=True, slots=True)
class UtilityParameters:
    """Parameters of the utilities.

    Attributes:
        fairness: φ, exponent of a job's finish-time fairness in the worth of completing it.
        lateness: λ, penalty of a GPU-round of lateness, in completions of jobs of one GPU.
        crowded: Mean contention of a job's life, above 1, at which lateness has its whole penalty.
        fair_share: Due date as a share of the fair finish time.
        blur_rounds: Standard deviation of a finish time about its sample, in rounds.
        blur_share: The same, as a share of the residual run time.
        tail: μ, further worth of completing a job whose JCT is in the tail.
    """

    fairness: float
    lateness: float
    crowded: float
    fair_share: float
    blur_rounds: float
    blur_share: float
    tail: float


@dataclass(frozen=True)
class Outlook:
    """Policy input of the active jobs, as arrays.

    There is a row for each job and allocation that it bids on; on GPUs of a single type that is a
    row for each job. The rows of a job follow each other, and differ in `allocations` and `here`.

    Attributes:
        job_of: Index of each row's job.
        allocations: The allocation of each row.
        samples: Equally likely residual run times on the job's fastest allocation, shape
            (jobs, samples), seconds.
        left: Mean residual run times there, shape (jobs,), seconds.
        here: Mean residual run times on the row's allocation, shape (jobs,), seconds.
        run: Run times so far, shape (jobs,), seconds.
        age: Times since submission, shape (jobs,), seconds.
        gangs: GPUs per job, shape (jobs,).
        service: Even service, shape (jobs,), seconds; see `solver.fair_share`.
        crowding: Mean contention of the jobs' lives, shape (jobs,), at least 1.
        budgets: Budgets over their mean, shape (jobs,).
        contention: Contention factor: jobs *seen so far* per GPU, at least 1. The number of
            jobs still to come is unknown.
    """

    job_of: Ints
    allocations: tuple[Allocation, ...]
    samples: Floats
    left: Floats
    here: Floats
    run: Floats
    age: Floats
    gangs: Floats
    service: Floats
    crowding: Floats
    budgets: Floats
    contention: float

    def restarts(self, situation: Situation) -> Floats:
        """Time of a restart on the row's allocation, shape (rows,), seconds."""
        otherwise = situation.restart_seconds
        throughput = situation.jobs[0].throughput
        return np.array([throughput.restart(found, otherwise) for found in self.allocations])

    def fair(self) -> Floats:
        """Fair finish time after submission, by sample, on GPUs of a single type."""
        return self.contention * (self.run[:, None] + self.samples) / self.budgets[:, None]


def outlook(situation: Situation) -> Outlook:
    """The outlook of the active jobs, at least one.

    Args:
        situation: Policy input, with forecasts that have trajectories.
    """
    mixed = situation.inventory.mixed
    menus = [_bids_on(job) for job in situation.jobs]
    jobs = [job for job, menu in zip(situation.jobs, menus, strict=True) for _ in menu]
    samples = np.empty((len(jobs), SAMPLES))
    for row, (job, allocation) in enumerate(zip(jobs, chain(*menus), strict=True)):
        samples[row] = job.run_time(allocation).samples  # a settled job's single sample broadcasts
    samples = np.maximum(samples, 1.0)
    job_of = np.repeat(np.arange(len(menus)), [len(menu) for menu in menus])
    here = samples.mean(axis=1)
    if mixed:
        first = np.flatnonzero(np.diff(job_of, prepend=-1))
        fastest = np.lexsort((here, job_of))[first][job_of]
        samples = samples[fastest]
    left = samples.mean(axis=1)
    run = np.array([job.belief.run_seconds for job in jobs])
    age = situation.clock_seconds - np.array([job.spec.arrival_seconds for job in jobs])
    service = np.array([situation.even.service(job.job_id) for job in jobs])
    waited = service > 0.0
    budgets = np.array([job.spec.budget for job in jobs])
    return Outlook(
        job_of=job_of,
        allocations=tuple(chain(*menus)),
        samples=samples,
        left=left,
        here=here,
        run=run,
        age=age,
        gangs=np.array([float(allocation.gpus) for allocation in chain(*menus)]),
        service=service,
        crowding=np.where(waited, age / np.where(waited, service, 1.0), situation.even.contention),
        budgets=budgets / np.mean([job.spec.budget for job in situation.jobs]),
        contention=max(1.0, situation.jobs_seen / situation.inventory.gpus),
    )


def _bids_on(job: ActiveJob) -> tuple[Allocation, ...]:
    """An allocation of each type; of the held type the held one, where it is the slower one."""
    held = job.held
    if held is None or not job.throughput.knows_nodes:
        return job.choices
    return tuple(held if held.same_but_for_nodes(found) else found for found in job.choices)


def finish_time_fairness(ahead: Outlook) -> Floats:
    """ρ by sample if a job runs from now on, against an even share so far, (jobs, samples)."""
    run, service = ahead.run[:, None], ahead.service[:, None]
    return (service + ahead.samples) / (run + ahead.samples)


def utilities(
    ahead: Outlook,
    parameters: UtilityParameters,
    *,
    fair: Floats,
    horizon: float,
    tail_begins: float,
    window: int,
    round_seconds: float,
) -> Floats:
    """U_j of 0…T rounds of a window, shape (jobs, T + 1), non-decreasing.

    Args:
        ahead: Outlook of the jobs.
        parameters: Parameters of the utilities.
        fair: Fair finish times after submission, shape (jobs, samples) or (jobs, 1), seconds.
        horizon: Seconds from now by which all active work is due.
        tail_begins: τ, the JCT from which on a job is in the tail, in seconds.
        window: T.
        round_seconds: Δ.
    """
    # Samples come before rounds, so that the largest array has jobs · samples · (T + 1) numbers.
    elapsed = np.arange(window + 1) * round_seconds
    left = ahead.samples[:, :, None]
    fairness = finish_time_fairness(ahead) ** parameters.fairness
    belated = 1.0 + parameters.tail * (ahead.age[:, None] + ahead.samples > tail_begins)
    covered = np.minimum(elapsed / left, 1.0)
    worth = ahead.budgets * ahead.gangs
    progress = worth[:, None] * ((fairness * belated)[:, :, None] * covered).mean(axis=1)

    due = np.minimum(parameters.fair_share * fair - ahead.age[:, None], horizon)[:, :, None]
    finish = np.where(left > elapsed, elapsed[-1] + left - elapsed, left)
    least = _LEAST * round_seconds
    blur = np.hypot(
        np.maximum(parameters.blur_rounds * round_seconds, least), parameters.blur_share * left
    )
    late = (blur * expected_excess((finish - due) / blur)).mean(axis=1)
    span = max(parameters.crowded - 1.0, _LEAST)
    crowded = np.clip((ahead.crowding - 1.0) / span, 0.0, 1.0)
    price = parameters.lateness * crowded * ahead.gangs / round_seconds
    # Utilities are non-decreasing; rounding must not make them fall.
    return np.maximum.accumulate(progress - price[:, None] * late, axis=1)


LEAST_TRAINED = 0.05
"""Least part of a round that counts as trained after a start, where restarts take longer. An
engineering choice: the factor on bids on the type that a job holds is then 41."""

_LEAST = 1e-6
"""Lower bound on the blur in rounds and on the span of contention, against divisions by zero."""


def holding(situation: Situation, ahead: Outlook) -> Bools:
    """Whether the row's job runs on its allocation, so that it stays without a restart, (rows,)."""
    jobs = situation.jobs
    held = [
        bool(jobs[row].lease_rounds) and jobs[row].held in (None, allocation)
        for row, allocation in zip(ahead.job_of.tolist(), ahead.allocations, strict=True)
    ]
    return np.array(held, dtype=bool)


def hysteresis(situation: Situation, ahead: Outlook, favour: float | Floats) -> Floats:
    """Preemption hysteresis: a factor on each bid, shape (rows,).

    A job is favoured only on the GPU type that it holds: a move costs a restart.

    Args:
        situation: Policy input.
        ahead: Outlook of the jobs.
        favour: Factor for running jobs, for all rows or for each.
    """
    return np.where(holding(situation, ahead), favour, 1.0)


def staying(situation: Situation, ahead: Outlook, least: float) -> Floats:
    """Preemption hysteresis on several GPU types: a factor on bids on the held type, (rows,).

    Another job that starts there trains for less of the round, and the displaced job pays a
    restart when it resumes.

    Args:
        situation: Policy input.
        ahead: Outlook of the jobs.
        least: The least factor.
    """
    length, restart = situation.round_seconds, ahead.restarts(situation)
    trained = np.maximum(length - restart, LEAST_TRAINED * length)
    return np.maximum(least, (length + restart) / trained)
