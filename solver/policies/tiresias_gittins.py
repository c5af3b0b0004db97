"""The two-dimensional Gittins index."""

from dataclasses import dataclass

import numpy as np

from solver.market import Floats
from solver.plan import Plan, Situation
from solver.policies.listed import run_list
from solver.policies.tiresias_las import TiresiasLas, attained_service


@dataclass(frozen=True)
class TiresiasGittins:
    """The job most likely to end soon for the GPU time that it takes goes first.

    Gu et al., Tiresias (NSDI '19), section 4.2: with the GPU time S of jobs distributed
    as that of the jobs that ended so far, a job that attained a has the index

        P(S − a ≤ Δ | S > a) / E[min(S − a, Δ) | S > a]

    Jobs of one index, among them those that outlived all that ended, go as in
    discretised 2D-LAS; so do all until enough jobs have ended to learn from.

    The published simulator averages whole sizes instead of what is left of them and
    mixes GPU-seconds with seconds; this is the paper's definition.

    Attributes:
        quantum: Δ, in GPU-seconds.
        learn: Ended jobs before which there is no index.
        sizes: GPU times of jobs in GPU-seconds, where they are known beforehand; by
            default they are learnt.
    """

    name = "tiresias-gittins"
    summary = "highest Gittins index of GPU time, learnt from the jobs that ended"
    source = "Gu et al., Tiresias (NSDI '19), section 4.2"
    looks_ahead = False
    clairvoyant = False
    work_conserving = True

    quantum: float = 3_250.0
    learn: float = 10.0
    sizes: tuple[float, ...] = ()

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        jobs = situation.jobs
        services = np.array([attained_service(job) for job in jobs])
        known = np.array(self.sizes or situation.ended_gpu_seconds)
        indices = np.zeros(len(jobs))
        if self.sizes or len(known) >= self.learn:
            indices = gittins_index(known, services, self.quantum)
        queues = [TiresiasLas().queue(service) for service in services.tolist()]
        order = sorted(
            range(len(jobs)),
            key=lambda row: (
                -indices[row],
                queues[row],
                not jobs[row].gpus,
                jobs[row].spec.arrival_seconds,
                jobs[row].job_id,
            ),
        )
        return run_list(self.name, situation, [jobs[row] for row in order])


def gittins_index(sizes: Floats, attained: Floats, quantum: float) -> Floats:
    """Gittins index of jobs under an empirical distribution of sizes.

    Args:
        sizes: GPU times of ended jobs, shape (sizes,).
        attained: GPU time of each job so far, shape (jobs,).
        quantum: Δ, in the same unit.

    Returns:
        Index by job, shape (jobs,); 0 where no size is above what a job attained.
    """
    ordered = np.sort(sizes)
    sums = np.append(0.0, np.cumsum(ordered))
    above = np.searchsorted(ordered, attained, side="right")
    beyond = np.searchsorted(ordered, attained + quantum, side="right")
    ending, going_on = beyond - above, len(ordered) - beyond
    spent = sums[beyond] - sums[above] - ending * attained + going_on * quantum
    index: Floats = np.divide(ending, spent, out=np.zeros(len(attained)), where=spent > 0.0)
    return index
