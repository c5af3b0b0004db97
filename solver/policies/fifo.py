"""First in, first out."""

from dataclasses import dataclass
from itertools import takewhile

from solver.plan import Plan, Situation, claims, fitting
from solver.policies.listed import run_list


@dataclass(frozen=True)
class Fifo:
    """Jobs in order of arrival, with backfilling.

    Only backfilled jobs are ever preempted: once an earlier job fits.

    Attributes:
        backfill: 0 for a strict order: if a job does not fit, all later jobs wait.
    """

    name = "fifo"
    summary = "first in, first out, with backfilling"
    source = "as YARN-CS in Gu et al., Tiresias (NSDI '19), section 5"
    looks_ahead = False
    clairvoyant = False
    work_conserving = True
    several_pools = True

    backfill: float = 1.0

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        order = sorted(situation.jobs, key=lambda job: (job.spec.arrival_seconds, job.spec.job_id))
        if not self.backfill:
            asked = claims(order)
            met = {asked[n].job.job_id for n in fitting(situation.inventory, asked)}
            order = list(takewhile(lambda job: job.job_id in met, order))
        return run_list(self.name, situation, order)
