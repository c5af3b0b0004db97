"""Shortest job first."""

from dataclasses import dataclass

from solver.plan import ActiveJob, Plan, Policy, Situation
from solver.policies.listed import run_list


@dataclass(frozen=True)
class Sjf(Policy):
    """Waiting jobs by forecast GPU time (run time × GPUs), without preemption.

    A baseline of Tiresias (NSDI '19).
    """

    name = "sjf"
    summary = "smallest forecast GPU time first, never preempting"
    source = "a baseline of Gu et al., Tiresias (NSDI '19)"
    work_conserving = True
    several_pools = True

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""

        def rank(job: ActiveJob) -> tuple[bool, float, int]:
            seconds = job.belief.run_seconds + job.run_time(job.own).remaining
            return not job.gpus, seconds * job.gang, job.job_id

        return run_list(self.name, situation, sorted(situation.jobs, key=rank))
