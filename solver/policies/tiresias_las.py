"""Discretised two-dimensional least attained service."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from predictor.arrays import Floats, Ints
from predictor.errors import InputError
from predictor.rows import from_json, to_json
from solver.plan import Plan, Policy, Situation
from solver.policies.listed import run_list


class Promotion(NamedTuple):
    """A job's account since its last promotion, or its first run.

    Attributes:
        waited: Seconds without GPUs since its first run after the promotion.
        ran_before: Run time before the promotion, in seconds.
    """

    waited: float = 0.0
    ran_before: float = 0.0


NO_PROMOTION = Promotion()


@dataclass(frozen=True)
class Promotions:
    """The policy's memory between plans.

    Attributes:
        clock_seconds: Clock of the last plan.
        accounts: Accounts by job id, without jobs that were never promoted and never waited.
    """

    clock_seconds: float = 0.0
    accounts: Mapping[int, Promotion] = field(default_factory=dict)


@dataclass(frozen=True)
class TiresiasLas(Policy):
    """Three priority queues by attained GPU time: 2D-LAS, discretised.

    Gu et al., Tiresias (NSDI '19), sections 3.2.2 and 3.2.3: a job is demoted to the next queue
    when its GPU time (run time × GPUs) reaches a threshold. So short jobs finish first without a
    forecast, and jobs do not preempt each other at every step. Backfilling: any job that fits runs.
    A starving job is promoted to the first queue, where its GPU time counts from 0 again; promotion
    is off by default, as in the published simulator.

    Inside a queue the paper ranks by first start; here, as in the published simulator, running jobs
    come before waiting jobs, then earlier arrivals before later ones.

    Attributes:
        first_threshold: GPU-seconds at which a job leaves the first queue; the default is the
            published simulator's.
        second_threshold: GPU-seconds at which it leaves the second; the default is the same.
        promote: Promotion threshold: ratio of waiting time to run time since the last promotion;
            waiting before the first run does not count. 0 disables promotion.

    Raises:
        InputError: The first threshold is above the second.
    """

    name = "tiresias-las"
    summary = "least attained GPU time, in three queues"
    source = "Gu et al., Tiresias (NSDI '19), section 3.2"
    reads_forecasts = False
    work_conserving = True
    several_pools = True

    first_threshold: float = 3_250.0
    second_threshold: float = 7_200.0
    promote: float = 0.0

    def __post_init__(self) -> None:
        first, second = self.first_threshold, self.second_threshold
        if first > second:
            raise InputError(
                "parameters.first_threshold",
                f"{first:g} is above second_threshold={second:g}",
                "give the smaller threshold first",
            )

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        jobs = situation.jobs
        accounts = self._accounts(situation)
        services = np.array(
            [
                (job.belief.run_seconds - accounts.get(job.job_id, NO_PROMOTION).ran_before)
                * job.gang
                for job in jobs
            ]
        )
        queues = self.queues(services)
        arrivals = np.array([job.spec.arrival_seconds for job in jobs])
        waiting = np.array([not job.gpus for job in jobs])
        merits = self.merits(situation, services, queues)
        order = np.lexsort((arrivals, waiting, -merits, queues))
        plan = run_list(self.name, situation, [jobs[row] for row in order.tolist()])
        if not self.promote:
            return plan
        return replace(plan, memory=to_json(Promotions(situation.clock_seconds, accounts)))

    def queues(self, services: Floats) -> Ints:
        """Return each job's queue, from 0, by attained service in GPU-seconds; shape (jobs,)."""
        thresholds = [self.first_threshold, self.second_threshold]
        return np.searchsorted(thresholds, services, side="right")

    def merits(self, situation: Situation, services: Floats, queues: Ints) -> Floats:
        """Return each job's first ranking criterion in its queue, highest first; 0 in 2D-LAS."""
        return np.zeros(len(services))

    def _accounts(self, situation: Situation) -> Mapping[int, Promotion]:
        """Return accounts by job id, after due promotions, without jobs at the initial account."""
        if not self.promote:
            return {}
        before = from_json(Promotions, situation.memory)
        elapsed = situation.clock_seconds - before.clock_seconds
        accounts = {}
        for job in situation.jobs:
            account = before.accounts.get(job.job_id, NO_PROMOTION)
            ran = job.belief.run_seconds - account.ran_before
            if ran and not job.gpus:
                account = account._replace(waited=account.waited + elapsed)
                demoted = ran * job.gang >= self.first_threshold
                if demoted and account.waited >= self.promote * ran:
                    account = Promotion(ran_before=job.belief.run_seconds)
            if account != NO_PROMOTION:
                accounts[job.job_id] = account
        return accounts
