"""Guaranteed jobs run as if alone; opportunistic jobs use what they leave."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from predictor.allocation import Allocation
from solver.list_scheduling import Claim, find_fitting, make_claims, next_round
from solver.pairs import find_pairs
from solver.plan import ActiveJob, Plan, Policy, Situation, SolveReport


@dataclass(frozen=True)
class AntMan(Policy):
    """Guaranteed jobs by arrival, with backfilling, and opportunistic jobs on the rest.

    Xiao et al., AntMan (OSDI '20): the global scheduler gives guaranteed jobs GPUs in order,
    whatever else runs there. Opportunistic jobs, by arrival, take idle GPUs. Without idle GPUs an
    opportunistic job joins the guaranteed job whose GPUs have most time left over, at most one per
    guaranteed job. It gives way as soon as guaranteed jobs need the GPUs. The local coordinator
    divides the GPUs between the two by slowing the opportunistic one (`Profile.shared_rate`).

    An opportunistic job stays with its guaranteed partner, so that it seldom restarts.

    Attributes:
        packed: 0 to run opportunistic jobs on idle GPUs only.
    """

    name = "antman"
    summary = "guaranteed jobs as if alone, opportunistic ones in what these leave"
    source = "Xiao et al., AntMan (OSDI '20)"
    reads_forecasts = False
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
    """Return the opportunistic jobs that join guaranteed ones, by the guaranteed job's id.

    `waiting` are jobs without GPUs, in order; `met` are the claims that are met, by job id.
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
    """Return the share of its own speed that a job keeps beside `host`; 0 if it cannot run."""
    if allocation not in job.choices:
        return 0.0
    return job.shared_rate(host, allocation) / job.rate(allocation)
