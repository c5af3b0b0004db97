"""Discretised two-dimensional least attained service."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import orjson

from solver.plan import ActiveJob, Plan, Situation
from solver.policies.listed import run_list


class Account(NamedTuple):
    """What is noted of a job since its last promotion, or its first run.

    Attributes:
        waited: Seconds without GPUs since it first ran after the promotion.
        ran_before: Run time until the promotion, in seconds.
    """

    waited: float = 0.0
    ran_before: float = 0.0


def attained_service(job: ActiveJob, ran_before: float = 0.0) -> float:
    """GPU-seconds that a job has run: its run time times its GPUs (section 4.2)."""
    return (job.belief.run_seconds - ran_before) * job.spec.scale_factor


@dataclass(frozen=True)
class TiresiasLas:
    """Three queues by attained GPU time, served in order; 2D-LAS, discretised.

    Gu et al., Tiresias (NSDI '19), sections 4.2 and 4.3: a job falls to the next queue
    once its GPU time reaches a threshold, so that short jobs finish without their
    length being known, and jobs do not preempt each other at every step. Inside a queue
    running jobs stay ahead of waiting ones, then earlier ones ahead of later ones; any
    job that fits runs. A job that has waited long for what it ran is promoted to the
    first queue, where its GPU time counts from 0 again; as in the published simulator's
    default, promotion is off unless asked for.

    Attributes:
        first_threshold: GPU-seconds at which a job leaves the first queue.
        second_threshold: GPU-seconds at which it leaves the second.
        promote: A job is promoted when the time that it waited reaches this many times
            the time that it ran, both since its last promotion; waiting before it first
            ran does not count. 0 never promotes.
    """

    name = "tiresias-las"
    summary = "least attained GPU time, in three queues"
    source = "Gu et al., Tiresias (NSDI '19), sections 4.2 and 4.3"
    looks_ahead = False
    clairvoyant = False
    work_conserving = True

    first_threshold: float = 3_250.0
    second_threshold: float = 7_200.0
    promote: float = 0.0

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        accounts = self._accounts(situation)

        def rank(job: ActiveJob) -> tuple[int, bool, float, int]:
            queue = self.queue(attained_service(job, accounts[job.job_id].ran_before))
            return queue, not job.gpus, job.spec.arrival_seconds, job.job_id

        plan = run_list(self.name, situation, sorted(situation.jobs, key=rank))
        if not self.promote:
            return plan
        rows = [[job_id, *account] for job_id, account in accounts.items()]
        memory = orjson.dumps([situation.clock_seconds, rows]).decode()
        return replace(plan, memory=memory)

    def queue(self, service: float) -> int:
        """The queue, from 0, of a job that attained so much service."""
        return (service >= self.first_threshold) + (service >= self.second_threshold)

    def _accounts(self, situation: Situation) -> Mapping[int, Account]:
        """The account of each job, with promotions where they are due."""
        if not self.promote:
            return dict.fromkeys((job.job_id for job in situation.jobs), Account())
        clock = situation.clock_seconds
        before, rows = orjson.loads(situation.memory) if situation.memory else (clock, [])
        known, elapsed = {job_id: Account(*row) for job_id, *row in rows}, clock - before
        accounts = {}
        for job in situation.jobs:
            account = known.get(job.job_id, Account())
            ran = job.belief.run_seconds - account.ran_before
            if ran and not job.gpus:
                account = account._replace(waited=account.waited + elapsed)
                demoted = self.queue(attained_service(job, account.ran_before)) > 0
                if demoted and account.waited >= self.promote * ran:
                    account = Account(ran_before=job.belief.run_seconds)
            accounts[job.job_id] = account
        return accounts
