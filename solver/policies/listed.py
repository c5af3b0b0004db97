"""A round from a list: take jobs in order, skip what does not fit."""

from collections.abc import Sequence

from solver.plan import ActiveJob, Plan, Situation, SolveReport, Turn, next_round


def run_list(policy: str, situation: Situation, order: Sequence[ActiveJob]) -> Plan:
    """Plan the coming round alone.

    Args:
        policy: Name for the report.
        situation: What the policy was told.
        order: All active jobs, the first to run first.
    """
    free, chosen = situation.cluster.gpus, []
    for job in order:
        if job.spec.scale_factor <= free:
            chosen.append(job.spec.job_id)
            free -= job.spec.scale_factor
    return Plan(
        turns=tuple(Turn(job_id, (0,)) for job_id in sorted(chosen)),
        placement=next_round(situation, chosen),
        bids=(),
        report=SolveReport(policy),
    )
