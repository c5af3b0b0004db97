"""Shortest remaining GPU time first."""

from dataclasses import dataclass

from solver.plan import ActiveJob, Plan, Policy, Situation
from solver.policies.listed import run_list


@dataclass(frozen=True)
class SrtfGpu(Policy):
    """Jobs by forecast residual GPU time (run time × GPUs), preempting larger jobs.

    A baseline of Tiresias (NSDI '19), section 3.2.1: two-dimensional SRTF.
    """

    name = "srtf-gpu"
    summary = "shortest forecast remaining GPU time first"
    source = "a baseline of Gu et al., Tiresias (NSDI '19), section 3.2.1"
    work_conserving = True
    several_pools = True

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""

        def rank(job: ActiveJob) -> tuple[float, int]:
            return job.run_time(job.own).remaining * job.gang, job.job_id

        return run_list(self.name, situation, sorted(situation.jobs, key=rank))
