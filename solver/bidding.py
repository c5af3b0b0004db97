"""Compute the jobs' bids for the coming round.

With one GPU type, a round's utility to a job is its progress towards completion less the
expected lateness. After n rounds, n = 0 or 1, it is

    U_j(n) = B_j g_j · E[ρ_j^φ · (1 + μ · 1[age_j + R_j > τ]) · min(nΔ / R_j, 1)]
             − λ_j g_j · E[max(0, finish_j(n) − due_j)] / Δ

- A completion is worth g_j. A round earns the share of the residual run time R_j that it covers,
  so a GPU-round is worth 1 / rounds left: shortest remaining time first. Expectations are over
  the forecast's samples, so a job that may end soon bids more.
- ρ_j is the job's finish-time fairness if it runs from now on, (s_j + R_j) / (run + R_j), where
  s_j is its service under an equal share. This is the weight of NSDI '23; it grows while the job
  waits. B_j is the job's budget over the mean budget of active jobs.
- A completion is worth 1 + μ times as much if the job's JCT lies in the tail even when it runs
  without a pause; μ is 0 by default. The tail begins at τ, a share of the longest JCT in a queue:
  the longest run time of the active jobs plus the time for all their work.
- The due date is the earlier of a share of the fair finish time (finish-time fairness as a
  deadline) and the horizon (makespan as a deadline). The horizon is the time by which all active
  work, and its longest job, can be done, but not before arrivals are expected to end.
- λ_j rises from 0 to λ with the mean contention of the job's life so far. At a contention of 1
  deadlines do not show which job should wait: every wait misses the fair finish time, which is
  the isolated one, and the longest job alone sets the horizon.
- The finish time assumes no preemption after the round. A normal error of a few rounds smooths
  each sample, so the penalty rises before the deadline is missed.

With several GPU types, a job bids on each type the future cost that a round there saves
(`solver.backends.foresight`).
"""

from dataclasses import dataclass
from itertools import chain

import numpy as np

from predictor.allocation import Allocation
from predictor.arrays import Bools, Floats, Ints
from predictor.forecast import SAMPLES
from solver.backends.foresight import expect_excess
from solver.plan import ActiveJob, Situation

LEAST_TRAINED = 0.05
"""Minimum share of a round that counts as trained after a start, however long the restart takes. An
engineering choice: it limits the factor on bids for a held type to 41."""

LEAST_SPREAD = 1e-6
"""Lower bound on the blur in rounds and on the contention span; avoids division by zero."""


@dataclass(frozen=True)
class UtilityParameters:
    """Parameters of the bids on GPUs of one type.

    Attributes:
        fairness: φ, exponent of finish-time fairness in the worth of a completion; 0 ranks by
            remaining time alone.
        lateness: λ, penalty per GPU-round of lateness, in completions of 1-GPU jobs. Chosen in
            the flat part of the front that `benchmarks/market.py` plots.
        crowded: Mean contention of a job's life from which the full penalty applies; at a
            contention of 1 there is no penalty.
        fair_share: Due date as a share of the fair finish time.
        blur_rounds: Standard deviation of a finish time about its sample, in rounds.
        blur_share: The same, as a share of the residual run time.
        tail: μ, extra worth of completing a job whose JCT is in the tail; trades a longer mean
            JCT for a shorter p99.
    """

    fairness: float = 0.75
    lateness: float = 0.8
    crowded: float = 1.4
    fair_share: float = 0.85
    blur_rounds: float = 4.0
    blur_share: float = 0.05
    tail: float = 0.0


@dataclass(frozen=True)
class Outlook:
    """Policy input of the active jobs as arrays, one row per job and allocation it bids on.

    A job's rows are adjacent and differ in `allocations` and `here`. With a single GPU type
    each job has one row.

    Attributes:
        job_of: Job index, shape (rows,).
        samples: Equally likely residual run times on the job's fastest allocation, shape
            (rows, samples), seconds.
        left: Mean residual run times there, shape (rows,), seconds.
        here: Mean residual run times on the row's allocation, shape (rows,), seconds.
        run: Run times so far, shape (rows,), seconds.
        age: Times since submission, shape (rows,), seconds.
        gangs: GPUs, shape (rows,).
        service: Service under an equal share (`solver.fair_share`), shape (rows,), seconds.
        crowding: Mean contention of the jobs' lives, shape (rows,), at least 1.
        budgets: Budgets over their mean, shape (rows,).
        contention: Jobs *seen so far* per GPU, at least 1; later arrivals are unknown.
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
        """Return the restart time on each row's allocation, shape (rows,), seconds."""
        otherwise = situation.restart_seconds
        throughput = situation.jobs[0].throughput
        return np.array([throughput.restart(found, otherwise) for found in self.allocations])

    def fair(self) -> Floats:
        """Return fair finish times after submission, by sample, with a single GPU type."""
        return self.contention * (self.run[:, None] + self.samples) / self.budgets[:, None]

    def fairness(self) -> Floats:
        """Return ρ against an equal share so far if a job runs from now on, (rows, samples)."""
        run, service = self.run[:, None], self.service[:, None]
        return (service + self.samples) / (run + self.samples)


