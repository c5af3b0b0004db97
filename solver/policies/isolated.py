"""A static equal share for each job: the yardstick of the published fairness."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from predictor.arrays import Floats
from predictor.rows import from_json, to_json
from solver.fidelity import Fidelity
from solver.plan import ActiveJob, Plan, Policy, Situation
from solver.policies.contenders import Contenders
from solver.policies.listed import run_list
from solver.policies.shares import run_shares

SLACK_SECONDS = 1e-6
"""Numerical tolerance of an entitlement, in seconds."""


@dataclass(frozen=True)
class Entitlements:
    """The policy's memory between plans.

    Attributes:
        clock_seconds: Clock of the last plan on a single GPU type.
        entitlements: Run time that each job is owed, in seconds, and its share, by job id.
        ledger: The ledger of shares on several GPU types, as JSON.
    """

    clock_seconds: float = 0.0
    entitlements: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    ledger: str = ""


@dataclass(frozen=True)
class Isolated(Policy):
    """Every job gets 1 / N of the cluster and no more.

    With N active jobs, a job of g GPUs is entitled to the share min(1, G / (N g)) of time (the
    sharing incentive's private cluster, Shockwave, NSDI '23, section 2). In rounds, a job runs only
    while its run time since admission is within its entitlement, the largest deficit first. GPUs
    idle rather than exceed an entitlement. If no job has a deficit, the job closest to one runs
    alone, because otherwise a simulation's clock would stand still.

    With several GPU types the policy follows Gavel (OSDI '20): 1 / N of each type, by its
    round-based mechanism (`solver.policies.shares`), so that no GPU idles.
    """

    name = "isolated"
    summary = "a static 1/N share for each job, the yardstick of published fairness"
    source = "Zheng et al., Shockwave (NSDI '23), section 2"
    reads_forecasts = False
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
        before = from_json(Entitlements, situation.memory)
        if situation.inventory.mixed:
            plan = run_shares(self, replace(situation, memory=before.ledger), shuffled=True)
            return replace(plan, memory=to_json(Entitlements(ledger=plan.memory)))
        elapsed = clock - before.clock_seconds
        gpus, count = situation.inventory.gpus, len(situation.jobs)
        owed: dict[int, float] = {}
        for job in situation.jobs:
            claim, share = before.entitlements.get(job.job_id, (0.0, 0.0))
            ran = elapsed if job.gpus and job.job_id in before.entitlements else 0.0
            owed[job.job_id] = claim + share * elapsed - ran

        def rank(job: ActiveJob) -> tuple[float, float, int]:
            return -owed[job.job_id], job.spec.arrival_seconds, job.job_id

        order = sorted(situation.jobs, key=rank)
        entitled = [job for job in order if owed[job.job_id] >= -SLACK_SECONDS]
        entitlements = {
            job.job_id: (owed[job.job_id], min(1.0, gpus / (count * job.gang)))
            for job in situation.jobs
        }
        return replace(
            run_list(self.name, situation, entitled or order[:1]),
            memory=to_json(Entitlements(clock, entitlements)),
        )
