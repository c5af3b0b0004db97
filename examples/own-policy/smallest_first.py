"""A policy of one's own: small gangs first, and nobody waits for ever."""

from dataclasses import dataclass

from shockwave import ActiveJob, Plan, Policy, Situation, run_list


@dataclass(frozen=True)
class SmallestFirst(Policy):
    """Jobs by gang size, but those that waited for longer than `patience` seconds before all."""

    name = "smallest-first"
    summary = "small gangs first, after those that waited too long"
    work_conserving = True

    patience: float = 7_200.0

    def plan(self, situation: Situation) -> Plan:
        def rank(job: ActiveJob) -> tuple[bool, int, float]:
            age = situation.clock_seconds - job.spec.arrival_seconds
            waited = age - job.belief.run_seconds
            return waited < self.patience, job.gang, job.spec.arrival_seconds

        return run_list(self.name, situation, sorted(situation.jobs, key=rank))