def make_outlook(situation: Situation) -> Outlook:
    """Return the outlook of the active jobs; needs at least one job, and trajectories."""
    menus = [_bids_on(job) for job in situation.jobs]
    jobs = [job for job, menu in zip(situation.jobs, menus, strict=True) for _ in menu]
    samples = np.empty((len(jobs), SAMPLES))
    for row, (job, allocation) in enumerate(zip(jobs, chain(*menus), strict=True)):
        samples[row] = job.run_time(allocation).samples  # a settled job's single sample broadcasts
    samples = np.maximum(samples, 1.0)
    job_of = np.repeat(np.arange(len(menus)), [len(menu) for menu in menus])
    left = here = samples.mean(axis=1)
    if len(jobs) > len(menus):
        first = np.flatnonzero(np.diff(job_of, prepend=-1))
        samples = samples[np.lexsort((here, job_of))[first][job_of]]
        left = samples.mean(axis=1)
    run = np.array([job.belief.run_seconds for job in jobs])
    age = situation.clock_seconds - np.array([job.spec.arrival_seconds for job in jobs])
    service = np.array([situation.fair_share.service(job.job_id) for job in jobs])
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
        crowding=np.where(
            waited, age / np.where(waited, service, 1.0), situation.fair_share.contention
        ),
        budgets=budgets / np.mean([job.spec.budget for job in situation.jobs]),
        contention=max(1.0, situation.jobs_seen / situation.inventory.gpus),
    )


def _bids_on(job: ActiveJob) -> tuple[Allocation, ...]:
    """Return one allocation per type; for the held type the held one, which may span more nodes."""
    held = job.held
    if held is None or held in job.choices:
        return job.choices
    return tuple(held if held.same_but_for_nodes(found) else found for found in job.choices)


def measure_utility(
    ahead: Outlook,
    parameters: UtilityParameters,
    *,
    fair: Floats,
    horizon: float,
    tail_begins: float,
    round_seconds: float,
) -> Floats:
    """Return the utility U_j(1) − U_j(0) of the coming round, shape (rows,), at least 0.

    Args:
        ahead: Outlook of the jobs, with a single GPU type.
        parameters: Parameters of the utilities.
        fair: Fair finish times after submission, shape (rows, samples) or (rows, 1), seconds.
        horizon: Seconds from now by which all active work is due.
        tail_begins: τ, the JCT at which the tail begins, in seconds.
        round_seconds: Δ.
    """
    elapsed = np.array([0.0, round_seconds])
    left = ahead.samples[:, :, None]
    fairness = ahead.fairness() ** parameters.fairness
    if parameters.tail:
        fairness *= 1.0 + parameters.tail * (ahead.age[:, None] + ahead.samples > tail_begins)
    covered = np.minimum(elapsed / left, 1.0)
    worth = ahead.budgets * ahead.gangs
    progress = worth[:, None] * (fairness[:, :, None] * covered).mean(axis=1)

    due = np.minimum(parameters.fair_share * fair - ahead.age[:, None], horizon)[:, :, None]
    finish = np.where(left > elapsed, elapsed[-1] + left - elapsed, left)
    least = LEAST_SPREAD * round_seconds
    blur = np.hypot(
        np.maximum(parameters.blur_rounds * round_seconds, least), parameters.blur_share * left
    )
    late = (blur * expect_excess((finish - due) / blur)).mean(axis=1)
    span = max(parameters.crowded - 1.0, LEAST_SPREAD)
    crowded = np.clip((ahead.crowding - 1.0) / span, 0.0, 1.0)
    price = parameters.lateness * crowded * ahead.gangs / round_seconds
    without, with_round = (progress - price[:, None] * late).T
    # Rounding must not make a round cost utility.
    gained: Floats = np.maximum(with_round, without) - without
    return gained


def find_holding(situation: Situation, ahead: Outlook) -> Bools:
    """Return whether each row's job already runs on that allocation: it needs no restart."""
    jobs = situation.jobs
    held = [
        bool(jobs[row].lease_rounds) and jobs[row].held == allocation
        for row, allocation in zip(ahead.job_of.tolist(), ahead.allocations, strict=True)
    ]
    return np.array(held, dtype=bool)


def measure_staying(situation: Situation, ahead: Outlook, least: float) -> Floats:
    """Return the preemption hysteresis with several GPU types: factors on held types, (rows,).

    Preempting the job costs twice: its successor trains for less of the round, and the job
    itself pays a restart when it resumes. `least` is the minimum factor.
    """
    length, restart = situation.round_seconds, ahead.restarts(situation)
    trained = np.maximum(length - restart, LEAST_TRAINED * length)
    return np.maximum(least, (length + restart) / trained)
