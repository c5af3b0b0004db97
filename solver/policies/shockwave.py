"""The Volatile Fisher Market over a window of rounds (Shockwave, NSDI '23)."""

from dataclasses import dataclass

import numpy as np

from solver.clearing import clear
from solver.market import Floats, Market, welfare_market
from solver.plan import ActiveJob, Plan, Situation, SolveReport, Turn, next_round


@dataclass(frozen=True)
class Shockwave:
    """Nash social welfare over the window, with finish-time-fairness weights.

    Each round the market is cleared for all active jobs and the first round of the
    plan is executed; it is cleared again at the next round, with what was observed.

    Attributes:
        backend: Solver back end.
        fairness_power: λ, how steeply a job's weight grows with its finish-time fairness
            ρ (NSDI '23, section 6).
        regularizer: k, welfare that a second of the longest remaining run time costs. Of
            the size of what a round brings a job (log progress over jobs · T), so that
            neither drowns the other.
        running_rounds: A running job counts as this many rounds shorter, so that it
            keeps running.
    """

    name = "shockwave"
    summary = "a market over the window: Nash social welfare, fair finish times, makespan"
    source = "Zheng et al., Shockwave (NSDI '23), with forecasts of its own"
    looks_ahead = True
    clairvoyant = False
    work_conserving = True

    backend: str = "auto"
    fairness_power: float = 8.0
    regularizer: float = 1e-5
    running_rounds: float = 4.0

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        jobs = situation.jobs
        if not jobs:
            return Plan({}, SolveReport(self.name))
        market = self.window_market(situation)
        order = sorted(range(len(jobs)), key=lambda row: self._length(jobs[row], situation))
        cleared = clear(market, order, self.backend)
        chosen = [jobs[row] for row in np.flatnonzero(cleared.timetable[:, 0])]
        return Plan(
            turns=tuple(
                Turn(job.spec.job_id, tuple(np.flatnonzero(row).tolist()))
                for job, row in zip(jobs, cleared.timetable, strict=True)
                if row.any()
            ),
            placement=next_round(situation, chosen),
            bids=market.bids,
            report=SolveReport(
                policy=self.name,
                backend=cleared.backend,
                reason=cleared.reason,
                status=cleared.status,
                objective=cleared.objective,
                bound=cleared.bound,
                gap=cleared.gap,
                price=cleared.price,
            ),
        )

    def _length(self, job: ActiveJob, situation: Situation) -> tuple[float, int]:
        """Shortest first, running jobs favoured."""
        favour = self.running_rounds * situation.round_seconds if job.gpus else 0.0
        return job.forecast.remaining_seconds - favour, job.spec.job_id

    def window_market(self, situation: Situation) -> Market:
        """The window problem: weights B_j ρ_j^λ on the log of forecast progress.

        The regulariser counts what a job has left to run only above the work that the
        whole cluster has left per GPU at the window's end: below that, no order of the jobs
        makes the makespan shorter, and serving the longest first would only delay the rest.
        """
        jobs, cluster = situation.jobs, situation.cluster
        budgets = np.array([job.spec.budget for job in jobs])
        scale_factors = [job.spec.scale_factor for job in jobs]
        remaining = np.array([job.forecast.remaining_seconds for job in jobs])
        elapsed = np.arange(situation.window + 1) * situation.round_seconds
        work_per_gpu = float(scale_factors @ remaining) / cluster.gpus
        return welfare_market(
            gpus=cluster.gpus,
            regularizer=self.regularizer,
            job_ids=[job.spec.job_id for job in jobs],
            scale_factors=scale_factors,
            weights=budgets * finish_time_fairness(situation) ** self.fairness_power,
            progress=np.array([job.forecast.progress for job in jobs]),
            remaining=np.maximum(
                remaining[:, None] - elapsed, max(work_per_gpu - float(elapsed[-1]), 0.0)
            ),
        )


def finish_time_fairness(situation: Situation) -> Floats:
    """ρ of each job if it ran from now on without a break, shape (jobs,).

    Age plus remaining over c times the whole run time, where the contention factor c is
    the jobs seen so far per GPU, at least 1: a scheduler cannot know how many will come.
    """
    jobs = situation.jobs
    remaining = np.array([job.forecast.remaining_seconds for job in jobs])
    run = np.array([job.forecast.run_seconds for job in jobs])
    age = situation.clock_seconds - np.array([job.spec.arrival_seconds for job in jobs])
    contention = max(1.0, situation.jobs_seen / situation.cluster.gpus)
    ratios: Floats = (age + remaining) / (contention * (run + remaining))
    return ratios
