"""First in, first out."""

from dataclasses import dataclass

from solver.plan import Plan, Situation
from solver.policies.listed import run_list


@dataclass(frozen=True)
class Fifo:
    """Jobs in order of arrival; a later one runs where an earlier one does not fit.

    Only such a backfilled job is ever preempted: once the earlier one fits.
    """

    name = "fifo"
    summary = "first in, first out, with backfilling"
    source = "as YARN-CS in Gu et al., Tiresias (NSDI '19), section 5"
    looks_ahead = False
    clairvoyant = False
    work_conserving = True

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        order = sorted(situation.jobs, key=lambda job: (job.spec.arrival_seconds, job.spec.job_id))
        return run_list(self.name, situation, order)
