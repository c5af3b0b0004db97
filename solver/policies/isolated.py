"""A static equal share for each job, the yardstick of fairness."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson

from predictor.arrays import Floats
from solver.fidelity import Fidelity
from solver.plan import ActiveJob, Plan, Situation
from solver.policies.listed import run_list
from solver.policies.shares import Contenders, run_shares

SLACK_SECONDS = 1e-6
"""Numerical tolerance of an entitlement, in seconds."""


@dataclass(frozen=True)
class Isolated:
    """Every job gets 1 / N of the cluster and no more.

    With N active jobs, a job of g GPUs is entitled to the share min(1, G / (N g)) of time
    (the sharing incentive's private cluster, Shockwave, NSDI '23, section 2). In rounds, a
    job runs only while its run time since admission is within its entitlement, the largest
    deficit first. GPUs idle rather than exceed an entitlement. Without any deficit the job
    closest to one runs alone, since a simulation's clock would otherwise stand still.

    On several GPU types it is that of Gavel (OSDI '20): 1 / N of each type, by its round-based
    mechanism (`solver.policies.shares`), so that no GPU idles.

    Attributes:
        fidelity: See `solver.policies.shares`.
    """

    name = "isolated"
    summary = "a static 1/N share for each job, the yardstick of fairness"
    source = "Zheng et al., Shockwave (NSDI '23), section 2"
    looks_ahead = False
    clairvoyant = False
    work_conserving = False
    several_pools = True
    solver = "none"

    fidelity: Fidelity = Fidelity.FAIR

    def allocate(self, jobs: Contenders) -> tuple[Floats, Sequence[tuple[float, ...]]]:
        """See `SharePolicy.allocate`."""
        return jobs.equal_shares, ()

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        clock = situation.clock_seconds
        saved = orjson.loads(situation.memory) if situation.memory else (clock, [])
        of_types = len(saved) > 2  # a ledger of shares by type; neither says much to the other
        if situation.inventory.mixed:
            given = situation if of_types else replace(situation, memory="")
            return run_shares(self, self.name, given, shuffled=True)
        before, rows = (clock, []) if of_types else saved
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
