"""Compute the jobs' bids for the coming round.

With one GPU type, a round's utility to a job is its progress towards completion plus the lateness
that it avoids:

    U_j = B_j g_j · (E[min(Δ / R_j, 1)] + bΔ / max(f_j − t, bΔ)
                     + λ_j (L_j(H) + φ³ L_j(d_j)) / Δ)

    L_j(due) = E[max(0, t + Δ + R_j − due)] − E[max(0, t + R_j − due)]

- A completion is worth g_j. A round earns the share of the residual run time R_j that it covers,
  so a GPU-round is worth 1 / rounds left: shortest remaining time first. Expectations are over
  the forecast's samples, so a job that may end soon bids more.
- The second term is the same for the job's end in the even cluster, f_j: jobs that end there first
  go first (Friedman and Henderson's Fair Sojourn Protocol, SIGMETRICS 2003). B_j is the job's
  budget over the mean budget of active jobs.
- L_j is the lateness that a round now avoids, if the job is not preempted after the round. A
  normal error of a few rounds, b, smooths each sample, so that the penalty rises before a due date
  is missed. λ_j is λ times the share of its life that the job waits in the even cluster: where few
  jobs compete, due dates do not show who should wait, because every wait misses one.
- H is the horizon by which all active work is due (makespan as a due date). d_j is when the job
  would become unfairly treated: ρ of 1.05. φ, `fairness`, moves H from the least makespan to the
  end of the even cluster, and prices d_j.

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
from solver.even_cluster import UNKNOWN
from solver.plan import ActiveJob, Situation

LEAST_TRAINED = 0.05
"""Minimum share of a round that counts as trained after a start, however long the restart takes. An
engineering choice: it limits the factor on bids for a held type, to 41 for a restart of a round."""

BLUR_ROUNDS = 4.0
"""b: standard deviation of a finish time about its sample, in rounds; 5 gives the same front."""

BLUR_SHARE = 0.05
"""The same, as a share of the residual run time."""

UNFAIR = 1.05
"""ρ above which a job is unfairly treated (Zheng et al., NSDI '23, section 8.1)."""


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
        fair: JCT in the even cluster, shape (rows,), seconds.
        gangs: GPUs, shape (rows,).
        budgets: Budgets over their mean, shape (rows,).
    """

    job_of: Ints
    allocations: tuple[Allocation, ...]
    samples: Floats
    left: Floats
    here: Floats
    run: Floats
    age: Floats
    fair: Floats
    gangs: Floats
    budgets: Floats

    def restarts(self, situation: Situation) -> Floats:
        """Return the restart time on each row's allocation, shape (rows,), seconds."""
        otherwise = situation.restart_seconds
        throughput = situation.jobs[0].throughput
        return np.array([throughput.restart(found, otherwise) for found in self.allocations])


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
    arrivals = np.array([job.spec.arrival_seconds for job in jobs])
    budgets = np.array([job.spec.budget for job in jobs])
    return Outlook(
        job_of=job_of,
        allocations=tuple(chain(*menus)),
        samples=samples,
        left=left,
        here=here,
        run=np.array([job.belief.run_seconds for job in jobs]),
        age=situation.clock_seconds - arrivals,
        fair=np.maximum(list_fair_finishes(situation)[job_of] - arrivals, 1.0),
        gangs=np.array([float(allocation.gpus) for allocation in chain(*menus)]),
        budgets=budgets / np.mean([job.spec.budget for job in situation.jobs]),
    )


def list_fair_finishes(situation: Situation) -> Floats:
    """Return when the active jobs end in the even cluster, shape (jobs,), on the run's clock.

    Finite: a job that is not expected to end there ends very late.
    """
    known = situation.fair_finishes
    return np.array([min(known.get(job.job_id, UNKNOWN), UNKNOWN) for job in situation.jobs])


def _bids_on(job: ActiveJob) -> tuple[Allocation, ...]:
    """Return one allocation per type; for the held type the held one, which may span more nodes."""
    held = job.held
    if held is None or held in job.choices:
        return job.choices
    return tuple(held if held.same_but_for_nodes(found) else found for found in job.choices)


def measure_utility(
    ahead: Outlook,
    *,
    unfair: Floats,
    fairness: float,
    lateness: float,
    horizon: float,
    round_seconds: float,
) -> Floats:
    """Return the utility U_j of the coming round, shape (rows,), at least 0.

    Args:
        ahead: Outlook of the jobs, with a single GPU type.
        unfair: JCT from which jobs are unfairly treated, shape (rows,), seconds.
        fairness: φ.
        lateness: λ, highest price of a GPU-round of lateness, in completions of 1-GPU jobs.
        horizon: H, seconds from now.
        round_seconds: Δ.
    """
    until = np.maximum(ahead.fair - ahead.age, BLUR_ROUNDS * round_seconds)
    gained = np.minimum(round_seconds / ahead.samples, 1.0).mean(axis=1)
    gained += BLUR_ROUNDS * round_seconds / until
    price = lateness * np.clip(1.0 - (ahead.run + ahead.left) / ahead.fair, 0.0, 1.0)
    gained += price * _measure_avoided(ahead, np.float64(horizon), round_seconds)
    if fairness:
        avoided = _measure_avoided(ahead, (unfair - ahead.age)[:, None], round_seconds)
        gained += price * fairness**3 * avoided
    utility: Floats = ahead.budgets * ahead.gangs * gained
    return utility


def _measure_avoided(ahead: Outlook, due: Floats | np.float64, round_seconds: float) -> Floats:
    """Return the lateness that a round avoids, in rounds, shape (rows,)."""
    left = ahead.samples
    blur = np.hypot(BLUR_ROUNDS * round_seconds, BLUR_SHARE * left)
    waits = blur * expect_excess((round_seconds + left - due) / blur)
    runs = blur * expect_excess((left - due) / blur)
    avoided: Floats = (waits - runs).mean(axis=1) / round_seconds
    return np.maximum(avoided, 0.0)


def measure_unfair_jct(situation: Situation, ahead: Outlook) -> Floats:
    """Return the JCT from which jobs are unfairly treated, shape (rows,), seconds."""
    least = situation.round_seconds + situation.restart_seconds
    return UNFAIR * (ahead.fair + least)


def find_holding(situation: Situation, ahead: Outlook) -> Bools:
    """Return whether each row's job already runs on that allocation: it needs no restart."""
    jobs = situation.jobs
    held = [
        bool(jobs[row].lease_rounds) and jobs[row].held == allocation
        for row, allocation in zip(ahead.job_of.tolist(), ahead.allocations, strict=True)
    ]
    return np.array(held, dtype=bool)


def measure_hysteresis(situation: Situation, ahead: Outlook, least: float) -> Floats:
    """Return the preemption hysteresis: factors on the bids for held allocations, (rows,).

    Preempting the job costs twice: its successor trains for less of the round, and the job
    itself pays a restart when it resumes. `least` is the minimum factor.
    """
    length, restart = situation.round_seconds, ahead.restarts(situation)
    trained = np.maximum(length - restart, LEAST_TRAINED * length)
    return np.maximum(least, (length + restart) / trained)
