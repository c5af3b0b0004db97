"""Schedule a round in priority order, with backfilling."""

from collections.abc import Sequence

from solver.list_scheduling import make_claims, next_round
from solver.plan import ActiveJob, Plan, Situation, SolveReport


def run_list(policy: str, situation: Situation, order: Sequence[ActiveJob]) -> Plan:
    """Plan only the coming round; each job gets the fastest GPU type with room in its turn.

    `order` has all active jobs by descending priority.
    """
    return Plan(
        placement=next_round(situation, make_claims(order)),
        report=SolveReport(policy),
        order=tuple(job.job_id for job in order),
    )
