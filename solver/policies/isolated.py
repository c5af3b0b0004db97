"""A static equal share for each job, the yardstick of fairness."""

from dataclasses import dataclass, replace

import orjson

from solver.plan import ActiveJob, Plan, Situation
from solver.policies.listed import run_list

SLACK_SECONDS = 1e-6
"""What arithmetic may take off a claim."""


@dataclass(frozen=True)
class Isolated:
    """Every job gets its 1 / N of the cluster and nothing beyond.

    With N active jobs, one of g GPUs is entitled to the part min(1, G / (N g)) of the
    time (the sharing incentive's private cluster, Shockwave, NSDI '23, section 2). In
    rounds, a job runs only if it had no more time than it was entitled to since it was
    admitted; the one that is owed most goes first. GPUs idle rather than give a job
    more. If nobody is owed anything, the one nearest to it runs alone, for else the
    clock of a simulation would stand still.
    """

    name = "isolated"
    summary = "a static 1/N share for each job, the yardstick of fairness"
    source = "Zheng et al., Shockwave (NSDI '23), section 2"
    looks_ahead = False
    clairvoyant = False
    work_conserving = False

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        clock = situation.clock_seconds
        before, rows = orjson.loads(situation.memory) if situation.memory else (clock, [])
        elapsed = clock - before
        noted = {job_id: (owed, share) for job_id, owed, share in rows}
        gpus, count = situation.inventory.gpus, len(situation.jobs)
        owed: dict[int, float] = {}
        for job in situation.jobs:
            claim, share = noted.get(job.job_id, (0.0, 0.0))
            owed[job.job_id] = claim + share * elapsed - (elapsed if job.gpus else 0.0)

        def rank(job: ActiveJob) -> tuple[float, float, int]:
            return -owed[job.job_id], job.spec.arrival_seconds, job.job_id

        order = sorted(situation.jobs, key=rank)
        entitled = [job for job in order if owed[job.job_id] >= -SLACK_SECONDS]
        notes = [
            [job_id, claim, min(1.0, gpus / (count * job.gang))]
            for job, (job_id, claim) in zip(situation.jobs, owed.items(), strict=True)
        ]
        return replace(
            run_list(self.name, situation, entitled or order[:1]),
            memory=orjson.dumps([clock, notes]).decode(),
        )
