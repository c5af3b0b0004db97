"""First in, first out."""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

from solver.plan import Plan, Situation
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

    backfill: float = 1.0

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        order = sorted(situation.jobs, key=lambda job: (job.spec.arrival_seconds, job.spec.job_id))
        if not self.backfill:
            ends = accumulate(job.gang for job in order)
            order = order[: bisect_right(list(ends), situation.inventory.gpus)]
        return run_list(self.name, situation, order)
