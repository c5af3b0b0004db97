"""Shockwave as published: the baseline of this project's policies."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from predictor.arrays import Floats
from predictor.published_predictor import (
    calibrate,
    mean_epoch_seconds,
    remaining_seconds,
    seconds_done,
)
from predictor.rows import from_json, to_json
from solver.backends.choice import Solution, relative_gap
from solver.list_scheduling import make_claims, next_round
from solver.market import Price
from solver.plan import ActiveJob, Plan, Policy, Situation, SolveReport
from solver.window.counts import solve_counts
from solver.window.market import WindowMarket
from solver.window.published import (
    fill_with_longest,
    lay_out_by_priority,
    make_published_market,
)

RESOLVE_ROUNDS = 8
"""Maximum number of rounds between solutions of the window, as published."""

LATEST_SHARE = 0.1
"""Weight of the latest finish-time estimate against the mean of all, as published."""


class FinishEstimates(NamedTuple):
    """A job's measurements and finish-time estimates.

    Attributes:
        submitted_at: Clock at its admission.
        samples: Samples trained at measured throughputs since the run's start.
        measured_round: Round of the last measurement.
        speed: Samples per second in the coming round, if it runs.
        factor: Calibration factor of its profiled durations.
        first_round: Round of the first finish-time estimate.
        last_round: Round of the latest estimate.
        last_estimate: The latest estimate, in seconds on the run's clock.
        weighted_sum: Σ of the earlier estimates, weighted by the rounds for which each held.
    """

    submitted_at: float
    samples: float = 0.0
    measured_round: int = 0
    speed: float = 0.0
    factor: float = 1.0
    first_round: int = -1
    last_round: int = -1
    last_estimate: float = 0.0
    weighted_sum: float = 0.0

    def estimated(self, round_number: int, finish_seconds: float) -> "FinishEstimates":
        """Return the account with a new estimate of the finish time under an equal share."""
        if self.first_round < 0:
            return self._replace(
                first_round=round_number, last_round=round_number, last_estimate=finish_seconds
            )
        held = round_number - self.last_round
        return self._replace(
            last_round=round_number,
            last_estimate=finish_seconds,
            weighted_sum=self.weighted_sum + held * self.last_estimate,
        )

    def finish_objective(self, round_number: int) -> float:
        """Return the target finish time, from the mean over time and the latest of estimates."""
        mean, rounds = self.last_estimate, round_number - self.first_round
        if rounds:
            held = round_number - self.last_round
            mean = (self.weighted_sum + held * self.last_estimate) / rounds
        return (1.0 - LATEST_SHARE) * mean + LATEST_SHARE * self.last_estimate


@dataclass(frozen=True)
class PublishedMemory:
    """The policy's memory between plans.

    Attributes:
        round: Number of the coming round.
        accounts: Accounts by job id.
        schedule: Jobs of the coming rounds in the window's last solution.
    """

    round: int = 0
    accounts: Mapping[int, FinishEstimates] = field(default_factory=dict)
    schedule: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class PublishedShockwave(Policy):
    """Nash social welfare over the window, with the published solver, predictor and schedule.

    Zheng et al., Shockwave (NSDI '23), sections 4 to 6, as in their simulator. The predictor is
    clairvoyant (`predictor.published_predictor`). The window is solved on every arrival and end and
    every eighth round, with high priorities in early rounds, and backfilled with the jobs that have
    the longest remaining time. The schedule is followed until the next solution.

    There are two deviations. The counts of rounds are solved exactly (`solver.window.counts`)
    instead of to a relative gap of 1e-3, and list scheduling replaces the second program, which
    orders them. The finish-time constraints are left out: they require that every job end after the
    window, and on the published traces they were feasible in one of 336 windows.

    Attributes:
        regularizer: k; the authors set it for each trace. The default is for 120 jobs.
        fairness_power: λ; the same applies.
    """

    name = "shockwave-published"
    summary = "Shockwave as its authors published it; sees the jobs' future batch sizes"
    source = "Zheng et al., Shockwave (NSDI '23), sections 4 to 6"
    reads_forecasts = False
    clairvoyant = True
    work_conserving = True

    backend: str = "auto"
    regularizer: float = 1e-3
    fairness_power: float = 12.0

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        before = from_json(PublishedMemory, situation.memory)
        number, jobs = before.round, situation.jobs
        accounts = {job.job_id: _measure(before, job, situation) for job in jobs}
        changed = accounts.keys() != before.accounts.keys()
        report, schedule = SolveReport(self.name, status="kept"), before.schedule
        if jobs and (changed or not number % RESOLVE_ROUNDS or not schedule):
            if changed:
                accounts = _estimate(accounts, situation, number)
            accounts, market, priorities = self._window(accounts, situation, number)
            solved = solve_counts(market, self.backend)
            remaining = np.array([_remaining(accounts[job.job_id], job) for job in jobs])
            table = lay_out_by_priority(market, solved.counts, priorities)
            table = fill_with_longest(table, market, remaining)
            ids = np.array([job.job_id for job in jobs])
            schedule = tuple(tuple(ids[column].tolist()) for column in table.T)
            report = _report(situation, solved, market.objective(table.sum(axis=1)))
        now, *rest = schedule or ((),)
        by_id = {job.job_id: job for job in jobs}
        return Plan(
            placement=next_round(situation, make_claims(by_id[job] for job in now if job in by_id)),
            order=tuple(job for job in now if job in by_id),
            report=report,
            memory=to_json(PublishedMemory(number + 1, accounts, tuple(rest))),
        )

    def _window(
        self, accounts: Mapping[int, FinishEstimates], situation: Situation, number: int
    ) -> tuple[dict[int, FinishEstimates], WindowMarket, Floats]:
        """Return the calibrated accounts, the window problem, and each job's priority."""
        jobs = situation.jobs
        accounts = {job.job_id: _calibrate(accounts[job.job_id], job, situation) for job in jobs}
        factors = np.array([accounts[job.job_id].factor for job in jobs])
        progress = np.array([epochs_done(job) for job in jobs], dtype=float)
        epoch_seconds = factors * [
            mean_epoch_seconds(job.schedule, epochs_done(job)) for job in jobs
        ]
        remaining = np.array([_remaining(accounts[job.job_id], job) for job in jobs])
        market, priorities = make_published_market(
            gpus=situation.inventory.gpus,
            job_ids=[job.job_id for job in jobs],
            gangs=[job.gang for job in jobs],
            epochs=np.array([job.spec.epochs for job in jobs], dtype=float),
            epochs_done=progress,
            epoch_seconds=epoch_seconds,
            remaining=remaining,
            finish_objectives=np.array(
                [accounts[job.job_id].finish_objective(number) for job in jobs]
            ),
            clock_seconds=number * situation.round_seconds,
            round_seconds=situation.round_seconds,
            window=situation.window,
            regularizer=self.regularizer,
            fairness_power=self.fairness_power,
        )
        return accounts, market, priorities


def epochs_done(job: ActiveJob) -> int:
    """Return the completed epochs, capped at the declared number, which a job may overshoot."""
    done = sum(int(regime.epochs) for regime in job.belief.observed)
    return min(done, job.spec.epochs)


def _measure(before: PublishedMemory, job: ActiveJob, situation: Situation) -> FinishEstimates:
    """Return a job's account with the measurement of the previous round, if it ran."""
    account = before.accounts.get(job.job_id) or FinishEstimates(situation.clock_seconds)
    if job.gpus:
        rounds = before.round - account.measured_round
        ran = job.belief.progress is not None and job.belief.progress.seconds > 0.0
        samples = account.speed * situation.round_seconds * rounds if ran else 0.0
        account = account._replace(samples=account.samples + samples, measured_round=before.round)
    return account._replace(speed=job.rate(job.own) * job.belief.batch_size)


def _calibrate(account: FinishEstimates, job: ActiveJob, situation: Situation) -> FinishEstimates:
    if not account.measured_round or job.spec.timed:
        return account
    factor = calibrate(
        job.schedule,
        job.spec.samples_per_epoch,
        factor=account.factor,
        samples=account.samples,
        seconds=account.measured_round * situation.round_seconds,
    )
    return account._replace(factor=factor)


def _remaining(account: FinishEstimates, job: ActiveJob) -> float:
    """Return the predicted residual run time, in seconds; 1 s once all epochs are complete.

    The published system has no timed jobs; their only epoch would be complete from the start.
    """
    if job.spec.timed:
        return max(job.schedule[0].epoch_seconds - job.belief.run_seconds, 1.0)
    done = epochs_done(job)
    if done >= job.spec.epochs:
        return 1.0
    return account.factor * remaining_seconds(job.schedule, done)


def _estimate(
    accounts: Mapping[int, FinishEstimates], situation: Situation, number: int
) -> dict[int, FinishEstimates]:
    """Return the accounts with a new estimate of each finish time under an equal share."""
    share = min(1.0, situation.inventory.gpus / len(situation.jobs))
    estimated = {}
    for job in situation.jobs:
        account = _calibrate(accounts[job.job_id], job, situation)
        done = account.factor * seconds_done(job.schedule, epochs_done(job))
        finish = account.submitted_at + (done + _remaining(account, job)) / share
        estimated[job.job_id] = account.estimated(number, finish)
    return estimated


def _report(situation: Situation, solved: Solution, objective: float) -> SolveReport:
    """Report on a solved window: the timetable's objective, and its gap to the bound."""
    bound = max(solved.bound, objective)
    return SolveReport(
        policy=PublishedShockwave.name,
        backend=solved.backend,
        reason=solved.reason,
        status=solved.status,
        objective=objective,
        bound=bound,
        gap=relative_gap(bound, objective),
        prices=tuple(map(Price, situation.inventory.types, solved.prices.tolist())),
    )
