"""Shortest remaining time first."""

from dataclasses import dataclass

from solver.plan import Plan, Policy, Situation
from solver.policies.listed import run_list


@dataclass(frozen=True)
class Srtf(Policy):
    """Jobs by forecast residual run time, preempting longer jobs.

    Minimises mean JCT on one machine if run times are known (Schrage, 1968).
    """

    name = "srtf"
    summary = "shortest forecast remaining run time first"
    source = "Schrage (1968), A proof of the optimality of the shortest remaining processing time"
    work_conserving = True
    several_pools = True

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        order = sorted(
            situation.jobs, key=lambda job: (job.run_time(job.own).remaining, job.spec.job_id)
        )
        return run_list(self.name, situation, order)
