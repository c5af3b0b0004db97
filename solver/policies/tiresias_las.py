"""Discretised two-dimensional least attained service."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import orjson

from solver.plan import ActiveJob, Plan, Situation
from solver.policies.listed import run_list


class Promotion(NamedTuple):
    """When a job was last put back into the first queue.

    Attributes:
        at_seconds: The run's clock then.
        run_seconds: What the job had run by then.
    """

    at_seconds: float
    run_seconds: float


def attained_service(job: ActiveJob, since: Promotion | None = None) -> float:
    """GPU-seconds that a job has run: its run time times its GPUs (section 4.2)."""
    run_seconds = job.belief.run_seconds - (since.run_seconds if since else 0.0)
    return run_seconds * job.spec.scale_factor


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
            the time that it ran, both since its last promotion; 0 never promotes.
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
        promotions = self._promotions(situation)

        def rank(job: ActiveJob) -> tuple[int, bool, float, int]:
            queue = self.queue(attained_service(job, promotions.get(job.job_id)))
            return queue, not job.gpus, job.spec.arrival_seconds, job.job_id

        plan = run_list(self.name, situation, sorted(situation.jobs, key=rank))
        if not self.promote:
            return plan
        rows = [[job_id, *promotion] for job_id, promotion in promotions.items()]
        return replace(plan, memory=orjson.dumps(rows).decode())

    def queue(self, service: float) -> int:
        """The queue, from 0, of a job that attained so much service."""
        return (service >= self.first_threshold) + (service >= self.second_threshold)

    def _promotions(self, situation: Situation) -> Mapping[int, Promotion]:
        """The last promotion of each job, those of this round included."""
        if not self.promote:
            return {}
        known = {job_id: Promotion(*row) for job_id, *row in orjson.loads(situation.memory or "[]")}
        promotions = {}
        for job in situation.jobs:
            last = known.get(job.job_id)
            ran = job.belief.run_seconds - (last.run_seconds if last else 0.0)
            since = last.at_seconds if last else job.spec.arrival_seconds
            waited = situation.clock_seconds - since - ran
            if self.queue(attained_service(job, last)) and waited >= self.promote * ran:
                last = Promotion(situation.clock_seconds, job.belief.run_seconds)
            if last:
                promotions[job.job_id] = last
        return promotions
