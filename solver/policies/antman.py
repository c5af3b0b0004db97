"""Guaranteed jobs as if alone, opportunistic jobs on what they leave."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from predictor.allocation import Allocation
from solver.list_scheduling import Claim, find_fitting, make_claims, next_round
from solver.pairs import find_pairs
from solver.plan import ActiveJob, Plan, Situation, SolveReport


@dataclass(frozen=True)
class AntMan:
    """Guaranteed jobs by arrival, with backfilling, and opportunistic jobs in what is left.

    Xiao et al., AntMan (OSDI '20): the global scheduler gives guaranteed jobs GPUs of their own, in
    order, whoever else is there. Opportunistic jobs, by arrival, take GPUs that are idle; else they
    join a guaranteed job on its GPUs, at most one each, where most of the GPUs' time is left over.
    They give way as soon as guaranteed jobs need the GPUs. What two jobs then get is up to the
    local coordinator, which scales the opportunistic one down (`Profile.shared_rate`).

    An opportunistic job stays with its guaranteed partner, so that it restarts seldom.

    Attributes:
        packed: 0 for opportunistic jobs on idle GPUs only.
    """

    name = "antman"
    summary = "guaranteed jobs as if alone, opportunistic ones in what these leave"
    source = "Xiao et al., AntMan (OSDI '20)"
    looks_ahead = False
    clairvoyant = False
    work_conserving = True
    several_pools = True

    packed: float = 1.0

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        line = sorted(
            situation.jobs,
            key=lambda job: (job.spec.opportunistic, job.spec.arrival_seconds, job.job_id),
        )
        order = make_claims(line)
        if self.packed:
            met = {order[n].job.job_id: order[n] for n in find_fitting(situation.inventory, order)}
            joined = _join([job for job in line if job.job_id not in met], met)
            order = [
                claim._replace(other=joined.get(claim.job.job_id))
                if claim is met.get(claim.job.job_id)
                else claim
                for claim in order
            ]
        placement = next_round(situation, order)
        return Plan(
            placement=placement,
            report=SolveReport(self.name),
            order=tuple(job.job_id for job in line),
            pairs=find_pairs(placement, order),
        )


def _join(waiting: Sequence[ActiveJob], met: Mapping[int, Claim]) -> dict[int, ActiveJob]:
    """The opportunistic jobs that join guaranteed ones, by the id of the guaranteed job.

    Args:
        waiting: Jobs without GPUs, in order.
        met: Claims that are met, by job id.
    """
    found: dict[int, ActiveJob] = {}
    hosts = [claim for claim in met.values() if not claim.job.spec.opportunistic]
    for job in waiting:
        if not job.spec.opportunistic:
            continue
        best = max(
            (
                (bool(job.gpus) and job.gpus == host.gpus, share, -host.job_id, host.job_id)
                for host, allocation, _ in hosts
                if host.job_id not in found and (share := _left_over(job, host, allocation)) > 0.0
            ),
            default=None,
        )
        if best:
            found[best[-1]] = job
    return found


def _left_over(job: ActiveJob, host: ActiveJob, allocation: Allocation) -> float:
    """The part of its own speed that a job has beside another; 0 if it cannot run there."""
    if allocation not in job.choices:
        return 0.0
    return job.shared_rate(host, allocation) / job.rate(allocation)
